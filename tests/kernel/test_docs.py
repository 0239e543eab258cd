"""The examples of docs/kernel.md run."""

from __future__ import annotations

import re
from pathlib import Path


def test_examples_of_the_kernel_page_run(root: Path) -> None:
    """Every Python block of the page runs as written, one after the other, assertions included."""
    blocks = re.findall(r"^```python\n(.*?)^```", (root / "docs" / "kernel.md").read_text(), re.M | re.S)
    assert len(blocks) == 2
    exec(compile("\n".join(blocks), "docs/kernel.md", "exec"), {"__name__": "kernel_page"})

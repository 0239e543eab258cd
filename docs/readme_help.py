"""Write the help texts of the commands into the README, between their markers. A test compares them.

python docs/readme_help.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    def fill(match: re.Match[str]) -> str:
        command = [sys.executable, "-m", "kforge", *match[1].split()[1:]]
        env = os.environ | {"COLUMNS": "80", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        return f"<!-- help: {match[1]} -->\n```text\n{done.stdout}```"

    path = ROOT / "README.md"
    pattern = re.compile(r"<!-- help: (kforge[^>]*?) -->\n```text\n(?:.*?)```", re.DOTALL)
    path.write_text(pattern.sub(fill, path.read_text()))


if __name__ == "__main__":
    main()

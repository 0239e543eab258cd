"""Lines of a C source with indentation. Nothing about CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    """Collects lines; `block` indents."""

    def __init__(self, indent: int = 1) -> None:
        self._lines: list[str] = []
        self._indent = indent

    def add(self, *lines: str) -> None:
        for line in lines:
            self._lines.append("    " * self._indent + line if line else "")

    def comment(self, text: str) -> None:
        self.add(f"// {text}")

    def blank(self) -> None:
        if self._lines and self._lines[-1]:
            self._lines.append("")

    @contextmanager
    def block(self, head: str, unroll: bool = False) -> Iterator[None]:
        if unroll:
            self.add("#pragma unroll")
        self.add(f"{head} {{")
        self._indent += 1
        yield
        self._indent -= 1
        self.add("}")

    def __str__(self) -> str:
        return "\n".join(self._lines)

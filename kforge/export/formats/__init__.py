"""The formats an export can have: a registry, one module each with `write(export, version) -> Files`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from kforge.errors import UsageError

if TYPE_CHECKING:
    from kforge.export.package import Export

Files = Mapping[str, str | bytes]
"""Path below the folder of the export -> content."""

FORMATS = {
    "extension": "a pip-installable project with C++ operators",
    "aot": "Python and cubins, no compiler where it is installed",
    "hf": "the layout of Hugging Face's kernel-builder",
    "kernelbench": "one file with ModelNew and load_inline",
    "triton": "a Python package of Triton kernels",
}
"""What each is, in words that fit a line of a small terminal."""


def formats_of(module: str) -> tuple[str, ...]:
    """The formats that a candidate leaves in, the usual one first. module: its module's text."""
    from kforge.export.reading import has_triton

    return tuple(name for name in FORMATS if (name == "triton") == has_triton(module))


def find_format(name: str) -> Callable[[Export, str], Files]:
    """The writer of a format; UsageError lists those that exist."""
    if name not in FORMATS:
        raise UsageError(f"format {name} is unknown", f"choose {', '.join(FORMATS)}")
    writer: Callable[[Export, str], Files] = import_module(f"kforge.export.formats.{name}").write
    return writer


def find_trial(name: str) -> Callable[[Export, str, Files], Files]:
    """What is built and tested of a format before it is handed over: its files, or a project around them."""
    module = import_module(f"kforge.export.formats.{name}")
    found: Callable[[Export, str, Files], Files] = getattr(module, "trial", lambda export, version, files: files)
    return found

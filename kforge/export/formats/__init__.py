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
    "extension": "a pip-installable project: C++ operators, built against torch's stable interface where it has one",
    "aot": "a pure Python package with cubins: no compiler where it is installed, only the architectures built",
    "hf": "the layout of Hugging Face kernels, for kernel-builder",
    "kernelbench": "one file with ModelNew and load_inline",
    "triton": "a pure Python package of Triton kernels under torch.library.triton_op: what a Triton candidate becomes",
}


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

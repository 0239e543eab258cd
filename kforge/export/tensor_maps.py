"""Kernels that take tensor maps: what templates are told of their rules, those of kforge's own launch."""

from __future__ import annotations

import inspect
import pprint
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kforge.errors import UsageError
from kforge.export.templates import plain_file, render_template
from kforge.kernel.ctypes_table import DTYPE_TO_C, element
from kforge.kernel.tensor_map import DTYPES, FILLS, FLOATS, PROMOTIONS, SWIZZLES, TF32, dimensions

if TYPE_CHECKING:
    from kforge.export.cuda import Kernel
    from kforge.export.reading import CandidateCode

MODULE = "_tensor_maps.py"  # of the package: its own TensorMap, which its forward calls in place of kforge's


def takes_maps(kernel: Kernel) -> bool:
    """Whether a kernel takes any tensor map."""
    return any(p.kind == "tensor_map" for p in kernel.definition.signature.params)


def check_archs(archs: Sequence[str], code: CandidateCode, text: str) -> None:
    """UsageError for architectures that have no tensor maps, or none of the instructions in `text`, the sources."""
    maps = any(p.kind == "tensor_map" for use in code.kernels.values() for p in use.definition.signature.params)
    for arch in archs:
        if maps and int(re.sub(r"\D", "", arch)) < 90:
            raise UsageError(f"{code.module} takes tensor maps, which {arch} has not", "name sm_90a, or a later one")
        if "wgmma.mma_async" in text and not arch.endswith("_90a"):
            raise UsageError(f"{code.module} uses wgmma, which {arch} has not", "name sm_90a alone")


def python_file(described: bool) -> str:
    """The package's module of tensor maps. described: with the rules, for a package that encodes them in Python."""
    text = plain_file("package/tensor_maps.py")
    if not described:
        return text
    facts = tables() | {"dimensions": inspect.getsource(dimensions), "fills": FILLS, "dtypes": pprint.pformat(DTYPES)}
    return text + render_template("package/tensor_maps_aot.py.j2", facts)


def tables() -> dict[str, Any]:
    """The rules as data for the templates. elements: (dtype, CUtensorMapDataType, bytes)."""
    return {
        "elements": [(name, kind, element(DTYPE_TO_C[name]).size) for name, kind in DTYPES.items()],
        "swizzles": SWIZZLES,
        "promotions": PROMOTIONS,
        "floats": sorted(FLOATS),
        "float32": DTYPES["float32"],
        "tf32": TF32,
    }

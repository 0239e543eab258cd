"""Names of kernels' parameters that the generated launches cannot have: words of Python, and their own names.

CUDA allows `const float* in, float lambda`; the launch's Python does not. The kernel's source keeps its names.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kforge.kernel.signature import Signature

_PYTHON = {"before", "ctypes", "place", "scratch", "self", "torch", "types"}
_CPP = {
    "arguments", "built", "candidate", "check", "device", "encoded", "failed", "fill", "fit", "guard", "kernel",
    "launch", "meet", "plan", "refused", "round",
}  # fmt: skip
RESERVED = frozenset({*keyword.kwlist, "grid", "block", "cluster", *_PYTHON, *_CPP})
_KEPT = ("constants", "tune")  # of a declaration: their names are the source's own


def rename(signature: Signature, declared: Mapping[str, Any]) -> tuple[Signature, dict[str, Any], dict[str, str]]:
    """The signature and the rest of a declaration with other names in the place of reserved ones; (old -> new)."""
    taken, new = {p.name for p in signature.params}, {}
    for name in (p.name for p in signature.params if p.name in RESERVED):
        new[name] = f"{name}_"
        while new[name] in taken:
            new[name] += "_"
        taken.add(new[name])
    if not new:
        return signature, dict(declared), {}
    words = re.compile(rf"\b({'|'.join(new)})\b")

    def mended(value: Any) -> Any:
        if isinstance(value, str):
            return words.sub(lambda found: new[found[1]], value)
        if isinstance(value, Mapping):
            return {mended(key): mended(item) for key, item in value.items()}
        return type(value)(map(mended, value)) if isinstance(value, list | tuple) else value

    params = tuple(replace(p, name=new.get(p.name, p.name)) for p in signature.params)
    rest = {key: value if key in _KEPT else mended(value) for key, value in declared.items()}
    return replace(signature, params=params), rest, new

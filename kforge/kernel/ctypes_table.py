"""The C types a kernel's parameters may have: canonical names, how a value is packed, which torch dtypes fit.

Data and look-ups only. Pointers travel as addresses, scalars in 8-byte slots (each slot is aligned for every type
here), so that one `struct.pack_into` fills, converts and range-checks a whole argument list.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Element:
    """What a pointer points to: canonical C name, torch dtypes (names) that fit, bytes, alignment it needs.

    read_only_dtypes fit only behind a const pointer (a bool tensor read as bytes).
    """

    ctype: str
    dtypes: tuple[str, ...]
    size: int
    read_only_dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scalar:
    """A by-value parameter: canonical C name, its slot's `struct` format (8 bytes), ctypes class, integer range."""

    ctype: str
    slot: str
    ctypes_class: type
    low: int | None = None  # integers only
    high: int | None = None

    @property
    def is_integer(self) -> bool:
        return self.low is not None

    @property
    def bits(self) -> int:
        return 8 * ctypes.sizeof(self.ctypes_class)


_ALIASES = {
    "char": ("char",),
    "signed char": ("signed char", "int8_t"),
    "unsigned char": ("unsigned char", "uint8_t", "uchar"),
    "short": ("short", "short int", "signed short", "int16_t"),
    "unsigned short": ("unsigned short", "unsigned short int", "uint16_t", "ushort"),
    "int": ("int", "signed", "signed int", "int32_t"),
    "unsigned int": ("unsigned int", "unsigned", "uint32_t", "uint"),
    "long long": (
        *("long long", "long long int", "signed long long", "long", "long int", "signed long"),
        *("int64_t", "ptrdiff_t", "ssize_t", "intptr_t"),
    ),
    "unsigned long long": (
        *("unsigned long long", "unsigned long long int", "unsigned long", "unsigned long int"),
        *("uint64_t", "size_t", "uintptr_t", "ulong"),
    ),
    "float": ("float",),
    "double": ("double",),
    "bool": ("bool",),
    "__half": ("__half", "half"),
    "__nv_bfloat16": ("__nv_bfloat16", "nv_bfloat16"),
    "__half2": ("__half2", "half2"),
    "__nv_bfloat162": ("__nv_bfloat162", "nv_bfloat162"),
    "__nv_fp8_e4m3": ("__nv_fp8_e4m3",),
    "__nv_fp8_e5m2": ("__nv_fp8_e5m2",),
    "void": ("void",),
}
CANONICAL = {alias: canonical for canonical, aliases in _ALIASES.items() for alias in aliases}

_ELEMENTS = {
    "char": Element("char", ("int8",), 1, ("uint8", "bool")),
    "signed char": Element("signed char", ("int8",), 1),
    "unsigned char": Element("unsigned char", ("uint8",), 1, ("bool",)),
    "short": Element("short", ("int16",), 2),
    "unsigned short": Element("unsigned short", ("uint16", "int16"), 2, ("float16", "bfloat16")),
    "int": Element("int", ("int32",), 4),
    "unsigned int": Element("unsigned int", ("uint32", "int32"), 4),
    "long long": Element("long long", ("int64",), 8),
    "unsigned long long": Element("unsigned long long", ("uint64", "int64"), 8),
    "float": Element("float", ("float32",), 4),
    "double": Element("double", ("float64",), 8),
    "bool": Element("bool", ("bool",), 1),
    "__half": Element("__half", ("float16",), 2),
    "__nv_bfloat16": Element("__nv_bfloat16", ("bfloat16",), 2),
    "__half2": Element("__half2", ("float16",), 4),
    "__nv_bfloat162": Element("__nv_bfloat162", ("bfloat16",), 4),
    "__nv_fp8_e4m3": Element("__nv_fp8_e4m3", ("float8_e4m3fn",), 1),
    "__nv_fp8_e5m2": Element("__nv_fp8_e5m2", ("float8_e5m2",), 1),
    "void": Element("void", (), 1),  # any dtype
}
for _name, _element in {
    "char": ("int8", 1),
    "uchar": ("uint8", 1),
    "short": ("int16", 2),
    "ushort": ("uint16", 2),
    "int": ("int32", 4),
    "uint": ("uint32", 4),
    "longlong": ("int64", 8),
    "float": ("float32", 4),
    "double": ("float64", 8),
}.items():
    for _n in (1, 2, 3, 4):
        _dtypes = (_element[0],) + (("complex64",) if _name == "float" and _n == 2 else ())
        # A vector of three is aligned like its element; of two and four like the whole, at most 16 bytes.
        _align = _element[1] if _n == 3 else min(16, _element[1] * _n)
        _ELEMENTS[f"{_name}{_n}"] = Element(f"{_name}{_n}", _dtypes, _align)
        CANONICAL[f"{_name}{_n}"] = f"{_name}{_n}"


def _integer(ctype: str, slot: str, cls: type, bits: int, signed: bool) -> Scalar:
    low = -(1 << (bits - 1)) if signed else 0
    return Scalar(ctype, slot, cls, low, (1 << (bits - signed)) - 1)


_SCALARS = {
    s.ctype: s
    for s in (
        _integer("char", "b7x", ctypes.c_int8, 8, True),
        _integer("signed char", "b7x", ctypes.c_int8, 8, True),
        _integer("unsigned char", "B7x", ctypes.c_uint8, 8, False),
        _integer("short", "h6x", ctypes.c_int16, 16, True),
        _integer("unsigned short", "H6x", ctypes.c_uint16, 16, False),
        _integer("int", "i4x", ctypes.c_int32, 32, True),
        _integer("unsigned int", "I4x", ctypes.c_uint32, 32, False),
        _integer("long long", "q", ctypes.c_int64, 64, True),
        _integer("unsigned long long", "Q", ctypes.c_uint64, 64, False),
        Scalar("float", "f4x", ctypes.c_float),
        Scalar("double", "d", ctypes.c_double),
        Scalar("bool", "?7x", ctypes.c_bool),
    )
}
POINTER_SLOT = "Q"

DTYPE_TO_C = {
    "float32": "float",
    "float64": "double",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "bool": "bool",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
}
# The header that declares an element type, added where `types=` binds a name to it and the source has not included it.
HEADERS = {
    "__half": "cuda_fp16.h",
    "__nv_bfloat16": "cuda_bf16.h",
    "__nv_fp8_e4m3": "cuda_fp8.h",
    "__nv_fp8_e5m2": "cuda_fp8.h",
}


def canonical(ctype: str) -> str | None:
    """The canonical name of a C type (`unsigned` -> `unsigned int`, `std::int64_t` -> `long long`), None if unknown."""
    return CANONICAL.get(" ".join(ctype.replace("std::", "").split()))


def element(ctype: str) -> Element:
    """The element of a canonical type."""
    return _ELEMENTS[ctype]


def scalar(ctype: str) -> Scalar | None:
    """How a canonical type is passed by value, None if it cannot be."""
    return _SCALARS.get(ctype)


def element_of(tensors: Iterable[torch.Tensor]) -> str:
    """The C type of the floating tensors, of all where none floats: what a kernel's `types=` binds for them.

    "float" where they differ, or have no C type.
    """
    found = list(tensors)
    floating = [tensor for tensor in found if tensor.is_floating_point()]
    dtypes = {str(tensor.dtype).removeprefix("torch.") for tensor in floating or found}
    return DTYPE_TO_C.get(dtypes.pop(), "float") if len(dtypes) == 1 else "float"

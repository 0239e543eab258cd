"""TensorMap: a tensor as a kernel's `const __grid_constant__ CUtensorMap`, for the tensor memory accelerator (TMA).

On a GPU the 128 bytes are what the driver's cuTensorMapEncodeTiled writes. On the emulator they hold the same facts
openly, in the layout of kforge_emulator/hopper.h (`TensorMap`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kforge.errors import LaunchError
from kforge.kernel.ctypes_table import Scalar

if TYPE_CHECKING:  # the emulator's own processes read maps without torch
    import torch

BYTES = 128
SLOT = Scalar("CUtensorMap", f"{BYTES}s", ctypes.c_char * BYTES)
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # bytes -> CUtensorMapSwizzle
PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}  # bytes -> CUtensorMapL2promotion
FILLS = {"zero": 0, "nan": 1}  # -> CUtensorMapFloatOOBfill
# dtype -> CUtensorMapDataType. TF32 (11) is asked for by `tf32=True`.
DTYPES = {
    "uint8": 0, "int8": 0, "bool": 0, "float8_e4m3fn": 0, "float8_e5m2": 0, "uint16": 1, "int16": 1, "uint32": 2,
    "int32": 3, "uint64": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
TF32 = 11
FLOATS = {6, 7, 8, 9, TF32}
# What the emulator reads: magic, pointer, four strides in bytes, five sizes, five box sizes, rank, element bytes,
# swizzle in bytes, fill, data type.
_EMULATED = struct.Struct("<QQ4Q5I5HHHHBB")
_MAGIC = 0x50414D54_4546524B
MAX_MAPS = 4096


@dataclass(eq=False, slots=True)  # made anew for each call: plain attributes are the cheapest
class TensorMap:
    """A view of `x` whose boxes a kernel copies to and from shared memory by `cp.async.bulk.tensor`.

    x: one to five dimensions, the last one contiguous. box: elements of a copy, one number per dimension of x and in
    its order; the kernel's coordinates come in the opposite order, last dimension first. swizzle: 0, 32, 64 or 128
    bytes; the box's last dimension must fit. l2: bytes that a miss brings to the second cache (0, 64, 128, 256). oob:
    what is read outside of x, "zero" or "nan". tf32: float32 elements are rounded to TF32 on their way.

    LaunchError names the rule that x or the box breaks. Name the parameter in the Kernel's `writes` if it is stored to.
    """

    x: torch.Tensor
    box: Sequence[int]
    swizzle: int = 0
    l2: int = 128
    oob: str = "zero"
    tf32: bool = False

    key: tuple = field(init=False, repr=False)
    """All that two calls must share to be encoded alike, but for the address."""

    def __post_init__(self) -> None:
        x = self.x  # something else is refused where it is passed
        layout = (x.shape, x.stride(), x.dtype, x.get_device()) if hasattr(x, "get_device") else ()
        self.key = (*layout, *self.box, self.swizzle, self.l2, self.oob, self.tf32)

    def encode(self, where: str) -> bytes:
        """The 128 bytes; cached by pointer, shape, strides and options. where: for errors, the argument's name."""
        key = (self.x.data_ptr(), self.key)
        found = _encoded.get(key)
        if found is None:
            found = _emulated(self, where) if self.x.device.type == "cpu" else _on_gpu(self, where)
            if len(_encoded) >= MAX_MAPS:
                _encoded.clear()
            _encoded[key] = found
        return found


_encoded: dict[tuple, bytes] = {}


def dimensions(tensor_map: TensorMap, where: str) -> tuple[int, list[int], list[int], list[int]]:
    """(data type, sizes, strides in bytes, box), innermost dimension first, checked against the rules of TMA."""
    x, box = tensor_map.x, list(tensor_map.box)

    def refuse(what: str, hint: str = "") -> LaunchError:
        return LaunchError(f"{where}: {what}", hint)

    dtype = str(x.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise refuse(f"a tensor map cannot hold {dtype}")
    if tensor_map.tf32 and dtype != "float32":
        raise refuse(f"tf32=True rounds float32, and this is {dtype}")
    kind, size = TF32 if tensor_map.tf32 else DTYPES[dtype], x.element_size()
    for name, table in (("swizzle", SWIZZLES), ("l2", PROMOTIONS), ("oob", FILLS)):
        if getattr(tensor_map, name) not in table:
            raise refuse(f"{name} = {getattr(tensor_map, name)!r} is none of {', '.join(map(str, table))}")
    if tensor_map.oob == "nan" and kind not in FLOATS:
        raise refuse(f"oob='nan' needs a floating type, and this is {dtype}")
    if str(x.layout) != "torch.strided" or x.is_conj() or x.is_neg():
        raise refuse("a tensor map needs a plain strided tensor")
    if not 1 <= x.dim() <= 5:
        raise refuse(f"a tensor map has one to five dimensions, x has {x.dim()}")
    if len(box) != x.dim():
        raise refuse(f"box {tuple(box)} has {len(box)} dimensions, x has {x.dim()}")
    if x.numel() == 0:
        raise refuse(f"x is empty (shape {tuple(x.shape)})")
    if x.data_ptr() % 16:
        raise refuse("x begins at an address that is no multiple of 16 bytes", "copy it, or load with plain pointers")
    sizes, steps = [int(n) for n in reversed(x.shape)], [int(s) for s in reversed(x.stride())]
    if steps[0] != 1 and sizes[0] != 1:
        raise refuse(
            f"the last dimension of x has stride {steps[0]}; it must be contiguous", "pass the transposed view"
        )
    strides: list[int] = []
    for i in range(1, len(sizes)):
        step = steps[i] * size
        if sizes[i] == 1:  # never taken: any legal number
            step = -(-sizes[i - 1] * (strides[-1] if strides else size) // 16) * 16
        if step % 16 or not 0 <= step < 1 << 40:
            dim = x.dim() - 1 - i
            raise refuse(f"the stride of dimension {dim} is {step} bytes; it must be a multiple of 16, below 2^40")
        strides.append(step)
    if max(sizes) > 1 << 32:
        raise refuse(f"a dimension of {max(sizes)} elements is beyond 2^32")
    inner = box[-1] * size
    if any(not 1 <= b <= 256 for b in box):
        raise refuse(f"box {tuple(box)}: each number is between 1 and 256")
    if inner % 16:
        raise refuse(f"the box's last dimension has {inner} bytes; it must be a multiple of 16")
    if tensor_map.swizzle and inner > tensor_map.swizzle:
        raise refuse(f"the box's last dimension has {inner} bytes, more than the swizzle's {tensor_map.swizzle}")
    return kind, sizes, strides, box[::-1]


def _emulated(tensor_map: TensorMap, where: str) -> bytes:
    kind, sizes, strides, box = dimensions(tensor_map, where)
    rank = len(sizes)
    fields = (
        *(_MAGIC, tensor_map.x.data_ptr(), *strides, *[0] * (5 - rank), *sizes, *[1] * (5 - rank)),
        *(*box, *[1] * (5 - rank), rank, tensor_map.x.element_size(), tensor_map.swizzle, FILLS[tensor_map.oob], kind),
    )
    return _EMULATED.pack(*fields).ljust(BYTES, b"\0")


def emulated_pointer(data: bytes) -> int | None:
    """The address in an emulated map's bytes, None for bytes of another kind."""
    return (
        struct.unpack_from("<QQ", data)[1] if len(data) == BYTES and data[:8] == _MAGIC.to_bytes(8, "little") else None
    )


def with_pointer(data: bytes, address: int) -> bytes:
    """An emulated map moved to another address."""
    return data[:8] + address.to_bytes(8, "little") + data[16:]


@lru_cache(maxsize=1)
def _encoder() -> Any:
    from kforge.kernel.launchers import driver

    library = driver.library()
    if not hasattr(library, "cuTensorMapEncodeTiled"):
        raise LaunchError("this CUDA driver cannot encode tensor maps", "it needs CUDA 12.0 or later")
    function = library.cuTensorMapEncodeTiled
    pointer = ctypes.c_void_p
    function.argtypes = [pointer, ctypes.c_int, ctypes.c_uint32, pointer, *[pointer] * 4, *[ctypes.c_int] * 4]
    return function


def _on_gpu(tensor_map: TensorMap, where: str) -> bytes:
    from kforge.kernel.launchers import driver

    kind, sizes, strides, box = dimensions(tensor_map, where)
    rank = len(sizes)
    memory = ctypes.create_string_buffer(BYTES + 127)
    place = -(-ctypes.addressof(memory) // 128) * 128
    shape = (ctypes.c_uint64 * rank)(*sizes)
    steps = (ctypes.c_uint64 * max(rank - 1, 1))(*(strides or [0]))
    status = _encoder()(
        *(place, kind, rank, tensor_map.x.data_ptr(), shape, steps, (ctypes.c_uint32 * rank)(*box)),
        *((ctypes.c_uint32 * rank)(*[1] * rank), 0, SWIZZLES[tensor_map.swizzle], PROMOTIONS[tensor_map.l2]),
        FILLS[tensor_map.oob],
    )
    driver.check(status, f"{where}: cuTensorMapEncodeTiled")
    return ctypes.string_at(place, BYTES)

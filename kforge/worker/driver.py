"""The few calls of the CUDA driver that judge and child need beside torch, by ctypes: memory, IPC, events, waiting.

Loading this module touches no driver; the first call does. The primary context must be current (any torch op on the
GPU sees to that).
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from kforge.errors import MissingError

_PEER_ACCESS = 1
_NOT_SUPPORTED = 801


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * 64),)


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise MissingError(f"the NVIDIA driver is missing: {error}", "run kforge doctor") from error
    pointer, size = ctypes.c_uint64, ctypes.c_size_t
    library.cuMemAlloc_v2.argtypes = (ctypes.POINTER(pointer), size)
    library.cuMemFree_v2.argtypes = (pointer,)
    library.cuIpcGetMemHandle.argtypes = (ctypes.POINTER(_Handle), pointer)
    library.cuIpcOpenMemHandle_v2.argtypes = (ctypes.POINTER(pointer), _Handle, ctypes.c_uint)
    library.cuMemsetD32Async.argtypes = (pointer, ctypes.c_uint, size, ctypes.c_void_p)
    library.cuEventCreate.argtypes = (ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint)
    library.cuEventRecord.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.cuEventElapsedTime.argtypes = (ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_void_p)
    return library


def _name(status: int) -> str:
    text = ctypes.c_char_p()
    _library().cuGetErrorString(status, ctypes.byref(text))
    return f"{(text.value or b'unknown').decode()} ({status})"


def check(status: int, what: str) -> None:
    """RuntimeError in the driver's words when a call failed."""
    if status:
        raise RuntimeError(f"{what}: CUDA error {_name(status)}")


def allocate(nbytes: int) -> int:
    """A dedicated allocation in the current context."""
    pointer = ctypes.c_uint64()
    check(_library().cuMemAlloc_v2(ctypes.byref(pointer), nbytes), f"allocating {nbytes} bytes")
    return pointer.value


def free(pointer: int) -> None:
    check(_library().cuMemFree_v2(pointer), "freeing memory")


def ipc_handle(pointer: int) -> tuple[str, str]:
    """(handle in hex, "") or ("", reason) where the machine has no CUDA IPC."""
    handle = _Handle()
    status = _library().cuIpcGetMemHandle(ctypes.byref(handle), pointer)
    if status:
        return "", f"cuIpcGetMemHandle: {_name(status)}"
    return bytes(handle).hex(), ""


def open_ipc_handle(handle: str) -> int:
    """The address of another process's allocation in the current context."""
    pointer = ctypes.c_uint64()
    raw = _Handle.from_buffer_copy(bytes.fromhex(handle))
    check(_library().cuIpcOpenMemHandle_v2(ctypes.byref(pointer), raw, _PEER_ACCESS), "opening an IPC handle")
    return pointer.value


def close_ipc_handle(pointer: int) -> None:
    """Give another process's allocation back; views over it are dead from here on."""
    check(_library().cuIpcCloseMemHandle(ctypes.c_uint64(pointer)), "closing an IPC handle")


class _Pointer:
    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


def view_bytes(pointer: int, nbytes: int, device: str) -> Any:
    """A uint8 tensor of `nbytes` over device memory that torch does not own."""
    import torch

    return torch.as_tensor(_Pointer(pointer, nbytes), device=device)


def synchronise() -> None:
    """Wait for everything on the device that this context has queued, on any stream."""
    check(_library().cuCtxSynchronize(), "waiting for the device")


def reset_persisting() -> None:
    """Lines that a kernel asked L2 to keep become ordinary ones; devices without such lines have nothing to reset."""
    status = _library().cuCtxResetPersistingL2Cache()
    if status != _NOT_SUPPORTED:
        check(status, "resetting persisting L2 lines")


class Events:
    """Pairs of events around launches, without torch in between."""

    def __init__(self, count: int) -> None:
        self._library = _library()
        self._record = self._library.cuEventRecord
        self._pairs = [(self._create(), self._create()) for _ in range(count)]

    def _create(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        check(self._library.cuEventCreate(ctypes.byref(event), 0), "creating an event")
        return event

    def __len__(self) -> int:
        return len(self._pairs)

    def start(self, index: int, stream: int) -> None:
        self._record(self._pairs[index][0], stream)

    def stop(self, index: int, stream: int) -> None:
        self._record(self._pairs[index][1], stream)

    def milliseconds(self, index: int) -> float:
        elapsed = ctypes.c_float()
        begin, end = self._pairs[index]
        check(self._library.cuEventElapsedTime(ctypes.byref(elapsed), begin, end), "reading an event")
        return elapsed.value


def fill_words(pointer: int, words: int, value: int, stream: int) -> None:
    """Write `words` 32-bit words asynchronously on `stream`."""
    check(_library().cuMemsetD32Async(pointer, value, words, stream), "filling memory")

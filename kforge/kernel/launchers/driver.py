"""Launches through the CUDA driver's cuLaunchKernelEx by ctypes: no package needed, and the cheapest per call.

The argument buffer, the pointers into it and the launch configuration are made once and reused; a call packs its
values into the buffer with one `struct.pack_into`. Buffers are handed out from a pool, since another thread may launch
while this one is inside the driver.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kforge.errors import LaunchError
from kforge.kernel.build.request import Build
from kforge.kernel.build.toolchain import driver_version
from kforge.kernel.ctypes_table import Scalar
from kforge.kernel.launchers.base import Dim3, Geometry, Launch, offsets, packing

MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTEMAX_DYNAMIC_SHARED_SIZE_BYTES
NON_PORTABLE_CLUSTER = 14  # CU_FUNC_ATTRIBUTENON_PORTABLE_CLUSTER_SIZE_ALLOWED
_SHARED_OPTIN = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_COOPERATIVE, _CLUSTER = 2, 4  # CU_LAUNCH_ATTRIBUTE_*
_INVALID_CONTEXT = 201


class _Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _AttributeValue(ctypes.Union):
    _fields_ = [("pad", ctypes.c_char * 64), ("cluster", _Dim3), ("cooperative", ctypes.c_int)]


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", _AttributeValue)]


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", _Dim3),
        ("block", _Dim3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("n_attributes", ctypes.c_uint),
    ]


@lru_cache(maxsize=1)
def library() -> Any:
    """libcuda with its argument types set."""
    lib = ctypes.CDLL("libcuda.so.1")
    lib.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
    lib.cuModuleLoadData.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.cuModuleGetFunction.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p]
    lib.cuFuncSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    lib.cuKernelSetAttribute.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    return lib


def error_text(status: int) -> str:
    """The driver's name and words for an error code."""
    name, words = ctypes.c_char_p(), ctypes.c_char_p()
    library().cuGetErrorName(status, ctypes.byref(name))
    library().cuGetErrorString(status, ctypes.byref(words))
    return f"{(name.value or b'?').decode()}: {(words.value or b'unknown error').decode()}"


def max_shared(device: int) -> int:
    """The most dynamic shared memory a block may ask for on a device, in bytes."""
    value = ctypes.c_int()
    library().cuDeviceGetAttribute(ctypes.byref(value), _SHARED_OPTIN, device)
    return value.value


def check(status: int, doing: str) -> None:
    """LaunchError with the driver's words, unless the call succeeded."""
    if status:
        raise LaunchError(f"{doing}: {error_text(status)}")


def check_shared(status: int, size: int, device: int) -> None:
    """LaunchError that says how much dynamic shared memory there is, unless the opt-in succeeded."""
    if status:
        allowed = max_shared(device)
        raise LaunchError(f"{size} bytes of dynamic shared memory (the device allows {allowed}): {error_text(status)}")


def make_current(device: int) -> None:
    """Make the device's primary context, which is torch's, current on this thread."""
    context = ctypes.c_void_p()
    check(library().cuDevicePrimaryCtxRetain(ctypes.byref(context), device), f"the context of device {device}")
    check(library().cuCtxSetCurrent(context), f"the context of device {device}")


@lru_cache(maxsize=1024)
def _load_module(path: Path, device: int) -> ctypes.c_void_p:
    module = ctypes.c_void_p()
    check(library().cuModuleLoadData(ctypes.byref(module), path.read_bytes()), f"loading {path}")
    return module


class Driver:
    """The driver's own interface."""

    name = "driver"
    clusters = True
    tensor_maps = True

    def __init__(self) -> None:
        self._shared: dict[tuple[int, int | None], int] = {}

    def is_available(self) -> tuple[bool, str]:
        version = driver_version()
        if version is None:
            return False, "no CUDA driver (libcuda.so.1) on this machine"
        if version < (11, 8):
            return False, f"the driver runs CUDA {version[0]}.{version[1]}; cuLaunchKernelEx needs 11.8"
        return True, f"driver for CUDA {version[0]}.{version[1]}"

    def load(self, build: Build, symbol: str, device: int) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        module = _load_module(build.path, device)
        check(library().cuModuleGetFunction(ctypes.byref(function), module, symbol.encode()), f"finding {symbol}")
        return function

    def bind(
        self, function: ctypes.c_void_p, slots: tuple[Scalar | None, ...], geometry: Geometry, device: int
    ) -> Launch:
        lib = library()
        start, config = lib.cuLaunchKernelEx, self.configuration(function, geometry, device)
        pack = packing(slots).pack_into
        n = len(slots)
        places = offsets(slots)  # 8 bytes each, but for tensor maps

        def make() -> tuple:
            buffer = ctypes.create_string_buffer(max(places[-1], 8))
            base = ctypes.addressof(buffer)
            pointers = (ctypes.c_void_p * max(n, 1))(*[base + at for at in places[:-1]])
            own = Config.from_buffer_copy(config)
            return buffer, own, ctypes.addressof(own), pointers, ctypes.addressof(pointers)

        free = [make()]

        def launch(stream: int, values: Sequence[Any]) -> None:
            slot = free.pop() if free else make()
            buffer, own, own_address, _, pointers_address = slot
            pack(buffer, 0, *values)
            own.stream = stream
            status = start(own_address, function, pointers_address, None)
            if status == _INVALID_CONTEXT:  # this thread has not used CUDA yet
                make_current(device)
                status = start(own_address, function, pointers_address, None)
            free.append(slot)
            if status:
                raise LaunchError(f"launch of {geometry}: {error_text(status)}")

        return launch

    def address(self) -> int:
        """Where cuLaunchKernelEx lies in this process."""
        return ctypes.cast(library().cuLaunchKernelEx, ctypes.c_void_p).value or 0

    def configuration(self, function: ctypes.c_void_p, geometry: Geometry, device: int) -> Config:
        """The launch's configuration but for its stream, once the function allows what the geometry asks for."""
        lib = library()
        # The limit belongs to the function: other plans of it may have asked for more.
        if geometry.shared > self._shared.get((device, function.value), 0):
            status = lib.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, geometry.shared)
            check_shared(status, geometry.shared, device)
            self._shared[device, function.value] = geometry.shared
        attributes = _attributes(geometry)
        if _count(geometry.cluster) > 8:
            check(lib.cuFuncSetAttribute(function, NON_PORTABLE_CLUSTER, 1), f"a cluster of {geometry.cluster}")
        grid, block = _Dim3(*geometry.grid), _Dim3(*geometry.block)
        return Config(grid, block, geometry.shared, None, attributes, len(attributes))


def _attributes(geometry: Geometry) -> ctypes.Array:
    attributes = []
    if _count(geometry.cluster) > 1:
        attributes.append(_Attribute(_CLUSTER, b"", _AttributeValue(cluster=_Dim3(*geometry.cluster))))
    if geometry.cooperative:
        attributes.append(_Attribute(_COOPERATIVE, b"", _AttributeValue(cooperative=1)))
    return (_Attribute * len(attributes))(*attributes)


def _count(dim: Dim3) -> int:
    return dim[0] * dim[1] * dim[2]

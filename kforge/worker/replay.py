"""Makes written launches again: `python -m kforge.worker.replay FOLDER WALLS REPEATS`, a program for a profiler.

Of the candidate it loads the cubins and nothing else; the walls (walls.full, walls.files) stand before CUDA starts.
It imports neither torch nor any other package, so that a profile does not pay for them.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

# every wall of a candidate's run; only what it can open and write; none, to find out what a profiler lacks
FULL, FILES, NONE = "full", "files", "none"
_ALIGNMENT = 512


def main(folder: Path, walls: str, repeats: int) -> None:
    """Each launch in turn, `repeats` times, waiting for each."""
    _wall(folder, walls)
    from kforge.kernel.launchers.driver import Driver, library

    cuda = library()
    _check(cuda, cuda.cuInit(0), "cuInit")
    context = ctypes.c_void_p()
    _check(cuda, cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "a context")
    _check(cuda, cuda.cuCtxSetCurrent(context), "a context")
    book = json.loads((folder / "launches.json").read_text())
    driver = Driver()
    functions: dict[Any, Any] = {}
    for row in book["launches"]:
        start, keep = _prepare(cuda, driver, functions, row, book["buffers"], folder)
        for _ in range(repeats):
            _check(cuda, start(), row["kernel"])
            _check(cuda, cuda.cuCtxSynchronize(), row["kernel"])
        for address in keep:
            cuda.cuMemFree_v2(address)
    print("replayed", len(book["launches"]), flush=True)


def _wall(folder: Path, walls: str) -> None:
    from kforge.worker import landlock, sandbox

    candidate = folder.parent.parent
    if walls == FULL:
        if os.getpgrp() == os.getpid():  # the leader of a group cannot begin a session
            os.setpgid(0, os.getpgid(os.getppid()))
        sandbox.apply(sandbox.Policy("run", candidate))
    elif walls == FILES:
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # no_new_privs, which Landlock asks for
        open_to_it = (Path("/tmp"), Path("/dev/shm"))  # where a profiler keeps its own files
        landlock.restrict(sandbox._rules(sandbox.Policy("run", candidate, (), open_to_it)), files_only=True)


def _prepare(
    cuda: Any, driver: Any, functions: dict[Any, Any], row: dict[str, Any], buffers: list[dict[str, Any]], folder: Path
) -> tuple[Any, list[Any]]:
    """A callable that launches and returns the driver's status, and the device memory to free after it."""
    from kforge.kernel.launchers.base import Geometry

    key = (row["cubin"], row["symbol"])
    if key not in functions:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(cuda, cuda.cuModuleLoadData(ctypes.byref(module), Path(row["cubin"]).read_bytes()), "a cubin")
        status = cuda.cuModuleGetFunction(ctypes.byref(function), module, row["symbol"].encode())
        _check(cuda, status, row["symbol"])
        functions[key] = function
    function = functions[key]
    dims = {name: tuple(row[name]) for name in ("grid", "block", "cluster")}
    geometry = Geometry(dims["grid"], dims["block"], row["shared"], dims["cluster"], row["cooperative"])
    config = driver.configuration(function, geometry, 0)
    slots: list[Any] = []
    memory: list[Any] = []
    for argument in row["args"]:
        if "data" in argument:
            raw = bytes.fromhex(argument["data"])
            slots.append(ctypes.create_string_buffer(raw, len(raw)))
        else:
            number = argument["buffer"]
            address = 0 if number is None else _fill(cuda, buffers[number], folder / f"{number}.bin", memory)
            slots.append(ctypes.c_uint64(address))
    pointers = (ctypes.c_void_p * max(1, len(slots)))(*[ctypes.addressof(s) for s in slots])

    def start(keep: Any = (slots, config)) -> int:
        return int(cuda.cuLaunchKernelEx(ctypes.addressof(config), function, ctypes.addressof(pointers), None))

    return start, memory


def _fill(cuda: Any, buffer: dict[str, Any], path: Path, memory: list[Any]) -> int:
    """Device memory of a buffer, with its alignment and what was kept of it, repeated to the end."""
    size, kept, offset = int(buffer["nbytes"]), int(buffer["kept"]), int(buffer["offset"])
    base = ctypes.c_uint64()
    _check(cuda, cuda.cuMemAlloc_v2(ctypes.byref(base), ctypes.c_size_t(size + _ALIGNMENT)), f"{size} bytes")
    memory.append(base)
    address = base.value + offset
    if not kept:
        _check(cuda, cuda.cuMemsetD8_v2(ctypes.c_uint64(address), 0, ctypes.c_size_t(size)), "memset")
        return address
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        data = file.read(kept)
    for at in range(0, size, len(data)):
        count = ctypes.c_size_t(min(len(data), size - at))
        _check(cuda, cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address + at), data, count), "a copy")
    return address


def _check(cuda: Any, status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(status, ctypes.byref(text))
        sys.exit(f"{what}: {(text.value or b'').decode() or status}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))

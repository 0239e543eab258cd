"""The warm parent: `python -m kforge.worker.zygote`, a process that has torch imported and forks children.

It has one thread, no CUDA context, no seed, nonce or task, runs no tensor operation, and hands a child's two sockets on
without reading them. The judge's handle to it is kforge.worker.Zygote.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
from typing import Any, NoReturn

from kforge.errors import ChildFailed
from kforge.worker.limits import Limits
from kforge.worker.protocol import Channel

_LINE_LIMIT = 64 << 10
_NOT_INITIALISED = 3  # CUDA_ERROR_NOT_INITIALIZED


def facts() -> dict[str, Any]:
    """What the promises of CONTRACTS 3 can be checked by."""
    import torch

    return {
        "pid": os.getpid(),
        "threads": len(os.listdir("/proc/self/task")),
        "cuda_initialised": torch.cuda.is_initialized(),
        "driver_initialised": _driver_initialised(),
        "inductor": sorted(m for m in sys.modules if m.startswith("torch._inductor"))[:3],
        "environment": sorted(os.environ),
        "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    }


def _driver_initialised() -> bool:
    """Whether cuInit has run; a library that is not even mapped is not asked (asking would load it)."""
    with open("/proc/self/maps") as maps:
        if not any("libcuda.so" in line for line in maps):
            return False
    count = ctypes.c_int()
    return int(ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count))) != _NOT_INITIALISED


def main(fd: int) -> NoReturn:
    """Serve fork requests on the socket `fd` until it is closed."""
    import torch.utils._python_dispatch  # noqa: F401 - imported here, used in the children
    import tree_sitter_cuda  # noqa: F401

    import kforge.kernel.build
    import kforge.kernel.kernel
    import kforge.kernel.opaque
    import kforge.kernel.report
    import kforge.task.device
    import kforge.task.precision
    import kforge.worker.observe
    from kforge.kernel import native
    from kforge.worker import beneath
    from kforge.worker.child import serve
    from kforge.worker.supervisor import supervise

    if os.path.exists("/dev/nvidiactl"):  # children may not compile what makes their calls on a GPU
        native.load()
    kforge.kernel.build.nvrtc.preload()
    beneath.registered()
    control = socket.socket(fileno=fd)
    channel = Channel(control, _LINE_LIMIT)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors report to the judge, nobody waits for them here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    gc.collect()
    gc.freeze()  # pages shared with children stay shared
    channel.send({"ready": True, **facts()})
    while True:
        try:
            request = channel.receive()
        except ChildFailed:
            os._exit(0)
        if request["op"] == "facts":
            channel.send(facts())
            continue
        own, line = (socket.socket(fileno=n) for n in channel.take_fds(2))
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            channel.close()
            supervise(own, line, Limits(**request["limits"]), serve)
        own.close()
        line.close()
        channel.send({"pid": pid})


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""What a probe asks of a child: a short script under the same walls as a candidate; what it prints is in the log."""

from __future__ import annotations

import sys
import time
import types
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.worker.child import Server


def probe(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """Run a script from top to bottom. In phase build its Kernels are built and not launched, so that *run* finds
    them: nothing is compiled there."""
    from kforge.kernel import hooks
    from kforge.worker import prebuilt

    path = server.folder / request["script"]
    building = server.phase == "build"
    text = path.read_text()
    prebuilt.prepare(server.phase, server.folder / "cache", text)
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    sys.path.insert(0, str(server.folder))
    begin = time.perf_counter()
    with server.around(), hooks.build_only() if building else nullcontext():
        exec(compile(text, str(path), "exec"), main.__dict__)
    return {"seconds": time.perf_counter() - begin}

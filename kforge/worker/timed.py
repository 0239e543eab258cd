"""What a child does to be timed: the timer made before candidate code is there, calls armed once, batches measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError
from kforge.worker.timer import Timer, graphed, in_turn, make_timer, replayed

if TYPE_CHECKING:
    from kforge.worker.child import Server


class Timing:
    """The timing requests of one Server. armed: what `time` and `replay` call, by wrapper."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.timer: Timer | None = None
        self.armed: dict[str, Callable[[], Any]] = {}
        self.restore: Callable[[], None] | None = None

    def arm(self, request: dict[str, Any]) -> dict[str, Any]:
        """Prepare what `time` calls: inputs, wrappers, the restoring of mutated inputs; then warm each up."""
        from kforge.kernel import weights

        args, kwargs, leaves = self.server.inputs(request)
        model = self.server.model
        pristine = [(leaves[i], leaves[i].detach().clone()) for i in request["mutated"]]

        def restore() -> None:
            for leaf, value in pristine:
                leaf.copy_(value)

        def anew(*args: Any, **kwargs: Any) -> Any:
            with weights.anew():
                return model(*args, **kwargs)

        called, plain = model, partial(model, *args, **kwargs)
        self.restore = restore if pristine else None
        self.armed = {"plain": plain}
        problems: dict[str, str] = {}
        host: list[float] = []
        begin = time.perf_counter()
        with self.server.around():
            restore()
            plain()
            self.wait()
            first_s = time.perf_counter() - begin
            derived = weights.held()
            if derived:  # what deriving weights costs is part of a call (CONTRACTS 2)
                called, plain = anew, partial(anew, *args, **kwargs)
                self.armed = {"plain": plain, "amortised": partial(model, *args, **kwargs)}
            for _ in range(request["warmup"] - 1):
                restore()
                plain()
            self.wait()
            first = time.perf_counter()
            restore()
            plain()
            self.wait()
            once = time.perf_counter() - first
            for _ in range(request["host_calls"] if once < 0.05 else 1):
                restore()
                first = time.perf_counter()
                plain()
                host.append(time.perf_counter() - first)
            self.wait()
            makers = {
                "graph": lambda: graphed(called, args, kwargs),
                "replay": lambda: replayed([plain] if pristine else in_turn(called, args, kwargs), request["replay"]),
            }
            for wrapper in request["wrappers"]:
                try:
                    if wrapper != "plain":
                        self.armed[wrapper] = makers[wrapper]()
                except (RuntimeError, KforgeError) as error:  # what cannot be captured is timed plain
                    problems[wrapper] = str(error)[:500]
        self.wait()
        host_us = sorted(host)[len(host) // 2] * 1e6
        seconds = time.perf_counter() - begin
        times = {"seconds": seconds, "once_s": once, "first_s": first_s, "host_us": host_us}
        return times | {"derived": derived, "problems": problems}

    def wait(self) -> None:
        if self.timer is not None:
            self.timer.wait()

    def calibrate(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the timer and run its loop around idle spinning, while the process holds no candidate code."""
        if self.server.model is not None:
            raise KforgeError("calibrate comes before load")
        self.timer = self.timer or make_timer(self.server.device)
        with self.server.around():  # as `time` does
            return {"ms": self.timer.idle(request["iterations"])}

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.timer is None or request["wrapper"] not in self.armed:
            raise KforgeError("time was asked before load(timer=True) and arm")
        fn = self.armed[request["wrapper"]]
        with self.server.around():
            return {"ms": self.timer.batch(fn, request["iterations"], request["flush"], self.restore)}

    def replay(self, request: dict[str, Any]) -> dict[str, Any]:
        """Back-to-back calls without flush or events: only the judge's clock counts."""
        run = self.armed[request["wrapper"]]
        with self.server.around():
            for _ in range(request["repeats"]):
                run()
            self.wait()
        return {}

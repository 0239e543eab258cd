"""The judge's line to one child: requests go out, answers come back with the nonce and in time, or the child ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kforge.errors import ChildFailed
from kforge.worker import answers
from kforge.worker.keeper import Keeper
from kforge.worker.limits import Limits
from kforge.worker.protocol import Channel

_START_S = 60.0  # from the fork to a context, on a machine that is busy with other things
_ENDING_S = 2.0  # from the closing of a process's descriptors to its end


class Line:
    """Asks, and waits no longer than `limits` allow. A failure of the line itself ends the child."""

    def __init__(self, channel: Channel, keeper: Keeper, nonce: str, limits: Limits) -> None:
        self._channel, self._keeper = channel, keeper
        self._nonce, self.limits = nonce, limits
        self._hello: dict[str, Any] | None = None

    @property
    def hello(self) -> dict[str, Any]:
        """in_force (the sandbox's parts), sandbox_s, context_s, context_parts_s, pid; waits for the child's start."""
        if self._hello is None:
            self._hello = self._answer(max(self.limits.call_s, _START_S))
        return self._hello

    def _request(
        self,
        op: str,
        send_fds: Sequence[int] = (),
        timeout_s: float | None = None,
        awake_s: float = 0.0,
        **fields: Any,
    ) -> dict[str, Any]:
        if self.end is not None:
            raise ChildFailed("crashed", "this child has ended", self.log())
        _ = self.hello
        try:
            self._channel.send({"op": op, **fields}, send_fds)
        except ChildFailed as failure:
            raise self._ended(failure) from failure
        return self._answer(self.limits.call_s if timeout_s is None else timeout_s, awake_s)

    def _answer(self, timeout_s: float, awake_s: float = 0.0) -> dict[str, Any]:
        try:
            answer = self._channel.receive(timeout_s, awake_s)
            self._channel.drop_fds()
            if answer.get("nonce") != self._nonce:
                raise ChildFailed("protocol", "an answer without the nonce")
        except ChildFailed as failure:
            if failure.kind == "timed_out":
                failure = ChildFailed("timed_out", f"no answer within {timeout_s:g} s")
            raise self._ended(failure) from failure
        if answer.get("ok") is True:
            return answer
        failed = answers.failure(answer, self.log())
        if failed.kind == "crashed":  # its CUDA context is gone: nothing more can be asked of it
            self.close()
        raise failed

    @contextmanager
    def _well_formed(self) -> Iterator[None]:
        """Reading an answer: what it lacks or says in a wrong form is a protocol failure, and ends the child."""
        try:
            with answers.well_formed():
                yield
        except ChildFailed as failure:
            if failure.kind != "protocol" or self.end is not None:
                raise
            raise self._ended(failure) from failure

    @property
    def end(self) -> dict[str, Any] | None:
        """None while the child lives, then exit, signal, reason, log, peak_bytes, killed."""
        return self._keeper.end

    def _ended(self, failure: ChildFailed) -> ChildFailed:
        """End the child after a failure of the line; the failure with how it ended."""
        self.close(_ENDING_S if failure.kind == "crashed" else 0.0)
        return self._keeper.explain(failure)

    def log(self) -> str:
        """The tail of what the candidate has printed so far. For reading only."""
        return self._keeper.log()

    def processor_s(self) -> float:
        """Seconds of processor time that the child's processes have taken so far, as the kernel counts them."""
        return self._keeper.processor_s()

    def kill(self) -> None:
        """From any thread: ask for the end of every process of the child. Whoever waits for an answer gets ChildFailed,
        and closes it."""
        self._keeper.kill()

    def stop(self) -> None:
        """Kill every process of the child; return when none of them runs any more. `close` frees what they held."""
        if not self._keeper.stop():
            self.close()

    def close(self, patience_s: float = 0.0) -> dict[str, Any]:
        """Kill every process of the child; returns `end`. patience_s: time for an end of its own."""
        end = self._keeper.close(patience_s)
        self._channel.close()
        return end

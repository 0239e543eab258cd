"""Trees of tensors over the judge's line to a child: filled into shared buffers, read back once into private copies.

The child's words about its answer are checked (answers.py) before a value of it is fetched.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kforge.errors import ChildFailed, UsageError
from kforge.worker import answers
from kforge.worker.keeper import Keeper
from kforge.worker.limits import Limits
from kforge.worker.line import Line
from kforge.worker.protocol import Channel, decode
from kforge.worker.replies import CallReply
from kforge.worker.shelf import Shelf, sizes_of
from kforge.worker.tensors import (
    Buffer,
    DeviceMemory,
    Packed,
    fill,
    nbytes_of,
    pack,
    private_copy,
    received,
    view,
)

if TYPE_CHECKING:
    from kforge.task.call import Call

MANY = 1000  # tensors of one answer: below, a lack of descriptors is this process's own


class Exchange(Line):
    """A line with the buffers of one child. memory: the judge's on the child's GPU, None on the CPU."""

    def __init__(
        self,
        channel: Channel,
        keeper: Keeper,
        nonce: str,
        device: str,
        limits: Limits,
        memory: DeviceMemory | None,
    ) -> None:
        super().__init__(channel, keeper, nonce, limits)
        self.device, self._memory = device, memory
        self._shelf = Shelf(
            memory,
            lambda buffers, fds: self._request(
                "attach", send_fds=fds, buffers=[b.describe() for b in buffers], fds=len(fds)
            ),
            lambda ids: self._request("detach", ids=list(ids)),
        )
        self._previous: list[Buffer] = []
        self._armed: list[Buffer] = []

    def _observed(
        self, op: str, call: Call, packed: Packed, buffers: list[Buffer], timeout_s: float | None, **fields: Any
    ) -> CallReply:
        fields |= self._fill(buffers, packed)
        begin = time.perf_counter()
        answer = self._request(op, timeout_s=timeout_s, **fields)
        wall = time.perf_counter() - begin
        private = [private_copy(buffer) for buffer in buffers]
        after = [view(private[meta.storage], meta) for meta in packed.metas]
        args, kwargs = decode(packed.tree, after.__getitem__)
        inputs = [buffers[meta.storage].id for meta in packed.metas]
        with self._well_formed():
            reply = self._reply(answer, inputs, type(call)(args, kwargs), wall)
        if reply.damage:
            raise ChildFailed("damaged", reply.damage, self.log())
        return reply

    def _with_inputs(self, op: str, call: Call, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        packed = pack((call.args, call.kwargs))
        buffers = self._shelf.take_for(packed)
        answer = self._request(op, timeout_s=timeout_s, **self._fill(buffers, packed), **fields)
        self._shelf.give(buffers)
        return answer

    def _buffers_for(self, packed: Packed, place: str) -> list[Buffer]:
        if place == "same":
            if [(b.nbytes, b.side) for b in self._previous] != sizes_of(packed):
                raise UsageError("place='same' needs a call of the same shapes just before")
            return self._previous
        if place == "other":
            buffers = self._shelf.take_for(packed)
            self._shelf.give(self._previous)
            return buffers
        self._shelf.give(self._previous)
        return self._shelf.take_for(packed)

    def _fill(self, buffers: list[Buffer], packed: Packed, key: str = "tree") -> dict[str, Any]:
        """Write the sources into the buffers; returns the tree's fields of a request."""
        fill(buffers, packed)
        if self._memory is not None:
            _synchronise(self.device)
        metas = [replace(meta, storage=buffers[meta.storage].id).as_json() for meta in packed.metas]
        return {key: packed.tree, f"{key}_metas": metas, "refresh": [b.id for b in buffers if b.kind == "staged"]}

    def _reply(self, answer: dict[str, Any], inputs: Sequence[int], after: Call, wall: float) -> CallReply:
        """Check the child's descriptions, fetch the values they announce, put the reply together."""
        metas = answers.described(answer, self.limits.output_bytes)
        side = "cpu" if self._memory is None else "cuda"
        sides = [side if meta.device != "cpu" else "cpu" for meta in metas]
        try:
            buffers = self._shelf.take(list(zip(map(nbytes_of, metas), sides, strict=True)))
        except OSError as error:
            if len(metas) < MANY:
                raise
            raise ChildFailed("protocol", f"{len(metas)} tensors cannot be read: {error.strerror}") from error
        if buffers:
            self._request("fetch", copies=[[i, b.id] for i, b in enumerate(buffers)])
        for buffer in buffers:
            buffer.refresh()
        tensors = [received(buffer, meta) for buffer, meta in zip(buffers, metas, strict=True)]
        if self._memory is not None:
            _synchronise(self.device)
        self._shelf.give(buffers)
        return answers.call_reply(answer, metas, tensors, inputs, after, wall)

    def close(self, patience_s: float = 0.0) -> dict[str, Any]:
        """Kill every process of the child and free its buffers; returns `end`.

        patience_s: how long a child that seems to be ending may take to do so by itself.
        """
        end = super().close(patience_s)
        self._shelf.close()
        self._previous, self._armed = [], []
        return end


def _synchronise(device: str) -> None:
    import torch

    torch.cuda.synchronize(device)

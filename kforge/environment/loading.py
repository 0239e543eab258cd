"""A candidate into a process, with the reference's state and mode: the same for building, judging and timing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kforge.environment.preparation import Prepared
    from kforge.kernel.candidate import Candidate
    from kforge.worker import Child
    from kforge.worker.replies import LoadReply


def load_candidate(
    prepared: Prepared,
    child: Child,
    candidate: Candidate,
    overrides: Mapping[str, Any] | None,
    *,
    state_seed: int = 0,
    tensors: Mapping[str, torch.Tensor] | None = None,
    within: str = "",
    timer: bool = False,
    again: bool = False,
) -> LoadReply:
    """Import the module, construct it as the task does, copy the state of `state_seed` (or `tensors`) into it.

    within: name of the submodule that stands for the reference, where the candidate's module holds it. timer: make and
    calibrate the timer before that. again: only copy the state, into the module that is loaded. ChildFailed passes; a
    state that does not fit is in the reply.
    """
    state = prepared.state(state_seed)
    prefix = f"{within}." if within else ""
    return child.load(
        candidate,
        prepared.task.init_call(),
        {f"{prefix}{name}": value for name, value in (state.tensors if tensors is None else tensors).items()},
        prepared.reference(state_seed).training,
        overrides,
        nonpersistent=[f"{prefix}{name}" for name in state.tensors if name not in state.persistent],
        precision=prepared.task.precision,
        timer=timer,
        again=again,
        gradients=prepared.task.gradients,
    )

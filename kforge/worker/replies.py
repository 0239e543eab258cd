"""What a child answered, after checking: data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kforge.task.call import Call
    from kforge.worker.protocol import TensorMeta


@dataclass(frozen=True)
class LoadReply:
    """missing: state_dict keys that only the candidate has; unexpected: that it lacks; mismatched: other shapes.

    Where `mismatched` is not empty, no state was copied. redirected: uses of "cuda" sent to the CPU.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[str, ...]
    redirected: tuple[str, ...]
    seconds: float

    @property
    def problem(self) -> str:
        """What is wrong with the state in one line, or the empty string."""
        parts = [("missing", self.missing), ("unexpected", self.unexpected), ("of another shape", self.mismatched)]
        return "; ".join(f"{word}: {', '.join(names)}" for word, names in parts if names)


@dataclass(frozen=True)
class CallReply:
    """One observed call. Tensors are the judge's private copies; all else is the child's word.

    outputs: the tree (a type unknown to the protocol is an Opaque); output_metas: dtype, shape, strides, type of each
    tensor in order of appearance. aliases: output number -> input number (both in order of appearance) whose memory it
    lies in. inputs_after: the Call with values as the candidate left them. state_after: buffers (or all) by name.
    launches: own kernels; ops: ATen operators by name ("aten.gelu.hidden" where a mode was switched off around it;
    hidden_told: whether this torch lets that be told); threads: (before, after); peak_bytes: torch's allocations
    above the call's start, None on the CPU; damage: what was written outside of every guarded allocation, or empty;
    replays: of CUDA graphs, whose launches are not counted; late: launches after the call had returned; unbuilt: builds
    that its process has asked for so far and *build* had not made; seconds: the child's clock; wall_s: the judge's.
    """

    outputs: Any
    output_metas: tuple[TensorMeta, ...]
    aliases: dict[int, int]
    inputs_after: Call
    state_after: dict[str, torch.Tensor]
    launches: dict[str, int]
    ops: dict[str, int]
    threads: tuple[int, int]
    peak_bytes: int | None
    damage: str
    replays: int
    rng_advanced: bool
    reseeded: bool
    hidden_told: bool
    late: int
    unbuilt: int
    seconds: float
    wall_s: float


@dataclass(frozen=True)
class Batch:
    """ms: the child's figures for each call; wall_s: the judge's clock over the whole batch."""

    ms: tuple[float, ...]
    wall_s: float


@dataclass(frozen=True)
class Armed:
    """By the child's clock: first_s of the first call (kernels load), once_s of a warmed-up one, host_us until a call
    returns, the GPU not waited for. problems: wrappers that could not be made, with the reason. derived: the candidate
    keeps derived weights, which all but `amortised` derive in each call."""

    seconds: float
    once_s: float
    problems: dict[str, str]
    first_s: float = 0.0
    host_us: float = 0.0
    derived: bool = False


@dataclass(frozen=True)
class Recorded:
    """Emulated launches kept so far: how many, the bytes and seconds they took, kernels that were left out."""

    launches: int
    seconds: float
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Inspected:
    """What one tool of the memory gate says. findings: fields of a Finding; skipped: why it did not run, or empty."""

    tool: str
    seconds: float
    findings: tuple[dict[str, Any], ...]
    skipped: str


@dataclass(frozen=True)
class KernelTime:
    """Microseconds on the device that kernels of this name took in one call, and how many were launched."""

    name: str
    us: float
    count: int


@dataclass(frozen=True)
class DeviceEvent:
    """One piece of work of the device: a kernel or a copy, when it began and how long it took, in microseconds."""

    name: str
    start: float
    us: float

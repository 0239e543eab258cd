"""Is it faster? One candidate in its own process against baselines in the judge's, and the noise of that arrangement.

Nothing here decides a verdict: it returns samples, the bound that the judge's clock puts on them, the GPU's state;
comparison.py makes the rounds, statistics.py says what they mean.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError
from kforge.profiling.comparison import Captured, Comparison
from kforge.profiling.effort import QUICK, STANDARD, Effort
from kforge.profiling.gpu_state import gpu_state
from kforge.profiling.samples import CANDIDATE, Bound, Samples, Timing
from kforge.profiling.statistics import median, noise_floor

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.task.call import Call
    from kforge.worker import Child, Zygote

NOISE = Effort(rounds=8, patience=1)

__all__ = ["CANDIDATE", "QUICK", "STANDARD", "Bound", "Effort", "Samples", "Timing", "measure_noise", "time_against"]


def time_against(
    child: Child,
    call: Call,
    baselines: Mapping[str, Callable[..., Any]],
    *,
    effort: Effort = STANDARD,
    wrappers: Sequence[str] = ("plain",),
    mutated: Sequence[int] = (),
    precision: str = "highest",
    slowest_call_s: float = 5.0,
    warm: bool = False,
    captured: Captured | None = None,
) -> Timing:
    """Time the child's loaded candidate (load(timer=True)) against baselines that the judge calls in its own process.

    baselines: name -> callable with the reference's parameters. mutated: numbers of the input tensors that a call
    changes, restored outside the time. wrappers: "plain", "graph" (CUDA graph over static input copies, both sides).
    At least 3 rounds are made whatever the budget; a baseline slower than `slowest_call_s` a call is skipped, with a
    word. warm: plain calls with a warm L2 besides. captured: what a timing against the same baselines on the same
    values has left, and the next one may use. ChildFailed when the candidate fails. Everything runs under
    torch.no_grad at the task's precision.
    """
    import torch

    from kforge.task.precision import Precision, matmul_precision

    if "plain" not in wrappers:
        raise ValueError("the plain wrapper is always timed: the bound rests on it")
    begin = time.perf_counter()
    on_gpu = child.device != "cpu"
    place = torch.cuda.device(child.device) if on_gpu else nullcontext()
    with torch.no_grad(), matmul_precision(Precision(precision)), place:
        match = Comparison(child, call, mutated, wrappers, effort, captured)
        started = time.perf_counter()
        for name, fn in baselines.items():
            match.add_baseline(name, fn, slowest_call_s)
        match.stages["baselines"] = time.perf_counter() - started
        match.measure()
        match.measure_amortised()
        if on_gpu and match.doubtful():
            match.measure_replays()
        if warm and on_gpu:
            match.measure_warm()
    started = time.perf_counter()
    state = gpu_state(child.device)  # read last: what the clocks were under load
    match.stages["gpu state"] = time.perf_counter() - started
    return Timing(
        samples=tuple(side.samples() for side in match.sides if side.rounds),
        bounds=match.bounds(),
        skipped=match.skipped,
        gpu=state,
        seconds=time.perf_counter() - begin,
        stages=match.stages,
        call_us=match.call_us,
        first_s=match.armed.first_s,
        empty_ms=match.empty_ms,
        each=match.each_round(),
        overheads_ms=tuple(min(found.overheads) for found in match.kept if found.overheads) if on_gpu else (),
    )


def measure_noise(
    zygote: Zygote,
    folder: Path,
    device: str,
    *,
    call_ms: float = 0.05,
    effort: Effort = NOISE,
    pairs: int = 3,
) -> float:
    """The A/A noise floor: one and the same operation in judge and child, under the arrangement of time_against.

    call_ms: how long one call should take (the noise of short calls is larger, and they are timed another way). pairs:
    processes it is measured with, since what differs between processes is what makes the floor. Measure once per GPU
    and size. The first comparison of all counts for nothing: it finds clocks and host cold.
    """
    import torch

    from kforge.task.call import Call
    from kforge.worker import Limits

    call = Call((torch.rand(_elements(call_ms, device), device=device),))
    ratios: list[float] = []
    with ExitStack() as stack:
        children = [
            stack.enter_context(zygote.fork(folder / str(number), device, "run", Limits(call_s=60.0)))
            for number in range(pairs)
        ]
        for child in children:  # all contexts are made before the first is timed
            child.in_force()
        for child in children:
            child.load(_aa_candidate(), Call(), {}, timer=True)
            if not ratios:
                time_against(child, call, {"same": _aa_operation}, effort=QUICK)
            timing = time_against(child, call, {"same": _aa_operation}, effort=effort)
            ratio = timing.ratio("same")
            if ratio is None:
                raise KforgeError(f"the A/A run measured nothing: {timing.skipped}")
            ratios.append(ratio.ratio)
    return noise_floor(ratios)


def _elements(call_ms: float, device: str) -> int:
    """Floats in a pass that takes about `call_ms`, by trying."""
    import torch

    from kforge.worker.timer import make_timer

    timer, size = make_timer(device), 1 << 16
    for _ in range(4):
        x = torch.rand(size, device=device)
        took = median(timer.batch(lambda x=x: _aa_operation(x), 7))  # type: ignore[misc]
        size = max(1024, min(1 << 30, int(size * min(64.0, call_ms / max(took, 1e-6)))))
    return size


def _aa_operation(x: Any) -> Any:
    return x * 1.5


def _aa_candidate() -> Candidate:
    from kforge.kernel.candidate import Candidate

    source = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * 1.5\n"
    return Candidate("same_kforge.py", {"same_kforge.py": source})

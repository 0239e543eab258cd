"""Random outputs (dropout) are judged by what is random about them, not by bits (CONTRACTS 1).

With everything kept and with everything dropped the reference gives two right values for each element; a candidate's
element must be one of the two. Which of them it is has to look drawn: keep rate, independence of neighbours, another
draw after another seed and in the next call, the same one after the same seed, a generator that has advanced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.environment.acceptance import ulp

if TYPE_CHECKING:
    import torch

    from kforge.task import Call, Task

SIGMAS = 6.0  # of a fair coin; one false alarm in 500 million
MOST_DRAWS = 64
LAGS = (1, 2, 3, 4, 8, 16, 32, 64)
WITHIN = 4.0  # of the baseline's largest error, as for every single element


@dataclass(frozen=True)
class Choices:
    """One output leaf: its value where everything is kept and where everything is dropped. rate: of keeping.

    kept and dropped are float64; kept_error and dropped_error the baseline's largest errors against them.
    """

    kept: torch.Tensor
    dropped: torch.Tensor
    kept_error: float
    dropped_error: float
    rate: float


def choices(task: Task, module: torch.nn.Module, call: Call) -> list[Choices | None] | None:
    """For each output leaf its two values, None for a leaf without randomness.

    None for a reference that draws in another way than by one dropout: then there is no such pair.
    """
    import torch

    from kforge.environment.widened import run_widened
    from kforge.task import clone_call
    from kforge.task.call import tree_leaves

    answers, rates = [], []
    for keep in (True, False):
        for wide in (True, False):
            with _forced(keep) as seen:
                if wide:
                    outputs = run_widened(module, call, 0).outputs
                else:
                    outputs = task.run(module, clone_call(call), seed=0)
            if len(seen) != 1 or seen[0] is None:
                return None
            answers.append([leaf for _, leaf in tree_leaves(outputs)])
            rates.append(seen[0])
    found: list[Choices | None] = []
    for kept, kept_low, dropped, dropped_low in zip(*answers, strict=True):
        floating = isinstance(kept, torch.Tensor) and kept.dtype.is_floating_point
        if not floating or torch.equal(kept.nan_to_num(), dropped.nan_to_num()):
            found.append(None)
            continue
        kept_error, dropped_error = _largest(kept_low.double() - kept), _largest(dropped_low.double() - dropped)
        found.append(Choices(kept.double(), dropped.double(), kept_error, dropped_error, rates[0]))
    return found


def judge(one: Choices, answer: torch.Tensor) -> str:
    """In words what is wrong with one output; empty for a fair draw with right values."""
    import torch

    is_kept = _near(answer, one.kept, one.kept_error)
    is_dropped = _near(answer, one.dropped, one.dropped_error)
    neither = ~(is_kept | is_dropped)
    if bool(neither.any()):
        place = tuple(torch.nonzero(neither)[0].tolist())
        return (
            f"{int(neither.sum())} of {neither.numel()} elements are neither kept nor dropped: "
            f"{answer[place].item():g} at {list(place)}, kept {one.kept[place].item():g}, "
            f"dropped {one.dropped[place].item():g}"
        )
    told = (is_kept ^ is_dropped) & _apart(one, answer.dtype)
    count, kept = int(told.sum()), int((is_kept & told).sum())
    spread = math.sqrt(max(count * one.rate * (1 - one.rate), 1.0))
    if alike := _dependent(is_kept, told, kept / max(count, 1)):
        return alike
    if abs(kept - count * one.rate) > SIGMAS * spread + 1:
        return f"keeps {kept / max(count, 1):.1%} of the elements, the reference {one.rate:.1%}"
    return ""


def draws_that_differ(found: list[Choices | None]) -> int | None:
    """After how many fair draws one differs from the first, but for one time in 10^9; None for more than MOST_DRAWS."""
    import torch

    alike = 0.0  # log of the chance that one more draw is the first one again
    for one in found:
        if one is not None:
            count = int(_apart(one, torch.float32).sum())
            alike = min(alike, count * math.log(one.rate**2 + (1 - one.rate) ** 2))
    return next((n for n in range(1, MOST_DRAWS + 1) if n * alike < math.log(1e-9)), None)


def _dependent(kept: torch.Tensor, told: torch.Tensor, rate: float) -> str:
    """Whether elements a few places apart are drawn alike, along the last dimension and along rows."""
    if not 0.0 < rate < 1.0 or not kept.dim() or not bool(told.any()):
        return ""
    centred = (kept.double() - rate) * told
    flat, cols = centred.reshape(-1), kept.shape[-1]
    rows = {cols: "of neighbouring rows", 32 * cols: "32 rows apart"} if kept.dim() > 1 else {}
    lags = rows | {lag: f"{lag} apart" for lag in LAGS if lag not in rows}
    for lag, where in lags.items():
        if not 0 < lag < flat.numel():
            continue
        both = int((told.reshape(-1)[lag:] & told.reshape(-1)[:-lag]).sum())
        if both < 64:
            continue
        r = float((flat[lag:] * flat[:-lag]).sum()) / (both * rate * (1 - rate))
        if abs(r) > SIGMAS / math.sqrt(both) * max(1.0, (1 - 2 * rate) ** 2 / (rate * (1 - rate)) / 10):
            return f"elements {where} are drawn alike (correlation {r:.2g})"
    return ""


def _apart(one: Choices, dtype: torch.dtype) -> torch.Tensor:
    """Where no answer is near both values. Of other elements one draw may be told and the other not: no fair count."""
    sizes = _allowed(one.kept, one.kept_error, dtype) + _allowed(one.dropped, one.dropped_error, dtype)
    return (one.kept - one.dropped).abs() > sizes


def _allowed(exact: torch.Tensor, error: float, dtype: torch.dtype) -> torch.Tensor:
    return WITHIN * error + ulp(exact.nan_to_num(0.0, 0.0, 0.0), dtype)


def _near(answer: torch.Tensor, exact: torch.Tensor, error: float) -> torch.Tensor:
    close = (answer.double() - exact).abs() <= _allowed(exact, error, answer.dtype)
    return close | (answer.double() == exact) | (answer.isnan() & exact.isnan())


def _largest(x: torch.Tensor) -> float:
    return float(x.abs().nan_to_num(0.0, 0.0, 0.0).max()) if x.numel() else 0.0


class _forced:
    """Within, every number that dropout asks for is 1 (or 0). Gives the list of the rates that were asked for.

    A random operator of another kind puts None there.
    """

    def __init__(self, keep: bool) -> None:
        self.keep = keep
        self.rates: list[float | None] = []

    def __enter__(self) -> list[float | None]:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        aten, keep, rates = torch.ops.aten, self.keep, self.rates

        class Forced(TorchDispatchMode):
            @classmethod
            def _should_skip_dynamo(cls) -> bool:
                return False

            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if func is aten.bernoulli_.float:
                    rates.append(float(args[1]) if len(args) > 1 else 0.5)
                    return args[0].fill_(1.0 if keep else 0.0)
                if func is aten.native_dropout.default and args[2] is not False:
                    rates.append(1.0 - float(args[1]))
                    scale = 1.0 / (1.0 - args[1]) if keep and args[1] < 1 else 0.0
                    return args[0] * scale, torch.full_like(args[0], keep, dtype=torch.bool)
                if torch.Tag.nondeterministic_seeded in func.tags:
                    rates.append(None)
                return func(*args, **(kwargs or {}))

        self.mode = Forced()
        self.mode.__enter__()
        return self.rates

    def __exit__(self, *error: Any) -> None:
        self.mode.__exit__(*error)

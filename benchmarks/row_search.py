"""The search of a row: the engine's candidates in turn, then the tuning values of the best one's kernels."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError, NoCandidate
from kforge.profiling import statistics

if TYPE_CHECKING:
    import torch

    from benchmarks.rows import Bench
    from kforge.kernel.candidate import Candidate
    from kforge.task import Call, Capture, Task

COUNTS = (5, 15, 60)  # evaluations after which a row tells its best
FAILURES = (KforgeError, RuntimeError, ValueError, TypeError, AssertionError)
Overrides = dict[str, dict[str, int | float | bool | str]]


@dataclass
class Try:
    """One evaluation: a candidate of the engine with some constants; ms is None where it was refused, or dry."""

    candidate: Candidate
    model: Any
    overrides: Overrides
    ms: float | None
    kernels: list[str]
    found: dict[str, Any]
    refused: str = ""


@dataclass
class Search:
    """The engine's candidates for one row, then the tuning values of the best.

    check(model): what is found of its values, as it is recorded; raises ValueError where they are not the reference's.
    """

    bench: Bench
    task: Task
    variant: int
    call: Call
    reference: torch.nn.Module
    captured: Capture
    check: Callable[[Any], dict[str, Any]]
    tries: list[Try] = field(default_factory=list)
    why: str = ""
    seconds: float = 0.0

    @property
    def right(self) -> list[Try]:
        return [t for t in self.tries if not t.refused]

    @property
    def best(self) -> Try | None:
        """The fastest; the first where nothing was timed."""
        return min(self.right, key=lambda t: t.ms or 0.0, default=None)

    def run(self) -> None:
        """Until the tries or the row's seconds are used up."""
        from kforge.engine import propose

        options, begin = self.bench.options, time.perf_counter()
        deadline = begin + options.row_seconds
        arch = "sm_90a"
        try:
            for number, candidate in enumerate(propose(self.task, self.captured, arch=arch, device=self.bench.device)):
                over = number >= min(options.candidates, options.evaluations) or time.perf_counter() > deadline
                if number and over:
                    break
                folder = self.bench.folder / f"{self.task.name}_{self.variant}_{number}"
                model = model_of(candidate, self.reference, self.task, folder, self.bench.device)
                self.attempt(candidate, model, {})
        except NoCandidate as error:
            self.why = error.message
        if not self.bench.dry:
            self.tune(deadline)
        self.seconds = time.perf_counter() - begin

    def tune(self, deadline: float) -> None:
        """One constant of one kernel at a time, from the best so far, as long as that finds a better one."""
        tried: set[str] = set()
        better = True
        while better and (best := self.best) is not None:
            for overrides in _configurations(best):
                if time.perf_counter() > deadline or len(self.tries) >= self.bench.options.evaluations:
                    return
                if (key := f"{best.candidate.digest} {sorted(overrides.items())}") not in tried:
                    tried.add(key)
                    self.attempt(best.candidate, best.model, overrides)
            better = self.best is not best

    def attempt(self, candidate: Candidate, model: Any, overrides: Overrides) -> None:
        """Run, check and time one configuration; what differs, or refuses the call, is reported and no result."""
        from kforge.kernel import hooks, weights

        found: dict[str, Any] = {}
        ms, refused = None, ""
        with hooks.overrides(overrides):
            hooks.launched.reset()
            try:
                found = self.check(model)
                kernels = sorted(hooks.launched)
                if not self.bench.dry:
                    call = partial(model, *self.call.args, **self.call.kwargs)
                    with weights.anew():  # a call costs what deriving its weights costs
                        ms = statistics.median(self.bench.samples(call, 9))
            except FAILURES as error:
                kernels = sorted(hooks.launched)
                refused = f"{type(error).__name__}: {str(error)[:300]}"
                print(f"{self.task.name}/{self.variant} {candidate.idea} {overrides}: {refused}", file=sys.stderr)
        self.tries.append(Try(candidate, model, overrides, ms, kernels, found, refused))

    def figures(self) -> dict[str, Any]:
        """What the search cost and found: evaluations, seconds, the best time after so many of them."""
        times = [t.ms for t in self.tries]
        found: dict[str, Any] = {"tries": len(times), "search_s": self.seconds}
        found["best"] = {str(n): min((ms for ms in times[:n] if ms is not None), default=None) for n in COUNTS}
        found["all"] = [[t.ms, t.candidate.idea, t.kernels, t.overrides, t.refused or t.found] for t in self.tries]
        return found


def _configurations(best: Try) -> Iterator[Overrides]:
    """One tuning constant of one of its kernels changed at a time."""
    from kforge.kernel import hooks

    for kernel in hooks.kernels():
        if kernel.name in best.kernels:
            for name, values in kernel.definition.tune.items():
                for value in values:
                    yield {**best.overrides, kernel.name: {**best.overrides.get(kernel.name, {}), name: value}}


def tensors(tree: Any) -> list[torch.Tensor]:
    import torch

    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def difference(ours: Any, theirs: Any) -> float:
    """Largest difference over the largest value, on the first and last rows; infinite where NaN or shapes differ.

    Of integers and booleans: the share of elements that differ.
    """
    worst = 0.0
    for a, b in zip(tensors(ours), tensors(theirs), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        for part in (slice(None, 8), slice(-8, None)) if a.dim() else (...,):
            u, v = a[part].double(), b[part].double()
            if not u.numel():
                continue
            if not b.is_floating_point():
                worst = max(worst, float((u != v).double().mean()))
            elif bool((u.isnan() != v.isnan()).any()):
                return float("inf")
            else:
                gap, scale = (u - v).nan_to_num(0, 0, 0).abs().max(), v.nan_to_num(0, 0, 0).abs().max()
                worst = max(worst, float(gap / scale.clamp(min=1e-30)))
    return worst


def near(call: Call, expected: Any, limit: float = 0.02) -> Callable[[Any], dict[str, Any]]:
    """A check for Search: no further from eager than `limit` of the largest value."""

    def check(model: Any) -> dict[str, Any]:
        error = difference(model(*call.args, **call.kwargs), expected)
        if error > limit:
            raise ValueError(f"differs by {error:.2g}")
        return {"error": error}

    return check


def model_of(
    candidate: Candidate, reference: torch.nn.Module, task: Task, folder: Path, device: str
) -> torch.nn.Module:
    """ModelNew of a candidate of our own engine, imported into this process, with the reference's state."""
    candidate.write(folder)
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{candidate.digest}", folder / candidate.module)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    init = task.init_call()
    model: torch.nn.Module = module.ModelNew(*init.args, **init.kwargs).to(device)
    model.load_state_dict(reference.state_dict(), strict=False)
    return model.train(reference.training)

"""The input plan as data: which cases a candidate meets, and how a case turns a task's own inputs into hostile ones.

A case is (variant, seed, distribution, layout, special values, state seed). Plans are covering arrays over them
(CONTRACTS 4): every pair of distribution and layout that a plan names occurs at least once. Nothing here runs anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.environment.distributions import DISTRIBUTIONS, SPECIALS
from kforge.environment.layouts import LAYOUTS
from kforge.errors import UsageError

if TYPE_CHECKING:
    import torch

    from kforge.task import Call
    from kforge.task.domain import Domain

PLANS = ("quick", "standard", "full")
CORE = ("x1", "x-1", "x3", "x0.01")  # the four that every verdict rests on
SEEDS = 5


@dataclass(frozen=True)
class Case:
    """One set of inputs. seed and state_seed are indices: the judge's entropy makes them 64-bit seeds.

    extra: run only while the plan's time lasts; what was left out is listed under `not_tested`.
    """

    variant: int = 0
    seed: int = 0
    distribution: str = "x1"
    layout: str = "contiguous"
    special: str = "none"
    state_seed: int = 0
    extra: bool = False

    @property
    def label(self) -> str:
        parts = [f"variant {self.variant}", f"seed {self.seed}", self.distribution, self.layout]
        return ", ".join(parts + ([f"with {self.special}"] if self.special != "none" else []))

    @property
    def group(self) -> tuple[int, str, str]:
        """Cases of one group share their error statistics: the acceptance rule is per output and distribution."""
        return (self.variant, self.distribution, self.special)


@dataclass(frozen=True)
class Plan:
    """A named tuple of cases in the order in which they run, and the seconds they may take on each kind of device."""

    name: str
    cases: tuple[Case, ...]
    cpu_seconds: float
    gpu_seconds: float

    def seconds(self, device: str) -> float:
        return self.gpu_seconds if device.startswith("cuda") else self.cpu_seconds


def make_plan(name: str, n_variants: int = 1) -> Plan:
    """The plan of this name for a task with so many input variants. UsageError for an unknown name."""
    if name == "quick":
        return Plan(name, tuple(_quick()), cpu_seconds=3.0, gpu_seconds=0.5)
    if name == "standard":
        return Plan(name, tuple(_standard(0)), cpu_seconds=8.0, gpu_seconds=20.0)
    if name == "full":
        cases = [case for v in range(n_variants) for case in _standard(v)]
        cases.sort(key=lambda case: case.extra)
        return Plan(name, tuple(cases), cpu_seconds=30.0 * n_variants, gpu_seconds=60.0 * n_variants)
    raise UsageError(f"unknown plan {name!r}", hint=f"available: {', '.join(PLANS)}")


def _quick() -> Iterator[Case]:
    """One seed, x1 and x-1, as given and strided; the two diagonal cases first, since they already cover each kind."""
    yield Case(distribution="x1", layout="contiguous")
    yield Case(distribution="x-1", layout="strided")
    yield Case(distribution="x-1", layout="contiguous", extra=True)
    yield Case(distribution="x1", layout="strided", extra=True)


def _standard(variant: int) -> Iterator[Case]:
    """Five seeds times the four core distributions, layouts alternating; then extras. Each pair of both occurs."""
    for seed, (i, distribution) in itertools.product(range(SEEDS), enumerate(CORE)):
        layout = "strided" if (seed + i) % 2 else "contiguous"
        yield Case(variant, seed, distribution, layout, state_seed=seed)
    for i, special in enumerate(("nan", "inf")):  # what is most often dropped for speed comes before any extra
        yield Case(variant, i, "x1", "contiguous", special, state_seed=i)
    further = [name for name in LAYOUTS if name not in ("contiguous", "strided")]
    hostile = [name for name in DISTRIBUTIONS if name not in CORE]
    for i, (layout, distribution) in enumerate(itertools.zip_longest(further, hostile, fillvalue="")):
        if layout:
            yield Case(variant, i % SEEDS, "x1", layout, state_seed=i % SEEDS, extra=True)
        if distribution:
            yield Case(variant, i % SEEDS, distribution, "contiguous", state_seed=i % SEEDS, extra=True)
    for i, special in enumerate(name for name in SPECIALS if name not in ("none", "nan", "inf")):
        yield Case(variant, i, "x1", "contiguous", special, state_seed=i, extra=True)


class NotApplicable(Exception):
    """The case changes nothing here (no floating input, too few dimensions) or leaves the task's DOMAIN."""


def realise(
    call: Call, case: Case, seed: int, domain: Domain | None = None, forward: Callable[..., Any] | None = None
) -> Call:
    """The task's own inputs with the case's distribution, special values and layout applied.

    Floating tensors with at least one dimension take the distribution and the special values, unless `domain` gives
    them a range; every tensor with at least one dimension takes the layout. `call` is not written. NotApplicable with
    the reason where the case would repeat another one or where `domain` does not hold afterwards. forward: the
    reference's, so that domain paths are parameter names.
    """
    import torch

    generator = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    values, layout = (DISTRIBUTIONS[case.distribution], SPECIALS[case.special]), LAYOUTS[case.layout]
    ranges = domain.ranges if domain else {}
    floating = moved = False

    def transform(path: str, x: torch.Tensor) -> torch.Tensor:
        nonlocal floating, moved
        if x.dim() == 0:
            return x
        y = x
        if x.dtype.is_floating_point and path not in ranges:
            for step in values:
                y = step(y, generator)
            floating = True
        z = layout(y)
        moved |= z.stride() != y.stride() or z.storage_offset() != y.storage_offset()
        return z

    changed = map_tensors(call, transform, forward)
    if (case.distribution, case.special) != ("x1", "none") and not floating:
        raise NotApplicable("no floating input that may vary")
    if case.layout != "contiguous" and not moved:
        raise NotApplicable(f"no input can be {case.layout}")
    if domain is not None and not inside(changed, domain, forward):
        raise NotApplicable("outside DOMAIN")
    return changed


def map_tensors(
    call: Call, function: Callable[[str, torch.Tensor], torch.Tensor], forward: Callable[..., Any] | None = None
) -> Call:
    """`call` with `function(path, tensor)` in place of every tensor; one object that occurs twice stays one object."""
    import torch
    from torch.utils import _pytree as pytree

    from kforge.task import Call, call_leaves

    done: dict[int, Any] = {}
    leaves = []
    for path, leaf in call_leaves(call, forward):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in done:
                done[id(leaf)] = function(path, leaf)
            leaf = done[id(leaf)]
        leaves.append(leaf)
    args, kwargs = pytree.tree_unflatten(leaves, pytree.tree_structure((call.args, call.kwargs)))
    return Call(args, kwargs)


def inside(call: Call, domain: Domain, forward: Callable[..., Any] | None = None) -> bool:
    """Whether every range of DOMAIN holds for the call, and its predicate, if there is one, says yes."""
    import torch

    from kforge.task import call_leaves

    for path, x in call_leaves(call, forward):
        if path in domain.ranges and isinstance(x, torch.Tensor) and x.numel():
            low, high = domain.ranges[path]
            if bool((x.double() < low).any()) or bool((x.double() > high).any()):
                return False
    return domain.accepts is None or bool(domain.accepts(*call.args, **call.kwargs))

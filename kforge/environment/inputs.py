"""The input plan as data: which cases a candidate meets, and how a case turns a task's own inputs into hostile ones.

A case is (variant, shape, seed, distribution, layout and the inputs that take it, special values, state seed, thread
order). Plans are covering arrays over them (CONTRACTS 4). Nothing here runs anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kforge.environment.covering import covering, pairs_of
from kforge.environment.distributions import DISTRIBUTIONS, HALVES, MASKS, SPECIALS, channel_scales, inside_range
from kforge.environment.layouts import LAYOUTS
from kforge.environment.shapes import KINDS
from kforge.environment.trees import map_tensors
from kforge.errors import UsageError

if TYPE_CHECKING:
    import torch

    from kforge.task import Call
    from kforge.task.domain import Domain

PLANS = ("quick", "standard", "full")
CORE = ("x1", "x-1", "x3", "x0.01")  # the four that every verdict rests on
SEEDS = 5
RUN = 60  # extras in a row that share a state, since each other one is loaded anew
GIVEN = "given"  # the shape that the task's own input maker gives
MOVED = ("all", "first", "rest")
# What may be done to values and to places. A value is (distribution, special), a place (layout, inputs that take it).
VALUES = (*((d, "none") for d in DISTRIBUTIONS), *(("x1", s) for s in SPECIALS if s not in ("none", *HALVES)))
PLACES = (
    *((layout, "all") for layout in LAYOUTS),
    *itertools.product(("offset", "strided", "transposed", "expanded"), MOVED[1:]),
)


@dataclass(frozen=True)
class Case:
    """One set of inputs. seed and state_seed are indices: the judge's entropy makes them 64-bit seeds.

    shape: "given", or a kind of shapes.py. moved: the inputs that take the layout, all, the first or the rest. order:
    of threads, on the emulator (0 lock step, 1 each thread as far as it gets, 2 last thread first). extra: run only
    while the plan's time lasts; what was left out is listed under `not_tested`.
    """

    variant: int = 0
    seed: int = 0
    distribution: str = "x1"
    layout: str = "contiguous"
    special: str = "none"
    state_seed: int = 0
    extra: bool = False
    shape: str = GIVEN
    moved: str = "all"
    order: int = 0

    @property
    def label(self) -> str:
        layout = self.layout + (f" {self.moved}" if self.moved != "all" else "")
        parts = [f"variant {self.variant}", f"seed {self.seed}", self.distribution, layout]
        if self.shape != GIVEN:
            parts.insert(1, f"shape {self.shape}")
        if self.order:
            parts.append(f"thread order {self.order}")
        return ", ".join(parts + ([f"with {self.special}"] if self.special != "none" else []))

    @property
    def group(self) -> tuple[int, str, str, str, bool]:
        """Cases of one group share their error statistics: the acceptance rule is per output and distribution."""
        return (self.variant, self.distribution, self.special, self.shape, self.layout == "expanded")

    @property
    def averages(self) -> bool:
        """Whether errors average out: not where few values repeat, and with them their rounding."""
        return self.distribution != "exact01" and self.layout != "expanded"

    @property
    def form(self) -> tuple[int, str, str, str]:
        """What decides the sizes, strides and alignments of the inputs: a candidate is built once for each."""
        return (self.variant, self.shape, self.layout, self.moved)

    @property
    def plain(self) -> bool:
        """The task's own inputs with nothing done to them."""
        values = (self.distribution, self.special, self.layout, self.shape)
        return values == ("x1", "none", "contiguous", GIVEN)


@dataclass(frozen=True)
class Plan:
    """A named tuple of cases in the order in which they run, and the seconds they may take on each kind of device."""

    name: str
    cases: tuple[Case, ...]
    cpu_seconds: float
    gpu_seconds: float

    def seconds(self, device: str) -> float:
        return self.gpu_seconds if device.startswith("cuda") else self.cpu_seconds


def make_plan(name: str, n_variants: int = 1, sizes: Iterable[int] = ()) -> Plan:
    """The plan of this name for a task with so many input variants. UsageError for an unknown name.

    Each plan has a required case of every variant, which is what the user says the task has to serve. sizes: numbers
    that the candidate's text compares with; plans beside `quick` meet each, and each plus 1.
    """
    others = tuple(Case(variant) for variant in range(1, n_variants))
    if name == "quick":
        first, *rest = _quick()
        return Plan(name, (first, *others, *rest), cpu_seconds=3.0, gpu_seconds=0.5)
    if name == "standard":
        first, *rest = _standard(0, sizes)
        return Plan(name, (first, *others, *rest), cpu_seconds=8.0, gpu_seconds=20.0)
    if name == "full":
        cases = [case for v in range(n_variants) for case in _standard(v, sizes)]
        cases.sort(key=lambda case: case.extra)
        return Plan(name, tuple(cases), cpu_seconds=30.0 * n_variants, gpu_seconds=60.0 * n_variants)
    raise UsageError(f"unknown plan {name!r}", hint=f"available: {', '.join(PLANS)}")


def _quick() -> Iterator[Case]:
    """One seed, x1 and x-1, as given and strided; the two diagonal cases first, since they already cover each kind."""
    yield Case(distribution="x1", layout="contiguous")
    yield Case(distribution="x-1", layout="strided")
    yield Case(distribution="x-1", layout="contiguous", extra=True)
    yield Case(distribution="x1", layout="strided", extra=True)


def _standard(variant: int, sizes: Iterable[int] = ()) -> list[Case]:
    """Required cases, then the rest of a covering array over values, places and shapes as extras."""
    required = [replace(case, variant=variant, state_seed=case.seed) for case in _required(sizes)]
    covered = {pair for case in required for pair in pairs_of(_row(case))}
    rows = covering((VALUES, PLACES, (GIVEN, *KINDS)), covered)
    extras = [
        Case(variant, i % SEEDS, d, layout, special, i // RUN % SEEDS, True, shape, moved)
        for i, ((d, special), (layout, moved), shape) in enumerate(rows)
    ]
    return required + extras


def _row(case: Case) -> tuple[tuple[str, str], tuple[str, str], str]:
    return ((case.distribution, case.special), (case.layout, case.moved), case.shape)


def _required(sizes: Iterable[int]) -> Iterator[Case]:
    """Five seeds times the four core distributions: eight on the task's own sizes in both layouts, the others derived.

    Then what is most often dropped: NaN and infinities, edges, empty inputs, other alignments, other thread orders.
    """
    shapes = itertools.cycle(("prime", "minus", "plus", "tile", "row", "wide", "tall", "deep", "column"))
    for seed, (i, distribution) in itertools.product(range(SEEDS), enumerate(CORE)):
        layout = "strided" if (seed + i) % 2 else "contiguous"
        shape = GIVEN if seed - i in (0, 1) else next(shapes)
        yield Case(0, seed, distribution, layout, shape=shape)
    for half in HALVES:
        yield Case(0, 0, "x1", special=half)
    yield Case(0, 0, "x1", special="nan")
    yield Case(0, 1, "x1", special="inf")
    yield Case(0, 2, "x1", special="nan_edges", shape="prime")
    yield Case(0, 3, "x1", special="inf_edges", shape="tile")
    yield Case(0, 4, "x1", special="two_nans", shape="prime")
    yield Case(0, 3, "x1", special="round", shape="prime")
    yield Case(0, 0, "x1", special="minus_inf_row", shape="prime")
    yield Case(0, 1, "x1", special="false_rows", shape="prime")
    yield Case(0, 2, "x1", special="domain_edges")
    for i, distribution in enumerate(("edges", "low_rows", "low", "x1e5", "offset", "mixed", "exact01")):
        yield Case(0, i % SEEDS, distribution, shape=("prime", "plus", "tile")[i % 3])
    yield Case(0, 3, "edges", shape=GIVEN)
    yield Case(0, 4, "x-1", "offset")
    yield Case(0, 2, "x3", "offset", shape="tile")  # small, and of whole vectors: the memory gate sees it too
    yield Case(0, 0, "x1", "offset", moved="first")
    yield Case(0, 1, "x-1", "offset", moved="rest", shape="tile")
    yield Case(0, 2, "x3", "transposed", moved="first", shape="prime")
    yield Case(0, 3, "x1", "expanded", shape="prime")
    yield Case(0, 1, "x1", "sliced", shape="minus")
    yield Case(0, 2, "x1", "sliced")  # whole vectors at strides that are none
    yield Case(0, 3, "x1", "apart")
    yield Case(0, 4, "x1", shape="long")
    yield Case(0, 0, "x1", shape="empty")
    yield Case(0, 1, "x1", shape="hollow")
    for order in (1, 2, 3):
        yield Case(0, order, CORE[order], shape="prime", order=order)
        yield Case(0, order, "x1", order=order)
    for number in sorted(set(sizes)):
        for size, role in itertools.product((number, number + 1), ("inner", "outer")):
            yield Case(0, size % SEEDS, "x1", shape=f"{role}={size}")
        whole = (number // 4 + 1) * 4  # the kernel beyond, in whole vectors, as they are and off their alignment
        yield Case(0, whole % SEEDS, "x1", shape=f"inner={whole}")
        yield Case(0, whole % SEEDS, "x-1", "offset", shape=f"inner={whole}")
        for size, special in itertools.product((number, number + 1), ("inf_edges", "nan_edges")):
            yield Case(0, size % SEEDS, "x1", special=special, shape=f"inner={size}")  # each kernel meets these


class NotApplicable(Exception):
    """The case changes nothing here (no floating input, too few dimensions) or leaves the task's DOMAIN.

    An empty text: another case of the plan is the same, or nothing of the kind exists here.
    """


def realise(
    call: Call, case: Case, seed: int, domain: Domain | None = None, forward: Callable[..., Any] | None = None
) -> Call:
    """The task's own inputs with the case's distribution, special values and layout applied.

    Floating tensors with at least one dimension take the distribution and the special values, unless `domain` gives
    them a range; tensors with at least one dimension take the layout, all, the first of them or the rest. `call` has
    its derived sizes already and is not written. NotApplicable with the reason where the case would repeat another one
    or where `domain` does not hold afterwards. forward: the reference's, so that domain paths are parameter names.
    """
    import torch

    generator = torch.Generator().manual_seed(seed & 0x7FFF_FFFF_FFFF_FFFF)
    steps, layout = (DISTRIBUTIONS[case.distribution], SPECIALS[case.special]), LAYOUTS[case.layout]
    ranges = domain.ranges if domain else {}
    touched = moved = False

    def values(path: str, x: torch.Tensor) -> torch.Tensor:
        nonlocal touched
        if x.dim() == 0:
            return x
        if path in ranges:
            if case.special == "domain_edges":
                touched = True
                return inside_range(x, *ranges[path], generator)
            return x
        y = x
        if x.dtype is torch.bool if case.special in MASKS else x.dtype.is_floating_point:
            # torch reckons with no fp8, and what is too large for it would become NaN
            narrow = x.dtype.is_floating_point and x.element_size() == 1
            y = x.float() if narrow else x
            for step in steps:
                y = step(y, generator)
            if narrow:
                y = y.clamp(torch.finfo(x.dtype).min, torch.finfo(x.dtype).max).to(x.dtype)
            touched |= case.special != "domain_edges"
        return y

    changed = map_tensors(call, values, forward)
    if case.distribution == "channels":
        changed = _scaled_together(changed, ranges, generator, forward)
    number = 0

    def places(path: str, x: torch.Tensor) -> torch.Tensor:
        nonlocal number, moved
        if x.dim() == 0:
            return x
        number += 1
        if case.moved != "all" and (case.moved == "first") != (number == 1):
            return x
        y = layout(x)
        moved |= y.stride() != x.stride() or y.storage_offset() != x.storage_offset()
        return y

    changed = map_tensors(changed, places, forward)
    if (case.distribution, case.special) != ("x1", "none") and not touched:
        raise NotApplicable(_inapplicable(case.special))
    if case.layout != "contiguous" and not moved:
        raise NotApplicable(f"no input can be {case.layout}" if case.moved == "all" else "")
    if case.moved == "first" and number == 1:
        raise NotApplicable("")  # the only input: the same as all
    if domain is not None and not inside(changed, domain, forward):
        raise NotApplicable("outside DOMAIN")
    return changed


def _inapplicable(special: str) -> str:
    """Why nothing was changed; empty where nobody would miss it."""
    return "" if special in (*MASKS, "domain_edges") else "no floating input that may vary"


def _scaled_together(call: Call, ranges: Any, generator: torch.Generator, forward: Callable[..., Any] | None) -> Call:
    free: list[torch.Tensor] = []

    def gather(path: str, x: torch.Tensor) -> torch.Tensor:
        if x.dim() and x.dtype.is_floating_point and path not in ranges:
            free.append(x)
        return x

    map_tensors(call, gather, forward)
    new = dict(zip(map(id, free), channel_scales(free, generator), strict=True))
    return map_tensors(call, lambda path, x: new.get(id(x), x), forward)


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

"""From a task's plans (planning.py) to candidates: families, ranking, writing; best guess first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from kforge.engine.apart import worthwhile
from kforge.engine.calls.alternatives import is_library, library_plans, own_plans
from kforge.engine.calls.precision import lowering
from kforge.engine.calls.vendor import Lowering
from kforge.engine.carried import pair_of
from kforge.engine.cost import Option, Policy, covers, heuristic, predict
from kforge.engine.emit.forwardcode import Choice, Plan
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for
from kforge.engine.graph.ir import Program
from kforge.engine.graph.probing import Resized
from kforge.engine.graph.state import refuse_views
from kforge.engine.planning import Made, graph_at, make_plan, names_of, variants_of
from kforge.engine.switches import OURS, Switches
from kforge.errors import NoCandidate
from kforge.kernel.candidate import Candidate

if TYPE_CHECKING:
    from kforge.task import Capture, Task


def propose(
    task: Task,
    capture: Capture,
    *,
    arch: str,
    device: str,
    facts: Any = None,
    policy: Policy | None = None,
    variants: Callable[[], list[Any]] | None = None,
    resized: Resized | None = None,
) -> Iterator[Candidate]:
    """Candidates for a task, best guess first; all compute the same and differ in schedules.

    capture: the graph of variant 0. arch ("sm_90a") and device ("cpu", "cuda:0") are what it will run on. facts:
    TaskFacts if known. variants: gives the graphs of its other variants, resized: that of any shapes, default the
    task's. Raises NoCandidate naming the operator that no kernel covers; never a torch-only candidate.
    """
    if facts is not None:
        refuse_views(capture, facts.effects)
    try:
        variants = variants or partial(variants_of, task, capture)
        resized = resized or partial(graph_at, task, capture)
        yield from _propose(task, capture, arch, device, policy or heuristic, variants, resized)
    except RecursionError as error:
        raise NoCandidate("its expressions are nested too deeply for one kernel", operator="a long chain") from error


def _propose(
    task: Task,
    capture: Capture,
    arch: str,
    device: str,
    policy: Policy,
    variants: Callable[[], list[Any]],
    resized: Resized,
) -> Iterator[Candidate]:
    variants, resized = cache(variants), cache(resized)  # captured once, by whoever asks first
    target = replace(_target(capture, device, variants), arch=arch, extents=cache(partial(_extents, capture, variants)))
    refused: list[NoCandidate] = []
    written: dict[int, tuple[Plan, list[list[KernelCode]]]] = {}  # by identity: a plan has no hash

    def offers(plan: Plan, programs: list[Program]) -> list[list[KernelCode]]:
        """The kernels for each program of a plan: they are written once, to rank plans and to choose from."""
        if id(plan) not in written:
            written[id(plan)] = plan, [kernels_for(p, plan.types, p.name, target) for p in programs]
        return written[id(plan)][1]

    def planned(switches: Switches) -> list[Made]:
        try:
            return [make_plan(task, capture, switches, variants, resized)]
        except NoCandidate as error:
            refused.append(error)
            return []

    def total(made: Made) -> float:
        calls = [lowering(step, capture.precision.value) for step in made[0].parts.calls]
        return _seconds(offers(*made)) + sum(call.seconds for call in calls)

    plans = planned(OURS)
    if plans and worthwhile(plans[0][1], target):
        plans += planned(Switches(apart=True))
    if plans and pair_of(plans[0][1]):
        plans += [made for made in planned(Switches(carried=True)) if all(offers(*made))]
    plans.sort(key=lambda made: _seconds(offers(*made)))
    others, own_first = library_plans(capture, arch, device, planned, lambda made: _seconds(offers(*made)))
    plans = [*plans, *others] if own_first else [*others, *plans]
    for made in own_plans(capture, arch, device, planned):  # before the first that is predicted to take longer
        slower = (k for k, other in enumerate(plans) if total(other) > total(made))
        plans.insert(next(slower, len(plans)), made)
    streams = [_of_plan(capture, *made, offers, policy, refused) for made in plans]
    found: set[str] = set()
    for candidate in _in_turn(streams):
        if candidate.digest not in found:
            found.add(candidate.digest)
            yield candidate
    if not found and refused:
        raise refused[0]
    if not found:
        named = ", ".join(dict.fromkeys(n.target.__name__ for n in capture.graph.nodes if is_library(n)))
        raise NoCandidate(f"a library's call is all there is: {named}", operator=named)


def _seconds(options: list[list[KernelCode]]) -> float:
    """The shortest predicted time of a plan's kernels."""
    return sum(min(map(predict, filter(covers, kernels)), default=0.0) for kernels in options)


def _in_turn(streams: list[Iterator[Candidate]]) -> Iterator[Candidate]:
    """The first of each, then the second of each, and so on."""
    for group in zip_longest(*streams):
        yield from (candidate for candidate in group if candidate is not None)


def _of_plan(
    capture: Capture,
    plan: Plan,
    programs: list[Program],
    offers: Offers,
    policy: Policy,
    refused: list[NoCandidate],
) -> Iterator[Candidate]:
    """The candidates of a plan; where no kernel does one of its programs there are none, and `refused` says so."""
    calls = [lowering(step, capture.precision.value) for step in plan.parts.calls]
    options = offers(plan, programs)
    for program, kernels in zip(programs, options, strict=True):
        if not kernels:
            refused.append(NoCandidate(f"no kernel family covers {program.name}", operator=program.name))
            return
    ranked = policy.rank([Option(choice, calls) for choice in _combinations(options)])
    for option in ranked:
        if option.choices or any(call.kernels for call in option.calls):
            idea = _idea(option.choices, option.calls)
            yield write_candidate(plan, option.choices, idea, option.gain, option.calls)


def _target(capture: Capture, device: str, variants: Callable[[], list[Any]]) -> Target:
    """The GPU at hand and the longest dimension it will meet; an H200 and the first variant where there is none."""
    import torch

    if not device.startswith("cuda") or not torch.cuda.is_available():
        return Target()
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    graphs = [capture.module, *variants()]
    values = [n.meta.get("val") for graph in graphs for n in graph.graph.nodes if n.op == "placeholder"]
    return Target(processors, max((n for v in values if isinstance(v, torch.Tensor) for n in v.shape), default=0))


def _extents(capture: Capture, variants: Callable[[], list[Any]]) -> dict[str, int]:
    """The largest that each size of an input is in another variant of the task."""
    names, found = names_of(capture.placeholders())[0], dict[str, int]()
    for node in (node for graph in variants() for node in graph.graph.nodes if node.name in names):
        for axis, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            name = f"{names[node.name][0]}_{axis}"
            found[name] = max(int(size), found.get(name, 0))
    return found


def _combinations(options: list[list[KernelCode]]) -> Iterator[list[Choice]]:
    """The first kernel everywhere, then one program's alternative at a time."""
    yield [_covered(kernels, 0) for kernels in options]
    for k, kernels in enumerate(options):
        for alternative in range(1, len(kernels)):
            yield [_covered(ks, alternative if i == k else 0) for i, ks in enumerate(options)]


def _covered(kernels: list[KernelCode], first: int) -> Choice:
    """The chosen kernel and, where it is limited to some shapes, those that cover the rest, the nearest limit first.

    The order in which the captured sizes rank them says nothing of other sizes; a schedule for short rows is the better
    one wherever it fits.
    """
    covered = [kernels[first]]
    for k in sorted(kernels, key=lambda k: (k.most, not k.limit)):  # stable: of equal limits the one ranked first
        other = covered[-1].limit and covered[-1].most == k.most  # a limit that is not of columns alone
        if k.most > covered[-1].most or (other and not k.limit):
            covered.append(k)
    return covered


def _idea(choices: list[Choice], calls: Sequence[Lowering] = ()) -> str:
    ideas = list(dict.fromkeys([*(c.idea for c in calls), *(choice[0].idea for choice in choices)]))
    text = "; then ".join(ideas)
    return text if len(choices) == 1 or calls else f"{len(choices)} kernels: {text}"


Offers = Callable[[Plan, list[Program]], list[list[KernelCode]]]

__all__ = ["make_plan", "propose"]

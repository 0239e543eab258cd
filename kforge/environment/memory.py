"""The memory gate: the same kernels under AddressSanitizer and the race checker of the emulator, and on a GPU under
compute-sanitizer. What these find is wrong whatever the values were.

One process in phase build calls the candidate on the plan's smallest inputs while the emulator's launches are kept;
these run again, each tool in a process of its own. The smallest as they are and of ragged sizes always do, further ones
while processor time is left. What is not done is named with its reason and fails nothing.
"""

from __future__ import annotations

import bisect
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from kforge.environment.expected import Skip
from kforge.environment.inputs import Case, Plan
from kforge.environment.preparation import Prepared
from kforge.errors import BuildError, ChildFailed, MissingError
from kforge.kernel.emulator.findings import Finding
from kforge.task import call_leaves
from kforge.task.call import tensors as call_tensors
from kforge.worker.inspection import LIMIT_S, SLOWER

if TYPE_CHECKING:
    from kforge.task import Call
    from kforge.worker import Child, Inspected
    from kforge.worker.replies import Recorded

MODES = ("checked", "traced")
TOOLS = ("memcheck", "racecheck")  # of compute-sanitizer
CASES = 8
CASE_BYTES = 16 << 20  # inputs of one case that the emulator takes
SANITIZED_BYTES = 256 << 20
ALWAYS = 3  # of these cases: the smallest, of ragged sizes, of whole vectors off their alignment
ALWAYS_S = 20.0  # of processor time for these in each instrumented run, by the estimate of worker/inspection.py
BUDGET_S = {"quick": 2.5, "standard": 2.5, "full": 20.0}  # beyond which no further cases join them
RAGGED = ("prime", "plus", "minus", "tile")
SANITIZER_S = 60.0
CRASH_S = 10.0  # of the checked run that names where a candidate died, by the same estimate
RACE_S = 10.0  # of the traced run that looks for a race behind a wrong answer
AGAIN_S = {"checked": CRASH_S, "traced": RACE_S}
EXAMINE_S = LIMIT_S + 120.0  # on the clock, for building and running
STARTING_S = 4.0, 16.0  # until the smallest inputs are through, where the modes' preludes are there, or must be made
SLOWEST = max(SLOWER.values())
WARNS = {"racecheck"}  # hazards by its rules may be intended (volatile, warps in step): said, and no verdict


@dataclass
class Examination:
    """What the gate found. wrong: the first finding in words, kind: its kind (the emulator's findings.py). case:
    inputs that show it. on: "cpu" where the emulator found it, else the GPU. ran: tools with their seconds.
    skipped: tools that did not run, and why. late: inputs for which no time was left. warnings: in words.
    """

    wrong: str = ""
    kind: str = ""
    case: Case | None = None
    on: str = ""
    ran: dict[str, float] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def detail(self) -> str:
        """For the gate's line: what ran and how long it took, what did not."""
        ran = ", ".join(f"{tool} {seconds:.1f} s" for tool, seconds in self.ran.items())
        return "; ".join([*([ran] if ran else []), *self.skipped])

    def take(self, rows: list[Inspected]) -> int:
        """Add what the tools of one process say; returns the number of the launch that the first finding is about."""
        number = 0
        for row in rows:
            if row.skipped:
                self.skipped.append(f"{row.tool} not run: {row.skipped}")
            else:
                self.ran[row.tool] = row.seconds
            # an access that ends where it should not may be why the kernel then failed: it is told first
            for finding, launch in sorted(map(_finding, row.findings), key=lambda f: f[0].kind == "failed"):
                if row.tool in WARNS:
                    self.warnings.append(f"{row.tool}: {finding}")
                elif not self.wrong:
                    self.wrong, self.kind, number = f"{row.tool}: {finding}", finding.kind, launch
        return number


def smallest(prepared: Prepared, cases: Iterable[Case], most_bytes: int) -> list[tuple[Case, Call]]:
    """Of cases that were judged, one for each shape, and one for each layout of the smallest.

    First the smallest, the smallest of ragged sizes, and of those in whole vectors that begin one element past an
    aligned address; then by bytes, contiguous before other layouts. Cases with an empty input launch next to nothing
    and are left out.
    """
    found: dict[tuple[int, str], list[tuple[int, Case, Call]]] = {}
    too_large: set[tuple[int, str]] = set()
    for case in {case.form: case for case in cases if case.special == "none"}.values():
        shape = (case.variant, case.shape)
        if shape in too_large:  # whatever the layout
            continue
        try:
            call = prepared.inputs(case)
        except Skip:
            continue
        tensors = [t for _, t in call_tensors(call_leaves(call))]
        size = input_bytes(call)
        if size > most_bytes:
            too_large.add(shape)
        elif all(t.numel() for t in tensors):
            found.setdefault(shape, []).append((size, case, call))
    by_layout = [sorted(forms, key=lambda f: (f[0], f[1].layout != "contiguous")) for forms in found.values()]
    shapes = sorted(by_layout, key=lambda forms: forms[0][0])
    chosen = [forms[0] for forms in shapes] + (shapes[0][1:] if shapes else [])
    beyond = [one for forms in shapes for one in forms if one[1].shape.startswith("inner=") and _off(one)]
    chosen[3:3] = beyond[-1:]  # of a kernel that perhaps no smaller case launches
    ragged = next((one for one in chosen[1:] if one[1].shape in RAGGED), None)
    for one in filter(None, (next(filter(_off, itertools.chain(*shapes)), None), ragged)):
        chosen = [other for other in chosen if other is not one]
        chosen.insert(1, one)
    return [(case, call) for _, case, call in chosen[:CASES]]


def input_bytes(call: Call) -> int:
    """Of all tensors among a call's inputs."""
    return sum(t.numel() * t.element_size() for _, t in call_tensors(call_leaves(call)))


def _off(one: tuple[int, Case, Call]) -> bool:
    """Whether a kernel may read the call's largest input by vectors of four, were it not for its address."""
    _, case, call = one
    if (case.layout, case.moved) != ("offset", "all"):
        return False
    largest = max((t for _, t in call_tensors(call_leaves(call))), key=lambda t: t.numel())
    return largest.dim() > 0 and largest.shape[-1] % 4 == 0


def on_emulator(
    prepared: Prepared,
    plan: Plan,
    start: Callable[[], Child],
    load: Callable[[Child], None],
    found: Examination,
    until: float = math.inf,
) -> None:
    """Modes checked and traced over the smallest inputs. plan: of cases that were judged. start: a process on the CPU
    in phase build. until: a budget's end on the clock: nothing is begun that would not be over by then, and no time
    beyond it goes into inputs that are not required.
    """
    if time.monotonic() + starting_s() > until:
        found.skipped.append("checked and traced not run: no time left in the budget")
        return
    cases = smallest(prepared, plan.cases, CASE_BYTES)
    if not cases:
        found.skipped.append(f"checked and traced not run: no inputs of at most {CASE_BYTES >> 20} MiB")
        return
    budget_s = max(0.0, min(BUDGET_S[plan.name], until - time.monotonic()))
    try:
        process = start()
    except (MissingError, BuildError) as error:  # of the emulator itself: no g++, no CUDA headers
        found.skipped.append(f"checked and traced not run: {error.message}; {error.hint}")
        return
    try:
        with process as child:
            load(child)
            counts, late = [], []
            for number, (case, call) in enumerate(cases):
                most_s = (ALWAYS_S if number < ALWAYS else budget_s) / SLOWEST
                kept = child.record(call, most_s)
                counts.append(kept.launches)
                late += [case.label] if kept.left_out else []
            if not counts[-1]:
                found.skipped.append("checked and traced not run: no launch of a kforge.kernel.Kernel")
                return
            if late:
                words = f"no time left in plan {plan.name} to check and trace {len(late)} of {len(cases)} inputs"
                found.late.append(f"{words}: {'; '.join(late)}")
            launch = found.take(child.examine(MODES, max(ALWAYS_S, budget_s), EXAMINE_S))
            found.case, found.on = _of_launch(cases, counts, launch), "cpu"
    except ChildFailed as failure:
        _not_run("checked and traced", failure, found)


def starting_s() -> float:
    """Seconds on the clock until a process has run the smallest inputs in the instrumented modes."""
    from kforge.kernel.emulator.build import has_prelude
    from kforge.kernel.emulator.mode import Kind

    return STARTING_S[0 if has_prelude(Kind.CHECKED) and has_prelude(Kind.TRACED) else 1]


def _of_launch(cases: Sequence[tuple[Case, Call]], counts: Sequence[int], launch: int) -> Case:
    """The case that a launch is of. counts: launches kept after each case; of a number that is none, the first case."""
    return cases[bisect.bisect_right(counts, launch) if launch < counts[-1] else 0][0]


def after_crash(
    prepared: Prepared,
    crashed: Case,
    judged: Iterable[Case],
    start: Callable[[], Child],
    load: Callable[[Child], None],
    found: Examination,
) -> None:
    """Mode checked over the launches of a case that ended its process, then over small cases that were judged before,
    whose accesses may be what damaged its memory. The launches are kept without running them.
    """
    cases = [(crashed, prepared.inputs(crashed)), *smallest(prepared, judged, CASE_BYTES)]
    _again(cases, "checked", start, load, found, lambda child, call: child.record(call, most_s=CRASH_S, only=True))


def after_wrong(
    wrong: Case, call: Call, start: Callable[[], Child], load: Callable[[Child], None], found: Examination
) -> None:
    """Mode traced over the launches of a case that was answered wrongly: accesses that nothing orders explain it."""
    most_s = RACE_S / SLOWER["traced"]
    _again([(wrong, call)], "traced", start, load, found, lambda child, call: child.record(call, most_s))


def _again(
    cases: Sequence[tuple[Case, Call]],
    mode: str,
    start: Callable[[], Child],
    load: Callable[[Child], None],
    found: Examination,
    record: Callable[[Child, Call], Recorded],
) -> None:
    """These cases' launches in one mode."""
    try:
        process = start()
    except (MissingError, BuildError) as error:
        found.skipped.append(f"{mode} not run: {error.message}; {error.hint}")
        return
    try:
        with process as child:
            load(child)
            counts = [record(child, call).launches for _, call in cases]
            if not counts[-1]:
                found.skipped.append(f"{mode} not run: no launch of a kforge.kernel.Kernel")
                return
            launch = found.take(child.examine((mode,), AGAIN_S[mode], EXAMINE_S))
            found.case, found.on = _of_launch(cases, counts, launch), "cpu"
    except ChildFailed as failure:
        _not_run(mode, failure, found)


def on_gpu(
    prepared: Prepared, plan: Plan, start: Callable[[], Child], load: Callable[[Child], None], found: Examination
) -> None:
    """compute-sanitizer's memcheck and racecheck over the smallest inputs. start: a GPU process in phase build."""
    cases = smallest(prepared, plan.cases, SANITIZED_BYTES)
    if not cases:
        found.skipped.append(f"compute-sanitizer not run: no inputs of at most {SANITIZED_BYTES >> 20} MiB")
        return
    try:
        with start() as child:
            load(child)
            rows = child.sanitize(cases[0][1], TOOLS, SANITIZER_S)
    except ChildFailed as failure:
        _not_run("compute-sanitizer", failure, found)
        return
    before = found.wrong
    found.take(rows)
    if found.wrong and not before:
        found.case, found.on = cases[0][0], prepared.device


def _not_run(what: str, failure: ChildFailed, found: Examination) -> None:
    """It ran in the correctness gate: that it does not run here says nothing against it, unless it forges."""
    if failure.kind == "protocol":
        raise failure
    words = failure.error.get("message") or (failure.text.strip().splitlines() or [""])[-1]
    found.skipped.append(f"{what} not run: {words}")


def _finding(row: Mapping[str, Any]) -> tuple[Finding, int]:
    """A finding as the child describes it, its fields in the types they should have, and its launch (0: unknown)."""
    known = {f.name: int if f.type == "int" else str for f in fields(Finding)}
    try:
        values: dict[str, Any] = {"kind": "", "kernel": "", **{k: known[k](v) for k, v in row.items() if k in known}}
        return Finding(**values), max(0, int(row.get("launch", 0)))
    except (TypeError, ValueError) as error:
        raise ChildFailed("protocol", f"a malformed finding: {error}") from error

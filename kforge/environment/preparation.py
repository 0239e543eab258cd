"""The judge's side of a task, made once and used for every candidate: facts, fp64 reference, expected values, floor.

Nothing here ever reaches a candidate's process except the inputs of a call, the constructor's arguments and the state.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import secrets
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge import scratch
from kforge.environment.acceptance import MIN_DRAWS, SMALL
from kforge.environment.derivation import Derivation
from kforge.environment.expected import (
    Expected,
    Skip,
    exact_of,
    first_line,
    fp64_baseline,
    nonfinite_share,
    rejected,
)
from kforge.environment.inputs import GIVEN, Case, NotApplicable, realise
from kforge.environment.provenance import Intermediates
from kforge.environment.randomness import Choices, choices
from kforge.environment.shapes import Sizes
from kforge.environment.span import shapes_of
from kforge.environment.ties import Inner
from kforge.environment.widened import can_widen, run_widened
from kforge.errors import MissingError

if TYPE_CHECKING:
    import torch

    from kforge.environment.processes import Processes
    from kforge.environment.target import Given
    from kforge.profiling.comparison import Captured
    from kforge.profiling.roofline import Floor
    from kforge.task import Call, Capture, Cost, Promoted, State, Task, TaskFacts
    from kforge.task.promotion import Replay
    from kforge.worker import Child

CACHE_BYTES = {"cpu": 1 << 30, "cuda": 16 << 30}  # expected values kept between candidates
RATED = ("fp64", "fp32", "tensor")  # integer and special functions have no ceiling: they bound nothing
NONFINITE = 0.1  # a distribution that makes over this share of an output NaN or infinite is skipped


class Prepared:
    """Everything of the judge for one task on one device. Make it with `prepare`.

    device: "cpu" (emulator) or "cuda:N". facts: of inspect_task. floor: None where capture failed. folder: where
    candidates' processes work (one folder a candidate, kept for the next plan). entropy: 64 random bits from which
    every seed follows; recorded in reports only after the evaluation.
    """

    def __init__(self, task: Task, device: str, folder: Path, entropy: int | None = None) -> None:
        self.task, self.device, self.folder = task, device, folder
        self.entropy = secrets.randbits(64) if entropy is None else entropy
        self.facts: TaskFacts | None = None
        self.floors: dict[int, Floor | None] = {}
        self.baseline_ms: dict[str, float] = {}
        self.baselines: dict[str, Callable[..., Any] | None] = {}  # made by the performance gate, None: does not run
        self.notes: list[str] = []
        self.given: Given | None = None  # of target.given
        self.timed: dict[int, Call] = {}  # inputs to time with, by variant (ladder.timing_call)
        self.replays: dict[int, Captured] = {}  # of baselines, by variant: graphs, no times
        self.from_text = True  # until a candidate needs builds that its text alone does not tell (building.py)
        self.rooms: dict[str, Path] = {}  # the folder of each candidate that was here
        self.spare: Processes | None = None  # of the next candidate, where a warm judge started them
        self.ending: list[Child] = []  # of an evaluation that is over, told to end and not waited for
        self.holds: dict[Case, bool] = {}  # whether this task's inputs can be so (asked.py)
        self._captures: dict[int, tuple[Capture, Promoted, Intermediates | None]] = {}
        self._modules: dict[int, torch.nn.Module] = {}
        self._expected: OrderedDict[tuple[Case, int], Expected] = OrderedDict()
        self._held = 0
        self._skipped: dict[tuple[Case, int], str] = {}
        self._states: dict[int, State] = {}
        self._plain: dict[int, float] = {}
        self.derived = Derivation(self)
        self.shapes: dict[tuple[int, str], dict[str, tuple[int, ...]]] = {}  # of inputs made, by variant and shape
        self._keeper: object = None  # of a temporary folder

    def again(self, entropy: int | None = None) -> Prepared:
        """The same task with other seeds: what follows from them is made anew, what does not is shared.

        Shared are facts, captures, sizes, derived shapes and candidates' folders with their builds; inputs, states and
        expected values are not.
        """
        other = Prepared(self.task, self.device, self.folder, entropy)
        other.facts, other.rooms, other._keeper = self.facts, self.rooms, self._keeper
        other.floors, other.notes, other._captures = dict(self.floors), list(self.notes), dict(self._captures)
        other.derived, other.shapes = Derivation(other, self.derived), dict(self.shapes)
        other.holds = self.holds
        other.given, other.from_text = self.given, self.from_text
        return other

    def seed(self, *parts: object) -> int:
        """A 63-bit seed that follows from the judge's entropy and these parts."""
        digest = hashlib.sha256(repr((self.entropy, *parts)).encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1

    def capture(self, variant: int = 0) -> Capture:
        """The captured graph of one variant (its `failure` says why where there is none)."""
        return self._captured(variant)[0]

    def promoted(self, variant: int = 0) -> Promoted:
        """The fp64 reference for one variant's shapes."""
        return self._captured(variant)[1]

    def sources(self, variant: int = 0) -> tuple[Any, ...]:
        """Rules of the discrete outputs, by output leaf; empty where capture failed."""
        intermediates = self._captured(variant)[2]
        return intermediates.sources if intermediates else ()

    def variant(self, case: Case) -> int:
        """The number under which a case's inputs are made and captured: each derived shape has one of its own."""
        return case.variant if case.shape == GIVEN else self.derived.number(case.variant, case.shape)

    def sizes(self, variant: int = 0) -> Sizes:
        """Which dimensions of a variant's inputs may change, and which of them together."""
        return self.derived.sizes(variant)

    def leniency(self, case: Case) -> float:
        """How much wider the bounds on errors are for this case: 1 on the task's own sizes."""
        return 1.0 if case.shape == GIVEN else self.derived.leniency(case.variant, case.shape)

    def _captured(self, variant: int) -> tuple[Capture, Promoted, Intermediates | None]:
        from kforge.task import capture, promote

        if variant not in self._captures:
            found = capture(self.derived.task, variant, self.device)
            intermediates = Intermediates(found) if found.graph_module is not None else None
            self._captures[variant] = (found, promote(found), intermediates)
        return self._captures[variant]

    def floor(self, variant: int = 0) -> Floor | None:
        """The physical floor of one variant on this GPU; None without one or where nothing could be counted."""
        if variant not in self.floors:
            self.floors[variant] = _floor(self, variant)
        return self.floors[variant]

    def cost(self, variant: int = 0) -> Cost | None:
        """Bytes and operations of one call, of the kinds that a GPU has a rate for; None where capture failed."""
        from kforge.task import count

        capture = self.capture(variant)
        if capture.graph_module is None:
            return None
        cost = count(capture)
        return replace(cost, flops={kind: n for kind, n in cost.flops.items() if kind in RATED})

    def reference(self, state_seed: int = 0) -> torch.nn.Module:
        """The reference with randomised state. One module per state seed, not to be run where it mutates itself."""
        from kforge.task import randomise_state

        if state_seed not in self._modules:
            module = self.constructed()
            running = self.facts.running if self.facts else None
            randomise_state(module, self.seed("state", state_seed), running)
            self._modules[state_seed] = module
        return self._modules[state_seed]

    def constructed(self) -> torch.nn.Module:
        """A new reference with the parameters that its constructor gives it."""
        return self.task.make_reference(self.seed("construct") & 0x7FFF_FFFF, self.device)

    def state(self, state_seed: int = 0) -> State:
        """What a candidate's module is loaded with."""
        from kforge.task import read_state

        if state_seed not in self._states:
            self._states[state_seed] = read_state(self.reference(state_seed))
        return self._states[state_seed]

    @property
    def stateful(self) -> bool:
        """Whether a call changes parameters or buffers: then two successive calls are compared."""
        return bool(self.facts and self.facts.effects.mutated_state)

    def expected(self, case: Case, draw: int = 0) -> Expected:
        """Inputs and right answers of one case; draw > 0 are further draws of the same kind. Skip with the reason."""
        key = (case, draw)
        if key in self._skipped:
            raise Skip(self._skipped[key])
        if key in self._expected:
            self._expected.move_to_end(key)
            return self._expected[key]
        try:
            with _fitting(case):
                made = self._make(case, draw)
        except Skip as skip:
            self._skipped[key] = str(skip)
            raise
        self._expected[key] = made
        self._held += made.nbytes
        while self._held > CACHE_BYTES[self.device.split(":")[0]] and len(self._expected) > 1:
            _, old = self._expected.popitem(last=False)
            self._held -= old.nbytes
        return made

    def inputs(self, case: Case) -> Call:
        """Inputs of a case alone, for what depends on their form. Skip with the reason."""
        with _fitting(case):
            return self._realised(case, self.variant(case), self.seed("case", case.variant, case.seed, 0, 0))

    def drawn(self, case: Case) -> Call | None:
        """The inputs of a case that was judged before, while they are kept."""
        kept = self._expected.get((case, 0))
        return kept.call if kept is not None else None

    def _realised(self, case: Case, variant: int, seed: int) -> Call:
        plain = self.derived.task.make_call(variant, seed, self.device)
        forward = self.reference(case.state_seed).forward
        self.shapes[case.variant, case.shape] = shapes_of(plain, forward)
        try:
            return realise(plain, case, self.seed("values", seed), self.task.domain, forward)
        except NotApplicable as reason:
            raise Skip(str(reason)) from reason

    def draws(self, case: Case) -> int:
        """How many draws the statistics of this case's outputs need before they count (1 for large outputs)."""
        leaves = self.expected(case).exact
        return MIN_DRAWS if any(e is not None and 0 < e.numel() < SMALL for e in leaves) else 1

    def _make(self, case: Case, draw: int) -> Expected:
        module = self.reference(case.state_seed)
        if self.stateful:
            module = copy.deepcopy(module)
        first = self._answer(module, case, draw, 0)
        self._refuse_nonfinite(case, first)
        if not self.stateful:
            return first
        second = self._answer(module, case, draw, 1)
        return replace(first, then=second)

    def _answer(self, module: torch.nn.Module, case: Case, draw: int, step: int) -> Expected:
        """One call of the baseline and of fp64 on the same inputs, from the state that `module` has now."""
        seed = self.seed("case", case.variant, case.seed, draw, step)
        return self.answer(module, case, self._realised(case, self.variant(case), seed), self.seed("runtime", seed))

    def answer(self, module: torch.nn.Module, case: Case, call: Call, runtime: int = 0) -> Expected:
        """What is right for this call with the state that `module` has now. case: what it is a variation of."""
        import torch

        from kforge.environment.overwrites import WORDS, Overwrites
        from kforge.task import call_leaves, observe
        from kforge.task.call import copy_tree, tensors, tree_leaves
        from kforge.task.state import named_state

        before = copy.deepcopy(module) if self.stateful else module
        moved = case.shape != GIVEN or case.layout != "contiguous"  # what else is done to inputs leaves indices alone
        twice = Overwrites() if moved else None
        try:
            with twice or contextlib.nullcontext():
                seen = observe(self.task, module, call, seed=runtime)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # whatever the reference raises on hostile inputs: the case is not the task's
            if case.plain:
                raise rejected(self.task, case.variant, error) from error
            raise Skip(f"the reference rejects it: {first_line(error)}") from error
        if twice is not None and twice.found:
            raise Skip(WORDS)
        try:
            exact, inner = self._exactly(case, self.variant(case), before, call, runtime)
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:  # an operator of torch that takes no float64, or no such strides
            if case.plain:
                raise rejected(self.task, case.variant, error, " in float64") from error
            raise Skip(f"the reference rejects it in float64: {first_line(error)}") from error
        if any(alias.source.startswith("state:") for alias in seen.effects.aliases):
            seen = replace(seen, outputs=copy_tree(seen.outputs))  # the module's next call may write that memory
        leaves = tuple(tree_leaves(seen.outputs))
        exacts = tuple(
            exact_of(baseline, wide, call)
            for (_, baseline), (_, wide) in zip(leaves, tree_leaves(exact.outputs), strict=True)
        )
        state = named_state(module) if self.stateful else {}
        return Expected(
            call=call,
            outputs=seen.outputs,
            leaves=tuple(
                (path, fp64_baseline(leaf, wide, call)) for (path, leaf), wide in zip(leaves, exacts, strict=True)
            ),
            exact=exacts,
            inputs_after=seen.call,
            exact_inputs=exact.mutated,
            effects=seen.effects,
            state_after={name: t.detach().clone() for name, t in state.items()},
            exact_state=exact.mutated_state,
            seed=runtime,
            input_paths=tuple(path for path, _ in tensors(call_leaves(call, module.forward))),
            inner=inner,
        )

    def choices(self, case: Case, expected: Expected) -> list[Choices | None] | None:
        """For a reference with dropout, the two right values of each output leaf (randomness.py); else None."""
        if self.facts is None or not self.facts.random or self.stateful:
            return None
        return choices(self.task, self.reference(case.state_seed), expected.call)

    def _exactly(
        self, case: Case, variant: int, module: torch.nn.Module, call: Call, seed: int
    ) -> tuple[Replay, dict[str, Inner]]:
        """The fp64 reference's answer and the inner values that discrete outputs are judged by."""
        capture, promoted, intermediates = self._captured(case.variant)
        if case.shape != GIVEN:
            if can_widen(capture) and not (intermediates and intermediates.names):
                return run_widened(module, call, seed), {}
            promoted, intermediates = self._captured(variant)[1:]
        return promoted.run(module, call, seed), intermediates.values(module, call, seed) if intermediates else {}

    def _refuse_nonfinite(self, case: Case, made: Expected) -> None:
        """CONTRACTS 4: a distribution may not turn over 10 % of an output non-finite where the plain one is finite."""
        if case.special != "none" or case.plain:
            return
        if case.variant not in self._plain:
            self._plain[case.variant] = nonfinite_share(self.expected(Case(variant=case.variant)))
        share = nonfinite_share(made)
        if share > NONFINITE and share > self._plain[case.variant] + NONFINITE:
            raise Skip(f"{share:.0%} of a reference output becomes NaN or infinite")


def prepare(task: Task, device: str = "cpu", *, folder: Path | None = None, entropy: int | None = None) -> Prepared:
    """Inspect a task and get the judge's side ready on one device.

    folder: working folder (default: a temporary one, removed at exit). TaskError for a task that cannot be judged,
    TooLargeError where the emulator would take minutes.
    """
    from kforge.task import inspect_task

    if folder is None:
        keeper = tempfile.TemporaryDirectory(prefix="task-", dir=scratch.root())
        folder = Path(keeper.name)
    else:
        keeper = None
    prepared = Prepared(task, device, folder, entropy)
    prepared._keeper = keeper  # lives as long as the object does
    prepared.facts = inspect_task(task, device)
    return prepared


@contextlib.contextmanager
def _fitting(case: Case) -> Iterator[None]:
    """Skip where the judge has no memory for one of the further variants; without the first there is no judging."""
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        if not case.variant:
            raise
        raise Skip(f"variant {case.variant} does not fit the device's memory") from error


def _floor(prepared: Prepared, variant: int) -> Floor | None:
    from kforge.profiling import ceilings, roofline

    cost = prepared.cost(variant)
    if prepared.device == "cpu" or cost is None:
        return None
    with contextlib.suppress(MissingError):
        return roofline.floor(cost, ceilings.for_device(prepared.device))
    return None

"""Inspecting a task before work starts: does the reference run, what does it return, change, share and depend on.

Bad tasks end here with one line (TaskError, exit 2); what a person should know comes back as TaskFacts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError, TaskError, TooLargeError
from kforge.task.alias import Effects, Observed, observe, same_bits
from kforge.task.call import Call, call_leaves, tensors, tree_leaves
from kforge.task.capturing import fake_call, trying_fakes
from kforge.task.counting import Cost
from kforge.task.domain import check_paths
from kforge.task.form import Form
from kforge.task.graph import Capture
from kforge.task.limits import EMULATOR_BYTES, EMULATOR_OPERATIONS, MIB
from kforge.task.promotion import Promoted
from kforge.task.state import named_state, running_statistics, torch_statistics
from kforge.task.task import Task
from kforge.task.usercode import user_code

if TYPE_CHECKING:
    import torch
    from torch.utils._pytree import TreeSpec

RUNS = 3  # of the reference, each reseeded, to tell whether it is deterministic
SEEDS = 64  # tried until an output changes, where the reference draws
EMULATOR_HINT = "use a machine with a GPU, or put smaller inputs into get_inputs() and these into get_input_variants()"


@dataclass(frozen=True)
class TensorFact:
    """One output tensor of the reference on variant 0."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: str


@dataclass(frozen=True)
class TaskFacts:
    """What is known about a task on one device, from variant 0.

    constants: non-tensor output leaves by path. effects: mutations and aliases. running: buffers that a training call
    changes. degenerate: every output is the same whatever the inputs are (degenerate_outputs: the paths that are).
    random: outputs change with torch's seed. run_to_run: largest difference between reseeded runs (atomics), absolute.
    input_bytes, output_bytes, state_bytes: sizes of storage. redirects: places where "cuda" was sent to the CPU.
    variants: those that can be used on this device; skipped: a line for each of the others, with the reason.
    """

    outputs: tuple[TensorFact, ...]
    constants: dict[str, Any] = field(hash=False)
    out_spec: TreeSpec = field(hash=False)
    effects: Effects
    running: tuple[str, ...]
    training: bool
    degenerate: bool
    degenerate_outputs: tuple[str, ...]
    random: bool
    run_to_run: float
    input_bytes: int
    output_bytes: int
    state_bytes: int
    redirects: tuple[str, ...]
    variants: tuple[int, ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...] = ()


def inspect_task(task: Task, device: torch.device | str = "cpu") -> TaskFacts:
    """Run the reference a few times on `device` ("cpu" stands for the emulator) and record what it does.

    Raises TaskError: inputs that the reference rejects, an output tree without tensors, a reference that stays
    non-deterministic after reseeding. Raises TooLargeError when the first inputs do not fit the emulator.
    """
    import torch

    emulated = torch.device(device).type == "cpu"
    if emulated:
        _check_size(task, _size(task, 0, device))
    module = task.make_reference(device=device)
    call = task.make_call(device=device)
    first = _observe(task, copy.deepcopy(module), call, seed=0)
    outputs = tensors(tree_leaves(first.outputs))
    if not outputs:
        raise TaskError(
            f"{task.path.name}: the reference returns no tensor (it returned {_short(first.outputs)})",
            "return a tensor, or a tuple, list or dict that holds one",
        )
    inputs = tensors(call_leaves(call, module.forward))
    check_paths(task.domain, [path for path, _ in inputs], task.path.name)
    input_bytes = _bytes([t for _, t in inputs])
    output_bytes, state_bytes = _bytes([t for _, t in outputs]), _bytes(list(named_state(module).values()))
    if emulated:
        _check_size(task, input_bytes + output_bytes + state_bytes)
    run_to_run = _check_deterministic(task, module, call)
    constant = _degenerate_outputs(task, module, call, device)
    variants, skipped = _usable_variants(task, device) if emulated else (tuple(range(task.n_variants)), ())
    for variant in variants[1:]:
        _check_variant(task, module, variant, device)
    return TaskFacts(
        outputs=tuple(
            TensorFact(path, str(t.dtype).removeprefix("torch."), tuple(t.shape), t.stride(), str(t.device))
            for path, t in outputs
        ),
        constants={p: leaf for p, leaf in tree_leaves(first.outputs) if not isinstance(leaf, torch.Tensor)},
        out_spec=torch.utils._pytree.tree_structure(first.outputs),
        effects=first.effects,
        running=_running(task, module, call),
        training=module.training,
        degenerate=len(constant) == len(outputs),
        degenerate_outputs=constant,
        random=_is_random(task, module, call),
        run_to_run=run_to_run,
        input_bytes=input_bytes,
        output_bytes=output_bytes,
        state_bytes=state_bytes,
        redirects=tuple(task.redirects),
        variants=variants,
        skipped=skipped,
        notes=(f"degenerate: {', '.join(constant)} does not depend on the inputs",) if constant else (),
    )


def _observe(task: Task, module: torch.nn.Module, call: Call, seed: int) -> Observed:
    with user_code(task.path, "the reference rejects its inputs:"):
        return observe(task, module, call, seed)


def _running(task: Task, module: torch.nn.Module, call: Call) -> tuple[str, ...]:
    """Buffers that a training call changes; those of torch's own layers where it cannot train on the inputs."""
    if not any(True for _ in module.buffers()):
        return ()
    try:
        with user_code(task.path, "training fails:"), task.conditions(module, call, seed=0):
            return running_statistics(module, call)
    except TaskError:
        return torch_statistics(module)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- size


def _bytes(found: list[torch.Tensor]) -> int:
    """Bytes of the distinct storages; of fakes and exotic tensors the elements."""
    import torch

    sizes = {}
    for t in found:
        plain = type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided
        sizes[t.untyped_storage()._cdata if plain else id(t)] = (
            t.untyped_storage().nbytes() if plain else t.numel() * t.itemsize
        )
    return sum(sizes.values())


def _size(task: Task, variant: int, device: torch.device | str) -> int:
    """Bytes of a variant's inputs, worked out without allocating them; 0 where the maker needs real values."""
    call = fake_call(task, variant, device)
    return _bytes([t for _, t in tensors(call_leaves(call))]) if call is not None else 0


def _check_size(task: Task, size: int) -> None:
    if size > EMULATOR_BYTES:
        raise TooLargeError(
            f"{task.path.name}: the inputs are too large for the emulator: {_mib(size)} of inputs, state and outputs,"
            f" the limit is {_mib(EMULATOR_BYTES)}",
            EMULATOR_HINT,
        )


def check_operations(task: Task, cost: Cost) -> None:
    """Raises TooLargeError where one call counts more operations than the emulator does in a few seconds."""
    if cost.operations > EMULATOR_OPERATIONS:
        raise TooLargeError(
            f"{task.path.name}: too much work for the emulator: {cost.operations:.2g} operations a call,"
            f" the limit is {EMULATOR_OPERATIONS:.2g}",
            EMULATOR_HINT,
        )


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"


def _usable_variants(task: Task, device: torch.device | str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Variants that fit the emulator, and a line for each that does not. Inputs are not allocated to find out."""
    usable, skipped = [0], []
    for variant in range(1, task.n_variants):
        size = _size(task, variant, device)
        if 2 * size > EMULATOR_BYTES:  # outputs are taken to be as large as the inputs
            skipped.append(f"variant {variant}: {_mib(size)} of inputs is too large for the emulator")
        else:
            usable.append(variant)
    return tuple(usable), tuple(skipped)


def _check_variant(task: Task, module: torch.nn.Module, variant: int, device: torch.device | str) -> None:
    """One call on a variant's shapes, whatever the plan is. Raises TaskError that names the variant.

    On fake tensors first, which costs neither memory nor time; what fails there is tried in earnest.
    """
    if _runs_on_fakes(task, module, variant, device):
        return
    call = task.make_call(variant, device=device)
    if task.form in (Form.TRITON, Form.HELION) and str(device).split(":")[0] == "cpu":
        return  # a call takes the interpreter seconds
    with user_code(task.path, f"the reference rejects the inputs of variant {variant}:"):
        observe(task, copy.deepcopy(module), call)


def _runs_on_fakes(task: Task, module: torch.nn.Module, variant: int, device: torch.device | str) -> bool:
    call = fake_call(task, variant, device)
    if call is None or task.form in (Form.TRITON, Form.HELION):
        return False
    leaves = [leaf for _, leaf in tensors(call_leaves(call))]
    if not leaves:
        return False
    trial = copy.deepcopy(module)
    try:
        with trying_fakes(task), leaves[0].fake_mode, user_code(task.path, "variant:"):  # type: ignore[attr-defined]
            task.run(trial, call)
    except KforgeError:
        return False
    return True


# --- determinism


def _fresh_run(task: Task, module: torch.nn.Module, call: Call, seed: int) -> list[tuple[str, torch.Tensor]]:
    """Output tensors of one call on copies of state and inputs."""
    seen = _observe(task, copy.deepcopy(module), call, seed)
    return tensors(tree_leaves(seen.outputs))


def _check_deterministic(task: Task, module: torch.nn.Module, call: Call) -> float:
    """Largest difference between reseeded runs. Raises TaskError where it exceeds rule (b) of CONTRACTS 4."""
    runs = [_fresh_run(task, module, call, seed=1)]
    worst = 0.0
    for _ in range(RUNS - 1):
        again = _fresh_run(task, module, call, seed=1)
        for i, (path, first) in enumerate(runs[0]):
            other = again[i][1] if i < len(again) else first.new_empty(0)
            if same_bits(first, other):
                continue
            same_shape = first.shape == other.shape and first.dtype == other.dtype
            difference = _difference(first, other) if same_shape else math.inf
            if difference > _allowed(task, module, call, i, (first, other), difference):
                what = f"{path} differs by up to {difference:.3g}" if math.isfinite(difference) else f"{path} differs"
                raise TaskError(
                    f"{task.path.name}: the reference is non-deterministic: {what} between runs with the same seed",
                    "draw random numbers from torch's generators, which are reseeded before each call",
                )
            worst = max(worst, difference)
    return worst


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest absolute difference; infinite where NaNs or infinities are in other places."""
    import torch

    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(wide), b.to(wide)
    equal = (x == y) | ((x != x) & (y != y))
    gap = torch.where(equal, torch.zeros_like((x - y).abs()), (x - y).abs())
    return math.inf if not bool(gap.isfinite().all()) else gap.max().item() if gap.numel() else 0.0


def _allowed(
    task: Task, module: torch.nn.Module, call: Call, i: int, runs: tuple[torch.Tensor, torch.Tensor], difference: float
) -> float:
    """Rule (b) for output i: 4 x the largest error of two runs against fp64, plus one unit in the last place.

    Of both: a single number may lie next to the fp64 value by luck, and the other run is then no less deterministic.

    The fp64 side is an eager copy run twice: rounding noise shrinks with float64 (by 2^-29), true randomness does not,
    and then there is nothing to measure an error against: 0 is allowed.
    """
    import torch

    first = runs[0]
    if not math.isfinite(difference):
        return 0.0
    if not first.is_floating_point():
        return 1.0 if first.dtype != torch.bool else 0.0
    wide = [_wide_run(task, module, call) for _ in range(2)]
    if i >= len(wide[0]) or _difference(wide[0][i], wide[1][i]) > difference * 2**-10:
        return 0.0
    error = max(_difference(run, wide[0][i]) for run in runs)
    ulp = torch.finfo(first.dtype).eps * first.detach().double().abs().nan_to_num(0.0, 0.0, 0.0).max().item()
    return 4.0 * error + ulp


def _wide_run(task: Task, module: torch.nn.Module, call: Call) -> list[torch.Tensor]:
    with user_code(task.path, "the reference fails in float64:"), task.conditions(module, call):
        outputs = Promoted(Capture(None, failure="not captured"), "double")(module, call, seed=1)
    return [t for _, t in tensors(tree_leaves(outputs))]


def _is_random(task: Task, module: torch.nn.Module, call: Call) -> bool:
    """Whether outputs change with the seed. A call that draws gets many seeds: few elements are often dropped alike."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    draws = []

    class Watching(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if torch.Tag.nondeterministic_seeded in func.tags:
                draws.append(func)
            return func(*args, **(kwargs or {}))

    with Watching():
        first = _fresh_run(task, module, call, 1)
    for seed in range(2, 3 + (SEEDS if draws else 0)):
        other = _fresh_run(task, module, call, seed)
        if any(not same_bits(a, b) for (_, a), (_, b) in zip(first, other, strict=True)):
            return True
    return False


# --- degenerate outputs


def _degenerate_outputs(task: Task, module: torch.nn.Module, call: Call, device: torch.device | str) -> tuple[str, ...]:
    """Paths of outputs that stay the same on redrawn and on distorted inputs (up to 8 units in the last place)."""
    first = _fresh_run(task, module, call, seed=1)
    open_ = {i for i, (_, t) in enumerate(first) if t.numel()}
    varied = 0
    for other in (*(task.make_call(seed=seed, device=device) for seed in (11, 12)), *_distorted(call)):
        if not open_:
            return ()
        if _same_inputs(call, other):
            continue
        try:
            run = _fresh_run(task, module, other, seed=1)
        except TaskError:
            continue  # the reference refuses these values (a domain check): nothing to learn from them
        varied += 1
        open_ = {i for i in open_ if i < len(run) and _alike(first[i][1], run[i][1])}
    return tuple(first[i][0] for i in sorted(open_)) if varied else ()


def _same_inputs(a: Call, b: Call) -> bool:
    pairs = zip(tensors(call_leaves(a)), tensors(call_leaves(b)), strict=False)
    return all(same_bits(x, y) for (_, x), (_, y) in pairs)


def _distorted(call: Call) -> list[Call]:
    """Floating inputs scaled, shifted and bent; others as they are."""
    from torch.utils import _pytree as pytree

    def apply(change: Callable[[torch.Tensor], torch.Tensor]) -> Call:
        import torch

        def one(t: torch.Tensor) -> torch.Tensor:
            if not t.is_floating_point():
                return t
            return change(t.float()).to(t.dtype) if t.element_size() == 1 else change(t)  # torch reckons with no fp8

        args, kwargs = pytree.tree_map_only(torch.Tensor, one, (call.args, call.kwargs))
        return Call(args, kwargs)

    return [apply(lambda t: t * 1.5 + 0.25), apply(lambda t: t * -0.75), apply(lambda t: t.cos() + t)]


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point():
        return same_bits(a, b)
    step = max(1, a.numel() // 65536)  # large outputs: a sample settles it unless it is alike
    if step > 1 and not _alike(a.flatten()[::step], b.flatten()[::step]):
        return False
    scale = a.detach().double().abs().nan_to_num(0.0, 0.0, 0.0).max().item()
    return _difference(a, b) <= 8 * torch.finfo(a.dtype).eps * scale

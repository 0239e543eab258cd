"""Helpers of the engine's tests: a task from text, a candidate loaded and run on the CPU through the emulator."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kforge.engine.emit.forwardcode import Plan
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, columns, kernels_for
from kforge.engine.families import row as rows
from kforge.engine.proposing import make_plan, propose
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture, load_task
from kforge.task.backward import differentiating

_numbers = itertools.count()

SCHEDULES: dict[str, Callable[..., KernelCode | None]] = {
    "warp": rows._warp,
    "block": rows._block,
    "stream": rows._stream,
    "thread": rows._thread,
    "split": lambda p, t, n: rows._split(p, t, n, Target()),
    "share": lambda p, t, n: rows._share(p, t, n, Target()),
    "columns": lambda p, t, n: columns.strips(p, t, n, Target(), team=False),
    "abreast": lambda p, t, n: columns.strips(p, t, n, Target(), team=False, several=True),
    "abreast_strips": lambda p, t, n: columns.strips(p, t, n, Target(), team=True, several=True),
    "held": lambda p, t, n: columns.held(p, t, n),
    "strips": lambda p, t, n: columns.strips(p, t, n, Target(), team=True),
}


def task_from(text: str, folder: Path) -> Task:
    """The task of an op.py with this text."""
    path = folder / "op.py"
    path.write_text(text)
    return load_task(path)


def function_task(body: str, inputs: str, folder: Path, parameters: str = "x") -> Task:
    """A task of form (b): `body` is the reference's statements, `inputs` the list of inputs."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    text = f"import torch\nimport torch.nn.functional as F\n\n\ndef reference({parameters}):\n{lines}\n\n\n"
    return task_from(f"{text}def get_inputs():\n    return [{inputs}]\n", folder)


def plan_of(task: Task) -> Plan:
    return make_plan(task, capture(task))[0]


def proposals(task: Task) -> list[Candidate]:
    return list(propose(task, capture(task), arch="sm_90a", device="cpu"))


def forced(task: Task, schedule: str, **constants: int) -> Candidate:
    """A candidate whose row programs all use one schedule, with these constants where a kernel has them."""
    plan, programs = make_plan(task, capture(task))
    choices: list[Sequence[KernelCode]] = []
    for program in programs:
        if program.reductions:
            code = SCHEDULES[schedule](program, plan.types, program.name)
        else:
            code = kernels_for(program, plan.types, program.name, Target())[0]
        assert code is not None, f"{schedule} does not apply to {program.name}"
        own = {k: v for k, v in constants.items() if k in code.constants}
        choices.append([replace(code, constants={**code.constants, **own}, tuned=(), limit="")])
    return write_candidate(plan, choices, "a test", None)


def load_model(candidate: Candidate, folder: Path) -> Any:
    """The class ModelNew of a candidate written to `folder`, whose functions have a name each."""
    functions = Counter(re.findall(r"^def (\w+)", candidate.files[candidate.module], re.MULTILINE))
    assert max(functions.values(), default=1) == 1, functions
    place = folder / f"candidate_{next(_numbers)}"
    candidate.write(place)
    spec = importlib.util.spec_from_file_location(place.name, place / candidate.module)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew


def leaves(tree: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def compare(task: Task, candidate: Candidate, folder: Path, calls: Sequence[Call] | None = None) -> None:
    """Assert that the candidate gives what eager torch gives: shape, dtype, strides, NaN and infinities, values.

    Floats: RMS error against float64 at most 2x eager's (1.25x for half), each element within 4x eager's largest
    error plus one unit in the last place. Integers and booleans: equal.
    """
    init = task.init_call()
    model = load_model(candidate, folder)(*init.args, **init.kwargs)
    reference = task.make_reference()
    model.load_state_dict(reference.state_dict())
    if task.gradients is not None:
        model = differentiating(model, task.gradients)
    for call in calls if calls is not None else [task.make_call()]:
        wanted = leaves(task.run(reference, call))
        got = leaves(task.run(model, call))
        exact = leaves(task.run(task.make_reference().double(), _double(call)))
        assert len(got) == len(wanted)
        for want, have, truth in zip(wanted, got, exact, strict=True):
            assert (have.shape, have.dtype, have.stride()) == (want.shape, want.dtype, want.stride())
            _close(want, have, truth)


def _double(call: Call) -> Call:
    def promote(t: Any) -> Any:
        return t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t

    args, kwargs = torch.utils._pytree.tree_map(promote, (call.args, call.kwargs))
    return Call(args, kwargs)


def _close(want: torch.Tensor, have: torch.Tensor, truth: torch.Tensor) -> None:
    if not want.is_floating_point():
        assert torch.equal(want, have)
        return
    assert torch.equal(want.isnan(), have.isnan())
    assert torch.equal(want.isinf() * want.sign(), have.isinf() * have.sign())
    finite = want.isfinite()
    w, h, t = want[finite].double(), have[finite].double(), truth[finite].double()
    if not t.numel():
        return
    if want.dtype == torch.float64:  # no wider type to tell which of the two is nearer
        assert torch.allclose(h, w, rtol=1e-12, atol=1e-13)
        return
    unit = torch.finfo(want.dtype).eps * t.abs() + torch.finfo(want.dtype).tiny
    base, mine = (w - t).abs(), (h - t).abs()
    factor = 2.0 if want.dtype in (torch.float32, torch.float64) else 1.25
    if t.numel() < 64:  # too few for a ratio of root mean squares to mean much
        factor *= 3
    floor = float(unit.square().mean().sqrt()) if t.numel() < 1024 else float(unit.square().mean().sqrt()) / 4
    rms, allowed = float(mine.square().mean().sqrt()), factor * float(base.square().mean().sqrt()) + floor
    assert rms <= allowed, f"RMS error {rms:.3g}, allowed {allowed:.3g}, values to {float(t.abs().max()):.3g}"
    few = 3 if t.numel() < 64 else 1
    assert bool((mine <= few * (4 * base.max() + unit)).all())

"""The user's whole step, timed with the reference's module and with the candidate's in its place (`--context`).

`script.py:model` names a function: given the operator as a module, it returns a function without parameters that runs
one step (a layer, a model's forward, a decoding step). The judge runs it with the reference, the candidate's process
with the candidate; both build it after the same torch.manual_seed, so random weights agree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.environment.loading import load_candidate
from kforge.environment.preparation import Prepared
from kforge.errors import UsageError

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.profiling.timing import Effort, Timing
    from kforge.worker import Child

SCRIPT, WRAPPER = "kforge_context_script.py", "kforge_context.py"
_MODULE = """import torch
from {script} import {function} as make_step
from {candidate} import ModelNew as Operator


class ModelNew(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.operator = Operator(*args, **kwargs)
        self.__dict__["step"] = None

    def forward(self):
        if self.step is None:
            torch.manual_seed({seed})
            self.__dict__["step"] = make_step(self.operator)
        return self.step()
"""


def time_step(
    prepared: Prepared,
    candidate: Candidate,
    spec: str,
    fork: Callable[[str], Child],
    overrides: Mapping[str, Mapping[str, Any]] | None,
    effort: Effort,
) -> tuple[Timing, tuple[str, ...]]:
    """The timing of baseline "reference" against the candidate in one whole step, and warnings in words.

    fork: makes a process in phase build or run. UsageError where the script does not give a step; ChildFailed passes.
    """
    from kforge.profiling.agreement import agree
    from kforge.profiling.timing import time_against
    from kforge.task import Call

    seed = prepared.seed("context") & 0x7FFF_FFFF
    step, expected = reference_step(prepared, spec, seed)
    whole = composite(candidate, spec, seed)
    with fork("build") as child:  # kernels for the shapes of the step
        load_candidate(prepared, child, whole, overrides, within="operator")
        child.warm(Call())
    with fork("run") as child:
        load_candidate(prepared, child, whole, overrides, within="operator", timer=True)
        found = child.call(Call(), state="none").outputs
        same = agree(expected, found)
        timing = time_against(
            child, Call(), {"reference": step}, effort=effort, precision=prepared.task.precision.value
        )
    return timing, () if same else ("the step's outputs differ by more than 1 % with the candidate in it",)


def reference_step(prepared: Prepared, spec: str, seed: int) -> tuple[Callable[[], Any], Any]:
    """The step around the reference, and what its first call returns."""
    import torch

    from kforge.profiling.baselines import find_object
    from kforge.task import matmul_precision

    script, _, _ = _parts(spec)
    make = find_object(spec, "--context")
    operator = copy.deepcopy(prepared.reference(0))
    try:
        with torch.no_grad(), matmul_precision(prepared.task.precision):
            torch.manual_seed(seed)
            step = make(operator)
            return step, step()
    except Exception as error:  # the user's code may raise anything
        raise UsageError(
            f"--context {script.name} fails: {type(error).__name__}: {error}",
            "it must take the operator as a module and return a function without parameters that runs one step",
        ) from error


def composite(candidate: Candidate, spec: str, seed: int) -> Candidate:
    """The candidate's files with the script and a module beside them whose ModelNew is the whole step."""
    from kforge.kernel.candidate import Candidate

    _, function, text = _parts(spec)
    wrapper = _MODULE.format(
        script=Path(SCRIPT).stem, function=function, candidate=Path(candidate.module).stem, seed=seed
    )
    return Candidate(WRAPPER, {**candidate.files, SCRIPT: text, WRAPPER: wrapper})


def _parts(spec: str) -> tuple[Path, str, str]:
    place, _, function = spec.rpartition(":")
    path = Path(place)
    if path.suffix != ".py" or not path.is_file() or not function.isidentifier():
        raise UsageError(f"--context {spec!r} names no function of a file", "write script.py:model")
    return path, function, path.read_text()

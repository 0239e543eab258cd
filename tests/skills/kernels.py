"""The worked kernels of the skills on their tasks' small inputs, every launch kept for the instrumented modes."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

import torch

from kforge.kernel.emulator.recording import Recording, recording
from kforge.task import call_leaves, load_task

SKILLS = Path(__file__).resolve().parents[2] / "skills"
NAMES = tuple(sorted(page.parent.name for page in SKILLS.glob("*/SKILL.md")))
SMALL = 2 << 20  # bytes of inputs: what is larger takes an instrumented mode too long
_number = itertools.count()


def load_module(folder: Path) -> ModuleType:
    """The candidate of a folder, imported anew under a name of its own."""
    (path,) = folder.glob("*_kforge.py")
    spec = importlib.util.spec_from_file_location(f"{path.stem}_{next(_number)}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # skills/ goes into the wheel as it is
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


def record(name: str, module: ModuleType) -> Recording:
    """Calls the candidate on all small inputs of the skill's task, the last variant excepted, which is for a GPU.

    AssertionError: an answer is not the reference's.
    """
    task = load_task(SKILLS / name / "task.py")
    reference = task.make_reference()
    init = task.init_call()
    model = module.ModelNew(*init.args, **init.kwargs)
    model.load_state_dict(reference.state_dict())
    with recording() as kept:
        for variant in range(task.n_variants - 1):
            call = task.make_call(variant)
            if sum(x.nbytes for _, x in call_leaves(call) if isinstance(x, torch.Tensor)) > SMALL:
                continue
            answer = task.run(model, call)
            wanted = task.run(reference, call)
            near = (1e-3, 1e-4)
            if isinstance(wanted, torch.Tensor) and wanted.dtype == torch.bfloat16:  # eager rounds between operators
                near = (1e-2, 1e-2 * float(wanted.abs().max()))
            torch.testing.assert_close(answer, wanted, rtol=near[0], atol=near[1], equal_nan=True)
    return kept

"""Writes repro.py: a plain script, with the failing inputs beside it, that shows the mismatch without the judge."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.environment.findings import Failure
    from kforge.environment.preparation import Prepared
    from kforge.kernel.candidate import Candidate

SCRIPT = '''\
"""Shows where {module} differs from {op}. Run: python repro.py

{detail}
"""

import importlib.util
import os
import sys
from pathlib import Path

import torch
{backward}

{mode}
HERE = Path(__file__).resolve().parent
DEVICE = "{device}"


def load(path):
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def tensors(tree, path="out"):
    """Every tensor of an output tree with its path."""
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors(value, f"{{path}}[{{key!r}}]")
    elif isinstance(tree, (list, tuple)):
        for i, value in enumerate(tree):
            yield from tensors(value, f"{{path}}[{{i}}]")


def run(make):
    """A fresh module with the saved state on fresh copies of the saved inputs; returns outputs and inputs after."""
    saved = torch.load(HERE / "inputs.pt", weights_only=True, map_location=DEVICE)
    module = make(*saved["init_args"], **saved["init_kwargs"]).to(DEVICE)
    module.train(saved["training"])
    named = dict(module.named_parameters()) | dict(module.named_buffers())
    with torch.no_grad():
        for name, value in saved["state"].items():
            if name in named:
                named[name].copy_(value)
{differentiating}        torch.manual_seed(saved["seed"])
        outputs = module(*saved["args"], **saved["kwargs"])
    return outputs, saved


class Reference(torch.nn.Module):
    """A function as a module."""

    def forward(self, *args, **kwargs):
        return reference_module.reference(*args, **kwargs)


torch.set_float32_matmul_precision("{precision}")
reference_module = load(HERE / "reference" / "{op}")
candidate_module = load(HERE / "candidate" / "{module}")
'''

IMPORTED = "from kforge.task.backward import Gradients, differentiating\n"
DIFFERENTIATING = """\
        # Outputs and gradients, for the upstream gradients among the inputs.
        module = differentiating(module, Gradients.read(saved["gradients"]))
"""
ANY_MODE = """\
if os.environ.get("KFORGE_EMULATOR", "").startswith("checked"):  # it must be loaded with the process
    os.environ["KFORGE_EMULATOR"] = "fast"\
"""
ORDERED = """\
os.environ["KFORGE_EMULATOR"] = "order:{order}"  # the order of threads in which the answer was wrong\
"""

COMPARISON = """\
right, right_inputs = run({maker})
got, got_inputs = run(candidate_module.ModelNew)
exact = torch.load(HERE / "expected.pt", weights_only=True, map_location=DEVICE)
pairs = list(zip(tensors(right), tensors(got)))
after = [tensors([s["args"], s["kwargs"]], "inputs") for s in (right_inputs, got_inputs)]
for (path, a), (_, b) in pairs + list(zip(*after)):
    if a.shape != b.shape or a.dtype != b.dtype or (path.startswith("out") and a.stride() != b.stride()):
        print(f"{{path}}: reference {{a.dtype}} {{tuple(a.shape)}} strides {{a.stride()}},"
              f" candidate {{b.dtype}} {{tuple(b.shape)}} strides {{b.stride()}}")
        continue
    differ = (a != b) & ~((a != a) & (b != b))
    if not bool(differ.any()):
        print(f"{{path}}: equal")
        continue
    truth = exact.get(path, a).to(a.device)
    gap = (b.double() - truth.double()).abs().nan_to_num(float("inf"))
    own = (a.double() - truth.double()).abs().nan_to_num(0.0)
    place = tuple(int(i) for i in torch.unravel_index(gap.argmax(), gap.shape))
    print(f"{{path}}: {{int(differ.sum())}} of {{differ.numel()}} elements differ from the reference;"
          f" worst at {{list(place)}}: candidate {{b[place].item()}}, reference {{a[place].item()}},"
          f" fp64 {{truth[place].item()}}")
    print(f"  largest error: candidate {{gap.max().item():.6g}}, reference {{own.max().item():.6g}}")
if len(list(tensors(right))) != len(list(tensors(got))):
    print("the candidate returns another number of tensors than the reference")
"""


INSTRUMENTED = """\

# The finding itself: the emulator's launches once more, under AddressSanitizer and the race checker.
from kforge.kernel.emulator.checked import run_checked
from kforge.kernel.emulator.findings import Finding
from kforge.kernel.emulator.recording import as_launched, recording
from kforge.kernel.emulator.traced import run_traced

with recording() as kept:
    run(candidate_module.ModelNew)
for tool in (run_checked, run_traced):
    for finding in tool(kept.launches, kept.buffers).findings:
        fields = as_launched(finding, kept)
        launch = fields.pop("launch")
        print(f"{tool.__name__}, launch {launch}: {Finding(**fields)}")
"""


CRASHED = """\

# The finding itself: the launches, kept instead of run, since they end the process, under AddressSanitizer.
from kforge.kernel.emulator.checked import run_checked
from kforge.kernel.emulator.findings import Finding
from kforge.kernel.emulator.recording import Recording, as_launched, recording

with recording(Recording(only=True)) as kept:
    run(candidate_module.ModelNew)
for finding in run_checked(kept.launches, kept.buffers, (0,)).findings:
    fields = as_launched(finding, kept)
    launch = fields.pop("launch")
    print(f"run_checked, launch {launch}: {Finding(**fields)}")
"""


def write_repro(
    prepared: Prepared,
    candidate: Candidate,
    failure: Failure,
    root: Path,
    instrumented: str = "",
    crashed: bool = False,
) -> Path:
    """Write `<root>/<task>-<digest>/repro.py` with its files (replaced if present); returns the script's path.

    instrumented: the device on which the memory gate found it ("cpu": the emulator); the script then shows the finding
    itself, or says how to run it under compute-sanitizer. crashed: its launches end the process on the emulator; the
    script runs them in mode checked only. inputs.pt and expected.pt are readable with
    `torch.load(..., weights_only=True)`.
    """
    import torch

    from kforge.task import Form

    task, expected, case = prepared.task, failure.expected, failure.case
    if expected is None or case is None:
        raise ValueError("a repro needs the failing case")
    folder = root / f"{task.name}-{candidate.digest[:8]}"
    if folder.exists():
        shutil.rmtree(folder)
    candidate.write(folder / "candidate")
    (folder / "reference").mkdir()
    (folder / "reference" / task.path.name).write_text(task.source)
    for neighbour in task.path.parent.glob("*.py"):
        if neighbour.name != task.path.name and f"import {neighbour.stem}" in task.source.replace("from ", "import "):
            shutil.copy(neighbour, folder / "reference" / neighbour.name)
    init = task.init_call()
    state = prepared.expected(case).state_after if failure.step else prepared.state(case.state_seed).tensors
    call = expected.call
    saved = {
        "args": _plain(list(call.args)),
        "kwargs": _plain(call.kwargs),
        "init_args": _plain(list(init.args)),
        "init_kwargs": _plain(init.kwargs),
        "state": {name: t.detach() for name, t in state.items()},
        "training": prepared.reference(case.state_seed).training,
        "seed": expected.seed,
        "gradients": task.gradients.as_dict() if task.gradients else None,
    }
    torch.save(saved, folder / "inputs.pt")
    exact = {path: e for (path, _), e in zip(expected.leaves, expected.exact, strict=True) if e is not None}
    torch.save(exact, folder / "expected.pt")
    detail = failure.detail
    if instrumented not in ("", "cpu"):
        detail += "\n\nThe values may be right: run it as `compute-sanitizer --tool memcheck python repro.py`."
    text = (SCRIPT + ("" if crashed else COMPARISON)).format(
        module=candidate.module,
        op=task.path.name,
        detail=detail.replace("\\", "\\\\").replace('"""', "'''"),
        mode=ORDERED.format(order=case.order) if case.order else ANY_MODE,
        device=instrumented or prepared.device,
        precision=task.precision.value,
        backward=IMPORTED if task.gradients else "",
        differentiating=DIFFERENTIATING if task.gradients else "",
        maker="reference_module.Model" if task.form is Form.MODULE else "Reference",
    )
    path = folder / "repro.py"
    path.write_text(text + (CRASHED if crashed else INSTRUMENTED if instrumented == "cpu" else ""))
    return path


def _plain(tree: Any) -> Any:
    """Inputs as torch.load(weights_only=True) accepts them: no tensor subclasses, no gradients."""
    import torch
    from torch.utils import _pytree as pytree

    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), tree)

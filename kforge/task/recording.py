"""`kforge capture script.py module.path`: from a run of the user's own program to an op.py with real inputs and state.

The program runs in a child process (recording_child.py), so that whatever it does to the interpreter stays there; here
the recorded call is written as op.py and a data file, and the op.py is checked to reproduce the recorded outputs.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge import scratch
from kforge.errors import TaskError
from kforge.task.alias import same_bits
from kforge.task.call import tensors, tree_leaves
from kforge.task.files import unpack
from kforge.task.load import load_task
from kforge.task.opfile import keeps_values, write_op


@dataclass(frozen=True)
class Recording:
    """The files written, and how well op.py reproduces the recorded outputs.

    difference: largest absolute difference of an output element on the CPU (0.0: bit for bit); infinite where shapes
    differ, NaN where inputs were too large to keep and are drawn from their statistics. calls: how many calls with
    different shapes are in it.
    """

    op: Path
    data: Path
    calls: int
    difference: float


def capture_run(
    script: str | Path,
    target: str,
    out: str | Path | None = None,
    arguments: Sequence[str] = (),
    calls: int = 1,
) -> Recording:
    """Run `script` with `arguments`, record calls of the module `target` and write op.py (default: beside the script).

    target: an attribute path from a variable of the script (`model.layers.0.norm`) or a class (`RMSNorm`,
    `package.module.RMSNorm`). calls: record up to this many calls whose shapes differ; the program is stopped after the
    last. Its output goes to stderr. Raises TaskError: no such file, the program failed, no call was seen.
    """
    file = Path(script)
    if not file.is_file():
        raise TaskError(f"no such file: {script}")
    file = file.resolve()
    name = "".join(c if c.isalnum() else "_" for c in target.rsplit(".", 2)[-1].lower())
    if name[:1].isdigit():
        name = "_".join("".join(c if c.isalnum() else "_" for c in part.lower()) for part in target.split("."))
    op = Path(out).resolve() if out is not None else file.with_name(f"{name}_op.py")
    with tempfile.TemporaryDirectory(prefix="capture-", dir=scratch.root()) as folder:
        record = _run(file, target, arguments, calls, Path(folder))
        data = write_op(record, file, target, op)
        difference = _reproduce(op, record) if keeps_values(record) else math.nan
    return Recording(op, data, len(record["calls"]), difference)


def _run(file: Path, target: str, arguments: Sequence[str], calls: int, folder: Path) -> dict[str, Any]:
    package_root = str(Path(__file__).resolve().parents[2])
    paths = [package_root, os.environ.get("PYTHONPATH", "")]
    result = folder / "record"
    process = subprocess.run(
        [sys.executable, "-m", "kforge.task.recording_child", str(file), target, str(result), str(calls), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)},
        stdin=subprocess.DEVNULL,
        stdout=2,  # what the program prints is narration here
        check=False,
    )
    refusal = result.with_suffix(".error")
    if refusal.exists():
        message, hint = json.loads(refusal.read_text())
        raise TaskError(message, hint)
    if not result.exists():
        raise TaskError(f"{file.name} ended with exit code {process.returncode} before {target} was called")
    record: dict[str, Any] = unpack(result)
    return record


def _reproduce(op: Path, record: dict[str, Any]) -> float:
    """Run the written op.py on its first inputs and compare with the outputs of the user's run."""
    task = load_task(op)
    outputs = tensors(tree_leaves(task.run(task.make_reference(), task.make_call(), seed=0)))
    recorded = tensors(tree_leaves(record["calls"][0]["outputs"]))
    if len(outputs) != len(recorded):
        return float("inf")
    worst = 0.0
    for (_, ours), (_, theirs) in zip(outputs, recorded, strict=True):
        if same_bits(ours, theirs):
            continue
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return float("inf")
        worst = max(worst, (ours.double() - theirs.double()).abs().max().item())
    return worst

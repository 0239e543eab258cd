"""Code of op.py cannot take the command with it: one clear line and exit code 2, or the run's right end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

TASK = """
import atexit, os, signal, sys, tempfile, threading, time
import torch

{top}


def reference(x):
    {reference}
    return x * 2.0 + 1.0


def get_inputs():
    {inputs}
    return [torch.randn(4, 64)]


def get_input_variants():
    return [{variants}]
"""


def suggest(folder: Path, *options: str, **parts: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """`kforge suggest op.py --plan quick --json` on the task with these parts, and its last object."""
    text = TASK.format(**({"top": "", "reference": "pass", "inputs": "pass", "variants": ""} | parts))
    (folder / "op.py").write_text(text, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": str(ROOT), "KFORGE_DEVICE": "cpu"}
    command = [sys.executable, "-m", "kforge", "suggest", "op.py", "--plan", "quick", "--json", *options]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.stdout, done.stderr
    value = json.loads(done.stdout.splitlines()[-1])
    assert value["exit_code"] == done.returncode and done.stdout.count("\n") == 1
    return done, value


ENDINGS = [
    ({"top": "os._exit(0)"}, "op.py: loading failed: the process ended with exit code 0"),
    ({"inputs": "os._exit(3)"}, "op.py: get_inputs(): the process ended with exit code 3"),
    ({"reference": "os.kill(os.getpid(), signal.SIGSEGV)"}, "op.py: the reference: the process ended by SIGSEGV"),
    ({"top": "raise KeyboardInterrupt('mine')"}, "op.py:5: loading failed: KeyboardInterrupt: mine"),
    (
        {"reference": "raise type('Odd', (BaseException,), {})('a\\nb')"},
        "op.py:9: the reference rejects its inputs: Odd: a",
    ),
]


@pytest.mark.parametrize(("parts", "message"), ENDINGS, ids=[message.split(": ", 1)[1] for _, message in ENDINGS])
def test_code_that_ends_the_process(tmp_path: Path, parts: dict[str, str], message: str) -> None:
    """However op.py ends the process, the command ends with exit code 2, one line that says where, and the object."""
    done, value = suggest(tmp_path, **parts)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert value["error"] == {"kind": "task", "message": message, "hint": value["error"]["hint"]}
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) == 1


def test_code_that_tampers_with_the_interpreter(tmp_path: Path) -> None:
    """Threads, functions at exit, an empty sys.path, a working folder that is gone, closed streams, a fork: the run
    ends as it would have, and files come where the command was started."""
    top = """
threading.Thread(target=lambda: time.sleep(3600)).start()
atexit.register(lambda: print("LATE", flush=True))
sys.path.clear()
gone = tempfile.mkdtemp()
os.chdir(gone)
os.rmdir(gone)
sys.stdout = sys.stderr = None
os.close(1)
os.close(2)
os.fork()
µ = 1
"""
    done, value = suggest(tmp_path, top=top)
    assert (done.returncode, value["status"]) == (0, "verified")
    assert value["files"] == ["kforge_out/op/op_kforge.cu", "kforge_out/op/op_kforge.py"]
    assert all((tmp_path / name).is_file() for name in value["files"])


@pytest.mark.parametrize(
    ("plan", "variants", "message"),
    [
        ("quick", "get_inputs, lambda: 1 / 0", "get_input_variants()[1]() raised ZeroDivisionError: division by zero"),
        ("full", "lambda: [torch.ones(2), 3]", "the reference rejects the inputs of variant 1: TypeError: "),
    ],
)
def test_a_variant_that_fails(tmp_path: Path, variants: str, message: str, plan: str) -> None:
    """A maker or a reference that fails on a variant is found at the start, in every plan, and the variant is named."""
    done, value = suggest(tmp_path, "--plan", plan, variants=variants)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert message in value["error"]["message"]


def test_a_folder_that_refuses_at_the_end_loses_nothing(tmp_path: Path) -> None:
    """A folder that passes the trial and then takes no file: one line, exit code 2, and the candidate is kept."""
    out = tmp_path / "out"
    # op.py makes the folder unusable after the command has tried it: a file lies where the manifest has to go
    top = f"os.makedirs({str(out)!r} + '/.kforge-manifest.json/x', exist_ok=True)"
    done, value = suggest(tmp_path, "--out", str(out), top=top)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    kept = value["error"]["hint"].rsplit("kept in ", 1)[1]
    assert (Path(kept) / "op_kforge.py").is_file()

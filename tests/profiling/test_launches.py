"""What is written down of a launch, and that the program which replays it needs nothing of the candidate's."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.kernel import Kernel, hooks
from kforge.worker.profiled import PIECE, _Book

SOURCE = """
extern "C" __global__ void scale(const float* x, float* y, long long n, float factor, bool on) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n && on) y[i] = x[i] * factor;
}
"""


@pytest.fixture
def kernel() -> Kernel:
    return Kernel("scale", SOURCE, grid="(ceil_div(n, 128), 1, 1)", block=128)


def _written(kernel: Kernel, folder: Path, *args: Any, times: int = 1) -> dict[str, Any]:
    """The book of calls on the CPU, taken for calls on a GPU: nothing that is written depends on where they run."""
    book = _Book(folder)

    def add(k: Any, plan: Any, values: tuple[Any, ...], packed: list[Any]) -> None:
        book.add(k, replace(plan, device=0), values, packed)

    with hooks.recording(add):
        for _ in range(times):
            kernel(*args)
    book.save()
    return json.loads((folder / "launches.json").read_text())  # type: ignore[no-any-return]


def test_a_launch_is_written_with_its_memory_and_scalars(kernel: Kernel, tmp_path: Path) -> None:
    """Geometry, the cubin's symbol, each scalar in an 8-byte slot, and the bytes behind each pointer as they were."""
    x, y = torch.arange(1000.0), torch.zeros(1000)
    book = _written(kernel, tmp_path, x, y, 1000, 2.5, True)
    (row,) = book["launches"]
    assert row["kernel"] == row["symbol"] == "scale"
    assert row["grid"] == [8, 1, 1] and row["block"] == [128, 1, 1] and row["count"] == 1
    assert Path(row["cubin"]).read_bytes()[:4] == b"\x7fELF"
    assert row["registers"] > 0
    slots = [bytes.fromhex(a["data"]) for a in row["args"][2:]]
    assert slots[0] == struct.pack("<q", 1000)
    assert slots[1][:4] == struct.pack("<f", 2.5)
    assert [len(s) for s in slots] == [8, 8, 8]
    first = book["buffers"][row["args"][0]["buffer"]]
    assert first["nbytes"] == first["kept"] == 4000
    assert (tmp_path / f"{row['args'][0]['buffer']}.bin").read_bytes() == x.numpy().tobytes()


def test_equal_launches_are_written_once(kernel: Kernel, tmp_path: Path) -> None:
    """A kernel called again with the same geometry adds neither a row nor a buffer; another geometry does."""
    x, y = torch.ones(256), torch.zeros(256)
    assert len(_written(kernel, tmp_path, x, y, 256, 1.0, True, times=3)["launches"]) == 1


def test_what_does_not_fit_is_kept_in_part(kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit a buffer's first piece is kept and its size stays known, so that a replay can repeat it."""
    monkeypatch.setattr("kforge.worker.profiled.KEPT_BYTES", {"float": 0, "other": 0})
    monkeypatch.setattr("kforge.worker.profiled.PIECE", 64)
    book = _written(kernel, tmp_path, torch.ones(256), torch.zeros(256), 256, 1.0, True)
    assert [(b["nbytes"], b["kept"]) for b in book["buffers"]] == [(1024, 64), (1024, 64)]
    assert PIECE >= 1 << 20


def test_the_replay_imports_neither_torch_nor_candidates() -> None:
    """A profile pays for no import of torch; and what is not loaded cannot run."""
    code = (
        "import sys, kforge.worker.replay, kforge.worker.sandbox, kforge.kernel.launchers.driver\n"
        "print([m for m in ('torch', 'numpy', 'tree_sitter', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("walls", ["full", "files"])
def test_the_replay_stands_behind_walls_before_it_reads_anything(tmp_path: Path, walls: str) -> None:
    """Behind either wall a folder outside the candidate's cannot be read, while the launches can."""
    folder = tmp_path / "candidate" / "tmp" / "launches"
    folder.mkdir(parents=True)
    (folder / "launches.json").write_text("{}")
    secret = tmp_path / "secret"
    secret.write_text("x")
    code = (
        "import sys; from pathlib import Path; from kforge.worker import landlock, replay\n"
        "replay._wall(Path(sys.argv[1]), sys.argv[2])\n"
        "print((Path(sys.argv[1]) / 'launches.json').read_text(), landlock.abi() > 0)\n"
        "try: open(sys.argv[3]).read(); print('open')\n"
        "except OSError: print('closed')"
    )
    command = [sys.executable, "-c", code, str(folder), walls, str(secret)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = done.stdout.split()
    if words[1] == "False":
        pytest.skip("this kernel has no Landlock")
    # /tmp stays readable behind "files", where the profiler keeps its own; the test's folder may lie there
    assert words[0] == "{}" and (words[2] == "closed" or walls == "files")

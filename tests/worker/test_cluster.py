"""Workers through Ray: one local instance, real workers in its actors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kforge.environment.batch import make_job
from kforge.worker.fleet import Fleet
from kforge.worker.parcel import pack_task

ROOT = Path(__file__).resolve().parents[2]
PAIR = ROOT / "benchmarks" / "mutation_kernels"


def test_an_evaluation_through_a_local_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker in an actor of a Ray instance made here judges one candidate."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (extra distributed)")
    from kforge.worker.cluster import connect

    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    op = PAIR / "scaled_add.py"
    job = make_job("1", pack_task(op), PAIR / "scaled_add_kforge.py", plan="quick", timing=False)
    try:
        with Fleet(connect("local", 1)) as fleet:
            (description,) = fleet.start().values()
            assert description["target"] == "emulator"
            (end,) = fleet.run([job])
        assert end.report is not None, end.error
        assert (end.report["status"], end.worker) == ("verified", "ray cpu 0")
    finally:
        ray.shutdown()

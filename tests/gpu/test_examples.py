"""The examples on a real GPU: what the engine proposes first is verified by plan `standard`, untimed here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
DEVICE = "cuda:0"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = sorted(p.stem for p in EXAMPLES.glob("*.py") if not p.stem.startswith(("triton", "helion")))


@pytest.fixture(scope="module")
def zygote() -> Iterator[object]:
    from kforge.worker import Zygote

    with Zygote() as warm:
        yield warm


@pytest.mark.parametrize("name", NAMES)
def test_the_first_proposal_is_verified(zygote: object, tmp_path: Path, name: str) -> None:
    """Right on hostile inputs, on the device that it was written for, and no detector fires."""
    from kforge.engine import propose
    from kforge.environment import evaluate, prepare
    from kforge.kernel import target_arch
    from kforge.task import load_task

    task = load_task(EXAMPLES / f"{name}.py")
    prepared = prepare(task, DEVICE, folder=tmp_path)
    first = next(iter(propose(task, prepared.capture(), arch=target_arch(0), device=DEVICE, facts=prepared.facts)))
    report = evaluate(
        task, first, "standard", device=DEVICE, zygote=zygote, reference=prepared, timing=False, repro=None
    )
    assert report.status.value == "verified", report.failure
    assert report.target != "emulator" and not [d for d in report.detectors if d.fired]

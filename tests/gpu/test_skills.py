"""The skills' worked kernels on a GPU: the judge finds them right on its plan standard, for their tasks' own inputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

SKILLS = Path(__file__).resolve().parents[2] / "skills"
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def zygote() -> Iterator[object]:
    from kforge.worker import Zygote

    with Zygote() as warm:
        yield warm


@pytest.mark.parametrize("name", sorted(page.parent.name for page in SKILLS.glob("*/SKILL.md")))
def test_the_kernel_is_verified_on_a_gpu(zygote: object, name: str, tmp_path: Path) -> None:
    """Math of the device, streams, guard bands: what the emulator cannot say of a kernel."""
    from kforge.environment import evaluate
    from kforge.kernel.candidate import Candidate
    from kforge.task import load_task

    (module,) = (SKILLS / name).glob("*_kforge.py")
    task = load_task(SKILLS / name / "task.py")
    made = Candidate.read(module)
    report = evaluate(task, made, "standard", device="cuda:0", zygote=zygote, repro=tmp_path, timing=False)
    assert report.status == "verified", report.failure

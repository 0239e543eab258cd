"""The model's tools on a GPU: measured times in their words, a swept space, calibrated facts, a probe on the device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kforge.agent.tools import Toolbox, call
from tests.agent.tools.sources import MODULE, OP, SOURCE

pytestmark = pytest.mark.gpu

PROBE = """
import torch
from kforge.kernel import Kernel

twice = Kernel("twice", source="probe.cu", grid="(1, 1, 1)", block="(8, 1, 1)")
x = torch.arange(8, dtype=torch.float32, device="cuda")
twice(x)
print(x.tolist())
"""
CUDA = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toolbox]:
    """A right candidate on a workbench of the GPU; rows long enough to be timed."""
    from kforge.agent.budget import Budget
    from kforge.agent.session import Session
    from kforge.agent.workbench import Workbench
    from kforge.environment import prepare
    from kforge.environment.target import target_arch
    from kforge.task import load_task

    place = tmp_path_factory.mktemp("softmax")
    op = place / "softmax.py"
    op.write_text(OP.replace("6, 70", "4096, 1024"))
    session = Session(place / ".kforge", op, {}, lambda kind, data: None)
    prepared = prepare(load_task(op), "cuda:0", folder=session.work)
    bench = Workbench(
        prepared, session, arch=target_arch("cuda:0"), state=place / ".kforge", budget=Budget(seconds=600.0)
    )
    made = Toolbox(bench, place / "work", bench.tree.root)
    made.files.write("softmax_kforge.py", MODULE)
    made.files.write("softmax_kforge.cu", SOURCE)
    yield made
    bench.close()
    session.close()


def test_what_is_measured_is_told(box: Toolbox) -> None:
    """A right candidate has times and a ratio in its words; a sweep's winner goes into the folder."""
    told = call("evaluate", {}, box).text
    assert ": verified, " in told and "times: " in told and "candidate " in told and "roofline: memory bound" in told
    rows = call("time_variants", {"constants": [{"BLOCK": 64}, {"BLOCK": 128}]}, box).text
    assert "untimed" not in rows
    swept = call("sweep", {"seconds": 30}, box)
    assert not swept.is_error and "softmax_rows: 3 settings of BLOCK" in swept.text and "BLOCK=128" in swept.text
    if "it is now in softmax_kforge.py" in swept.text:
        assert "tuned=" in box.files.read("softmax_kforge.py")
    assert call("submit", {"idea": "one block a row"}, box).ends == "submit"


def test_facts_are_calibrated(box: Toolbox) -> None:
    """The device's own name, calibrated ceilings, the floor of the task."""
    text = call("device_facts", {}, box).text
    assert "(calibrated)" in text and "multiprocessors" in text and "16777216 bytes read, 16777216 written" in text


def test_a_probe_runs_on_the_device(box: Toolbox) -> None:
    """A small kernel is built in the first pass and launched on the GPU in the second."""
    result = call("probe", {"python": PROBE, "cuda": CUDA}, box)
    assert result.text == "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]"


def test_the_baselines_source_is_shown(box: Toolbox) -> None:
    """Inductor's code for the reference, with line numbers."""
    result = call("baseline_source", {}, box)
    assert not result.is_error and "triton" in result.text

"""The worker on a GPU: memory handed over by CUDA IPC, a poisoned context that ends one child only, start-up times."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Child, Limits, Zygote, gpu_lock

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
MODULE = "import torch\n{before}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {lines}\n"

POISON = """
def poison():
    bad = torch.empty(4, device="cuda")
    index = torch.full((4,), 1 << 30, device="cuda")
    return bad.index_select(0, index)
"""


def body(*lines: str, before: str = "") -> Candidate:
    text = MODULE.format(before=before, lines="\n        ".join(lines))
    return Candidate("op_kforge.py", {"op_kforge.py": text})


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as parent:
        yield parent


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "box"


def loaded(zygote: Zygote, folder: Path, candidate: Candidate, **limits: float) -> Child:
    child = zygote.fork(folder, DEVICE, "run", Limits(call_s=limits.get("call_s", 30.0)))
    child.load(candidate, Call(), {})
    return child


def test_tensors_cross_by_ipc_and_are_right(zygote: Zygote, box: Path) -> None:
    """Values, strides and mutations cross through judge-owned device memory; the report names the way."""
    with loaded(zygote, box, body("x.add_(1)", "return x * 2, x.t()")) as child:
        base = torch.randn(64, 96, device=DEVICE)
        x = base[1:33, 2:66:2]
        reply = child.call(Call((x,)))
        assert torch.equal(reply.outputs[0], (x + 1) * 2)
        assert reply.aliases == {1: 0} and reply.output_metas[1].strides == x.t().stride()
        assert torch.equal(reply.inputs_after.args[0], x + 1)
        assert reply.peak_bytes is not None and reply.peak_bytes >= x.numel() * 4
        assert child.in_force()["tensors"] in {"CUDA IPC"} or child.in_force()["tensors"].startswith("staged")
        assert reply.outputs[0].device == torch.device(DEVICE)


def test_staging_through_the_host_is_right_too(zygote: Zygote, box: Path) -> None:
    """Where IPC is missing the same call gives the same values, and the report says so."""
    memory = zygote.memory(DEVICE)
    assert memory is not None
    memory.ipc, memory.reason = False, "switched off by a test"
    try:
        with loaded(zygote, box, body("x.add_(1)", "return x * 2")) as child:
            x = torch.randn(1000, device=DEVICE)
            reply = child.call(Call((x,)))
            assert torch.equal(reply.outputs, (x + 1) * 2) and torch.equal(reply.inputs_after.args[0], x + 1)
            assert child.in_force()["tensors"].startswith("staged through the host: switched off")
    finally:
        memory.ipc, memory.reason = True, ""


def test_scalars_stay_on_the_cpu(zygote: Zygote, box: Path) -> None:
    """A 0-dim CPU tensor is handed over as one."""
    with loaded(zygote, box, body("return x[0] * x[1], x[1].device.type")) as child:
        outputs = child.call(Call(([torch.ones(3, device=DEVICE), torch.tensor(2.5)],))).outputs
        assert torch.equal(outputs[0], torch.full((3,), 2.5, device=DEVICE)) and outputs[1] == "cpu"


def test_same_place_keeps_the_address(zygote: Zygote, box: Path) -> None:
    """Inputs refilled in place have the same device address and the new values."""
    with loaded(zygote, box, body("return x.data_ptr(), x.sum()")) as child:
        first = child.call(Call((torch.ones(1 << 20, device=DEVICE),))).outputs
        second = child.call(Call((torch.full((1 << 20,), 2.0, device=DEVICE),)), place="same").outputs
        third = child.call(Call((torch.full((1 << 20,), 2.0, device=DEVICE),)), place="other").outputs
        assert first[0] == second[0] != third[0]
        assert second[1].item() == third[1].item() == 2.0 * (1 << 20)


def test_a_poisoned_context_ends_that_child_only(zygote: Zygote, tmp_path: Path) -> None:
    """An illegal access is `crashed`; the judge's context and the next candidate are unharmed."""
    with (
        loaded(zygote, tmp_path / "a", body("return poison()", before=POISON)) as child,
        pytest.raises(ChildFailed) as caught,
    ):
        child.call(Call((torch.ones(4, device=DEVICE),)))
    assert caught.value.kind == "crashed"
    assert torch.ones(4, device=DEVICE).sum().item() == 4.0
    with loaded(zygote, tmp_path / "b", body("return x * 3")) as child:
        assert torch.equal(child.call(Call((torch.ones(4, device=DEVICE),))).outputs, torch.full((4,), 3.0).cuda())


def test_a_kernel_that_never_ends_is_timed_out(zygote: Zygote, tmp_path: Path) -> None:
    """A GPU hang is killed at the limit; the GPU works again for the next child."""
    spin = ("torch.cuda._sleep(1 << 62)", "return x")
    with loaded(zygote, tmp_path / "a", body(*spin), call_s=3.0) as child, pytest.raises(ChildFailed) as caught:
        child.call(Call((torch.ones(4, device=DEVICE),)))
    assert caught.value.kind == "timed_out"
    with loaded(zygote, tmp_path / "b", body("return x + 1")) as child:
        assert torch.equal(child.call(Call((torch.zeros(4, device=DEVICE),))).outputs, torch.ones(4).cuda())


def test_an_out_of_memory_ends_the_call(zygote: Zygote, box: Path) -> None:
    """Asking for more than there is raises in the child and the next call works."""
    lines = ("if x.numel() == 3: torch.empty(1 << 44, device='cuda')", "return x + 1")
    with loaded(zygote, box, body(*lines)) as child:
        with pytest.raises(ChildFailed) as caught:
            child.call(Call((torch.ones(3, device=DEVICE),)))
        assert caught.value.kind == "raised" and "out of memory" in caught.value.text
        assert child.call(Call((torch.ones(4, device=DEVICE),))).outputs.sum().item() == 8.0


@pytest.mark.alone
def test_no_device_memory_is_leaked(zygote: Zygote, tmp_path: Path) -> None:
    """After children of all fates the free memory is what it was, but for what the judge keeps for re-use."""
    torch.cuda.synchronize()
    before, _ = torch.cuda.mem_get_info()
    for i, lines in enumerate(("return x * 2", "return poison()", "import os; os._exit(0)")):
        child = loaded(zygote, tmp_path / str(i), body(lines, before=POISON))
        with child, contextlib.suppress(ChildFailed):
            child.call(Call((torch.ones(1 << 20, device=DEVICE),)))
    torch.cuda.synchronize()
    deadline = time.monotonic() + 5
    while torch.cuda.mem_get_info()[0] < before - (256 << 20) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert torch.cuda.mem_get_info()[0] >= before - (256 << 20)


def test_sandbox_and_zygote_promises_hold_with_a_gpu(zygote: Zygote, box: Path) -> None:
    """The parent has one thread and no driver; the child's walls are up, sockets but AF_UNIX and exec are denied."""
    facts = zygote.facts()
    assert facts["threads"] == 1 and facts["cuda_initialised"] is False and facts["driver_initialised"] is False
    lines = (
        "import socket, subprocess",
        "found = []",
        "for f in (socket.socket, lambda: subprocess.run(['/bin/true'])):",
        "    try: f(); found.append('allowed')",
        "    except OSError: found.append('denied')",
        "return found",
    )
    with loaded(zygote, box, body(*lines)) as child:
        assert child.call(Call((torch.ones(1, device=DEVICE),))).outputs == ["denied", "denied"]
        parts = child.in_force()
        assert all(parts[name].startswith("in force") for name in ("seccomp", "capabilities", "no_new_privs"))


def test_the_lock_gives_the_gpu_to_one() -> None:
    """A second holder waits until the first has let go."""
    import threading

    order: list[str] = []

    def second() -> None:
        with gpu_lock(DEVICE):
            order.append("second")

    with gpu_lock(DEVICE):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]

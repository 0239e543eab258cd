"""Memory on a real GPU: the allocator with guard bands, compute-sanitizer in the sandbox, the emulator beside a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Child, Limits, Zygote, guard
from kforge.worker.poison import PATTERNS, ZEROS

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
CUDA = """extern "C" __global__ void twice(const float* x, float* y, int n) {
    __shared__ float part[128];
    int i = blockIdx.x * 128 + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = 2.0f * part[threadIdx.x];
}
"""
KERNEL = (
    "from kforge.kernel import Kernel\n"
    'twice = Kernel("twice", source="op_kforge.cu", grid="(ceil_div(n, 128), 1, 1)", block="(128, 1, 1)")\n'
)
MODULE = "import torch\n{before}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {lines}\n"
CALL = ("y = torch.empty_like(x)", "twice(x, y, x.numel())", "return y")
PAST = ("    if (i < n) y[i]", "    if (i == 0) y[n] = 1.0f;\n    if (i < n) y[i]")
RACE = (
    "    __syncthreads();\n    if (i < n) y[i] = 2.0f * part[threadIdx.x];",
    "    if (i < n) y[i] = 2.0f * part[127 - threadIdx.x];",
)


def body(*lines: str, change: tuple[str, str] = ("", "")) -> Candidate:
    text = MODULE.format(before=KERNEL, lines="\n        ".join(lines))
    assert change[0] in CUDA
    return Candidate("op_kforge.py", {"op_kforge.py": text, "op_kforge.cu": CUDA.replace(*change)})


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as parent:
        yield parent


@pytest.fixture
def guarded(zygote: Zygote, tmp_path: Path) -> Iterator[Callable[[Candidate], Child]]:
    """guarded(candidate): built, then loaded in a process with guard bands."""
    children: list[Child] = []

    def make(candidate: Candidate) -> Child:
        box = tmp_path / f"box{len(children)}"
        x = torch.ones(8, device=DEVICE)
        with zygote.fork(box, DEVICE, "build", Limits(call_s=60)) as child:
            child.load(candidate, Call(), {})
            child.warm(Call((x,)))
        child = zygote.fork(box, DEVICE, "run", Limits(call_s=30), guard=guard.library())
        children.append(child)
        child.load(candidate, Call(), {})
        return child

    yield make
    for child in children:
        child.close()


def test_right_answers_stay_right_between_bands(guarded: Callable[[Candidate], Child]) -> None:
    """Values, peak memory as asked for, and the report's word that the bands are there."""
    child = guarded(body(*CALL))
    assert child.in_force()["poison"].startswith("in force: allocations between guard bands")
    x = torch.randn(1000, device=DEVICE)
    for pattern in (*PATTERNS, ZEROS):
        reply = child.call(Call((x,)), pattern=pattern)
        assert torch.equal(reply.outputs, x * 2) and reply.damage == "" and reply.peak_bytes == 4000


def test_fresh_memory_holds_the_pattern(guarded: Callable[[Candidate], Child]) -> None:
    """What is never written shows the pattern that the judge chose, bytes that memory had before never show."""
    child = guarded(body("kept = torch.ones_like(x)", "del kept", "return torch.empty_like(x).view(torch.uint8)"))
    for pattern in (*PATTERNS, ZEROS, PATTERNS[0]):
        outputs = child.call(Call((torch.ones(513, device=DEVICE),)), pattern=pattern).outputs
        assert bool((outputs == pattern).all())


def test_a_write_past_the_end_is_damage(guarded: Callable[[Candidate], Child]) -> None:
    """One float beyond an output that is otherwise right: the call fails in words, though no value shows it."""
    with pytest.raises(ChildFailed) as caught:
        guarded(body(*CALL, change=PAST)).call(Call((torch.ones(1000, device=DEVICE),)))
    assert caught.value.kind == "damaged"
    assert "4 bytes written past the end of an allocation of 4000 bytes, the first at +0" in caught.value.text


def test_a_graph_is_captured_and_replayed_between_bands(guarded: Callable[[Candidate], Child]) -> None:
    """Allocations while a stream captures, memory freed with the graph alive, replays on new values: all right."""
    lines = (
        "if not hasattr(self, 'graph'):",
        "    self.x = x.clone()",
        "    twice(self.x, torch.empty_like(x), x.numel())",
        "    self.graph = torch.cuda.CUDAGraph()",
        "    with torch.cuda.graph(self.graph):",
        "        scratch = torch.empty_like(self.x)",
        "        twice(self.x, scratch, x.numel())",
        "        self.y = torch.empty_like(self.x)",
        "        twice(scratch, self.y, x.numel())",
        "        del scratch",
        "self.x.copy_(x)",
        "self.graph.replay()",
        "return self.y.clone()",
    )
    child = guarded(body(*lines))
    for _ in range(3):
        x = torch.randn(777, device=DEVICE)
        assert torch.equal(child.call(Call((x,)), pattern=PATTERNS[1]).outputs, x * 4)


def test_too_much_memory_raises_and_the_next_call_works(guarded: Callable[[Candidate], Child]) -> None:
    """The allocator's own error is an error of the call; library calls and their workspaces run between bands too."""
    lines = ("if x.numel() == 3: torch.empty(1 << 44, device=x.device)", "x = x.reshape(-1, 8)", "return x.mm(x.T)")
    child = guarded(body(*lines))
    with pytest.raises(ChildFailed) as caught:
        child.call(Call((torch.ones(3, device=DEVICE),)))
    assert caught.value.kind == "raised" and "out of memory" in caught.value.text
    eye = torch.eye(8, device=DEVICE)
    assert torch.equal(child.call(Call((eye * 2,))).outputs, eye * 4)


@pytest.mark.alone
def test_no_device_memory_is_kept_between_calls(guarded: Callable[[Candidate], Child]) -> None:
    """What a call frees goes back after the look at its bands: a hundred calls need no more than two."""
    child = guarded(body("return torch.empty(1 << 26, device=x.device)[:4] * 0 + x[:4]"))
    x = torch.ones(4, device=DEVICE)
    child.call(Call((x,)))
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(100):
        child.call(Call((x,)))
    assert torch.cuda.mem_get_info()[0] >= before - (600 << 20)


def sanitized(zygote: Zygote, box: Path, candidate: Candidate) -> dict[str, object]:
    """What both tools say of one call, by tool; fails where a tool did not run."""
    with zygote.fork(box, DEVICE, "build", Limits(call_s=90)) as child:
        child.load(candidate, Call(), {})
        x = torch.ones(1000, device=DEVICE)
        child.warm(Call((x,)))
        rows = child.sanitize(Call((x,)), ("memcheck", "racecheck"), 80.0)
    print({row.tool: (round(row.seconds, 1), row.skipped, row.findings) for row in rows})
    assert [row.skipped for row in rows] == ["", ""]
    return {row.tool: row.findings for row in rows}


def test_compute_sanitizer_runs_in_the_sandbox_and_names_the_line(zygote: Zygote, tmp_path: Path) -> None:
    """memcheck: the write past the end with kernel, line and access; racecheck has nothing to say of it."""
    found = sanitized(zygote, tmp_path / "past", body(*CALL, change=PAST))
    (first, *_), races = found["memcheck"], found["racecheck"]  # type: ignore[misc]
    assert (first["kind"], first["kernel"], first["line"], first["access"]) == ("out_of_bounds", "twice", 6, "write")
    assert not races


def test_racecheck_names_both_lines(zygote: Zygote, tmp_path: Path) -> None:
    """A dropped barrier: the write and the read of shared memory with their lines; memcheck has nothing to say."""
    found = sanitized(zygote, tmp_path / "race", body(*CALL, change=RACE))
    assert not found["memcheck"]
    (first, *_) = found["racecheck"]  # type: ignore[misc]
    assert first["kernel"] == "twice" and {first["line"], first["other_line"]} == {4, 5}


def test_a_clean_kernel_has_no_finding(zygote: Zygote, tmp_path: Path) -> None:
    """Neither tool says anything of a right kernel."""
    assert sanitized(zygote, tmp_path / "clean", body(*CALL)) == {"memcheck": (), "racecheck": ()}


def test_the_profiler_sees_own_kernels_and_others(zygote: Zygote, tmp_path: Path) -> None:
    """Device time by kernel in a process in phase run: the own kernel under its name, torch's under theirs."""
    candidate = body("y = torch.empty_like(x)", "twice(x, y, x.numel())", "return torch.mm(y, y)")
    with zygote.fork(tmp_path / "box", DEVICE, "build", Limits(call_s=60)) as child:
        child.load(candidate, Call(), {})
        child.warm(Call((torch.ones(256, 256, device=DEVICE),)))
    with zygote.fork(tmp_path / "box", DEVICE, "run", Limits(call_s=60)) as child:
        child.load(candidate, Call(), {})
        times = child.kernel_times(Call((torch.ones(256, 256, device=DEVICE),)))
    print([(k.name[:60], round(k.us, 1), k.count) for k in times])
    own = [k for k in times if "twice" in k.name]
    assert len(own) == 1 and own[0].us > 0 and own[0].count == 1 and len(times) >= 2

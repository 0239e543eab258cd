"""load and call: what the judge gets back from a candidate that behaves."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kforge.errors import ChildFailed, UsageError
from kforge.task.call import Call
from kforge.worker import Child, Zygote
from kforge.worker.shelf import Shelf
from tests.worker.sources import DOUBLE, body, candidate

AFFINE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, n, shift=0.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("table", torch.zeros(n), persistent=False)
        self.shift = shift

    def forward(self, x, *, y=None):
        self.count += 1
        if y is not None:
            y.add_(1)
        return {"out": x * self.weight + self.shift, "rest": (y[1:] if y is not None else None, 2.5)}
"""


@pytest.fixture
def affine(zygote: Zygote, tmp_path: Path) -> Child:
    with zygote.fork(tmp_path / "affine") as child:
        state = {"weight": torch.tensor([1.0, 2.0, 3.0]), "count": torch.tensor(4), "table": torch.ones(3)}
        reply = child.load(candidate(AFFINE), Call((3,), {"shift": 0.5}), state, nonpersistent=["table"])
        assert reply.problem == ""
        yield child


def test_call_brings_values_state_and_mutations(affine: Child) -> None:
    """Outputs, buffers and mutated inputs come back with the values computed from the state given."""
    x, y = torch.randn(2, 3), torch.zeros(4)
    reply = affine.call(Call((x,), {"y": y}), state="all")
    assert torch.equal(reply.outputs["out"], x * torch.tensor([1.0, 2.0, 3.0]) + 0.5)
    assert torch.equal(reply.outputs["rest"][0], torch.ones(3)) and reply.outputs["rest"][1] == 2.5
    assert torch.equal(reply.inputs_after.kwargs["y"], torch.ones(4))
    assert torch.equal(reply.inputs_after.args[0], x)
    assert torch.equal(y, torch.zeros(4))  # the judge's own tensor is out of the candidate's reach
    assert reply.state_after["count"].item() == 5 and torch.equal(reply.state_after["table"], torch.ones(3))
    assert reply.ops["aten.mul.Tensor"] == 1 and "aten.add_.Tensor" in reply.ops
    assert reply.peak_bytes is None and reply.seconds <= reply.wall_s


def test_aliases_name_the_input(affine: Child) -> None:
    """An output that is a view of an input is reported with the input's number and its offset."""
    reply = affine.call(Call((torch.ones(3),), {"y": torch.zeros(4)}))
    assert reply.aliases == {1: 1}
    assert reply.output_metas[1].offset == 1 and reply.output_metas[0].storage < 0


def test_missing_unexpected_and_misshapen_state(zygote: Zygote, tmp_path: Path) -> None:
    """Keys that only one side has, and shapes that differ, are reported by name."""
    with zygote.fork(tmp_path / "a") as child:
        reply = child.load(candidate(AFFINE), Call((3,)), {"weight": torch.ones(3), "bias": torch.ones(3)})
        assert (reply.missing, reply.unexpected, reply.mismatched) == (("count",), ("bias",), ())
    with zygote.fork(tmp_path / "b") as child:
        reply = child.load(candidate(AFFINE), Call((3,)), {"weight": torch.ones(4), "count": torch.tensor(0)})
        assert reply.mismatched == ("weight: (3,) instead of (4,)",) and "weight" in reply.problem


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int8, torch.bool, torch.complex64]
)
def test_layouts_and_dtypes_cross_unchanged(fork: Callable[..., Child], dtype: torch.dtype) -> None:
    """A view keeps its strides and offset on the way in, a permuted output its strides on the way out."""
    child = fork(body("return x, x.stride(), x.storage_offset(), x.contiguous().t()"))
    x = torch.arange(48).reshape(6, 8).to(dtype)[1:5, 1:6:2].t()
    outputs = child.call(Call((x,))).outputs
    assert torch.equal(outputs[0], x)
    assert outputs[1] == x.stride() and outputs[2] == x.storage_offset()
    assert outputs[3].stride() == x.contiguous().t().stride() and torch.equal(outputs[3], x.t())


def test_shared_storage_stays_shared(fork: Callable[..., Child]) -> None:
    """Two inputs over one storage share memory in the child too."""
    child = fork(body("x[0].add_(1)", "return x[1].clone()"))
    base = torch.zeros(4)
    assert torch.equal(child.call(Call(([base, base[1:]],))).outputs, torch.ones(3))


def test_same_place_has_the_same_address_and_new_values(fork: Callable[..., Child]) -> None:
    """place="same" refills the buffers in place, "other" takes new ones; a result cached by address is exposed."""
    caching = "cache = {}"
    child = fork(body("k = x.data_ptr()", "if k not in cache: cache[k] = x * 2", "return cache[k], k", before=caching))
    first = child.call(Call((torch.ones(3),)))
    same = child.call(Call((torch.full((3,), 5.0),)), place="same")
    other = child.call(Call((torch.full((3,), 5.0),)), place="other")
    assert same.outputs[1] == first.outputs[1] != other.outputs[1]
    assert torch.equal(same.outputs[0], torch.full((3,), 2.0))  # stale, and visibly so
    assert torch.equal(other.outputs[0], torch.full((3,), 10.0))
    with pytest.raises(UsageError):
        child.call(Call((torch.ones(4),)), place="same")


def test_empty_and_zero_dimensional_tensors(fork: Callable[..., Child]) -> None:
    """Empty and 0-dim tensors cross like any other."""
    child = fork(body("return x.sum(), x[:0]"))
    total, empty = child.call(Call((torch.ones(2, 3),))).outputs
    assert total.shape == () and total.item() == 6.0
    assert empty.shape == (0, 3)
    assert child.call(Call((torch.empty(0, 3),))).outputs[0].item() == 0.0


def test_training_mode_and_precision(zygote: Zygote, tmp_path: Path) -> None:
    """train/eval and the matmul precision of the task hold while the candidate runs, and no gradient is recorded."""
    source = body("return self.training, torch.get_float32_matmul_precision(), torch.is_grad_enabled()")
    with zygote.fork(tmp_path / "box") as child:
        child.load(source, Call(), {}, training=True, precision="high")
        assert child.call(Call((torch.ones(1),))).outputs == (True, "high", False)


def test_cuda_is_redirected_without_a_gpu(fork: Callable[..., Child], zygote: Zygote, tmp_path: Path) -> None:
    """On the CPU, device="cuda" in a candidate means the CPU, and the reply lists where."""
    with zygote.fork(tmp_path / "box") as child:
        source = body("return x + self.k", before="K = 3")
        init = "    def __init__(self):\n        super().__init__()\n        self.k = torch.ones(1, device='cuda')\n"
        text = source.files["op_kforge.py"].replace("    def forward", init + "    def forward")
        reply = child.load(source.with_file("op_kforge.py", text), Call(), {})
        assert reply.redirected and "cuda -> cpu" in reply.redirected[0]
        assert child.call(Call((torch.ones(1),))).outputs.item() == 2.0


def test_an_exception_is_raised_with_its_line(fork: Callable[..., Child]) -> None:
    """A candidate's exception ends the call, not the child; the text names its line and not ours; the log is kept."""
    child = fork(body("print('was here')", "if x.numel() == 3: raise ValueError('three')", "return x"))
    with pytest.raises(ChildFailed) as caught:
        child.call(Call((torch.ones(3),)))
    assert caught.value.kind == "raised"
    assert "ValueError: three" in caught.value.text and "op_kforge.py" in caught.value.text
    assert "kforge/worker" not in caught.value.text and "was here" in caught.value.log
    assert child.call(Call((torch.ones(2),))).outputs.shape == (2,)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("x = 1\n", "defines no ModelNew"),
        ("class ModelNew:\n    pass\n", "not a torch.nn.Module"),
        ("raise SystemExit(0)\n", "SystemExit"),
    ],
)
def test_load_failures_are_words(fork: Callable[..., Child], source: str, words: str) -> None:
    """A module that cannot be loaded is `raised` with the reason."""
    child = fork(candidate(source), load=False)
    with pytest.raises(ChildFailed) as caught:
        child.load(candidate(source), Call(), {})
    assert caught.value.kind == "raised" and words in caught.value.text


def test_a_lazy_subclass_is_named(fork: Callable[..., Child]) -> None:
    """An output that is no plain tensor is reported with its type; an object of another type as Opaque."""
    child = fork(body("return x.as_subclass(Lazy), Odd()", before="class Lazy(torch.Tensor): pass\nclass Odd: pass"))
    reply = child.call(Call((torch.ones(1),)))
    assert reply.output_metas[0].type == "Lazy"
    assert reply.outputs[1].type == "op_kforge.Odd"


def test_threads_are_counted(fork: Callable[..., Child]) -> None:
    """A thread that a call leaves behind shows in the count."""
    child = fork(
        body(
            "import threading, time", "threading.Thread(target=time.sleep, args=(5,), daemon=True).start()", "return x"
        )
    )
    before, after = child.call(Call((torch.ones(1),))).threads
    assert after == before + 1


def test_foreign_inputs_are_refused(fork: Callable[..., Child]) -> None:
    """An input that is no tree of tensors and plain values is a usage error before anything is sent."""
    child = fork(candidate(DOUBLE))
    with pytest.raises(UsageError):
        child.call(Call((object(),)))


def test_more_tensors_than_descriptors_are_the_candidates_failure(zygote: Zygote, tmp_path: Path) -> None:
    """Each tensor takes a descriptor of the judge's: where they run out the answer is refused, and none is lost."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    source = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    source += "        return [torch.empty(1) for _ in range(3000)]\n"
    open_before = len(os.listdir("/proc/self/fd"))
    with zygote.fork(tmp_path / "many") as child:
        child.load(candidate(source), Call((), {}), {})
        resource.setrlimit(resource.RLIMIT_NOFILE, (1500, most[1]))
        try:
            with pytest.raises(ChildFailed, match="3000 tensors cannot be read: Too many open files") as caught:
                child.call(Call((torch.ones(1),), {}))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert caught.value.kind == "protocol"
    del caught  # its frames hold what they had made
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= open_before


def test_the_processor_time_of_a_childs_processes_is_read_from_outside(fork: Callable[..., Child]) -> None:
    """What a call computes counts, its waiting does not; the kernel says so, and no word of the child's."""
    source = body(
        "import time",
        "end = time.thread_time() + 0.3",
        "while x.numel() == 1 and time.thread_time() < end: pass",
        "time.sleep(0.3)",
        "return x * 2",
    )
    child = fork(source)
    child.call(Call((torch.ones(2),)))
    begin = child.processor_s()
    child.call(Call((torch.ones(2),)))
    waited = child.processor_s() - begin
    child.call(Call((torch.ones(1),)))
    assert waited < 0.2 and child.processor_s() - begin - waited >= 0.29


def test_storages_begin_where_any_allocator_would_put_them() -> None:
    """Inputs lie at addresses aligned as users' are, and not all at the beginning of a page, which only we would do."""
    shelf = Shelf(None, lambda buffers, fds: None, lambda ids: None)
    buffers = shelf.take([(1000, "cpu")] * 40)
    addresses = [buffer.bytes.data_ptr() for buffer in buffers]
    assert all(address % 512 == 0 for address in addresses) and len({address % 4096 for address in addresses}) > 1
    assert {buffer.bytes.untyped_storage().nbytes() for buffer in buffers} == {1000}
    assert all(buffer.describe()["lead"] == buffer.lead for buffer in buffers)
    shelf.close()

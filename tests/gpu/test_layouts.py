"""Reductions in any layout, transposes, scatters and thin products on a real GPU, against eager torch in double."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine import propose
from kforge.environment.layouts import LAYOUTS
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import _close, forced, function_task, leaves, load_model, proposals, task_from
from tests.engine.test_backward import NORM, carried_pair
from tests.engine.test_logarithms import ODD
from tests.engine.test_strides import CASES

pytestmark = pytest.mark.gpu

REDUCTIONS = """
return (x.sum(1), x.amax(1), x.argmin(1), x.var(1), torch.logsumexp(x, 1), x.mean((0, 2)), x.norm(dim=1))
"""


def check(task: Task, candidates: list[Candidate], call: Call, folder: Path) -> None:
    """Every candidate as near to double precision as eager is."""
    wanted = leaves(task.run(task.make_reference(device="cuda"), call))
    doubles = Call(tuple(a.double() if a.is_floating_point() else a for a in call.args))
    exact = leaves(task.run(task.make_reference(device="cuda").double(), doubles))
    for candidate in candidates:
        model = load_model(candidate, folder)().cuda()
        got = leaves(task.run(model, call))
        for want, have, truth in zip(wanted, got, exact, strict=True):
            assert (have.shape, have.dtype) == (want.shape, want.dtype)
            _close(want, have, truth)


@pytest.mark.parametrize("schedule", ("columns", "strips", "thread"))
def test_middle_dimension(schedule: str, tmp_path: Path) -> None:
    """Odd widths over many rows, as the measured workloads have them."""
    task = function_task(REDUCTIONS, "torch.randn(3, 40, 33)", tmp_path)
    call = Call((torch.randn(5, 700, 4095, device="cuda"),))
    check(task, [forced(task, schedule)], call, tmp_path)


def test_held_columns(tmp_path: Path) -> None:
    """Softmax over dim 1 from registers, at every size class."""
    task = function_task("return torch.softmax(x, 1)", "torch.randn(3, 40, 33)", tmp_path)
    for cols in (9, 60, 250, 1000, 2000):
        call = Call((torch.randn(7, cols, 511, device="cuda"),))
        check(task, proposals(task)[:1], call, tmp_path)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_transposes(dtype: torch.dtype, tmp_path: Path) -> None:
    """Sizes off the tiles, and a narrow dimension."""
    name = str(dtype)
    task = function_task("return x.transpose(1, 2).contiguous()", f"torch.randn(2, 65, 33, dtype={name})", tmp_path)
    for shape in ((3, 1027, 2049), (5, 3, 70001), (5, 70001, 3)):
        check(task, proposals(task), Call((torch.randn(shape, device="cuda", dtype=dtype),)), tmp_path)


def test_thin_products(tmp_path: Path) -> None:
    """A matrix and a vector, a small batch through a linear layer."""
    task = function_task("return x @ y", "torch.randn(600, 2048), torch.randn(2048, 1)", tmp_path, "x, y")
    call = Call((torch.randn(2001, 40004, device="cuda"), torch.randn(40004, 1, device="cuda")))
    check(task, proposals(task)[:2], call, tmp_path)
    task = function_task("return F.linear(x, y)", "torch.randn(3, 1030), torch.randn(700, 1030)", tmp_path, "x, y")
    call = Call((torch.randn(3, 8000, device="cuda"), torch.randn(5001, 8000, device="cuda")))
    check(task, proposals(task)[:2], call, tmp_path)


def test_scatters(tmp_path: Path) -> None:
    """Atomics add up what torch adds up."""
    task = function_task(
        "return torch.index_add(x, 0, i, y)",
        "torch.randn(6, 9), torch.randn(8, 9), torch.randint(0, 6, (8,))",
        tmp_path,
        "x, y, i",
    )
    x, y = torch.randn(1000, 257, device="cuda"), torch.randn(50000, 257, device="cuda")
    check(task, proposals(task)[:1], Call((x, y, torch.randint(0, 1000, (50000,), device="cuda"))), tmp_path)


def test_more_than_two_to_the_31(tmp_path: Path) -> None:
    """Beyond 2^31 elements the last rows are right: a reduction over the first dimension, a transpose."""
    task = function_task("return x.sum(0)", "torch.randn(300, 70)", tmp_path)
    x = torch.ones(2**16 + 1, 2**15 + 8, device="cuda", dtype=torch.float16)
    x[-1, -5:] = 3
    model = load_model(proposals(task)[0], tmp_path)().cuda()
    assert torch.equal(model(x / 64)[-6:], torch.tensor([1024 + 1 / 64, *[1024 + 3 / 64] * 5], device="cuda").half())
    task = function_task("return x.t().contiguous()", "torch.randn(70, 37).half()", tmp_path)
    model = load_model(proposals(task)[0], tmp_path)().cuda()
    assert torch.equal(model(x)[-8:, -8:], x[-8:, -8:].t())


@pytest.mark.parametrize(
    "body",
    (
        # below 10, so that thousands of elements and not the one largest decide the RMS error
        "x = torch.fmod(x, 10)\nreturn torch.i0(x), torch.special.i0e(x), torch.special.i1(x), torch.special.i1e(x)",
        "return torch.digamma(x), torch.polygamma(1, x.abs() + 0.01), torch.special.erfcx(x)",
        "y = torch.tanh(x / 9)\nreturn torch.erfinv(y), torch.special.ndtri(y.abs()), torch.special.log_ndtr(x)",
        "return torch.sigmoid(x).amax(1), (-x).exp().amin(1), F.max_pool1d(torch.tanh(x), 5, 1, 2)",
        "return torch.nanmedian(x, 1)[0], torch.quantile(x, 0.3, 1)",
    ),
)
def test_functions_of_the_device(body: str, tmp_path: Path) -> None:
    """Special functions, extremes of monotone ones and order statistics are as accurate as torch's on the device."""
    task = function_task(body, "torch.randn(300, 1000)", tmp_path)
    normal = torch.randn(300, 1000, device="cuda", generator=torch.Generator("cuda").manual_seed(3))
    x = normal * torch.linspace(0.1, 20, 1000, device="cuda")
    check(task, proposals(task)[:1], Call((x,)), tmp_path)


@pytest.mark.parametrize("scale", (1.0, 100.0))
def test_running_logarithms(scale: float, tmp_path: Path) -> None:
    """Every schedule, where a tile's elements are near each other and where they are hundreds apart; -inf and NaN."""
    task = function_task("return torch.logcumsumexp(x, 1)", "torch.randn(4, 1024)", tmp_path)
    x = torch.randn(70, 20000, device="cuda") * scale
    x[1, :50], x[2, 9000], x[3, 7] = -torch.inf, torch.inf, torch.nan
    check(task, proposals(task), Call((x,)), tmp_path)


def test_structure_of_products(tmp_path: Path) -> None:
    """Traces, batched diagonal factors and whole sums of products, without the product."""
    body = "return torch.trace(x @ y), (x @ y).mean(), torch.diag_embed(x) @ y.expand(x.shape[0], -1, -1)"
    task = function_task(body, "torch.randn(512, 512), torch.randn(512, 512)", tmp_path, "x, y")
    candidate = proposals(task)[0]
    assert "torch.mm" not in candidate.files["op_kforge.py"] and "torch.bmm" not in candidate.files["op_kforge.py"]
    call = Call((torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")))
    check(task, [candidate], call, tmp_path)


@pytest.mark.parametrize(("body", "inputs", "parameters"), CASES)
def test_strides(body: str, inputs: str, parameters: str, tmp_path: Path) -> None:
    """Results lie as torch's on this device, which follows memory formats for fewer operators than a CPU does."""
    task = function_task(body, inputs, tmp_path, parameters)
    candidate = next(propose(task, capture(task, device="cuda"), arch="sm_90a", device="cuda:0"))
    reference, model = task.make_reference(device="cuda"), load_model(candidate, tmp_path)().cuda()
    args = task.make_call(device="cuda").args
    calls = [tuple(layout(t) for t in args) for layout in LAYOUTS.values()]
    calls += [(LAYOUTS[name](args[0]), *args[1:]) for name in ("transposed", "expanded", "dense_permuted")]
    taken = 0
    for call in calls:
        try:
            wanted = leaves(reference(*call))
        except RuntimeError as error:  # such as a channel_shuffle of what lies in another order: no case for the judge
            assert "view size is not compatible" in str(error)
            continue
        taken += 1
        for want, have in zip(wanted, leaves(model(*call)), strict=True):
            steps = [[s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] for t in (want, have)]
            assert steps[0] == steps[1], [t.stride() for t in call]
            torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)
    assert taken


@pytest.mark.parametrize("wide", (128, 130))
def test_bags(wide: int, tmp_path: Path) -> None:
    """Bags of any size, empty ones and padding among them: sums, means and maxima of a table's rows."""
    body = "return F.embedding_bag(i, w, o, mode='sum', padding_idx=3), F.embedding_bag(i, w, o, mode='mean')"
    inputs = f"torch.randint(0, 50, (40,)), torch.randn(50, {wide}), torch.tensor([0, 3, 3, 30])"
    task = function_task(body, inputs, tmp_path, "i, w, o")
    offsets = torch.randint(0, 20000, (1000,)).sort().values
    offsets[0] = 0
    call = Call((torch.randint(0, 5000, (20000,)).cuda(), torch.randn(5000, wide).cuda(), offsets.cuda()))
    check(task, proposals(task)[:1], call, tmp_path)


@pytest.mark.parametrize("norm", ("nn.LayerNorm(1000)", "nn.RMSNorm(1000)", "nn.LayerNorm(4096)"))
def test_gradients_of_norms(norm: str, tmp_path: Path) -> None:
    """Gradients of a norm's input and parameters, the latter added up by the kernel that has the rows."""
    dim = int(norm.partition("(")[2][:-1])
    text = (
        NORM.replace("nn.LayerNorm(dim)", norm).replace("return [40]", f"return [{dim}]").replace("9, 40", f"64, {dim}")
    )
    task = task_from(text, tmp_path)
    candidate = carried_pair(task)
    model, eager = load_model(candidate, tmp_path)(dim).cuda(), task.make_reference(device="cuda")
    exact = task.make_reference(device="cuda").double()
    for rows in (1, 777, 60000):
        x, upstream = torch.randn(rows, dim, device="cuda"), torch.randn(rows, dim, device="cuda")
        found = []
        for module, dtype in ((eager, torch.float32), (model, torch.float32), (exact, torch.float64)):
            own = x.to(dtype).requires_grad_()
            found.append(torch.autograd.grad(module(own), [own, *module.parameters()], upstream.to(dtype)))
        for want, have, truth in zip(*found, strict=True):
            _close(want, have, truth)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("schedule", ("block", "stream", "split"))
def test_rows_of_odd_length(schedule: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Rows that begin within a vector are walked by memory's vectors, wherever the tensor itself begins."""
    body = "return x / x.abs().mean(-1, keepdim=True), torch.log_softmax(x, -1)"
    task = function_task(body, f"torch.randn(3, 1027, dtype={dtype})", tmp_path)
    candidate = forced(task, schedule)
    for width in (1027, 8191, 20001):
        check(task, [candidate], Call((torch.randn(301, width, device="cuda", dtype=dtype),)), tmp_path)
    shifted = torch.randn(301 * 1027 + 1, device="cuda", dtype=dtype)[1:].view(301, 1027)
    check(task, [candidate], Call((shifted,)), tmp_path)


def test_full_tiles_and_lines_kept(tmp_path: Path) -> None:
    """Columns that fill the tile they are held in, lines kept from row to row, a short side, running logarithms:
    each by the first candidates."""
    for body, shape in (
        ("return torch.softmax(x, 1)", (4, 1024, 512)),
        ("return F.interpolate(x, scale_factor=2, mode='bilinear')", (2, 3, 130, 256)),
        ("return F.interpolate(x, size=(77, 512), mode='bicubic')", (2, 3, 130, 256)),
        ("return x.permute(0, 2, 3, 1).contiguous() * 2", (3, 3, 130, 257)),
        ("return torch.logcumsumexp(x * 20, -1)", (300, 8192)),
        ("return x.amax(-1), x.sum(-1)", (3000, 8191)),
    ):
        task = function_task(body, f"torch.randn{shape}", tmp_path)
        check(task, proposals(task)[:3], Call((torch.randn(shape, device="cuda"),)), tmp_path)


def test_rows_of_more_blocks_than_multiprocessors(tmp_path: Path) -> None:
    """Rows of 4.2 million floats: two blocks on each multiprocessor wait for each other and all come to their end."""
    task = function_task("return F.layer_norm(x, (x.shape[-1],))", "torch.randn(2, 1028)", tmp_path)
    candidate = forced(task, "split")
    for cols in (1 << 22, 4_800_000):
        check(task, [candidate], Call((torch.randn(5, cols, device="cuda"),)), tmp_path)


def test_short_logarithms(tmp_path: Path) -> None:
    """Stand-ins for CUDA's logarithms and the logistic function, at the ends of the range, too."""
    body = (
        "return F.kl_div(torch.log(y), x, reduction='none'), x.log() - y.log(), F.softplus(x), F.silu(x), x.sigmoid()"
    )
    task = function_task(body, "torch.rand(360) + 0.01, torch.rand(360) + 0.01", tmp_path, "x, y")
    odd = torch.tensor(ODD, device="cuda")
    pairs = torch.cartesian_prod(odd, odd)
    x, y = torch.rand(2, 1 << 20, device="cuda") * torch.exp2(torch.linspace(-60, 40, 1 << 20, device="cuda"))
    for call in (Call((x, y)), Call((pairs[:, 0].contiguous(), pairs[:, 1].contiguous()))):
        check(task, proposals(task)[:1], call, tmp_path)

"""Products of halves that are as accurate as the baseline: errors against float64 on every kind of data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.engine.calls import batches, converted, precision
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for, product_merged
from kforge.engine.handlers import products
from kforge.engine.proposing import make_plan
from kforge.engine.switches import Switches
from kforge.task import capture
from tests.engine.support import function_task, load_model, proposals, task_from

LIMIT = {"split": 1.5, "merged": 1.5, "scaled": 1.05, "converted": 1.05}
"""RMS error over that of what the scheme stands in for; the rule allows 2."""
LEFT = {True: "x", False: "x.T"}
RIGHT = {True: "w.T", False: "w"}


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemes are used at sizes for which they would not pay."""
    monkeypatch.setattr(products, "pays", lambda *_: True)
    monkeypatch.setattr(converted, "pays", lambda *_: True)
    monkeypatch.setattr(precision, "SMALL", 0)
    monkeypatch.setattr(precision, "LEAST_DEPTH", 0)


def tf32(x: torch.Tensor) -> torch.Tensor:
    """Operands as tensor cores read them: ten bits of mantissa, to nearest."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def candidate_model(scheme: str, body: str, inputs: str, folder: Path) -> Any:
    """ModelNew with its products by `scheme`, whatever the precision of the task."""
    task = function_task(f"return {body}", inputs, folder, "x, w")
    found = capture(task)
    plan, programs = make_plan(task, found, Switches(library=True, scheme=scheme))
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    calls = [precision.lowering(step) for step in plan.parts.calls]
    return load_model(write_candidate(plan, choices, "a test", None, calls), folder)()


def kinds(depth: int, rows: int = 30, columns: int = 70) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """(rows x depth, depth x columns) of every distribution that a scheme must survive."""
    x, w = torch.randn(rows, depth), torch.randn(depth, columns)
    channels = torch.exp2(torch.rand(depth) * 32 - 16)
    tall, wide = torch.exp2(torch.rand(rows) * 32 - 16), torch.exp2(torch.rand(columns) * 32 - 16)
    outlier, heavy = x.clone(), torch.distributions.StudentT(1.5).sample(x.shape)
    outlier[3, 5] = 1e6
    return {
        "normal": (x, w),
        "one sign": (x.abs(), w.abs()),
        "small": (x * 1e-6, w * 1e-12),
        "large": (x * 1e12, w * 1e9),
        "beyond the exponents": (x * 1e-25, w * 1e20),
        "one outlier": (outlier, w),
        "heavy tails": (heavy, w),
        "scales along the sum": (x * channels, w / channels[:, None]),
        "scales of rows and columns": (x * tall[:, None], w * wide),
        "zeros": (x * (torch.rand(rows, 1) > 0.5), w * (torch.rand(columns) > 0.5)),
        "zero and one": ((x > 0).float(), (w > 0).float()),
    }


@pytest.mark.parametrize(
    ("scheme", "layout"),
    (
        ("split", (True, True)),
        ("split", (False, False)),
        ("merged", (False, True)),
        ("scaled", (True, False)),
        ("converted", (True, False)),
    ),
)
def test_errors(scheme: str, layout: tuple[bool, bool], tmp_path: Path) -> None:
    """At each layout of the operands the error against float64 stays at that of the product it replaces."""
    body = f"{LEFT[layout[0]]} @ {RIGHT[layout[1]]}"
    columns = 72 if scheme == "converted" else 70
    shapes = [(30, 100) if layout[0] else (100, 30), (columns, 100) if layout[1] else (100, columns)]
    model = candidate_model(scheme, body, f"torch.randn{shapes[0]}, torch.randn{shapes[1]}", tmp_path)
    for depth in (100, 33):
        for kind, (x, w) in kinds(depth, columns=columns).items():
            if depth != 100 and kind not in ("normal", "scales along the sum"):
                continue
            exact = x.double() @ w.double()
            base = tf32(x) @ tf32(w) if scheme in ("scaled", "converted") else x @ w
            got = model(x if layout[0] else x.T.contiguous(), w.T.contiguous() if layout[1] else w)
            assert got.shape == exact.shape
            allowed = LIMIT[scheme] * float((base - exact).square().mean().sqrt())
            allowed += 2**-24 * float(exact.square().mean().sqrt())  # where the baseline is exact, a unit
            rms = float((got - exact).square().mean().sqrt())
            assert rms <= allowed, f"{kind}, depth {depth}: {rms:.3g}, allowed {allowed:.3g}"


def test_shares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The merged products of three shares of the depth, one of them short, are as exact as those of the whole; a depth
    that makes one share, too."""
    monkeypatch.setattr(product_merged, "LEAST_PARTS", 2)
    model = candidate_model("merged", "x.T @ w.T", "torch.randn(400, 30), torch.randn(70, 400)", tmp_path)
    for depth, kind in ((400, "normal"), (400, "one sign"), (33, "normal")):
        x, w = kinds(depth)[kind]
        base, exact = x @ w, x.double() @ w.double()
        got = model(x.T.contiguous(), w.T.contiguous())
        error, allowed = (float((v - exact).square().mean().sqrt()) for v in (got, base))
        assert error <= LIMIT["merged"] * allowed + 2**-24 * float(exact.square().mean().sqrt()), (depth, kind)


@pytest.mark.parametrize("scheme", ("split", "merged"))
def test_batches(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of products are as exact as one is, for every distribution, a matrix each, and where some are odd."""
    monkeypatch.setattr(batches, "pays", lambda *_: True)
    depth, columns = 100, 72
    inputs = f"torch.randn(11, 30, {depth}), torch.randn(11, {depth}, {columns})"
    model = candidate_model(scheme, "torch.bmm(x, w) + 1", inputs, tmp_path)
    made = kinds(depth, 30, columns)
    x, w = (torch.stack(part) for part in zip(*made.values(), strict=True))
    x[0, 3, 5], w[1, 7, 11] = torch.inf, torch.nan
    got = model(x, w) - 1
    base, exact = torch.bmm(x, w), torch.bmm(x.double(), w.double())
    assert torch.equal(got.isnan(), base.isnan()) and torch.equal(got.isinf(), base.isinf())
    for kind, have, want, truth in zip(made, got, base, exact, strict=True):
        finite = want.isfinite()
        error, limit = ((v - truth)[finite].square().mean().sqrt() for v in (have, want))
        unit = 2**-22 * (1 + float(truth[finite].abs().max()))  # the sum with one is rounded
        assert error <= LIMIT["split"] * limit + unit, kind


def test_infinities_and_nan(tmp_path: Path) -> None:
    """A row with an infinity and a column with a NaN are computed again, where torch has them; the rest stays exact."""
    model = candidate_model("split", "torch.relu(x @ w)", "torch.randn(70, 100), torch.randn(100, 90)", tmp_path)
    x, w = torch.randn(70, 100), torch.randn(100, 90)
    x[3, 5], w[7, 11], x[9] = torch.inf, torch.nan, 0.0
    wanted, got = torch.relu(x @ w), model(x, w)
    assert torch.equal(wanted.isnan(), got.isnan()) and torch.equal(wanted.isinf(), got.isinf())
    finite = wanted.isfinite()
    torch.testing.assert_close(got[finite], wanted[finite], rtol=1e-5, atol=1e-5)


def test_no_depth(tmp_path: Path) -> None:
    """A sum of nothing is zero."""
    model = candidate_model("split", "torch.relu(x @ w) + 1", "torch.randn(70, 100), torch.randn(100, 90)", tmp_path)
    assert torch.equal(model(torch.empty(70, 0), torch.empty(0, 90)), torch.ones(70, 90))


def test_scheme_comes_first_where_it_pays(tmp_path: Path) -> None:
    """The engine proposes the scheme before the library's own product, which stays among its candidates."""
    found = proposals(
        function_task("return torch.relu(x @ w)", "torch.randn(80, 80), torch.randn(80, 80)", tmp_path, "x, w")
    )
    assert "product_of_two_halves" in found[0].files["op_kforge.py"]
    assert any("torch.mm(x, w)" in c.files["op_kforge.py"] for c in found)


def test_prediction() -> None:
    """Schemes pay for large products and not for small, thin or shallow ones."""
    assert precision.pays("split", 2048, 4096, 8192) and precision.pays("scaled", 4096, 4096, 4096)
    assert not precision.pays("split", 256, 256, 256) and not precision.pays("scaled", 16, 8192, 8192)
    assert not precision.pays("split", 8192, 8192, 32) and not precision.pays("split", 256, 256, 524288)


def test_weights_of_layers_are_prepared(tmp_path: Path) -> None:
    """A layer's weight is converted ahead of time, an input is not, and neither is what a kernel writes first."""
    text = (
        "import torch\nfrom torch import nn\n\nPRECISION = 'high'\n\n\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.layer = nn.Linear(96, 64)\n\n"
        "    def forward(self, x, w):\n"
        "        return torch.relu(self.layer(x)) @ w\n\n\ndef get_inputs():\n"
        "    return [torch.randn(80, 96), torch.randn(64, 72)]\n"
        "\n\ndef get_init_inputs():\n    return []\n"
    )
    task = task_from(text, tmp_path)
    plan, _ = make_plan(task, capture(task), Switches(library=True, scheme="converted"))
    layer, product = (precision.lowering(step).helpers[-1] for step in plan.parts.calls)
    assert "= rows_in_halves(a)" in layer and "prepared(b, lambda weight: rows_in_halves(weight))" in layer
    assert "= rows_in_halves(a)" in product and "= columns_in_halves(b)" in product


TWO_SIDES = """
import torch

PRECISION = "high"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before = torch.nn.Parameter(torch.randn(72, 96))
        self.after = torch.nn.Parameter(torch.randn(64, 96))

    def forward(self, x, y):
        return (self.before @ x.t()).relu(), (y @ self.after.t()).relu()


def get_inputs():
    return [torch.randn(80, 96), torch.randn(88, 96)]


def get_init_inputs():
    return []
"""


def test_weights_on_either_side(tmp_path: Path) -> None:
    """A layer's weight is the left operand or the right one; inputs are converted in each call."""
    task = task_from(TWO_SIDES, tmp_path)
    plan, programs = make_plan(task, capture(task), Switches(library=True, scheme="converted"))
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    calls = [precision.lowering(step) for step in plan.parts.calls]
    model = load_model(write_candidate(plan, choices, "a test", None, calls), tmp_path)()
    reference = task.make_reference()
    model.load_state_dict(reference.state_dict())
    x, y = task.make_call().args
    for _ in range(2):
        with torch.no_grad():
            results = zip(reference(x, y), model(x, y), strict=True)
        for wanted, got in results:
            assert float((wanted - got).norm()) <= 1e-3 * float(wanted.norm())
        x.neg_(), y.neg_()

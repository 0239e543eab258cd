"""Random operators in kernels: torch's generator decides, and what it decides looks drawn."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.engine.support import function_task, load_model, proposals
from tests.engine.test_norms import norm_task


def test_dropout_draws_from_torchs_generator(tmp_path: Path) -> None:
    """The same seed gives the same draw, the next call another one; what is kept is scaled exactly."""
    [candidate] = proposals(function_task("return F.dropout(x, 0.25, True)", "torch.rand(64, 129) + 1", tmp_path))
    model = load_model(candidate, tmp_path)()
    x = torch.rand(64, 129) + 1
    with torch.no_grad():
        torch.manual_seed(5)
        first, second = model(x), model(x)
        torch.manual_seed(5)
        again = model(x)
    assert torch.equal(first, again) and not torch.equal(first, second)
    kept = first != 0
    assert torch.equal(first[kept], x[kept] * (1 / 0.75))
    assert abs(float(kept.float().mean()) - 0.75) < 6 * (0.25 * 0.75 / x.numel()) ** 0.5


def test_dropout_inside_a_row_kernel(tmp_path: Path) -> None:
    """Each element's draw is its own wherever it is computed: the sum of a row and the row itself agree."""
    body = "y = F.dropout(x, 0.5, True)\nreturn y, y.sum(-1)"
    [candidate, *_] = proposals(function_task(body, "torch.rand(8, 70)", tmp_path))
    with torch.no_grad():
        y, total = load_model(candidate, tmp_path)()(torch.rand(8, 70))
    torch.testing.assert_close(total, y.sum(-1))
    assert 0 < int((y == 0).sum()) < y.numel()


def test_two_dropouts_are_drawn_apart(tmp_path: Path) -> None:
    """Two random operators have a seed each."""
    body = "return F.dropout(x, 0.5, True), F.dropout(x, 0.5, True)"
    [candidate, *_] = proposals(function_task(body, "torch.rand(8, 70)", tmp_path))
    with torch.no_grad():
        a, b = load_model(candidate, tmp_path)()(torch.rand(8, 70) + 1)
    assert not torch.equal(a != 0, b != 0)


def test_dropout_in_eval_form_is_the_identity(tmp_path: Path) -> None:
    """In front of other work it leaves no trace in the kernel."""
    [candidate] = proposals(norm_task("nn.Dropout(0.5)", "torch.rand(8, 70)", tmp_path, after=" * 2"))
    assert "seed" not in candidate.files["op_kforge.cu"]


def test_dropout_lies_as_its_operand(tmp_path: Path) -> None:
    """A transposed input, as captured and where a contiguous one is given, and what comes out of a window."""
    task = function_task("return F.dropout(x, 0.5, True)", "torch.rand(33, 20).t()", tmp_path)
    [candidate] = proposals(task)
    model, reference = load_model(candidate, tmp_path)(), task.make_reference()
    with torch.no_grad():
        for x in (torch.rand(33, 20).t(), torch.rand(20, 33), torch.rand(20, 66)[:, ::2]):
            assert model(x).stride() == reference(x).stride()
    body = "return F.dropout(F.max_pool2d(x, 2), 0.5, True)"
    candidate = proposals(function_task(body, "torch.rand(2, 3, 8, 8) + 1", tmp_path))[0]
    with torch.no_grad():
        y = load_model(candidate, tmp_path)()(torch.rand(2, 3, 8, 8) + 1)
    assert 0 < int((y == 0).sum()) < y.numel()

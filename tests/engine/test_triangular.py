"""Products of which half is known: with triangular operands, and of a matrix with its own transpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.engine.calls import bands
from kforge.engine.proposing import propose
from kforge.task import Call, capture
from tests.engine.support import compare, function_task

BODY = """
i = torch.arange(300)
lower = a @ torch.tril(b, -1) + 1
banded = a @ torch.where((i - i[:, None]).abs() < 3, b, 0.0)
return torch.triu(a, 2) @ b * 2, lower, banded, (a @ a.T).sigmoid()
"""


def test_products_of_which_half_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a zero leaves out is not multiplied, and is NaN all the same where it meets what is not finite.

    Of a matrix with its own transpose the lower half is multiplied, and the other mirrored.
    """
    monkeypatch.setattr(bands, "LEAST", 16)
    task = function_task(BODY, "torch.randn(300, 300), torch.randn(300, 300)", tmp_path, "a, b")
    candidate = next(
        c
        for c in propose(task, capture(task), arch="sm_90a", device="cpu")
        if "product_with_band(" in c.files["op_kforge.py"]
    )
    source = candidate.files["op_kforge.py"]
    assert source.count("= product_with_band(") == 3 and "product_in_band(a, a.t(), " in source
    call = task.make_call()
    odd = [t.clone() for t in call.args]
    odd[0][7, 290], odd[1][20, 5], odd[1][299, 250], odd[0][150, 3] = (float(v) for v in ("inf", "nan", "inf", "-inf"))
    compare(task, candidate, tmp_path, [call, Call(tuple(odd))])

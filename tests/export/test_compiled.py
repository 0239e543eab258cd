"""Exported operators under torch.compile, side by side, in place; packages of Triton kernels and of vendor calls."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from support import MODULE, TRITON, candidate, on_the_emulator, unverified, write_project

from kforge.engine import propose
from kforge.export.building import try_package
from kforge.export.evidence import Evidence
from kforge.export.formats import find_format
from kforge.export.package import Export, Options, prepare_export
from kforge.export.placing import place, sealed
from kforge.task import capture, load_task


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """No test finds what another one compiled."""
    torch._dynamo.reset()


def _changing(folder: Path, name: str) -> tuple[Export, Any]:
    """An export whose reference changes its input and returns it, and the candidate."""
    task, _ = write_project(folder)
    text = task.read_text().replace("return x * self.scale + self.bias", "return x.mul_(self.scale).add_(self.bias)")
    task.write_text(text)
    made = candidate(MODULE.replace("y = like(y, given)\n        return y", "given.copy_(y)\n        return given"))
    evidence = Evidence(made, task, None, problem="it was never verified")
    return prepare_export(load_task(task), evidence, Options(name=name)), made


def test_two_compiled_exports_live_in_one_process(tmp_path: Path, loaded: Any) -> None:
    """Each under fullgraph, then both in one graph: neither sees the other's kernels."""
    scales = {"compiled_one": 1.5, "compiled_two": 3.0}
    ops = []
    for name, scale in scales.items():
        made = candidate(MODULE.replace("self.scale, x.numel()", f"{scale}, x.numel()"))
        export = unverified(tmp_path / name, made.files[made.module], Options(name=name))
        ops.append(on_the_emulator(loaded(export), made, tmp_path))
    x, bias = torch.randn(5, 6), torch.randn(6)
    for operator, scale in zip(ops, scales.values(), strict=True):
        compiled = torch.compile(lambda x, b, op=operator: op(x * 2, b) + 1, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, bias), 2 * scale * x + bias + 1)
    both = torch.compile(lambda x, b: ops[0](x, b) - ops[1](x, b), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(both(x, bias), -1.5 * x)


def test_in_place_operators_are_functionalised(tmp_path: Path, loaded: Any) -> None:
    """In a graph between other operators, on intermediates and on inputs, each reader sees what it would in eager."""
    export, made = _changing(tmp_path, "in_place_compiled")
    operator = on_the_emulator(loaded(export), made, tmp_path)

    def between(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        y = x * 2
        operator(y, bias)
        before = x + 1
        operator(x, bias)
        return y + before

    x, bias = torch.randn(5, 6), torch.randn(6)
    changed = x.clone()
    found = torch.compile(between, fullgraph=True, backend="aot_eager")(changed, bias)
    torch.testing.assert_close(found, 3 * x + bias + x + 1)
    torch.testing.assert_close(changed, 1.5 * x + bias)
    torch.library.opcheck(operator, (torch.randn(5, 6), bias))


def test_triton_packages_build_and_pass_their_own_tests(tmp_path: Path) -> None:
    """A wheel of pure Python whose tests of import, schema, fakes, capture, domain and gradients pass without a GPU."""
    pytest.importorskip("triton")
    export = unverified(tmp_path / "task", TRITON, Options(name="triton_built"))
    place(tmp_path / "project", sealed(dict(find_format("triton")(export, "0.1.0"))))
    tried = try_package(tmp_path / "project", export.package, tmp_path)
    assert tried.wheel.name == "triton_built-0.1.0-py3-none-any.whl"
    assert tried.failed == 0
    assert tried.passed >= 12


LINEAR = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, wide, narrow):
        super().__init__()
        self.linear = nn.Linear(wide, narrow)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_init_inputs():
    return [48, 64]


def get_inputs():
    return [torch.randn(20, 48)]
"""
CONVOLUTION = LINEAR.replace("nn.Linear(wide, narrow)", "nn.Conv2d(wide, narrow, 3, padding=1)").replace(
    "torch.randn(20, 48)", "torch.randn(2, 48, 6, 6)"
)


@pytest.mark.parametrize(("text", "call"), [(LINEAR, "torch.mm("), (CONVOLUTION, "torch.conv2d(")])
def test_vendor_calls_go_through_aten(tmp_path: Path, loaded: Any, text: str, call: str) -> None:
    """The product stays torch's own operator, in the package as in its fake; the values are the reference's."""
    (tmp_path / "block.py").write_text(text)
    task = load_task(tmp_path / "block.py")
    proposed = islice(propose(task, capture(task), arch="sm_90a", device="cpu"), 30)
    made = next(c for c in proposed if call in c.files[c.module])
    evidence = Evidence(made, task.path, None, problem="it was never verified")
    package = loaded(prepare_export(task, evidence, Options(name="vendor_block")))
    source = tmp_path / "to" / "vendor_block" / "src" / "vendor_block"
    assert all(call in (source / name).read_text() for name in ("_forward.py", "_fake.py"))
    operator, reference = on_the_emulator(package, made, tmp_path), task.make_reference()
    x, state = task.make_call(0).args[0], list(reference.parameters())
    with torch.no_grad():
        right = reference(x)
        for found in (operator(x, *state), operator(x.to("meta"), *(t.to("meta") for t in state))):
            assert (found.shape, found.stride(), found.dtype) == (right.shape, right.stride(), right.dtype)
        torch.testing.assert_close(operator(x, *state), right)
        compiled = torch.compile(lambda x, *state: operator(x, *state) + 1, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, *state), right + 1)


def test_prepared_weights_are_made_once_and_anew_after_a_write(tmp_path: Path, loaded: Any) -> None:
    """What a candidate derives from a parameter is kept by the package too, until the parameter is written."""
    prepared = MODULE.replace("import Kernel\n", "import Kernel, prepared\n").replace(
        "shift(x, self.bias,", "shift(x, prepared(self.bias, lambda b: b.flip(0).contiguous()),"
    )
    export = unverified(tmp_path, prepared, Options(name="prepared_once"))
    package = loaded(export)
    operator = on_the_emulator(package, export.evidence.candidate, tmp_path)
    x, bias = torch.randn(5, 6), torch.nn.Parameter(torch.arange(6.0))
    with torch.no_grad():
        torch.testing.assert_close(operator(x, bias), 1.5 * x + bias.flip(0))
        ((_, known),) = package._runtime._prepared.values()
        ((_, first),) = known.values()
        operator(x, bias)
        assert [made for _, made in known.values()] == [first]
        bias.add_(1.0)
        torch.testing.assert_close(operator(x, bias), 1.5 * x + bias.flip(0))

"""Standing rules as the environment holds them: texts that break a rule, and texts that only look like it."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from kforge.environment.inputs import make_plan
from kforge.environment.report import Status
from kforge.environment.standing import NOTHING, check_standing, limits, observed, widened
from kforge.errors import LaunchError
from kforge.kernel.candidate import Candidate
from kforge.kernel.limits import MAX_SHARED, check_shared
from kforge.task.constraints import Constraint

SIGNATURE = (("x", "POSITIONAL_OR_KEYWORD", NOTHING), ("eps", "POSITIONAL_OR_KEYWORD", 1e-5))


def found(rule: str, module: str = "", cuda: str = "", signature: Any = SIGNATURE) -> list[str]:
    """Messages of the findings of one rule over a module and one CUDA source."""
    candidate = Candidate("a_kforge.py", {"a_kforge.py": module, "a.cu": cuda})
    findings = check_standing(candidate, ast.parse(module), {"a.cu": cuda}, {rule: None}, signature)
    assert all(finding.rule == rule and finding.rejects for finding in findings)
    return [finding.message for finding in findings]


def forward(parameters: str) -> str:
    return f"class ModelNew:\n    def forward({parameters}):\n        pass\n"


@pytest.mark.parametrize(
    "parameters", ["self, x, eps=1e-5", "self, x: Tensor, eps: float = 0.00001", "me, x, eps=1e-05"]
)
def test_an_equal_signature_passes_however_it_is_written(parameters: str) -> None:
    """Annotations, the name of self and the spelling of a number do not matter."""
    assert found("keep_signature", forward(parameters)) == []


@pytest.mark.parametrize(
    "parameters",
    [
        "self, x",
        "self, x, eps",
        "self, x, eps=1e-6",
        "self, eps=1e-5, x=None",
        "self, x, *, eps=1e-5",
        "self, x, eps=1e-5, fast=True",
        "self, *args",
        "self, y, eps=1e-5",
    ],
)
def test_another_signature_is_named_beside_the_references(parameters: str) -> None:
    """Names, order, kinds, defaults and the number of parameters are kept, or the line says both."""
    (message,) = found("keep_signature", forward(parameters))
    assert "forward(x, eps=1e-05)" in message


def test_a_forward_that_cannot_be_read_is_refused() -> None:
    """One that is inherited or assigned is not there to be compared."""
    assert found("keep_signature", "class ModelNew(Base):\n    pass\n")
    assert found("keep_signature", "class ModelNew(Base):\n    pass\n", signature=None) == []


@pytest.mark.parametrize(
    ("rule", "module", "cuda"),
    [
        ("no_fast_math", 'load_inline(extra_cuda_cflags=["--use_fast_math"])', ""),
        ("no_fast_math", 'RawKernel(s, "k", options=("-prec-div=false",))', ""),
        ("no_fast_math", "y = libdevice.fast_expf(x)", ""),
        ("no_fast_math", "", "#define EXP(v) __expf(v)\n"),
        ("no_fast_math", "", "#define JOIN(a, b) a##b\n"),
        ("keep_nan", 'flags = "-ffinite-math-only"', ""),
        ("deterministic", "tl.atomic_add(p, v)", ""),
        ("deterministic", "", 'asm("red.global.add.f32 [%0], %1;" :: "l"(p), "f"(v));'),
        ("deterministic", "", 'asm("atom.add.noftz.f16 %0, [%1], %2;" ...);'),
        ("deterministic", "", "#define ADD atomicAdd\n"),
        ("max_shared", "import triton", ""),
        ("max_shared", "from torch.utils.cpp_extension import load_inline", ""),
    ],
)
def test_what_breaks_a_rule_is_found_once(rule: str, module: str, cuda: str) -> None:
    """Options, hidden names, PTX and kernels of other makers."""
    assert len(found(rule, module, cuda)) == 1


@pytest.mark.parametrize("rule", ["no_fast_math", "keep_nan", "deterministic", "max_shared"])
def test_plain_sources_break_nothing(rule: str) -> None:
    """Comments, integer atomics and exact functions are allowed."""
    cuda = "// no __expf here, a##b neither\n/* red.add.f32 */\n__global__ void k(int* n) { atomicAdd(n, 1); }\n"
    assert found(rule, "import torch\nfrom kforge.kernel import Kernel\n", cuda) == []


def test_keep_nan_puts_nan_and_infinity_into_plan_quick() -> None:
    """The other plans have them anyway and stay as they are."""
    rules = (Constraint("keep_nan"),)
    quick = make_plan("quick")
    assert [case.special for case in widened(quick, rules).cases if case not in quick.cases] == ["nan", "inf"]
    assert widened(quick, ()) == quick
    standard = make_plan("standard")
    assert widened(standard, rules) == standard and {"nan", "inf"} <= {case.special for case in standard.cases}


def test_library_calls_that_were_seen_break_the_rule() -> None:
    """Whatever the text called them."""
    assert observed((Constraint("no_vendor_calls"),), ["aten.mm.default"]) == (
        Status.REJECTED,
        "calls aten.mm.default, and the task forbids vendor calls [no_vendor_calls]",
    )
    assert observed((Constraint("no_vendor_calls"),), []) is None and observed((), ["aten.mm.default"]) is None


def test_a_launch_is_held_to_static_and_dynamic_bytes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 and 500 exceed 1,024 and are both named; without a limit nothing is refused."""
    check_shared("k", 1 << 20)
    for name, value in limits((Constraint("max_shared", 1024), Constraint("keep_nan"))).items():
        assert name == MAX_SHARED
        monkeypatch.setenv(name, value)
    check_shared("k", 1000, 24)
    with pytest.raises(LaunchError, match=r"k uses 1100 bytes .*600 static, 500 dynamic.*max_shared is 1024"):
        check_shared("k", 500, 600)

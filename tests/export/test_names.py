"""Names, words and constants of the user's that the text of a package could trip over."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from support import MODULE, SOURCE, TASK, candidate, on_the_emulator

from kforge.errors import ExportError
from kforge.export.evidence import Evidence
from kforge.export.formats import find_format
from kforge.export.package import Export, Options, prepare_export
from kforge.export.reading import read_candidate_code
from kforge.export.text import docstring, literal
from kforge.kernel.candidate import Candidate
from kforge.task import load_task


def export_of(folder: Path, task: str, made: Candidate, name: str = "") -> Export:
    """Without a judgement: what is asked here is whether the text is right."""
    (folder / "shift.py").write_text(task)
    return prepare_export(load_task(folder / "shift.py"), Evidence(made, folder / "shift.py", None), Options(name=name))


@pytest.mark.parametrize("name", ["state", "module", "t", "why", "operator", "reference", "fallback", "flat"])
def test_forward_may_take_any_name(tmp_path: Path, loaded: Any, name: str) -> None:
    """A parameter called as something in the generated text is still the caller's: kernel, fallback, gradient."""
    task = TASK.replace("forward(self, x)", f"forward(self, {name})").replace("return x *", f"return {name} *")
    head = f"forward(self, {name}):\n        given = x = {name}"
    made = candidate(MODULE.replace("forward(self, x):\n        given = x", head))
    package = loaded(export_of(tmp_path, task, made))
    given = torch.randn(6, 24)
    layer = package.Shift(24)
    right = given * 1.5 + layer.bias
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(layer(**{name: given}), right)
    assert layer.to("meta")(given.to("meta")).shape == given.shape
    operator = on_the_emulator(package, made, tmp_path)
    asked = given.clone().requires_grad_()
    bias = torch.arange(24.0)
    answer = operator(asked, bias)
    assert torch.equal(answer, right)
    answer.sum().backward()
    assert torch.equal(asked.grad, torch.full_like(given, 1.5))


@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_constants_that_are_no_number(tmp_path: Path, loaded: Any, value: float) -> None:
    """What fills a mask is infinite: it reaches the kernel, and the domain knows it again, NaN too."""
    package = loaded(export_of(tmp_path, TASK.replace("scale=1.5", f"scale=float('{value}')"), candidate()))
    layer = package.Shift(24).to("meta")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert layer(torch.empty(6, 24, device="meta")).shape == (6, 24)
    operator = on_the_emulator(package, candidate(), tmp_path)
    given, bias = torch.rand(6, 24) + 1, torch.zeros(24)
    assert torch.equal(operator(given, bias).nan_to_num(0.0), (given * value).nan_to_num(0.0))


def test_a_default_that_is_infinite(tmp_path: Path) -> None:
    """`fill=float("-inf")` is read; another expression is refused by name."""
    task = TASK.replace("forward(self, x)", 'forward(self, x, fill=float("-inf"))').replace(
        "return x", "return fill * x"
    )
    module = MODULE.replace("forward(self, x)", 'forward(self, x, fill=float("-inf"))')
    export = export_of(tmp_path, task, candidate(module.replace("y, self.scale", "y, fill")))
    assert export.interface.constants == {"fill": -math.inf}
    odd = candidate(MODULE.replace("forward(self, x)", "forward(self, x, fill=math.pi)"))
    with pytest.raises(ExportError, match=r"the default math\.pi of forward is no literal"):
        export_of(tmp_path, task, odd)


@pytest.mark.parametrize("words", [r"LaTeX \xi and \N{}", 'it says """no""" twice', 'the "best"', "ends in \\"])
def test_a_docstring_of_any_words(tmp_path: Path, loaded: Any, words: str) -> None:
    """It stands in the package as it was, whatever quotes and backslashes it holds."""
    task = TASK.replace('"""Scales each row and adds a bias."""', repr(words), 1)
    package = loaded(export_of(tmp_path, task, candidate()))
    assert package.Shift.__doc__.split("\n")[0] == words


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1.5, "a'b", None, True, (math.inf,), [1, (2.0, -math.inf)]])
def test_literals_are_read_back(value: Any) -> None:
    """As Python text they are the same value."""
    assert eval(literal(value)) == value


def test_words_end_where_they_end() -> None:
    """A text that needs nothing is left as it is."""
    assert docstring('of "rows", plain') == 'of "rows", plain'


# CUDA's own names that are words of Python, or names of the generated launches.
RENAMED = {
    "const T* x": "const T* in",
    "const T* bias": "const T* lambda",
    "long long n": "long long plan",
    "int cols": "int device",
}
ODD_SOURCE = SOURCE
for old, new in RENAMED.items():
    ODD_SOURCE = ODD_SOURCE.replace(old, new)
ODD_SOURCE = ODD_SOURCE.replace("i < n", "i < plan").replace(
    "x[i] * scale + bias[i % cols]", "in[i] * scale + lambda[i % device]"
)
ODD_MODULE = (
    MODULE.replace("ceil_div(n,", "ceil_div(plan,")
    .replace('{"T": "x"}', '{"T": "in"}')
    .replace("aligned(x, VEC * sizeof(T)) and aligned(bias, VEC * sizeof(T)) and cols", "device")
    .replace("n > 4096", "plan > 4096")
    .replace("x.numel(), x.shape[1])", "device=x.shape[1], plan=x.numel())")
)


@pytest.mark.parametrize("layout", ["extension", "aot"])
def test_kernels_may_name_their_parameters_as_they_like(tmp_path: Path, loaded: Any, layout: str) -> None:
    """`in` and `lambda` are words of Python, `plan` and `device` of the launch: the launch gives them other names."""
    made = candidate(ODD_MODULE, ODD_SOURCE)
    package = loaded(export_of(tmp_path, TASK, made, f"odd_{layout}"), layout)
    given, bias = torch.randn(6, 24), torch.arange(24.0)
    assert torch.equal(on_the_emulator(package, made, tmp_path)(given, bias), given * 1.5 + bias)


def test_renamed_parameters_reach_the_plan(tmp_path: Path, loaded: Any) -> None:
    """Grid and constants follow their values: 6 x 24 elements by fours in one block of 64, one by one in three."""
    import importlib

    package = loaded(export_of(tmp_path, TASK, candidate(ODD_MODULE, ODD_SOURCE), "odd_plan"), "aot")
    plan = importlib.import_module(f"{package.__name__}._kernels")._plan_shift
    assert plan(0, 144, 24)[1:3] == ((1, 1, 1), (64, 1, 1))
    assert plan(0, 144, 25)[1] == (3, 1, 1)  # a width that no vector divides


def test_the_c_text_has_no_name_twice(tmp_path: Path) -> None:
    """The function that works out a launch has parameters of its own beside the kernel's."""
    files = find_format("extension")(export_of(tmp_path, TASK, candidate(ODD_MODULE, ODD_SOURCE)), "0.1.0")
    text = "\n".join(str(text) for name, text in files.items() if name.startswith("csrc/"))
    assert "int64_t plan_, int64_t device_, Plan& plan)" in text
    assert "const long long i = first + k;" in text and "in[i] * scale + lambda[i % device]" in text
    assert read_candidate_code(candidate(ODD_MODULE, ODD_SOURCE)).kernels["shift"].renamed["in"] == "in_"

"""What a candidate's module may hold to be exported, and what its forward becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import MODULE, candidate, unverified

from kforge.errors import ExportError
from kforge.export.reading import read_candidate_code
from kforge.export.translate import translate


def _translated(module: str) -> object:
    code = read_candidate_code(candidate(module))
    return translate(code, {"bias": None}, {"scale": 1.5})


def test_state_becomes_arguments_and_constants_become_literals() -> None:
    """Parameters are arguments after the inputs, plain attributes are their verified values, launches go to kernels."""
    code = read_candidate_code(candidate())
    found = translate(code, {"bias": None}, {"scale": 1.5})
    assert found.inputs == ("x",)
    assert dict(found.state) == {"bias": "bias"}
    assert "def forward(x, bias):" in found.launching
    assert "kernels.shift(x, bias, y, 1.5, x.numel(), x.shape[1])" in found.launching
    assert "self" not in found.launching


def test_fake_has_no_launch_and_no_empty_branch() -> None:
    """Without its launches the forward keeps checks and allocation, and loses the branch that only launched."""
    found = translate(read_candidate_code(candidate()), {"bias": None}, {"scale": 1.5})
    assert "kernels" not in found.faking
    assert "numel" not in found.faking
    assert "raise ValueError" in found.faking
    assert "torch.empty_like(x)" in found.faking


def test_recording_takes_every_branch() -> None:
    """To see what each kernel is given, both branches of a choice are taken and nothing is refused."""
    both = MODULE.replace(
        "            shift(x, self.bias, y, self.scale, x.numel(), x.shape[1])\n",
        "            shift(x, self.bias, y, self.scale, x.numel(), 1)\n"
        "        else:\n"
        "            shift(x, self.bias, y, self.scale, x.numel(), 2)\n",
    )
    found = translate(read_candidate_code(candidate(both)), {"bias": None}, {"scale": 1.5})
    assert found.recording.count("kernels.shift(") == 2
    assert "if x" not in found.recording


def test_recording_goes_on_behind_a_return() -> None:
    """A branch that launches and returns hides no kernel behind it: that one would stay behind, and be missed."""
    early = MODULE.replace(
        "            shift(x, self.bias, y, self.scale, x.numel(), x.shape[1])\n",
        "            shift(x, self.bias, y, self.scale, x.numel(), 1)\n"
        "            return y\n"
        "        shift(x, self.bias, y, self.scale, x.numel(), 2)\n",
    )
    found = translate(read_candidate_code(candidate(early)), {"bias": None}, {"scale": 1.5})
    assert found.recording.count("return y\n") + found.recording.endswith("return y") == 1
    assert found.launching.count("return y\n") + found.launching.endswith("return y") == 2


def test_a_starred_name_is_spelled_out() -> None:
    """The items of a tuple stand in a launch one by one: an operator takes so many arguments."""
    starred = MODULE.replace(
        "        y = torch.empty_like(x)\n", "        y = torch.empty_like(x)\n        s = x.shape\n"
    )
    starred = starred.replace("self.scale, x.numel(), x.shape[1])", "self.scale, *s)")
    assert "kernels.shift(x, bias, y, 1.5, s[0], s[1])" in _translated(starred).launching  # type: ignore[attr-defined]


def test_arguments_by_name_are_put_in_order() -> None:
    """A launch with keywords becomes one by position, as an operator takes it."""
    named = MODULE.replace(
        "shift(x, self.bias, y, self.scale, x.numel(), x.shape[1])",
        "shift(x, y=y, bias=self.bias, cols=x.shape[1], n=x.numel(), scale=2.0)",
    )
    assert "kernels.shift(x, bias, y, 2.0, x.numel(), x.shape[1])" in _translated(named).launching  # type: ignore[attr-defined]


COUNTED = """        y = torch.empty_like(x)
        step = 0
        for axis in (1, 0) if x.dim() == 2 else (0,):
            if x.stride(axis) < step:
                raise ValueError("x is transposed")
            step = x.stride(axis)
"""


def test_loops_over_literals_leave(tmp_path: Path) -> None:
    """Rounds that stand in the text are shape arithmetic; with a launch inside they would be a schedule."""
    module = MODULE.replace("        y = torch.empty_like(x)\n", COUNTED)
    found = _translated(module)
    assert "for axis in (1, 0) if x.dim() == 2 else (0,):" in found.launching  # type: ignore[attr-defined]
    assert "for axis in (1, 0)" in found.faking  # type: ignore[attr-defined]
    assert unverified(tmp_path, module).interface.calls["shift"]
    launching = module.replace("step = x.stride(axis)\n", "shift(x, self.bias, y, 1.0, 1, axis)\n")
    with pytest.raises(ExportError, match="'for' is not translated"):
        _translated(launching)


STRIDES = """def joined(*operands):
    order = list(range(operands[0].dim()))[::-1]

    def longer(a, b):
        return a.stride() > b.stride()

    for i in range(1, len(order)):
        while longer(operands[0], operands[-1]) and {1: 2}.get(i, 0):
            order[i], i = order[i - 1], i - 1
            break
    return operands[0]


class ModelNew"""


def test_helpers_that_launch_nothing_leave_as_they_are() -> None:
    """Working out strides may take loops, lists, functions of its own and any number of operands; a launch may not."""
    module = MODULE.replace("class ModelNew", STRIDES).replace("y = like(y, given)", "y = like(y, joined(given))")
    found = _translated(module)
    for text in (found.launching, found.faking):  # type: ignore[attr-defined]
        assert "def joined(*operands):" in text and "while longer(" in text
    launching = module.replace("            break\n", "            shift(x, x, x, 1.0, 1, 1)\n")
    with pytest.raises(ExportError, match=r"\*args, .* are not translated"):
        _translated(launching)
    with pytest.raises(ExportError, match="assigning to an attribute or an element"):
        _translated(module.replace("order[i], i =", "operands[i], i ="))


def test_state_held_in_a_local_is_the_argument() -> None:
    """`b = self.bias` says no more than the argument's name does, by its path where that is free."""
    module = MODULE.replace("        given = x\n", "        given = x\n        b = self.bias\n")
    module = module.replace("shift(x, self.bias,", "shift(x, b,")
    launching = _translated(module).launching  # type: ignore[attr-defined]
    assert "def forward(x, bias):" in launching and "kernels.shift(x, bias, y" in launching
    assert "b = bias" not in launching
    taken = module.replace("x = x.contiguous()", "bias = x = x.contiguous()")
    assert "def forward(x, b):" in _translated(taken).launching  # type: ignore[attr-defined]


REFUSED = {
    "while": (
        "        y = torch.empty_like(x)\n        while x.dim() > 9:\n            pass\n",
        "'while' is not translated",
    ),
    "for": (
        "        y = torch.empty_like(x)\n        for i in range(2):\n            pass\n",
        "'for' is not translated",
    ),
    "with": ("        with torch.no_grad():\n            y = torch.empty_like(x)\n", "'with' is not translated"),
    "side effect": ("        self.last = y = torch.empty_like(x)\n", "assigning to an attribute"),
    "element": ("        y = torch.empty_like(x)\n        y[0] = 1\n", "assigning to an attribute or an element"),
    "compute": ("        y = torch.empty_like(x)\n        y = torch.softmax(y, -1)\n", ".softmax() is not translated"),
    "method": ("        y = self.make(x)\n", "self.make() is not translated"),
    "unknown name": ("        y = make(x)\n", "make() is not translated"),
    "unknown attribute": ("        y = torch.empty_like(x) * self.gain\n", "self.gain is no parameter"),
    "lambda": ("        y = torch.empty_like(x)\n        f = lambda: y\n", "'lambda' is not translated"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_translated_is_refused_with_its_line(name: str) -> None:
    """Anything outside of the subset is an error that names the file, the line and its text."""
    lines, message = REFUSED[name]
    module = MODULE.replace("        y = torch.empty_like(x)\n", lines)
    with pytest.raises(ExportError, match=r"shift_kforge\.py:") as caught:
        _translated(module)
    assert message in caught.value.message
    line = int(caught.value.message.split(":")[1])
    assert module.splitlines()[line - 1].strip() in caught.value.message


DECLARATIONS = {
    "computed": ('"BLOCK": 64', '"BLOCK": 2 ** 6', "this is no literal"),
    "package": ('source="shift_kforge.cu"', 'source=Module("shift_kforge.cu", include=("cutlass",))', "no literal"),
    "absent source": ('"shift_kforge.cu"', '"other.cu"', "no source 'other.cu'"),
    "loop": ("WIDTHS = [4, 2, 1]", "WIDTHS = [4, 2, 1]\nfor w in WIDTHS:\n    pass", "not translated at module level"),
    "wrong name": ('grid="ceil_div(n,', 'grid="ceil_div(rows,', "names 'rows'"),
}


@pytest.mark.parametrize("name", DECLARATIONS)
def test_declarations_must_be_literal(name: str) -> None:
    """A Kernel whose declaration cannot be read without running the module is refused with its line."""
    old, new, message = DECLARATIONS[name]
    with pytest.raises(ExportError, match=r"shift_kforge\.py:") as caught:
        read_candidate_code(candidate(MODULE.replace(old, new)))
    assert message in caught.value.message


def test_no_kernel_is_refused() -> None:
    """A candidate of another kind says which ones are exported."""
    with pytest.raises(ExportError, match=r"neither a kforge Kernel nor a triton\.jit kernel"):
        read_candidate_code(candidate("class ModelNew:\n    def forward(self, x):\n        return x\n"))


def test_module_members_and_inline_sources_are_read() -> None:
    """Kernels of a Module share its source; a source may also be text in the module."""
    module = MODULE.replace("from kforge.kernel import Kernel", "from kforge.kernel import Module").replace(
        'shift = Kernel(\n    "shift<T, VEC>",\n    source="shift_kforge.cu",',
        'held = Module("shift_kforge.cu")\nshift = held.kernel(\n    "shift<T, VEC>",',
    )
    code = read_candidate_code(candidate(module))
    assert code.kernels["shift"].source.name == "shift_kforge.cu"
    inline = MODULE.replace(
        'source="shift_kforge.cu"', "source='''\n__global__ void shift(float* y, long long n, int cols) {}'''"
    )
    inline = inline.replace('"shift<T, VEC>"', '"shift"').replace('    types={"T": "x"},\n', "")
    inline = inline.replace(
        'require={"VEC": "aligned(x, VEC * sizeof(T)) and aligned(bias, VEC * sizeof(T)) and cols % VEC == 0"},', ""
    )
    assert "__global__" in read_candidate_code(candidate(inline)).kernels["shift"].source.text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("        return y\n", "        return given.view(given.shape)\n", "shares the storage of x"),
        ("        return y\n", "        return {1, 2}\n", "not translated"),
    ],
)
def test_outputs_are_fresh(tmp_path: Path, old: str, new: str, message: str) -> None:
    """An operator's outputs never alias its inputs; what is no tree of tensors is refused."""
    with pytest.raises(ExportError) as caught:
        unverified(tmp_path, MODULE.replace(old, new))
    assert message in caught.value.message

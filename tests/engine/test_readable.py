"""Generated window kernels read as if written by hand: what is the same for a tile or a line is worked out once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.engine.support import function_task, proposals

IMAGE = "torch.randn(2, 8, 11, 40)"
NORM = ", ".join(["torch.rand(8)"] * 4)
TASKS = {
    "padded": ("F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", IMAGE, "x"),
    "ceiled": ("F.avg_pool2d(x, (1, 2), 2, ceil_mode=True)", IMAGE, "x"),
    "apart": ("F.max_pool2d(x, 2)", IMAGE, "x"),
    "sparse": ("F.max_pool2d(x, (3, 1), (1, 3), (1, 0))", IMAGE, "x"),
    "line": ("F.avg_pool1d(x[:, 0], 8, 4)", IMAGE, "x"),
    "volume": ("F.max_pool3d(x.unflatten(1, (2, 4)), (2, 1, 3), 2)", IMAGE, "x"),
    "residual": ("F.max_pool2d(x, 3, 1, 1) - x", IMAGE, "x"),
    "depthwise": ("F.relu(F.conv2d(x, w, None, 2, 2, 2, 8))", f"{IMAGE}, torch.randn(8, 1, 3, 3)", "x, w"),
    "row": ("F.conv2d(x, w, None, 1, (0, 1), 1, 8)", f"{IMAGE}, torch.randn(8, 1, 1, 3)", "x, w"),
    "norm": ("F.max_pool2d(F.batch_norm(x, m, v, w, b).relu(), 2)", f"{IMAGE}, {NORM}", "x, m, v, w, b"),
    "channels": ("F.conv2d(x, w, b)", "torch.randn(2, 3, 9, 9), torch.randn(2, 3, 3, 3), torch.randn(2)", "x, w, b"),
    "transposed": ("F.conv_transpose2d(x, w, None, 2, 1, groups=8)", f"{IMAGE}, torch.randn(8, 1, 4, 4)", "x, w"),
    "adaptive": ("F.adaptive_avg_pool2d(x, (7, 1))", IMAGE, "x"),
    "bilinear": ("F.interpolate(x, scale_factor=2, mode='bilinear')", IMAGE, "x"),
    "bicubic": ("F.interpolate(x, size=(13, 24), mode='bicubic')", IMAGE, "x"),
    "antialias": ("F.interpolate(x, size=(5, 6), mode='bilinear', antialias=True)", IMAGE, "x"),
}
SLIDING = ("window", "lanes", "columns")


def kernels(name: str, folder: Path) -> dict[str, str]:
    """The text of every kernel that is proposed for a task, by name; the module's text is among them as ""."""
    body, inputs, parameters = TASKS[name]
    found: dict[str, str] = {"": ""}
    for candidate in proposals(function_task(f"return {body}", inputs, folder, parameters)):
        found[""] += candidate.files[candidate.module]
        parts = re.split(r"^__global__ ", candidate.files["op_kforge.cu"], flags=re.MULTILINE)[1:]
        found |= {re.search(r"(\w+)\(\s", part)[1]: part for part in parts}  # type: ignore[index]
    return found


@pytest.mark.parametrize("name", TASKS)
def test_window_kernels(name: str, tmp_path: Path) -> None:
    """No loop of one turn, no parameter that nothing reads, no sum with nothing; planes are found before loops."""
    texts = kernels(name, tmp_path)
    module = texts.pop("")
    assert texts
    for kernel, text in texts.items():
        turns = [int(b) - int(a) for a, b in re.findall(r"for \(int \w+ = (\d+); \w+ < (\d+); ", text)]
        assert all(n > 1 for n in turns), kernel
        head, body = text.split(") {\n", 1)
        for parameter in re.findall(r"(\w+)(?:,|$)", head.split("(", 2)[2], re.MULTILINE):
            assert re.search(rf"\b{parameter}\b", body) or re.search(rf"\b{parameter}\b", grid_of(module, kernel))
        assert not re.search(r"(?<![\w.])0 [*/+-] |[*/+-] 0(?![\w.])|\* 1(?![\w.])", re.sub(r"//.*", "", body)), kernel
        if kernel.rsplit("_", 1)[1] in SLIDING:
            inside = [line for line in body.split("\n") if re.search(r"\bplane\b", line) and line.startswith(" " * 8)]
            assert not inside, kernel


def grid_of(module: str, kernel: str) -> str:
    """The grid of a kernel's declaration."""
    return module.split(f'"{kernel}<', 1)[1].split("block=", 1)[0]


def test_rows_are_worked_out_once(tmp_path: Path) -> None:
    """What a vector's elements share, the row's weights of an interpolation say, is computed before they are."""
    for name in ("bilinear", "bicubic"):
        body = kernels(name, tmp_path)["op_kernel"]
        before, elements = body.split("for (int j = 0; j < VEC; ++j) {", 1)
        assert "static_cast<float>(row)" in before and "static_cast<float>(row)" not in elements


def test_counts_of_rows(tmp_path: Path) -> None:
    """How many rows a window counts is worked out for a line of results, how many columns for each of them."""
    text = kernels("padded", tmp_path)["op_window"]
    assert text.count("rows_counted =") == 1 and text.count("cols_counted =") == 1
    assert text.index("rows_counted =") < text.index("for (int k = 0; k < COLS; ++k)") < text.index("cols_counted =")


def test_scale_of_a_norm(tmp_path: Path) -> None:
    """A batch norm with running statistics multiplies each element once."""
    text = kernels("norm", tmp_path)["op_window"]
    assert text.count("rsqrtf(") == 1 and re.search(r"\(float\(x_in\.at\[j\]\) - m_value\) \* \w+ \+ b_value", text)

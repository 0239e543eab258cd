"""Window kernels: pooling and small convolutions of one to three dimensions, with what is fused around them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.kernel import hooks
from kforge.task import Call
from tests.engine.support import compare, function_task, proposals

IMAGE = "torch.randn(2, 3, 11, 40)"
VOLUME = "torch.randn(1, 2, 6, 9, 24)"


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return F.max_pool2d(x, 4, 1, 1)", IMAGE),
        ("return F.max_pool2d(x, (3, 2), (2, 3), (1, 0), (1, 2), ceil_mode=True)", IMAGE),
        ("return F.avg_pool1d(x.flatten(0, 1), 8, 1, 4)", IMAGE),
        ("return F.avg_pool2d(F.relu(x), 3, 2, 1, True, False) * 0.5 + 1", IMAGE),
        ("return F.avg_pool2d(x, 3, 2, 1, divisor_override=5)", IMAGE),
        ("return F.avg_pool3d(x, 3, 2, 1), F.avg_pool3d(x, 3, 2, 1).relu()", VOLUME),
        ("return F.max_pool3d(x.exp(), (2, 3, 3), (1, 2, 1), (1, 1, 0))", VOLUME),
        ("return F.lp_pool2d(x, 2, 3, 2)", IMAGE),
    ),
)
def test_pooling(body: str, inputs: str, tmp_path: Path) -> None:
    """Padding, dilation, ceil mode and divisors as torch has them, activations before and after in the same kernel."""
    task = function_task(body, inputs, tmp_path)
    candidate = proposals(task)[0]
    assert "_window<" in candidate.files["op_kforge.py"]
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    compare(task, candidate, tmp_path)


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return F.conv2d(x, w, b, padding=1, groups=3)", f"{IMAGE}, torch.randn(6, 1, 3, 3), torch.randn(6)"),
        ("return F.conv2d(x, w, None, (1, 2), 2, 2, 3)", f"{IMAGE}, torch.randn(3, 1, 3, 3), torch.randn(3)"),
        ("return F.conv1d(x[:, :, 0], w, b, padding=3, groups=3)", f"{IMAGE}, torch.randn(6, 1, 5), torch.randn(6)"),
        ("return F.conv3d(x, w, b, padding=1, groups=2)", f"{VOLUME}, torch.randn(2, 1, 3, 3, 3), torch.randn(2)"),
        (
            "y = F.conv2d(x, w, None, padding=1, groups=3)\nreturn F.relu6(F.batch_norm(y, b, b.abs() + 1, b, b)) + x",
            f"{IMAGE}, torch.randn(3, 1, 3, 3), torch.randn(3)",
        ),
    ),
)
def test_depthwise_convolution(body: str, inputs: str, tmp_path: Path) -> None:
    """A filter for each channel or several, bias, norm, activation and residual fused."""
    task = function_task(body, inputs, tmp_path, "x, w, b")
    candidate = proposals(task)[0]
    assert "_window<" in candidate.files["op_kforge.py"]
    compare(task, candidate, tmp_path)


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return F.avg_pool2d(x, 9)", "torch.randn(2, 3, 20, 55)"),
        ("return F.max_pool2d(F.relu(x), (5, 7), (2, 3), (2, 3)) + 1", "torch.randn(1, 3, 11, 41)"),
        ("return F.avg_pool3d(x, (2, 8, 8), 3)", "torch.randn(1, 2, 6, 15, 33)"),
        ("return F.adaptive_max_pool2d(x, (2, 3))", "torch.randn(2, 3, 18, 60)"),
    ),
)
def test_columns_first(body: str, inputs: str, tmp_path: Path) -> None:
    """Large windows and rows of odd length: sums or maxima of columns, then along the row."""
    task = function_task(body, inputs, tmp_path)
    candidate = next(c for c in proposals(task) if "op_columns<" in c.files["op_kforge.py"])
    compare(task, candidate, tmp_path)
    with hooks.overrides({"op_columns": {"BLOCK": 128, "ROWS": 1, "WIDE": 1}}):
        compare(task, candidate, tmp_path)


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return F.max_pool2d(x, 4, 1, 1)", "torch.randn(1, 2, 9, 131)"),
        ("return F.avg_pool2d(F.relu(x), 3, 2, 1) + 1", "torch.randn(1, 3, 11, 256)"),
        ("return F.max_pool3d(x, (2, 2, 3), (1, 2, 1), (1, 0, 1), (1, 1, 2))", "torch.randn(1, 2, 5, 6, 72)"),
    ),
)
def test_columns_from_neighbours(body: str, inputs: str, tmp_path: Path) -> None:
    """Lanes that give each other their columns: warps that end in the middle of a row, aligned and unaligned."""
    task = function_task(body, inputs, tmp_path)
    candidate = next(c for c in proposals(task) if "op_lanes<" in c.files["op_kforge.py"])
    compare(task, candidate, tmp_path)
    with hooks.overrides({"op_lanes": {"COLS": 1, "VECTOR": 0, "ALIGNED": 0, "BLOCK": 128}}):
        compare(task, candidate, tmp_path)


def test_one_window(tmp_path: Path) -> None:
    """A window over all there is is a mean over rows."""
    task = function_task("return F.avg_pool2d(x, (11, 40))", IMAGE, tmp_path)
    candidate = proposals(task)[0]
    assert "row_sum" in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path)


def test_few_channels(tmp_path: Path) -> None:
    """A convolution whose sums have few terms is a window over channels too."""
    inputs = f"{IMAGE}, torch.randn(4, 3, 3, 3), torch.randn(4)"
    task = function_task("return F.gelu(F.conv2d(x, w, b, 2, 1))", inputs, tmp_path, "x, w, b")
    candidate = next(c for c in proposals(task) if "_window<" in c.files["op_kforge.py"])
    compare(task, candidate, tmp_path)


def test_loops_over_taps(tmp_path: Path) -> None:
    """The kernel that walks over taps covers what slides along no line: transposed and adaptive windows, indices."""
    body = """
    values, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    up = F.conv_transpose2d(x, w, None, 2, 1, 1, groups=3)
    return values, places, up, F.adaptive_avg_pool2d(x, (4, 7)), F.adaptive_max_pool2d(x, (5, 40), True)
    """.strip().replace("\n    ", "\n")
    task = function_task(body, f"{IMAGE}, torch.randn(3, 1, 3, 3)", tmp_path, "x, w")
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64"))
def test_types(dtype: str, tmp_path: Path) -> None:
    """Half types sum in single precision, doubles in double."""
    task = function_task("return F.avg_pool2d(x, 3, 1, 1)", f"torch.randn(2, 2, 9, 40).to(torch.{dtype})", tmp_path)
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize(
    "constants", ({"COLS": 1, "VEC": 1, "ROWS": 3}, {"COLS": 8, "VEC": 4, "ROWS": 2, "BLOCK": 64}, {"WIDE": 1})
)
def test_constants(constants: dict[str, int], tmp_path: Path) -> None:
    """Every shape of a thread's tile gives the same result, with 64-bit indices too."""
    task = function_task("return F.avg_pool2d(x, (3, 2), (2, 1), 1)", "torch.randn(2, 1, 13, 268)", tmp_path)
    candidate = proposals(task)[0]
    with hooks.overrides({"op_window": constants}):
        compare(task, candidate, tmp_path)


def test_other_sizes_and_layouts(tmp_path: Path) -> None:
    """One candidate serves other sizes, odd and unaligned ones, no elements at all, and channels-last images."""
    task = function_task("return F.max_pool2d(x, 3, 2, 1)", IMAGE, tmp_path)
    images = [torch.randn(1, 3, n, m) for n, m in ((3, 3), (12, 131), (1, 1))]
    images += [torch.randn(0, 3, 8, 8), torch.randn(2, 3, 11, 41)[:, :, 1:, 1:], torch.randn(1, 3, 40, 11).mT]
    images += [torch.randn(2, 3, 9, 12).contiguous(memory_format=torch.channels_last)]
    compare(task, proposals(task)[0], tmp_path, [Call((x,)) for x in images])


def test_extremes(tmp_path: Path) -> None:
    """NaN wins, the first of equals is the index, the padding never does, not even among -inf."""
    task = function_task("return F.max_pool2d(x, 3, 1, 1, return_indices=True), F.max_pool2d(x, 2)", IMAGE, tmp_path)
    x = torch.randint(-2, 2, (2, 3, 11, 40)).float()
    x[0, 0, 5, 7], x[0, 1, 3:6] = float("nan"), float("-inf")
    x[1, 2] = float("-inf")
    compare(task, proposals(task)[0], tmp_path, [Call((x,))])


def test_windows_of_windows(tmp_path: Path) -> None:
    """What is needed once is computed in place; what several windows need is in memory before; so is a reduction's."""
    body = """
    y = F.conv2d(x, w, None, 1, 1, 1, 3)
    return F.max_pool2d(y, 2), F.avg_pool2d(y, 3, 1), F.adaptive_avg_pool2d(F.max_pool2d(x, 3, 1), 1)
    """.strip().replace("\n    ", "\n")
    task = function_task(body, f"{IMAGE}, torch.randn(3, 1, 3, 3)", tmp_path, "x, w")
    compare(task, proposals(task)[0], tmp_path)


def test_library_beside(tmp_path: Path) -> None:
    """A convolution over many channels is a library's; the pooling after it is a kernel."""
    body = "return F.max_pool2d(F.relu(F.conv2d(x, w, b)), 2)"
    inputs = "torch.randn(1, 32, 9, 9), torch.randn(4, 32, 3, 3), torch.randn(4)"
    task = function_task(body, inputs, tmp_path, "x, w, b")
    compare(task, proposals(task)[0], tmp_path)

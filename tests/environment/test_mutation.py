"""Mutants are precise text edits, the score counts what a plan catches, and a log lets a run go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import hand_written as kernels
import pytest

from kforge.environment.mutation import Outcome, mutants, score, table
from kforge.environment.mutation.equivalence import Argument
from kforge.environment.mutation.operators import load
from kforge.environment.mutation.results import score_of
from kforge.environment.mutation.scoring import probed
from kforge.environment.preparation import Prepared
from kforge.errors import UsageError
from kforge.kernel.candidate import Candidate

HEAD = 'extern "C" __global__ void k(const float* x, float* y, int rows, int cols) {\n'
PYTHON = """
from kforge.kernel import Kernel

k = Kernel("k", source="k.cu", grid="(ceil_div(cols, 32), rows, 1)", require={"V": "aligned(x, 16) and cols % 4 == 0"})


def forward(x, y):
    x = x.contiguous()
    k(x, y, x.size(0), x.size(1))
"""


def after(operator: str, body: str, python: str = "") -> list[str]:
    """The changed lines that an operator gives for a kernel of this body (or for a module)."""
    cuda = f"{HEAD}{body}\n}}\n"
    return [m.after for m in mutants(Candidate("k.py", {"k.py": python, "k.cu": cuda}), [operator])]


@pytest.mark.parametrize(
    ("operator", "line", "expected"),
    [
        ("barrier", "__syncthreads();", [";"]),
        ("off_by_one", "if (cols < rows) y[0] = 1.f;", ["if (cols <= rows) y[0] = 1.f;"]),
        ("last_element", "if (cols < rows) y[0] = 1.f;", ["if (cols < (rows - 1)) y[0] = 1.f;"]),
        ("tail", "if (cols < rows) y[0] = 1.f;", ["if (cols < (rows / 4 * 4)) y[0] = 1.f;"]),
        ("loop_step", "for (int i = 0; i < rows; i++) y[i] = 1.f;", ["for (int i = 0; i < rows; i += 2) y[i] = 1.f;"]),
        ("loop_step", "for (int i = 0; i < 9; i += 3) y[i] = 1;", ["for (int i = 0; i < 9; i += 2 * (3)) y[i] = 1;"]),
        ("condition", "if (rows > 1 && cols > 1) return;", ["if (rows > 1 || cols > 1) return;"]),
        ("atomic", "atomicAdd(&y[0], x[0]);", ["*(&y[0]) += x[0];"]),
        ("dropped_store", "y[0] = x[0];", [";"]),
        ("dropped_term", "y[0] = x[0] + x[1];", ["y[0] = x[0];", "y[0] = x[1];"]),
        ("dropped_factor", "y[0] = x[0] / x[1];", ["y[0] = x[0];"]),
        ("overwrite", "y[0] += x[0];", ["y[0] = x[0];"]),
        ("identity", "float m = -INFINITY;", ["float m = 0.f;"]),
        ("identity", "float s = 0.f;", ["float s = 1.f;"]),
        ("half_accumulator", "y[0] += x[0];", ["y[0] = __half2float(__float2half_rn(y[0] + (x[0])));"]),
        ("half_rounding", "y[0] = x[0];", ["y[0] = __half2float(__float2half_rn(x[0]));"]),
        ("max_subtraction", "y[0] = expf(x[0] - x[1]);", ["y[0] = expf(x[0]);"]),
        ("sign", "y[0] = x[0] - x[1];", ["y[0] = x[0] + x[1];"]),
        ("min_max", "y[0] = fmaxf(x[0], x[1]);", ["y[0] = fminf(x[0], x[1]);"]),
        ("min_max", "y[0] = x[0] > x[1] ? x[0] : x[1];", ["y[0] = x[0] < x[1] ? x[0] : x[1];"]),
        ("constant", "y[0] = 0.5f * x[0];", ["y[0] = 0.25f * x[0];"]),
        ("constant", "y[0] = x[0] + 1e-5f;", ["y[0] = x[0] + 0.0f;"]),
        ("nan", "if (isnan(x[0])) return;", ["if (false) return;"]),
        ("nan", "if (x[0] != x[0]) return;", ["if (false) return;"]),
        ("uninitialised", "float s = 0.f;", ["float s;"]),
        ("narrow_double", "double s = x[0];", ["float s = x[0];"]),
        ("stride", "y[rows * cols + 3] = 1.f;", ["y[(3) * cols + (rows)] = 1.f;"]),
        ("extent", "y[3 * cols] = 1.f;", ["y[3 * rows] = 1.f;"]),
        ("axis", "y[rows / 3] = 1.f;", ["y[rows % 3] = 1.f;"]),
        ("index_width", "y[(long long)rows * 3] = 1.f;", ["y[(int)rows * 3] = 1.f;"]),
    ],
)  # fmt: skip
def test_an_operator_makes_its_edit(operator: str, line: str, expected: list[str]) -> None:
    """Each operator changes the line it is for, and nothing else in it."""
    assert after(operator, line) == expected


def test_a_warp_shuffle_gets_a_wrong_mask_distance_and_width() -> None:
    """One shuffle gives three mutants."""
    assert after("warp", "float v = __shfl_xor_sync(0xffffffffu, x[0], 4);") == [
        "float v = __shfl_xor_sync(0x0000ffffu, x[0], 4);",
        "float v = __shfl_xor_sync(0xffffffffu, x[0], (4) * 2);",
        "float v = __shfl_xor_sync(0xffffffffu, x[0], 4, 16);",
    ]


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (
            "grid",
            [
                "(max(1, ceil_div(cols, 32) - 1), rows, 1)",
                "(ceil_div(cols, 32), max(1, rows - 1), 1)",
                "(max(1, (cols) // (32)), rows, 1)",
            ],
        ),
        ("require", ['{"V": "cols % 4 == 0"}', '{"V": "aligned(x, 16)"}']),
        ("contiguous", ["x = x\n"]),
        ("arguments", ["k(x, y, x.size(1), x.size(0))"]),
    ],
)
def test_an_operator_on_the_module_makes_its_edit(operator: str, expected: list[str]) -> None:
    """Grids, conditions, copies and launch arguments are changed in the Python text."""
    changed = after(operator, "y[0] = 1.f;", PYTHON)
    assert len(changed) == len(expected)
    assert all(want.strip() in got for want, got in zip(expected, changed, strict=True)), changed


def test_a_condition_within_another_goes_alone() -> None:
    """Each of those joined by `and` inside a bracket; one that stands alone holds always."""
    both = PYTHON.replace("aligned(x, 16) and cols", "V == 1 or ((s == 1 or t == 1) and cols")
    both = both.replace("cols % 4 == 0", "cols % 4 == 0)")
    found = [line.split("require=")[1] for line in after("require", "y[0] = 1.f;", both)]
    assert found == ['{"V": "V == 1 or (cols % 4 == 0)"})', '{"V": "V == 1 or ((s == 1 or t == 1))"})']
    alone = PYTHON.replace("aligned(x, 16) and ", "")
    assert [line.split("require=")[1] for line in after("require", "y[0] = 1.f;", alone)] == ['{"V": "True"})']


def test_every_operator_is_registered_with_a_description() -> None:
    """The registry is complete once its files are loaded."""
    names = set(load())
    assert len(names) >= 25 and all(load()[name].description for name in names)
    assert {"warp", "grid", "require", "contiguous", "arguments", "barrier", "tail"} <= names


def test_code_that_no_kernel_reaches_is_left_alone() -> None:
    """A helper that nothing calls, or that only a kernel without launches calls, gives no mutants."""
    cuda = """
__device__ float used(float a) { return a + 1.f; }
__device__ float unused(float a) { return a + 2.f; }
__device__ float elsewhere(float a) { return a + 3.f; }
__global__ void first(float* y) { y[0] = used(y[0]); }
__global__ void second(float* y) { y[0] = elsewhere(y[0]); }
"""
    candidate = Candidate("k.py", {"k.py": "", "k.cu": cuda})
    assert {m.line for m in mutants(candidate, ["dropped_term"])} == {2, 4}
    assert {m.line for m in mutants(candidate, ["dropped_term"], launched=["first"])} == {2}


def test_a_mutant_says_where_and_what_and_differs_in_that_line_alone() -> None:
    """Line, texts before and after and the diff agree with the mutant's source."""
    right = kernels.candidate("softmax")
    mutant = next(iter(mutants(right, ["max_subtraction"])))
    old, new = (c.files["softmax_kforge.cu"].splitlines() for c in (right, mutant.candidate))
    assert [i for i, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b] == [mutant.line]
    assert (old[mutant.line - 1].strip(), new[mutant.line - 1].strip()) == (mutant.before, mutant.after)
    assert mutant.context == old[mutant.line - 2].strip()
    assert f"+{mutant.after}\n" in mutant.diff and mutant.candidate.parent == right.digest


def test_a_cap_is_a_sample_that_stays_the_same() -> None:
    """At most so many of each operator, the same ones each time, and no text twice."""
    right = kernels.candidate("softmax")
    capped = [m.key for m in mutants(right, cap=2)]
    every = [(m.operator, m.key) for m in mutants(right)]
    counts = {name: sum(operator == name for operator, _ in every) for name, _ in every}
    assert capped == [m.key for m in mutants(right, cap=2)]
    assert len(capped) == sum(min(2, n) for n in counts.values()) and len(set(capped)) == len(capped)


def test_a_probe_crashes_before_the_changed_statement() -> None:
    """The statement that crashes stands in the block around the mistake, also below an added header."""
    right = kernels.candidate("softmax")
    for name in ("max_subtraction", "half_accumulator"):
        mutant = next(iter(mutants(right, [name])))
        probe = probed(mutant)
        assert probe is not None
        lines = probe.files[mutant.file].splitlines()
        (at,) = [i for i, line in enumerate(lines) if "volatile" in line]
        assert mutant.after.splitlines()[0] in lines[at]


def test_the_score_counts_what_was_caught_and_what_survived(
    prepared: Callable[[str], Prepared], zygote: object, tmp_path: Path
) -> None:
    """A known-bad mutant is caught, an equivalent one is argued and not counted, one that no input of the plan tells
    apart survives and was reached, and the log spares a second run all of it."""
    ready = prepared("affine")
    right = kernels.candidate("affine")
    operators = ["dropped_store", "off_by_one"]
    before = "y[i] = v < 0.f ? 0.f : v;"
    same = Argument("off_by_one", before, "0 is 0 whichever branch gives it", after="y[i] = v <= 0.f ? 0.f : v;")
    log = tmp_path / "log.jsonl"
    options = {"operators": operators, "log": log, "equivalents": (same,), "reference": ready, "zygote": zygote}
    report = score(ready.task, right, "quick", **options)  # type: ignore[arg-type]
    ends = {(t.operator, t.after): t.outcome for t in report.trials}
    assert ends["dropped_store", ";"] is Outcome.CAUGHT
    assert ends["off_by_one", "if (i <= n) {"] is Outcome.SURVIVED  # 3840 elements fill 30 blocks: no such thread
    assert ends["off_by_one", "y[i] = v <= 0.f ? 0.f : v;"] is Outcome.EQUIVALENT
    assert report.made == {"dropped_store": 1, "off_by_one": 2}
    assert report.unlaunched == {}
    assert [t.reached for t in report.survivors] == [True]
    assert report.score == score_of(report.trials) == 0.5 and "off_by_one" in table(report.trials)

    lines = log.read_text()
    again = score(ready.task, right, "quick", **options)  # type: ignore[arg-type]
    assert again.trials == report.trials and log.read_text() == lines


def test_a_candidate_that_is_wrong_has_no_score(prepared: Callable[[str], Prepared], zygote: object) -> None:
    """Only a verified candidate can be mutated: the error says what the judge found."""
    ready = prepared("affine")
    wrong = kernels.candidate("affine", ("* scale[i % width] + shift[i % width]", ""))
    with pytest.raises(UsageError, match="wrong on plan quick"):
        score(ready.task, wrong, "quick", reference=ready, zygote=zygote)  # type: ignore[arg-type]

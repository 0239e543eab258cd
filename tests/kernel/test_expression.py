"""The launch language: what it accepts, what it evaluates to, and that its C++ rendering gives the same values."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kforge.errors import BuildError, LaunchError
from kforge.kernel.expression import as_expression, parse
from kforge.kernel.rendering import CPP_PRELUDE

ENV = {"rows": 1000, "cols": 4098, "BLOCK": 256, "VEC": 4, "n": -7, "big": 2**40, "x": 1024 + 48, "sizeof T": 2}
VALUES = [
    ("rows", 1000),
    ("0x10 + 2", 18),
    ("(ceil_div(rows * cols, BLOCK * VEC), 1, 1)", (4002, 1, 1)),
    ("(rows,)", (1000,)),
    ("((rows))", 1000),
    ("rows - 1 - 1", 998),
    ("2 + 3 * 4 - 6 / 4", 12.5),
    ("n // 2", -4),
    ("n % 4", 1),
    ("n // -2", 3),
    ("n % -4", -3),
    ("7.5 // 2", 3.0),
    ("-7.5 % 2", 0.5),
    ("ceil_div(n, 2)", -3),
    ("--n", -7),
    ("-n * +2", 14),
    ("min(rows, cols, 17)", 17),
    ("max(n, 0)", 0),
    ("max(n, 0.5)", 0.5),
    ("aligned(x, 16)", True),
    ("aligned(x, 8 * VEC)", False),
    ("aligned(x, sizeof(T) * VEC) and cols % VEC == 0", False),
    ("cols % VEC == 0 or cols % 2 == 0", True),
    ("not rows", False),
    ("not rows == 5", True),
    ("1 < n + 9 <= 2", True),
    ("1 < 3 > 2", True),
    ("rows and 0", False),
    ("0 or rows", True),
    ("True", True),
    ("big * 1000", 2**40 * 1000),
    ("big // 3 + 1", 2**40 // 3 + 1),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_value(text: str, value: object) -> None:
    """An expression has the value, and the type of value, that Python's arithmetic gives."""
    result = parse(text).evaluate(ENV)
    assert result == value
    assert type(result) is type(value)


def test_cpp_equals_python(tmp_path: Path) -> None:
    """Every expression renders to C++ that a host compiler computes to the same values."""
    lines = []
    for text, _ in VALUES:
        value = parse(text).evaluate(ENV)
        expected = ", ".join(repr(v).lower() + ("LL" if type(v) is int else "") for v in _tuple(value))
        lines.append(f"  check({len(lines)}, {{{_braceless(parse(text).to_cpp())}}}, {{{expected}}});")
    body = "\n".join(lines)
    declarations = "\n".join(f"  int64_t {n} = {v};" for n, v in ENV.items() if n not in {"x", "sizeof T"})
    source = f"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>
{CPP_PRELUDE}
static int failures = 0;
static void check(int i, std::vector<double> a, std::vector<double> b) {{
  if (a != b) {{ ++failures; std::printf("%d: %g != %g\\n", i, a[0], b[0]); }}
}}
int main() {{
  typedef unsigned short T;
  void* x = reinterpret_cast<void*>({ENV["x"]});
{declarations}
{body}
  return failures;
}}
"""
    (tmp_path / "check.cpp").write_text(source)
    subprocess.run(["g++", "-std=c++17", "-w", "-o", "check", "check.cpp"], cwd=tmp_path, check=True)
    done = subprocess.run(["./check"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def _tuple(value: object) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _braceless(text: str) -> str:
    items = text[1:-1].split(", ") if text.startswith("{") else [text]
    joined = ", ".join(items)
    depth, start, parts = 0, 0, []
    for at, char in enumerate(joined):  # each element becomes a double, as narrowing in braces is an error
        depth += (char in "({<") - (char in ")}>" and joined[at - 1] != "-")
        if char == "," and depth == 0:
            parts.append(joined[start:at])
            start = at + 1
    parts.append(joined[start:])
    return ", ".join(f"(double)({p.strip()})" for p in parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows +", "launch expression 'rows +': unexpected end of text"),
        ("", "launch expression '': unexpected end of text"),
        ("rows ** 2", "launch expression 'rows ** 2': unexpected *"),
        ("x.size", "launch expression 'x.size': unexpected '.size'"),
        ("f(1)", "no function 'f'; there are aligned, ceil_div, max, min, sizeof"),
        ("ceil_div(1)", "ceil_div() takes 2 arguments, not 1"),
        ("aligned(1, 16)", "aligned() takes the name of a pointer parameter first"),
        ("(1, 2", "unexpected end of text"),
        ("1 2", "unexpected 2"),
        ("__import__('os')", "unexpected ''os')'"),
    ],
)
def test_rejects(text: str, message: str) -> None:
    """What is not in the grammar is refused with the text and the place."""
    with pytest.raises(BuildError) as caught:
        parse(text)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rows // (VEC - 4)", "'rows // (VEC - 4)' divides by zero"),
        ("big * big", "does not fit 64 bits"),
        ("aligned(x, 24)", "24 bytes is not a power of two of at most 1024"),
        ("aligned(x, 2048)", "2048 bytes is not a power of two of at most 1024"),
    ],
)
def test_evaluation_errors(text: str, message: str) -> None:
    """A value that cannot be computed is a LaunchError that shows the expression."""
    with pytest.raises(LaunchError) as caught:
        parse(text).evaluate(ENV)
    assert message in caught.value.message


def test_names_are_told_apart() -> None:
    """An expression knows which names it reads as numbers, as pointers and as types."""
    found = parse("aligned(x, sizeof(T) * VEC) and cols % VEC == 0")
    assert (found.names, found.pointers, found.types) == ({"VEC", "cols"}, {"x"}, {"T"})


def test_numbers_and_tuples_are_expressions() -> None:
    """A Kernel's grid may be given as an int or a tuple of ints and texts."""
    assert as_expression(256).evaluate({}) == 256
    assert as_expression((1, "rows + 1")).evaluate(ENV) == (1, 1001)

"""Mistakes in the module: the grid misses its last block, a condition of `require` is gone, a copy is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kforge.environment.mutation.operators import module
from kforge.environment.mutation.source import Change, Edit


@module("grid", "the grid is rounded down, or lacks its last block")
def grid(source: str) -> Iterator[Change]:
    for node in _keywords(source, "grid"):
        written = str(node.value)
        rounded = re.sub(r"ceil_div\((.*), ([^,()]+)\)", r"max(1, (\1) // (\2))", written)
        if rounded != written:
            yield _change(source, node, rounded, "rounded down")
        first = re.sub(r"^\(?(ceil_div\(.*?, [^,()]+\)|[^,()]+)", lambda m: _less(m.group()), written)
        yield _change(source, node, first, "without its last block")


def _less(first: str) -> str:
    bracket = "(" if first.startswith("(") else ""
    return f"{bracket}max(1, {first.removeprefix('(')} - 1)"


@module("require", "a condition on alignment or divisibility is gone")
def require(source: str) -> Iterator[Change]:
    for call in _kernels(source):
        for keyword in call.keywords:
            if keyword.arg != "require" or not isinstance(keyword.value, ast.Dict):
                continue
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(value, ast.Constant):
                    continue
                terms = str(value.value).split(" and ")
                for i, term in enumerate(terms):
                    rest = " and ".join(terms[:i] + terms[i + 1 :]) or "True"
                    yield _change(source, value, rest, f"{key.value} without {term}")


@module("contiguous", "a strided input is not made contiguous")
def contiguous(source: str) -> Iterator[Change]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "contiguous":
            kept = ast.get_source_segment(source, node.func.value) or ""
            yield Change((Edit(*_span(source, node), kept),), "without contiguous()")


@module("arguments", "two integer arguments of a launch are exchanged")
def exchanged(source: str) -> Iterator[Change]:
    names = {t.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Assign) for t in n.targets if _made(n, t)}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            for first, second in zip(node.args, node.args[1:], strict=False):
                texts = [ast.get_source_segment(source, a) or "" for a in (first, second)]
                if all(re.search(r"\.size\(|\.numel\(|shape|^(rows|cols|n)$", t) for t in texts) and len(set(texts)) > 1:
                    edits = (Edit(*_span(source, first), texts[1]), Edit(*_span(source, second), texts[0]))
                    yield Change(edits, f"{texts[0]} and {texts[1]} exchanged")


def _made(node: ast.Assign, target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and any(node.value is call for call in _calls(node)) and isinstance(
        node.value, ast.Call
    )


def _calls(node: ast.AST) -> list[ast.Call]:
    found = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    return [n for n in found if isinstance(n.func, ast.Name) and n.func.id == "Kernel"]


def _kernels(source: str) -> list[ast.Call]:
    return _calls(ast.parse(source))


def _keywords(source: str, name: str) -> Iterator[ast.Constant]:
    for call in _kernels(source):
        for keyword in call.keywords:
            if keyword.arg == name and isinstance(keyword.value, ast.Constant):
                yield keyword.value


def _change(source: str, node: ast.expr, value: str, note: str) -> Change:
    return Change((Edit(*_span(source, node), repr(value).replace("'", '"')),), note)


def _span(source: str, node: ast.expr) -> tuple[int, int]:
    """Byte offsets; ast counts columns in bytes of UTF-8."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    return start, sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset

"""Mistakes in the module: the grid misses its last block, a condition of `require` is gone, a copy is left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kforge.environment.mutation.operators import module
from kforge.environment.mutation.source import Change, Edit, Module, apply, kernel_name

EXTENT = re.compile(r"\.(size|numel|stride)\(|\.shape|^(rows|cols|n)$")


@module("grid", "a dimension of the grid is rounded down, or lacks its last block")
def grid(text: Module) -> Iterator[Change]:
    for node in _keywords(text, "grid"):
        written = str(node.value)
        tree = ast.parse(written, mode="eval").body  # the launch language is a part of Python's
        for extent in tree.elts if isinstance(tree, ast.Tuple) else [tree]:
            if not isinstance(extent, ast.Constant):
                fewer = f"max(1, {_segment(written, extent)} - 1)"
                yield _change(text.source, node, _with(written, extent, fewer), "without its last block")
        for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == "ceil_div":
                whole, part = (_segment(written, a) for a in call.args)
                down = f"max(1, ({whole}) // ({part}))"
                yield _change(text.source, node, _with(written, call, down), "rounded down")


@module("require", "a condition on alignment or divisibility is gone")
def require(text: Module) -> Iterator[Change]:
    source = text.source
    for call in _kernels(text):
        for keyword in call.keywords:
            if keyword.arg != "require" or not isinstance(keyword.value, ast.Dict):
                continue
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(value, ast.Constant):
                    continue
                for term, rest in _without_one(str(value.value)):
                    yield _change(source, value, rest, f"{key.value!s} without {term}")


def _without_one(condition: str) -> Iterator[tuple[str, str]]:
    """(the condition that is gone, the rest) for each that is joined to others by `and`, at whatever depth."""
    tree = ast.parse(condition, mode="eval").body
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)]
    if not joined:
        yield condition, "True"
    for node in joined:
        for term in node.values:
            kept = " and ".join(_enclosed(condition, other) for other in node.values if other is not term)
            yield _segment(condition, term), _with(condition, node, kept)


def _enclosed(condition: str, node: ast.expr) -> str:
    text = _segment(condition, node)
    return f"({text})" if isinstance(node, ast.BoolOp) else text


@module("contiguous", "a strided input is not made contiguous")
def contiguous(text: Module) -> Iterator[Change]:
    source = text.source
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "contiguous":
            kept = _segment(source, node.func.value)
            yield Change((Edit(*_span(source, node), kept),), "without contiguous()")


@module("arguments", "two integer arguments of a launch are exchanged")
def exchanged(text: Module) -> Iterator[Change]:
    source = text.source
    tree = ast.parse(source)
    kernels = {ast.unparse(call) for call in _kernels(text)}
    made = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and ast.unparse(n.value) in kernels]
    names = {target.id for n in made for target in n.targets if isinstance(target, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            for first, second in zip(node.args, node.args[1:], strict=False):
                one, two = (_segment(source, a) for a in (first, second))
                if EXTENT.search(one) and EXTENT.search(two) and one != two:
                    start, end = _span(source, first)[0], _span(source, second)[1]
                    yield Change((Edit(start, end, f"{two}, {one}"),), f"{one} and {two} exchanged")


def _kernels(text: Module) -> Iterator[ast.Call]:
    """Calls that make a Kernel which counts as launched."""
    for node in ast.walk(ast.parse(text.source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Kernel" and node.args:
            name = node.args[0].value if isinstance(node.args[0], ast.Constant) else ""
            if text.launched is None or kernel_name(str(name)) in text.launched:
                yield node


def _keywords(text: Module, name: str) -> Iterator[ast.Constant]:
    for call in _kernels(text):
        for keyword in call.keywords:
            if keyword.arg == name and isinstance(keyword.value, ast.Constant):
                yield keyword.value


def _segment(source: str, node: ast.expr) -> str:
    return ast.get_source_segment(source, node) or ""


def _with(source: str, node: ast.expr, text: str) -> str:
    return apply(source, [Edit(*_span(source, node), text)])


def _change(source: str, node: ast.expr, value: str, note: str) -> Change:
    return Change((Edit(*_span(source, node), repr(value).replace("'", '"')),), note)


def _span(source: str, node: ast.expr) -> tuple[int, int]:
    """Byte offsets; ast counts columns in bytes of UTF-8."""
    lines = source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    start = sum(map(len, lines[: node.lineno - 1])) + node.col_offset
    return start, sum(map(len, lines[: node.end_lineno - 1])) + node.end_col_offset

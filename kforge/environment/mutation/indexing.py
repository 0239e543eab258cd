"""Mistakes in indexing: exchanged strides and axes, quotient for remainder, 32-bit offsets."""

from __future__ import annotations

from collections.abc import Iterator

from kforge.environment.mutation.operators import cuda
from kforge.environment.mutation.source import INTEGERS, Change, Cuda, change, sides, text

LARGE = "equal unless an offset exceeds 2^31 - 1 elements, which no plan for the emulator can hold"


@cuda("stride", "row and column are exchanged: row * cols + col becomes col * cols + row")
def stride(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("binary_expression"):
        left, operator, right = sides(node)
        if operator != "+" or left.type != "binary_expression":
            continue
        major, product, width = sides(left)
        if product == "*" and definition.is_integer(node) and text(major) != text(right):
            yield change(node, f"({text(right)}) * {text(width)} + ({text(major)})", "row and column exchanged")


@cuda("extent", "another extent of the kernel is used: cols for rows")
def extent(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("binary_expression"):
        left, operator, right = sides(node)
        if operator not in ("*", "/", "%", "<", ">="):
            continue
        scalars = [name for name, kind in definition.parameters() if set(kind.split()) & INTEGERS and "*" not in kind]
        for side in (left, right):
            if side.type == "identifier" and text(side) in scalars:
                others = [name for name in scalars if name != text(side)]
                if others:
                    yield change(side, others[0], f"{text(side)} becomes {others[0]}")


@cuda("axis", "the wrong axis: / for %, .y for .x")
def axis(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("binary_expression"):
        operator = node.child_by_field_name("operator")
        if operator is not None and text(operator) in ("/", "%") and definition.is_integer(node):
            other = "%" if text(operator) == "/" else "/"
            yield change(operator, other, f"{text(operator)} becomes {other}")
    for definition, node in source.nodes("field_expression"):
        base, _, member = text(node).partition(".")
        if base in ("threadIdx", "blockIdx", "blockDim") and f"{base}.{_other(member)}" in text(definition.node):
            yield change(node, f"{base}.{_other(member)}", f"{text(node)} becomes {base}.{_other(member)}")


def _other(member: str) -> str:
    return {"x": "y", "y": "x"}.get(member, "x")


@cuda("index_width", "an offset is computed in 32 bits", equivalent=LARGE)
def index_width(source: Cuda) -> Iterator[Change]:
    wide = ("long long", "size_t", "int64_t")
    for _, node in source.nodes("cast_expression", "declaration", "call_expression"):
        if node.type == "call_expression":
            function = node.child_by_field_name("function")
            if function is not None and text(function) == "static_cast<long long>":
                yield change(function, "static_cast<int>", "in 32 bits")
            continue
        kind = node.child_by_field_name("type")
        if kind is not None and text(kind) in wide:
            yield change(kind, "int", f"{text(kind)} becomes int")

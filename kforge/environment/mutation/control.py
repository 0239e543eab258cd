"""Mistakes in control: barriers, bounds, loop steps, tails, conditions, warp intrinsics, atomics, missing stores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kforge.environment.mutation.operators import cuda
from kforge.environment.mutation.source import Change, Cuda, Edit, arguments, callee, change, inside, sides, text

RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
BARRIERS = ("__syncthreads", "__syncwarp", "sync")
FULL_MASK = re.compile(r"(?i)0xf{8}u?")


@cuda("barrier", "a __syncthreads or __syncwarp is missing")
def barrier(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("expression_statement"):
        call = node.named_children[0] if node.named_children else None
        if call is not None and call.type == "call_expression" and callee(call).split(".")[-1] in BARRIERS:
            yield change(node, ";", f"without {text(call)}")


@cuda("off_by_one", "a comparison takes in or leaves out its bound")
def off_by_one(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("binary_expression"):
        operator = node.child_by_field_name("operator")
        if operator is not None and text(operator) in RELATIONS:
            yield change(operator, RELATIONS[text(operator)], f"{text(operator)} becomes {RELATIONS[text(operator)]}")


@cuda("last_element", "a loop or guard stops one before the last element, row or column")
def last_element(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("binary_expression"):
        _, operator, right = sides(node)
        if operator in ("<", ">=") and _guards(node) and definition.is_integer(right):
            yield change(right, f"({text(right)} - 1)", f"bound {text(right)} - 1")


@cuda("tail", "a loop or guard rounds its bound down to a multiple of four: the tail is skipped")
def tail(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("binary_expression"):
        _, operator, right = sides(node)
        plain = right.type == "identifier" and not text(right).isupper()
        if operator in ("<", ">=") and _guards(node) and plain and definition.is_integer(right):
            yield change(right, f"({text(right)} / 4 * 4)", f"bound {text(right)} rounded down to 4")


def _guards(node: object) -> bool:
    """Whether a comparison is (part of) the condition of a loop, an if or a ternary."""
    from tree_sitter import Node

    assert isinstance(node, Node)
    above = inside(node, "for_statement", "while_statement", "condition_clause", "conditional_expression")
    return above is not None


@cuda("loop_step", "a loop advances by twice its step")
def loop_step(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("for_statement"):
        update = node.child_by_field_name("update")
        if update is None:
            continue
        if update.type == "update_expression":
            argument = text(update.child_by_field_name("argument"))
            sign = "-=" if "--" in text(update) else "+="
            yield change(update, f"{argument} {sign} 2", "steps by 2")
        elif update.type == "assignment_expression":
            left, operator, right = sides(update)
            twice = f"{text(right)} + 1" if operator in ("<<=", ">>=") else f"2 * ({text(right)})"
            yield change(update, f"{text(left)} {operator} {twice}", "steps twice as far")


@cuda("condition", "&& and || are exchanged")
def condition(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("binary_expression"):
        operator = node.child_by_field_name("operator")
        if operator is not None and text(operator) in ("&&", "||"):
            other = "||" if text(operator) == "&&" else "&&"
            yield change(operator, other, f"{text(operator)} becomes {other}")


@cuda("warp", "a shuffle or vote has the wrong mask, distance or width, or a butterfly starts too low")
def warp(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("call_expression"):
        name, given = callee(node), arguments(node)
        if not name.startswith("__shfl") and name not in ("__ballot_sync", "__any_sync", "__all_sync"):
            continue
        if given and FULL_MASK.fullmatch(text(given[0])):
            yield change(given[0], "0x0000ffffu", "half of the warp in the mask")
        if name.startswith("__shfl") and len(given) >= 3:
            yield change(given[2], f"({text(given[2])}) * 2", "twice the distance")
            if len(given) == 3:
                end = Edit(given[2].end_byte, given[2].end_byte, ", 16")
                yield Change((end,), "width 16")
    for _, node in source.nodes("for_statement"):
        first = node.child_by_field_name("initializer")
        match = re.search(rb"=\s*(16)\b", first.text or b"") if first is not None else None
        if first is not None and match:
            at = first.start_byte + match.start(1)
            yield Change((Edit(at, at + 2, "8"),), "the butterfly starts at 8")


@cuda("atomic", "an atomic addition is a plain one")
def atomic(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("expression_statement"):
        call = node.named_children[0] if node.named_children else None
        if call is not None and call.type == "call_expression" and callee(call) == "atomicAdd":
            place, value = (text(a) for a in arguments(call)[:2])
            yield change(node, f"*({place}) += {value};", "read, add, write")


@cuda("dropped_store", "a value is never written to global memory, or to one of several outputs")
def dropped_store(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("expression_statement"):
        inner = node.named_children[0] if node.named_children else None
        if inner is None:
            continue
        if inner.type == "assignment_expression":
            left = inner.child_by_field_name("left")
            kind = definition.types.get(text(left).split("[")[0].lstrip("*("), "") if left is not None else ""
            if left is not None and left.type != "identifier" and kind.endswith("*"):
                yield change(node, ";", f"without {text(inner)}")
        elif inner.type == "call_expression" and (callee(inner) == "store" or callee(inner).startswith("atomic")):
            yield change(node, ";", f"without {text(inner)}")

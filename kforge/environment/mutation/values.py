"""Mistakes in values: terms, identities, precision, signs, constants, NaN handling, initial values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kforge.environment.mutation.operators import cuda
from kforge.environment.mutation.source import Change, Cuda, Definition, Edit, arguments, callee, change, sides, text

if TYPE_CHECKING:
    from tree_sitter import Node

EXPONENTIALS = ("exp", "expf", "__expf", "exp2f", "exp2")
SWAPPED = {
    "fmaxf": "fminf", "fminf": "fmaxf", "fmax": "fmin", "fmin": "fmax", "max": "min", "min": "max",
    "larger": "smaller", "smaller": "larger", "atomicMax": "atomicMin", "atomicMin": "atomicMax",
}  # fmt: skip
FLOAT = re.compile(r"(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?[fF]?")
HALF_HEADER = "#include <cuda_fp16.h>\n"


@cuda("dropped_term", "one operand of a sum is missing")
def dropped_term(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("binary_expression"):
        left, operator, right = sides(node)
        if operator == "+":
            yield change(node, text(left), f"without + {text(right)}")
            yield change(node, text(right), f"without {text(left)} +")


@cuda("dropped_factor", "one operand of a product is missing")
def dropped_factor(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("binary_expression"):
        left, operator, right = sides(node)
        if operator in ("*", "/") and not definition.is_integer(node):
            yield change(node, text(left), f"without {operator} {text(right)}")


@cuda("overwrite", "a sum keeps only its last term: += becomes =")
def overwrite(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("assignment_expression"):
        left, operator, _ = sides(node)
        sign = node.child_by_field_name("operator")
        loop_update = node.parent is not None and node.parent.type == "for_statement"
        if operator == "+=" and sign is not None and not (loop_update and definition.is_integer(left)):
            yield change(sign, "=", "+= becomes =")


@cuda("identity", "a reduction starts from the wrong value: 0 for an infinity, 1 for 0")
def identity(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("unary_expression", "number_literal", "identifier"):
        word = text(node)
        negative = node.type == "unary_expression" and word.replace(" ", "") in ("-INFINITY", "-FLT_MAX")
        positive = node.type == "identifier" and word == "INFINITY" and text(node.parent)[:1] != "-"
        if negative or positive:
            yield change(node, "0.f", f"{word} becomes 0")
        elif node.type == "number_literal" and _is_zero(word) and _initial(definition, node):
            yield change(node, "1.f", f"{word} becomes 1")


def _is_zero(word: str) -> bool:
    return FLOAT.fullmatch(word) is not None and float(word.rstrip("fF")) == 0.0


def _initial(definition: Definition, node: Node) -> bool:
    """Whether a literal is the initial value of a floating variable, an assigned or a given neutral element."""
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "init_declarator":
        name = text(parent.child_by_field_name("declarator")).split("[")[0]
        return definition.types.get(name, "").removeprefix("const ") in ("float", "double", "T", "V", "__half")
    if parent.type in ("assignment_expression", "field_declaration", "initializer_list", "argument_list"):
        return "." in text(node) or parent.type == "field_declaration"
    return parent.type == "conditional_expression" and "." in text(node)


@cuda("half_accumulator", "a float accumulator is rounded to half at each step")
def half_accumulator(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("assignment_expression"):
        left, operator, right = sides(node)
        if operator == "+=" and _floating(definition, left):
            yield _through_half(source, node, f"{text(left)} = {{}}", f"{text(left)} + ({text(right)})")


@cuda("half_rounding", "a float value is rounded through half before it is used")
def half_rounding(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("assignment_expression", "init_declarator"):
        value = node.child_by_field_name("right" if node.type == "assignment_expression" else "value")
        target = node.child_by_field_name("left" if node.type == "assignment_expression" else "declarator")
        if value is None or target is None or value.type in ("number_literal", "unary_expression", "initializer_list"):
            continue
        assigned = node.type == "init_declarator" or sides(node)[1] == "="
        if assigned and _floating(definition, target):
            yield _through_half(source, value, "{}", text(value))


def _through_half(source: Cuda, node: Node, pattern: str, value: str) -> Change:
    """`value` rounded to half and back, in `pattern`; the header comes on top where the source has none."""
    rounded = pattern.format(f"__half2float(__float2half_rn({value}))")
    header = () if "cuda_fp16.h" in source.source else (Edit(0, 0, HALF_HEADER),)
    return change(node, rounded, "rounded through half", *header)


def _floating(definition: Definition, node: Node) -> bool:
    return definition.type_of(node).removeprefix("const ") == "float"


@cuda("narrow_double", "a double accumulator is a float")
def narrow_double(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("declaration"):
        kind = node.child_by_field_name("type")
        if kind is not None and text(kind) == "double":
            yield change(kind, "float", "double becomes float")


@cuda("max_subtraction", "an exponential is taken without subtracting the maximum")
def max_subtraction(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("call_expression"):
        given = arguments(node)
        if callee(node) in EXPONENTIALS and len(given) == 1 and given[0].type == "binary_expression":
            left, operator, right = sides(given[0])
            if operator == "-":
                yield change(given[0], text(left), f"without - {text(right)}")


@cuda("sign", "a sign is flipped")
def sign(source: Cuda) -> Iterator[Change]:
    for definition, node in source.nodes("binary_expression", "unary_expression", "assignment_expression"):
        operator = node.child_by_field_name("operator")
        if operator is None:
            continue
        if node.type == "unary_expression":
            argument = text(node.child_by_field_name("argument"))
            if text(operator) == "-" and argument not in ("INFINITY", "FLT_MAX"):
                yield change(node, argument, "without the minus")
        elif text(operator) in ("+", "-") and not definition.is_integer(node):
            other = "-" if text(operator) == "+" else "+"
            yield change(operator, other, f"{text(operator)} becomes {other}")
        elif text(operator) == "+=" and not definition.is_integer(sides(node)[0]):
            yield change(operator, "-=", "+= becomes -=")


@cuda("min_max", "a minimum is taken for a maximum")
def min_max(source: Cuda) -> Iterator[Change]:
    defined = {d.name for d in source.definitions}
    for _, node in source.nodes("call_expression"):
        function = node.child_by_field_name("function")
        name = text(function)
        exists = name not in ("larger", "smaller") or SWAPPED[name] in defined
        if function is not None and name in SWAPPED and exists:
            yield change(function, SWAPPED[name], f"{name} becomes {SWAPPED[name]}")
    for _, node in source.nodes("conditional_expression"):
        test = node.child_by_field_name("condition")
        for part in _walk_test(test):
            operator = part.child_by_field_name("operator")
            chosen = {text(node.child_by_field_name(side)) for side in ("consequence", "alternative")}
            left, relation, right = sides(part)
            if operator is not None and relation in "<>" and {text(left), text(right)} == chosen:
                yield change(operator, "<" if relation == ">" else ">", "takes the other extreme")


def _walk_test(test: Node | None) -> Iterator[Node]:
    from kforge.environment.mutation.source import walk

    return (n for n in walk(test) if n.type == "binary_expression") if test is not None else iter(())


@cuda("constant", "a constant is half as large; a small epsilon is 0")
def constant(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("number_literal"):
        word = text(node)
        if not FLOAT.fullmatch(word) or not re.search(r"[.eEf]", word):
            continue
        value, suffix = float(word.rstrip("fF")), "f" if word[-1] in "fF" else ""
        if value != 0.0:
            other = 0.0 if value <= 1e-3 else value / 2
            yield change(node, f"{other!r}{suffix}", f"{word} becomes {other:g}")
    for definition, node in source.nodes("identifier"):
        is_use = node.parent is not None and node.parent.type == "binary_expression"
        if is_use and text(node) in ("eps", "epsilon") and text(node) in definition.types:
            yield change(node, "0.f", f"{text(node)} becomes 0")


@cuda("nan", "a NaN is no longer handled")
def nan(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("call_expression", "binary_expression"):
        if node.type == "call_expression" and callee(node) in ("isnan", "isinf", "isfinite", "__isnanf"):
            yield change(node, "true" if callee(node) == "isfinite" else "false", f"without {text(node)}")
        elif node.type == "binary_expression":
            left, operator, right = sides(node)
            if text(left) == text(right) and operator in ("!=", "=="):
                yield change(node, "false" if operator == "!=" else "true", f"without {text(node)}")


@cuda("uninitialised", "a variable or shared memory is used without its initial value")
def uninitialised(source: Cuda) -> Iterator[Change]:
    for _, node in source.nodes("declaration"):
        constant_or_loop = any(text(c) in ("const", "constexpr") for c in node.children) or (
            node.parent is not None and node.parent.type == "for_statement"
        )
        for declarator in node.children_by_field_name("declarator"):
            value, name = declarator.child_by_field_name("value"), declarator.child_by_field_name("declarator")
            neutral = value is not None and value.type in ("number_literal", "unary_expression", "initializer_list")
            if not constant_or_loop and name is not None and neutral:
                yield change(declarator, text(name), f"{text(name)} has no initial value")
    for definition, node in source.nodes("expression_statement"):
        inner = node.named_children[0] if node.named_children else None
        if inner is not None and inner.type == "assignment_expression":
            left, operator, right = sides(inner)
            array = left.type == "subscript_expression" and not definition.types.get(
                text(left).split("[")[0], "*"
            ).endswith("*")
            if operator == "=" and array and right.type == "number_literal":
                yield change(node, ";", f"without {text(inner)}")

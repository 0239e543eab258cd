"""Renders launch expressions to C++17 for export, with the same values as in Python."""

from __future__ import annotations

from collections.abc import Mapping

from kforge.kernel.expression import Binary, Bool, Call, Compare, Name, Node, Number, Tuple, Unary

# What `to_cpp` renders over. Names are int64_t variables (pointers under aligned() are pointers).
CPP_PRELUDE = """\
namespace launch {
inline int64_t floordiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
inline double floordiv(double a, double b) { return std::floor(a / b); }
inline int64_t mod(int64_t a, int64_t b) { return a - floordiv(a, b) * b; }
inline double mod(double a, double b) { return a - floordiv(a, b) * b; }
inline int64_t ceil_div(int64_t a, int64_t b) { return -floordiv(-a, b); }
inline bool aligned(const void* p, int64_t n) { return reinterpret_cast<uintptr_t>(p) % n == 0; }
}  // namespace launch
"""


def _is_double(node: Node) -> bool:
    """Whether a value is a double in C++."""
    if isinstance(node, Number):
        return isinstance(node.value, float)
    if isinstance(node, Binary):
        return node.op == "/" or _is_double(node.left) or _is_double(node.right)
    if isinstance(node, Unary):
        return node.op != "not" and _is_double(node.operand)
    return isinstance(node, Call) and node.function in {"min", "max"} and any(map(_is_double, node.args))


def render(node: Node, rename: Mapping[str, str]) -> str:
    """The expression in C++. rename: launch-language name -> C++ expression."""

    def sub(n: Node) -> str:
        return render(n, rename)

    def operand(n: Node) -> str:
        return sub(n) if isinstance(n, Number | Name | Call | Tuple) else f"({sub(n)})"

    match node:
        case Number(value):
            if isinstance(value, bool):
                return "true" if value else "false"
            return repr(value) if isinstance(value, float) else f"int64_t{{{value}}}"
        case Name(name):
            return rename.get(name, name)
        case Unary(op, inner):
            return ("!" if op == "not" else op) + operand(inner)
        case Binary(op, left, right) if op in {"//", "%"}:
            double = "(double)" if _is_double(node) else ""
            function = {"//": "floordiv", "%": "mod"}[op]
            return f"launch::{function}({double}{operand(left)}, {double}{operand(right)})"
        case Binary(op, left, right):
            return f"{'(double)' if op == '/' else ''}{operand(left)} {op} {operand(right)}"
        case Compare(ops, operands):
            return " && ".join(f"{operand(operands[i])} {op} {operand(operands[i + 1])}" for i, op in enumerate(ops))
        case Bool(op, operands):
            return {"and": " && ", "or": " || "}[op].join(operand(o) for o in operands)
        case Call("aligned", (Name(name), size)):
            return f"launch::aligned({rename.get(name, name)}, {sub(size)})"
        case Call("sizeof", (Name(name),)):
            return f"int64_t{{sizeof({rename.get(name, name)})}}"
        case Call("ceil_div", (a, b)):
            return f"launch::ceil_div({sub(a)}, {sub(b)})"
        case Call(name, args):
            kind = "double" if _is_double(node) else "int64_t"
            return f"std::{name}<{kind}>({{{', '.join(f'{kind}({sub(a)})' for a in args)}}})"
        case Tuple(items):
            return "{" + ", ".join(sub(i) for i in items) + "}"
    raise AssertionError(node)

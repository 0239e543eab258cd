"""The launch language: grid, block, shared, cluster, require, tuned and workspace expressions of a Kernel.

A small parser of our own turns the text into a tree; the tree evaluates in Python for a launch and renders to C++ for
export. Nothing here calls `eval`: what is not in the grammar does not exist.

    tuple      := expr (',' expr)* [',']
    expr       := or, with the usual precedence of: or, and, not, comparisons (chained), + -, * / // %, unary + -
    atom       := number | True | False | name | function '(' expr, ... ')' | '(' tuple ')'
    functions  := ceil_div(a, b), min(a, b, ...), max(a, b, ...), aligned(pointer, bytes), sizeof(T)

Integers are 64-bit; `//` and `%` round down as in Python; `/` is a double; `and`, `or`, `not` give a bool. `aligned`
takes a power of two of at most 1024 bytes (the launch cache tells alignments apart up to there).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kforge.errors import BuildError, LaunchError

Value = Any  # int | float | bool | tuple of them
Env = Mapping[str, Any]
Evaluate = Callable[[Env], Value]

MAX_ALIGNMENT = 1024
_INT64 = 1 << 63
_TOKEN = re.compile(
    r"\s*(?:(?P<number>0[xX][0-9a-fA-F]+|\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+|\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<op>//|<=|>=|==|!=|[-+*/%<>(),]))"
)
_COMPARE = {"<", "<=", ">", ">=", "==", "!="}
_ARITY = {"ceil_div": (2, 2), "min": (2, 9), "max": (2, 9), "aligned": (2, 2), "sizeof": (1, 1)}


@dataclass(frozen=True)
class Number:
    value: int | float | bool


@dataclass(frozen=True)
class Name:
    id: str


@dataclass(frozen=True)
class Unary:
    op: str  # - | + | not
    operand: Node


@dataclass(frozen=True)
class Binary:
    op: str  # + - * / // %
    left: Node
    right: Node


@dataclass(frozen=True)
class Compare:
    ops: tuple[str, ...]
    operands: tuple[Node, ...]  # one more than ops


@dataclass(frozen=True)
class Bool:
    op: str  # and | or
    operands: tuple[Node, ...]


@dataclass(frozen=True)
class Call:
    function: str
    args: tuple[Node, ...]


@dataclass(frozen=True)
class Tuple:
    items: tuple[Node, ...]


Node = Number | Name | Unary | Binary | Compare | Bool | Call | Tuple


@dataclass(frozen=True)
class Expression:
    """A parsed expression. `names` are the variables it reads, `pointers` the names under aligned()."""

    text: str
    tree: Node
    names: frozenset[str]
    pointers: frozenset[str]
    types: frozenset[str]
    evaluate_unchecked: Evaluate

    def evaluate(self, env: Env) -> Value:
        """The value under `env` (pointers as integer addresses); LaunchError on a zero divisor or an overflow."""
        try:
            value = self.evaluate_unchecked(env)
        except ZeroDivisionError:
            raise LaunchError(f"'{self.text}' divides by zero") from None
        except TypeError as error:  # a constant that is text, a parameter that is None
            raise LaunchError(f"'{self.text}' is not computable: {error}") from None
        for v in value if isinstance(value, tuple) else (value,):
            if isinstance(v, int) and not -_INT64 <= v < _INT64:
                raise LaunchError(f"'{self.text}' does not fit 64 bits: {v}")
        return value

    @property
    def parts(self) -> tuple[Expression, ...]:
        """What must hold together for this to hold: the sides of its `and`, or itself."""
        if isinstance(self.tree, Bool) and self.tree.op == "and":
            return tuple(part for side in self.tree.operands for part in _expression(self.text, side).parts)
        return (self,)

    def to_cpp(self, rename: Mapping[str, str] | None = None) -> str:
        """The same in C++17, over rendering.CPP_PRELUDE; a tuple renders as `{a, b, c}`. Names may be renamed."""
        from kforge.kernel.rendering import render

        return render(self.tree, rename or {})


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """Parse; BuildError names the text and the place where it stops making sense."""
    return _expression(text, _Parser(text).parse())


def _expression(text: str, tree: Node) -> Expression:
    names: set[str] = set()
    pointers: set[str] = set()
    types: set[str] = set()
    _collect(tree, names, pointers, types)
    return Expression(text, tree, frozenset(names), frozenset(pointers), frozenset(types), _compile(tree))


def as_expression(value: str | int | bool | tuple[int | str, ...]) -> Expression:
    """An expression from what a Kernel accepts: text, a number, or a tuple of either."""
    if isinstance(value, tuple | list):
        return parse("(" + ", ".join(str(v) for v in value) + ",)")
    return parse(str(value))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if not match or match.end() == at:
                raise BuildError(f"launch expression '{text}': unexpected '{text[at:].strip()[:10]}'")
            self.tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
            at = match.end()
        self.tokens.append(("end", "end of text"))
        self.at = 0

    @property
    def token(self) -> str:
        return self.tokens[self.at][1]

    def fail(self) -> BuildError:
        return BuildError(f"launch expression '{self.text}': unexpected {self.token}")

    def accept(self, *tokens: str) -> str | None:
        kind, token = self.tokens[self.at]
        if kind != "end" and token in tokens:
            self.at += 1
            return token
        return None

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.fail()

    def parse(self) -> Node:
        tree = self.tuple_or_expr("end of text")
        if self.tokens[self.at][0] != "end":
            raise self.fail()
        return tree

    def tuple_or_expr(self, closing: str) -> Node:
        items = [self.disjunction()]
        is_tuple = False
        while self.accept(","):
            is_tuple = True
            if self.token == closing:
                break
            items.append(self.disjunction())
        return Tuple(tuple(items)) if is_tuple else items[0]

    def disjunction(self) -> Node:
        return self.joined("or", lambda: self.joined("and", self.negation))

    def joined(self, word: str, part: Callable[[], Node]) -> Node:
        operands = [part()]
        while self.accept(word):
            operands.append(part())
        return Bool(word, tuple(operands)) if len(operands) > 1 else operands[0]

    def negation(self) -> Node:
        return Unary("not", self.negation()) if self.accept("not") else self.comparison()

    def comparison(self) -> Node:
        operands, ops = [self.sum()], []
        while op := self.accept(*_COMPARE):
            ops.append(op)
            operands.append(self.sum())
        return Compare(tuple(ops), tuple(operands)) if ops else operands[0]

    def sum(self) -> Node:
        left = self.product()
        while op := self.accept("+", "-"):
            left = Binary(op, left, self.product())
        return left

    def product(self) -> Node:
        left = self.factor()
        while op := self.accept("*", "/", "//", "%"):
            left = Binary(op, left, self.factor())
        return left

    def factor(self) -> Node:
        if op := self.accept("-", "+"):
            return Unary(op, self.factor())
        return self.atom()

    def atom(self) -> Node:
        kind, token = self.tokens[self.at]
        if self.accept("("):
            tree = self.tuple_or_expr(")")
            self.expect(")")
            return tree
        if kind == "number":
            self.at += 1
            return Number(_number(token))
        if kind != "name" or token in {"and", "or", "not"}:
            raise self.fail()
        self.at += 1
        if token in {"True", "False"}:
            return Number(token == "True")
        if not self.accept("("):
            return Name(token)
        return self.call(token)

    def call(self, function: str) -> Node:
        if function not in _ARITY:
            raise BuildError(
                f"launch expression '{self.text}': no function '{function}'; there are {', '.join(sorted(_ARITY))}"
            )
        args = [self.disjunction()]
        while self.accept(","):
            args.append(self.disjunction())
        self.expect(")")
        low, high = _ARITY[function]
        if not low <= len(args) <= high:
            raise BuildError(f"launch expression '{self.text}': {function}() takes {low} arguments, not {len(args)}")
        if function in {"aligned", "sizeof"} and not isinstance(args[0], Name):
            what = "the name of a pointer parameter" if function == "aligned" else "the name of a type"
            raise BuildError(f"launch expression '{self.text}': {function}() takes {what} first")
        return Call(function, tuple(args))


def _number(token: str) -> int | float:
    if token[:2] in {"0x", "0X"}:
        return int(token, 16)
    return float(token) if re.search(r"[.eE]", token) else int(token)


def _collect(node: Node, names: set[str], pointers: set[str], types: set[str]) -> None:
    if isinstance(node, Name):
        names.add(node.id)
    elif isinstance(node, Call) and node.function in {"aligned", "sizeof"}:
        assert isinstance(node.args[0], Name)
        (pointers if node.function == "aligned" else types).add(node.args[0].id)
        for arg in node.args[1:]:
            _collect(arg, names, pointers, types)
    else:
        for child in _children(node):
            _collect(child, names, pointers, types)


def _children(node: Node) -> tuple[Node, ...]:
    match node:
        case Unary():
            return (node.operand,)
        case Binary():
            return (node.left, node.right)
        case Compare() | Bool():
            return node.operands
        case Call():
            return node.args
        case Tuple():
            return node.items
    return ()


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up, for either sign of a; b > 0."""
    return -(-a // b)


def aligned(address: int, size: int) -> bool:
    """Whether a pointer (0 for null) is a multiple of `size` bytes, a power of two of at most MAX_ALIGNMENT."""
    if size <= 0 or size > MAX_ALIGNMENT or size & (size - 1):
        raise LaunchError(f"aligned(): {size} bytes is not a power of two of at most {MAX_ALIGNMENT}")
    return address % size == 0


_FUNCTIONS: dict[str, Callable[..., Any]] = {"ceil_div": ceil_div, "min": min, "max": max, "aligned": aligned}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _compile(node: Node) -> Evaluate:
    match node:
        case Number(value):
            return lambda env: value
        case Name(name):
            return lambda env: env[name]
        case Unary(op, operand):
            inner = _compile(operand)
            return {"-": lambda env: -inner(env), "+": inner, "not": lambda env: not inner(env)}[op]
        case Binary(op, left, right):
            first, second, apply = _compile(left), _compile(right), _BINARY[op]
            return lambda env: apply(first(env), second(env))
        case Compare(ops, operands):
            parts = [_compile(o) for o in operands]
            tests = [_BINARY[op] for op in ops]
            return lambda env: all(t(parts[i](env), parts[i + 1](env)) for i, t in enumerate(tests))
        case Bool(op, operands):
            parts = [_compile(o) for o in operands]
            quantifier = all if op == "and" else any
            return lambda env: quantifier(bool(p(env)) for p in parts)
        case Call("sizeof", (Name(name),)):
            return lambda env: env[f"sizeof {name}"]
        case Call(name, args):
            function, parts = _FUNCTIONS[name], [_compile(a) for a in args]
            return lambda env: function(*[p(env) for p in parts])
        case Tuple(items):
            parts = [_compile(i) for i in items]
            return lambda env: tuple(p(env) for p in parts)
    raise AssertionError(node)

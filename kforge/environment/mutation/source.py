"""A CUDA source as mutation operators see it: the tree, the functions that kernels reach, declared types, edits.

Only code that some kernel can reach is offered: a mistake in a helper that nothing calls changes no program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tree_sitter import Node

INTEGERS = {"int", "unsigned", "size_t", "long", "short", "uint32_t", "uint64_t", "int32_t", "int64_t"}


@dataclass(frozen=True)
class Edit:
    """Bytes [start, end) become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Change:
    """One planted mistake. The first edit is the mistake itself and gives the line; others make it compile."""

    edits: tuple[Edit, ...]
    note: str


@dataclass(frozen=True)
class Module:
    """The Python text of a candidate. launched: kernels that count as used; None for all of them."""

    source: str
    launched: Collection[str] | None = None


def kernel_name(expression: str) -> str:
    """The function that a name expression means: "ns::softmax<T, VEC>" -> softmax."""
    return expression.split("<")[0].split("::")[-1].strip()


def change(node: Node, text: str, note: str, *more: Edit) -> Change:
    """`node` becomes `text`."""
    return Change((Edit(node.start_byte, node.end_byte, text), *more), note)


def apply(source: str, edits: Collection[Edit]) -> str:
    """The source with all edits made; they may not overlap. Offsets are bytes of UTF-8."""
    data = source.encode()
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
    return data.decode()


def text(node: Node | None) -> str:
    """The node's source text; empty for None."""
    return (node.text or b"").decode() if node is not None else ""


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it in order of the text, preprocessor lines left out."""
    stack = [node]
    while stack:
        node = stack.pop()
        if not node.type.startswith("preproc_"):
            yield node
            stack.extend(reversed(node.children))


def inside(node: Node, *types: str) -> Node | None:
    """The nearest ancestor of one of these types, within the function."""
    parent = node.parent
    while parent is not None and parent.type != "function_definition":
        if parent.type in types:
            return parent
        parent = parent.parent
    return None


def callee(node: Node) -> str:
    """The last name of a call's function: `Op::join<V>(a, b)` -> join."""
    return kernel_name(text(node.child_by_field_name("function")))


def arguments(node: Node) -> list[Node]:
    """A call's arguments."""
    listing = node.child_by_field_name("arguments")
    return [c for c in listing.named_children if c.type != "comment"] if listing is not None else []


def sides(node: Node) -> tuple[Node, str, Node]:
    """Left operand, operator and right operand of a binary expression or an assignment."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    assert left is not None and right is not None
    return left, text(node.child_by_field_name("operator")), right


@dataclass(frozen=True)
class Definition:
    """A function or a struct with member initialisers, by the name under which others refer to it."""

    name: str
    owner: str  # the struct that a method belongs to, or the empty string
    node: Node
    kernel: bool

    @cached_property
    def names(self) -> frozenset[str]:
        """Every identifier that occurs in it."""
        return frozenset(text(n) for n in walk(self.node) if n.type.endswith("identifier"))

    @cached_property
    def types(self) -> dict[str, str]:
        """Declared type by variable and parameter; a pointer's ends in *, an array's element type stands alone."""
        found: dict[str, str] = {}
        for node in walk(self.node):
            if node.type in ("declaration", "parameter_declaration", "field_declaration"):
                kind = text(node.child_by_field_name("type"))
                const = "const " if any(text(c) == "const" for c in node.children) else ""
                for declarator in node.children_by_field_name("declarator"):
                    pointer = any(n.type == "pointer_declarator" for n in _outer(declarator))
                    names = [text(n) for n in _outer(declarator) if n.type in ("identifier", "field_identifier")]
                    for name in names[:1]:
                        found.setdefault(name, f"{const}{kind}{'*' if pointer else ''}")
        return found

    def type_of(self, node: Node) -> str:
        """The declared type of the variable that an expression names, its element type for a subscript."""
        if node.type == "subscript_expression":
            return self.type_of(node.child_by_field_name("argument") or node.children[0]).removesuffix("*")
        return self.types.get(text(node), "") if node.type == "identifier" else ""

    def is_integer(self, node: Node) -> bool:
        """Whether an expression is made of integer variables, builtins and integer literals alone."""
        leaves = [n for n in walk(node) if n.type in ("identifier", "number_literal", "call_expression")]
        return bool(leaves) and all(self._integer_leaf(n) for n in leaves)

    def _integer_leaf(self, node: Node) -> bool:
        if node.type == "number_literal":
            return re.fullmatch(r"(0[xX][\da-fA-F]+|\d+)[uUlL]*", text(node)) is not None
        if node.type == "call_expression":
            return False
        name = text(node)
        if name in ("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize") or name.isupper():
            return True
        return bool(set(self.types.get(name, "").split()) & INTEGERS)

    def parameters(self) -> list[tuple[str, str]]:
        """(name, type) of the function's parameters."""
        listing = next((n for n in walk(self.node) if n.type == "parameter_list"), None)
        names = [] if listing is None else [text(n) for n in walk(listing) if n.type == "identifier"]
        return [(name, self.types[name]) for name in dict.fromkeys(names) if name in self.types]


class Cuda:
    """One parsed source. `launched`: kernels that count as used; None for all of them."""

    def __init__(self, source: str, launched: Collection[str] | None = None) -> None:
        self.source, self.data = source, source.encode()
        self.root = parser().parse(self.data).root_node
        self.definitions = list(_definitions(self.root, ""))
        self.launched = launched

    @cached_property
    def live(self) -> list[Definition]:
        """Definitions that a launched kernel reaches by name, in order of the text."""
        used = [d for d in self.definitions if d.kernel and (self.launched is None or d.name in self.launched)]
        reached = {id(d): d for d in used}
        while used:
            names = used.pop().names
            for other in self.definitions:
                wanted = other.name in names and (not other.owner or self._uses(other.owner, reached.values()))
                if wanted and not other.kernel and id(other) not in reached:
                    reached[id(other)] = other
                    used.append(other)
        return [d for d in self.definitions if id(d) in reached]

    def _uses(self, owner: str, reached: Collection[Definition]) -> bool:
        return any(owner in d.names for d in reached)

    def nodes(self, *types: str) -> Iterator[tuple[Definition, Node]]:
        """Nodes of these types in live code, each with the definition around it."""
        for definition in self.live:
            for node in walk(definition.node):
                if node.type in types:
                    yield definition, node

    def line(self, offset: int) -> int:
        """Line number of a byte offset, from 1."""
        return self.data.count(b"\n", 0, offset) + 1


@cache
def parser() -> Any:
    """The CUDA parser. ImportError without the grammar."""
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def _definitions(node: Node, owner: str) -> Iterator[Definition]:
    if node.type == "function_definition":
        declarator: Node | None = node
        while declarator is not None and declarator.type not in ("identifier", "field_identifier", "operator_name"):
            declarator = declarator.child_by_field_name("declarator")
        yield Definition(text(declarator), owner, node, any(c.type == "__global__" for c in node.children))
        return
    if node.type in ("struct_specifier", "class_specifier"):
        owner = text(node.child_by_field_name("name"))
        for member in (n for n in walk(node) if n.type == "field_declaration"):
            yield Definition(owner, "", member, False)
    for child in node.named_children:
        yield from _definitions(child, owner)


def _outer(declarator: Node) -> Iterator[Node]:
    """A declarator's own nodes, without array sizes and initial values."""
    node: Node | None = declarator
    while node is not None:
        yield node
        inner = node.child_by_field_name("declarator")
        if inner is None and node.type == "reference_declarator":
            inner = node.named_children[-1]
        node = inner

"""Reads a __global__ function's parameters from CUDA source with tree-sitter. What it cannot resolve is an error.

A macro, an alias or a struct in a parameter's type is never guessed: the error asks for `signature=`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kforge.errors import BuildError
from kforge.kernel.ctypes_table import canonical, scalar

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

SIGNATURE_HINT = 'give the parameters yourself: signature="const float* x, float* y, int n"'


@dataclass(frozen=True)
class Param:
    """One parameter. kind: "pointer", "scalar" or "tensor_map".

    ctype: the canonical C type (`float`, `long long`); for a pointer that of what it points to. Where it is a name
    that `types=` or the name expression binds, `ctype` is that name and `bound` is True.
    """

    name: str
    ctype: str
    kind: str
    const: bool = False
    bound: bool = False

    @property
    def declaration(self) -> str:
        """The parameter as C++."""
        if self.kind == "pointer":
            return f"{'const ' if self.const else ''}{self.ctype}* {self.name}"
        return f"{self.ctype} {self.name}"


@dataclass(frozen=True)
class Signature:
    """A kernel as declared. template: names of its template parameters; launch_bounds: the texts, possibly empty."""

    name: str
    params: tuple[Param, ...]
    extern_c: bool = False
    template: tuple[str, ...] = ()
    launch_bounds: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(p.declaration for p in self.params)})"


def split_expression(expression: str) -> tuple[str, tuple[str, ...]]:
    """A name expression's parts: "ns::softmax<T, VEC>" -> ("ns::softmax", ("T", "VEC"))."""
    match = re.fullmatch(r"\s*([A-Za-z_][\w:]*)\s*(?:<(.*)>)?\s*", expression, re.S)
    if not match:
        raise BuildError(f"'{expression}' is not a kernel's name or name expression", "e.g. softmax or softmax<T, VEC>")
    arguments = match.group(2)
    return match.group(1), tuple(_split(arguments)) if arguments else ()


def read_signature(source: str, expression: str, types: Mapping[str, str], filename: str = "source") -> Signature:
    """The signature of the kernel that `expression` names; `types` holds the type names that are bound per call.

    BuildError: no such kernel (those that exist are listed), two of that name, or a type that cannot be resolved.
    """
    name, arguments = split_expression(expression)
    found = [f for f in _functions(source) if f.name == name or f.name.rsplit("::", 1)[-1] == name]
    if not found:
        there = ", ".join(sorted({f.name for f in _functions(source)})) or "none"
        raise BuildError(
            f"{filename} has no __global__ function '{name}' (it has: {there})",
            "if a macro declares it, " + SIGNATURE_HINT,
        )
    defined = [f for f in found if f.is_definition] or found
    if len({str(f.node.text) for f in defined}) > 1:
        raise BuildError(f"{filename} has several __global__ functions '{name}'", SIGNATURE_HINT)
    function = defined[0]
    if arguments and not function.template:
        raise BuildError(f"'{expression}' has template arguments, but {name} is no template")
    if len(arguments) > len(function.template):
        raise BuildError(
            f"'{expression}' has {len(arguments)} template arguments, {name} takes {len(function.template)}"
        )
    bound = dict(zip(function.template, arguments, strict=False))
    params = tuple(_param(p, bound, types, function.name) for p in function.parameters())
    return Signature(function.name, params, function.extern_c, function.template, function.launch_bounds())


def parse_signature(text: str, expression: str, types: Mapping[str, str]) -> Signature:
    """The signature a person gives: the parameters as C++, or the whole declaration."""
    name, _ = split_expression(expression)
    inner = re.search(r"\((.*)\)\s*;?\s*$", text, re.S)
    declaration = f"__global__ void kforge_signature({inner.group(1) if inner else text}) {{}}"
    functions = _functions(declaration)
    if len(functions) != 1 or _tree(declaration).root_node.has_error:
        raise BuildError(f"signature of {name} is not a parameter list: '{text}'", SIGNATURE_HINT)
    params = tuple(_param(p, {}, types, name) for p in functions[0].parameters())
    return Signature(name, params, extern_c='extern "C"' in text)


def kernel_names(source: str) -> tuple[str, ...]:
    """Names of the __global__ functions defined in a source, in order."""
    return tuple(dict.fromkeys(f.name for f in _functions(source) if f.is_definition))


def last_top_level_include(source: str) -> int:
    """Byte offset just after the line of the last #include outside any #if or scope; 0 when there is none."""
    includes = [n for n in _tree(source).root_node.children if n.type == "preproc_include"]
    if not includes:
        return 0
    data = source.encode()
    end = data.find(b"\n", includes[-1].end_byte - 1)
    return len(data) if end < 0 else end + 1


@dataclass(frozen=True)
class _Function:
    name: str
    node: Node  # function_definition or declaration
    declarator: Node
    extern_c: bool
    template: tuple[str, ...]

    @property
    def is_definition(self) -> bool:
        return self.node.type == "function_definition"

    def parameters(self) -> list[Node]:
        listing = self.declarator.child_by_field_name("parameters")
        assert listing is not None
        if any(c.type == "..." or c.type == "variadic_parameter_declaration" for c in listing.children):
            raise BuildError(f"{self.name} has a variable number of parameters, which a kernel cannot have")
        nodes = [c for c in listing.named_children if c.type.endswith("parameter_declaration")]
        return [] if len(nodes) == 1 and _text(nodes[0]).strip() == "void" else nodes

    def launch_bounds(self) -> tuple[str, ...]:
        for child in (*self.node.children, *self.declarator.children):
            if child.type == "launch_bounds":
                return tuple(_text(c) for c in child.named_children)
        return ()


@lru_cache(maxsize=64)
def _tree(source: str) -> Tree:
    import tree_sitter
    import tree_sitter_cuda

    language = tree_sitter.Language(tree_sitter_cuda.language())
    # The grammar knows no __cluster_dims__: blanked, so that offsets stay.
    data = re.sub(rb"\b__cluster_dims__\s*\([^()]*\)", lambda m: re.sub(rb"[^\n]", b" ", m.group()), source.encode())
    return tree_sitter.Parser(language).parse(data)


@lru_cache(maxsize=64)
def _functions(source: str) -> tuple[_Function, ...]:
    return tuple(_walk(_tree(source).root_node, (), False, ()))


def _walk(node: Node, scope: tuple[str, ...], extern_c: bool, template: tuple[str, ...]) -> Iterator[_Function]:
    if node.type in {"function_definition", "declaration"}:
        declarator = _function_declarator(node)
        if declarator is not None and any(c.type == "__global__" for c in node.children):
            name = declarator.child_by_field_name("declarator")
            assert name is not None
            yield _Function("::".join((*scope, _text(name))), node, declarator, extern_c, template)
        return
    if node.type == "linkage_specification":
        extern_c = True
    elif node.type == "namespace_definition":
        named = node.child_by_field_name("name")
        scope = (*scope, _text(named)) if named is not None else scope
    elif node.type == "template_declaration":
        parameters = node.child_by_field_name("parameters")
        template = tuple(_template_names(parameters)) if parameters is not None else ()
    for child in node.named_children:
        if child.type != "compound_statement":
            yield from _walk(child, scope, extern_c, template)


def _function_declarator(node: Node) -> Node | None:
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.type not in {"function_declarator"}:
        declarator = declarator.child_by_field_name("declarator")
    return declarator


def _template_names(parameters: Node) -> Iterator[str]:
    for parameter in parameters.named_children:
        if parameter.type == "comment":
            continue
        head = _text(parameter).split("=")[0]
        names = re.findall(r"[A-Za-z_]\w*", head)
        yield names[-1] if names else ""


def _param(node: Node, bound: Mapping[str, str], types: Mapping[str, str], kernel: str) -> Param:
    """Resolve one parameter's declaration. bound: template parameter -> argument in the name expression."""
    text = " ".join(_text(node).split())

    def unresolved(why: str) -> BuildError:
        return BuildError(f"{kernel}: cannot resolve parameter '{text}': {why}", SIGNATURE_HINT)

    declarator = node.child_by_field_name("declarator")
    pointers, name = 0, None
    while declarator is not None:
        if declarator.type in {"pointer_declarator", "array_declarator"}:
            pointers += 1
            declarator = declarator.child_by_field_name("declarator")
        elif declarator.type in {"identifier", "field_identifier"}:
            name = _text(declarator)
            break
        else:
            raise unresolved(f"a {declarator.type.replace('_', ' ')} cannot be passed to a kernel")
    if name is None:
        raise unresolved("it has no name")
    if node.has_error:
        raise unresolved("it does not parse")
    if pointers > 1:
        raise unresolved("a pointer to a pointer is not a tensor")
    type_node = node.child_by_field_name("type")
    assert type_node is not None
    qualifiers = {_text(c) for c in node.children if c.type == "type_qualifier"}
    spelled = _text(type_node)
    spelled = bound.get(spelled, spelled)
    kind = "pointer" if pointers else "scalar"
    if spelled in types:
        return Param(name, spelled, kind, "const" in qualifiers, bound=True)
    if spelled.removeprefix("::").removeprefix("std::") == "CUtensorMap" and not pointers:
        return Param(name, "CUtensorMap", "tensor_map", True)
    if _is_redefined(node, spelled):
        raise unresolved(f"the source redefines '{spelled}'")
    ctype = canonical(spelled)
    if ctype is None:
        raise unresolved(f"'{spelled}' is not a built-in CUDA type (a macro, an alias, a struct?)")
    if not pointers and scalar(ctype) is None:
        raise unresolved(f"a {ctype} cannot be passed by value; pass a float")
    return Param(name, ctype, kind, "const" in qualifiers)


def _is_redefined(node: Node, spelled: str) -> bool:
    """Whether a built-in name is given another meaning in the same source."""
    while node.parent is not None:
        node = node.parent
    word = re.escape(spelled.split()[-1])
    pattern = rf"^[ \t]*(#[ \t]*define[ \t]+{word}\b|using[ \t]+{word}[ \t]*=|typedef\b[^;\n]*\b{word}[ \t]*;)"
    return re.search(pattern, _text(node), re.M) is not None


def _split(arguments: str) -> Iterator[str]:
    """Template arguments, split at commas outside brackets."""
    depth, start = 0, 0
    for at, char in enumerate(arguments):
        depth += (char in "<(") - (char in ">)")
        if char == "," and not depth:
            yield arguments[start:at].strip()
            start = at + 1
    yield arguments[start:].strip()


def _text(node: Node) -> str:
    return (node.text or b"").decode()

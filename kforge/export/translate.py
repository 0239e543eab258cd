"""Translates ModelNew.forward and its helpers to plain functions: `forward` launches, `fake` only allocates.

Parameters, buffers and constants of the module become arguments and literals; launches go through a name, `kernels`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kforge.export.reading import CandidateCode
from kforge.export.subset import MAPS, RUNTIME, check
from kforge.export.text import literal

KERNELS = "kernels"


@dataclass(frozen=True)
class Translated:
    """Functions as source. state: dotted path of each tensor of the module that forward reads -> its argument's name.

    launching: forward and helpers; faking: the same without launches; recording: with every branch taken.
    runtime: which of prepared and philox they call. maps: whether they make tensor maps.
    """

    launching: str = field(repr=False)
    faking: str = field(repr=False)
    recording: str = field(repr=False)
    state: Mapping[str, str]
    inputs: tuple[str, ...]
    runtime: frozenset[str]
    maps: bool = False


@dataclass(frozen=True)
class Derivative:
    """A translated backward: of inputs, upstream gradients and state. code: the candidate's, with backward as forward.

    upstream: one name an output; gradients: as in `Pair`, one a result; needs: flags, name -> the result it asks for.
    """

    code: CandidateCode = field(repr=False)
    translated: Translated
    upstream: tuple[str, ...]
    gradients: tuple[str, ...]
    needs: Mapping[str, int]


def translate_derivative(
    code: CandidateCode, state: Mapping[str, Any], attributes: Mapping[str, Any]
) -> Derivative | None:
    """The candidate's backward as a function; None where it has none that can leave."""
    pair = code.pair
    if pair is None or pair.backward is None:
        return None
    own = replace(code, forward=pair.backward)
    return Derivative(own, translate(own, state, attributes), pair.upstream, pair.gradients, pair.needs)


def translate(code: CandidateCode, state: Mapping[str, Any], attributes: Mapping[str, Any]) -> Translated:
    """Translate the forward of a candidate.

    state: the reference's tensors by dotted path; attributes: its numbers, flags and strings likewise. ExportError
    with the line of what is not translated.
    """
    used = _used_helpers(code)
    for function in (code.forward, *used):
        check(code, function, code.kernels)
    inputs = tuple(a.arg for a in code.forward.args.args[1:] + code.forward.args.kwonlyargs)
    rewriter = _Rewriter(code, state, attributes, set(inputs) | _locals(code.forward))
    forward = rewriter.visit(rewriter.without_aliases(copy.deepcopy(code.forward), inputs))
    forward.args = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(name) for name in (*inputs, *rewriter.state.values())],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    forward.returns = None
    helpers = [rewriter.visit(copy.deepcopy(f)) for f in used]
    called = {n.func.id for f in (forward, *helpers) for n in ast.walk(f) if _is_call_of_name(n)}  # type: ignore[attr-defined]

    def source(change: type[ast.NodeTransformer] | None, name: str) -> str:
        functions = [*helpers, forward]
        if change is not None:
            functions = [change().visit(copy.deepcopy(f)) for f in functions]
        functions[-1] = _renamed(functions[-1], name)
        return "\n\n\n".join(ast.unparse(ast.fix_missing_locations(f)) for f in functions)

    return Translated(
        launching=source(None, "forward"),
        faking=source(_WithoutLaunches, "fake"),
        recording=source(_EveryBranch, "forward"),
        state=dict(rewriter.state),
        inputs=inputs,
        runtime=frozenset(called & RUNTIME),
        maps=bool(called & MAPS),
    )


def _renamed(function: ast.FunctionDef, name: str) -> ast.FunctionDef:
    changed = copy.copy(function)
    changed.name = name
    return changed


def _is_call_of_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def _locals(function: ast.FunctionDef) -> set[str]:
    return {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}


def _used_helpers(code: CandidateCode) -> list[ast.FunctionDef]:
    """Helpers that forward reaches, in the order of the module."""
    wanted, pending = set(), [code.forward]
    while pending:
        for node in ast.walk(pending.pop()):
            if isinstance(node, ast.Name) and node.id in code.helpers and node.id not in wanted:
                wanted.add(node.id)
                pending.append(code.helpers[node.id])
    return [f for name, f in code.helpers.items() if name in wanted]


class _Rewriter(ast.NodeTransformer):
    """self.x to arguments or literals, launches through `kernels`, module constants to literals."""

    def __init__(
        self, code: CandidateCode, state: Mapping[str, Any], attributes: Mapping[str, Any], taken: set[str]
    ) -> None:
        self.code, self.known, self.attributes, self.taken = code, state, attributes, taken
        self.state: dict[str, str] = {}

    def without_aliases(self, forward: ast.FunctionDef, inputs: tuple[str, ...]) -> ast.FunctionDef:
        """forward without `w = self.weight`: `w` is the argument then, by its path's name where that is free."""
        names = [n for n in ast.walk(forward) if isinstance(n, ast.Name)]
        stored = [n.id for n in names if isinstance(n.ctx, ast.Store)]
        kept: list[ast.stmt] = []
        for statement in forward.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value):
                    path = (_dotted(value) or "").removeprefix("self.")
                    known = path in self.known and path not in self.state
                    if known and stored.count(name) == 1 and name not in inputs:
                        wanted = path.replace(".", "_")
                        self.state[path] = chosen = name if wanted in self.taken else wanted
                        self.taken.add(chosen)
                        for n in names:
                            n.id = chosen if n.id == name else n.id
                        continue
            kept.append(statement)
        forward.body = kept
        return forward

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        path = _dotted(node)
        if path is None or not path.startswith("self."):
            self.generic_visit(node)
            return node
        path = path.removeprefix("self.")
        if path in self.known:
            return ast.copy_location(ast.Name(self.argument(path), ast.Load()), node)
        if path in self.attributes:
            return ast.copy_location(ast.parse(literal(self.attributes[path]), mode="eval").body, node)
        if isinstance(node.value, ast.Attribute):  # self.weight.shape: the tensor stands before the last name
            node.value = self.visit(node.value)
            return node
        raise self.code.refuse(
            node, f"self.{path} is no parameter, buffer or plain constant that the reference has by this name"
        )

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == "self":
            raise self.code.refuse(node, "self is used other than by attribute")
        if node.id in self.code.constants and isinstance(node.ctx, ast.Load):
            return ast.copy_location(ast.parse(literal(self.code.constants[node.id]), mode="eval").body, node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        launched = node.func.id if isinstance(node.func, ast.Name) else ""
        self.generic_visit(node)
        match node.func:
            case ast.Subscript(value=ast.Name(id=name)) if name in self.code.triton:
                node.func.value = ast.Attribute(ast.Name(KERNELS, ast.Load()), name, ast.Load())
                return node
        use = self.code.kernels.get(launched)
        if use is None:
            return node
        names = [p.name for p in use.definition.arguments]
        args = _spelled_out(node.args, len(names) - len(node.keywords))
        given = dict(zip(names, args, strict=False)) | {
            use.renamed.get(str(k.arg), str(k.arg)): k.value for k in node.keywords
        }
        if set(given) != set(names) or len(args) > len(names):
            raise self.code.refuse(node, f"{launched} takes {', '.join(names)}")
        function = ast.Attribute(ast.Name(KERNELS, ast.Load()), use.definition.name, ast.Load())
        return ast.copy_location(ast.Call(function, [given[n] for n in names], []), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.body = [self.visit(statement) for statement in node.body]
        node.args.defaults = [self.visit(d) for d in node.args.defaults]
        for argument in node.args.args:
            argument.annotation = None
        return node

    def argument(self, path: str) -> str:
        if path not in self.state:
            name = path.replace(".", "_")
            while name in self.taken:
                name += "_"
            self.taken.add(name)
            self.state[path] = name
        return self.state[path]


def _spelled_out(args: list[ast.expr], count: int) -> list[ast.expr]:
    """A launch's arguments with the items of its one `*name` in place of it; count: how many there are in all."""
    starred = [k for k, a in enumerate(args) if isinstance(a, ast.Starred)]
    match [args[k] for k in starred]:
        case [ast.Starred(value=ast.Name(id=name))]:
            (at,) = starred
            items = [ast.parse(f"{name}[{k}]", mode="eval").body for k in range(count - len(args) + 1)]
            return [*args[:at], *items, *args[at + 1 :]]
    return args


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _is_launch(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name == KERNELS
        case ast.Expr(value=ast.Call(func=ast.Subscript(value=ast.Attribute(value=ast.Name(id=name))))):
            return name == KERNELS
    return False


class _WithoutLaunches(ast.NodeTransformer):
    """Launches dropped, and the branches that held nothing else: the choice of a kernel changes no shape."""

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        return None if _is_launch(node) else node

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt] | None:
        node.body = _visited(self, node.body)
        node.orelse = _visited(self, node.orelse)
        if not node.body and not node.orelse:
            return None
        node.body = node.body or [ast.Pass()]
        return node


class _EveryBranch(ast.NodeTransformer):
    """Branches that launch are taken one after the other, and nothing is refused: to see what each kernel is given."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        body = _visited(self, node.body)
        # A branch that was left by a return is followed by what stands behind it.
        node.body = [s for k, s in enumerate(body) if not isinstance(s, ast.Return) or k == len(body) - 1]
        return node

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt] | None:
        launches = any(_is_launch(s) for s in ast.walk(node) if isinstance(s, ast.stmt))
        node.body = _visited(self, node.body)
        node.orelse = _visited(self, node.orelse)
        if launches:
            return [*node.body, *node.orelse] or None
        if not node.body and not node.orelse:
            return None
        node.body = node.body or [ast.Pass()]
        return node

    def visit_For(self, node: ast.For) -> ast.stmt | None:
        node.body = _visited(self, node.body)
        return node if node.body else None

    def visit_Raise(self, node: ast.Raise) -> None:
        return None


def _visited(visitor: ast.NodeTransformer, statements: list[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in statements:
        result = visitor.visit(statement)
        if isinstance(result, list):
            found += result
        elif result is not None:
            found.append(result)
    return found

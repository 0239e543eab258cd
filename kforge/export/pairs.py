"""Reads a candidate's autograd.Function: its forward becomes a plain function, its backward the operator's gradient.

What backward needs must be inputs or parameters: an operator saves nothing else. Where that does not hold the forward
leaves all the same, and `Pair.problem` says why the gradient does not.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.export.reading import CandidateCode

CTX_CALLS = ("save_for_backward", "mark_non_differentiable", "set_materialize_grads")


@dataclass(frozen=True)
class Pair:
    """A candidate's derivative. backward: as a method of ModelNew, of inputs and upstream gradients, None with a
    `problem`. upstream: names of the gradients that it takes, one an output. gradients: what each of its results
    belongs to: an input's name, or "self.<path>"; "" for what has none. needs: its flags, by the result that each asks
    for, as ctx.needs_input_grad does.
    """

    backward: ast.FunctionDef | None
    upstream: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    needs: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""


def without_function(code: CandidateCode, functions: Mapping[str, ast.ClassDef]) -> tuple[CandidateCode, Pair | None]:
    """(the code whose forward calls no autograd.Function, what became of its backward). None: it had no Function.

    ExportError for a use of a Function other than `return Function.apply(...)`.
    """
    calls = [n for n in ast.walk(code.forward) if _applied(n) in functions]
    if not calls:
        return code, None
    last = code.forward.body[-1]
    if len(calls) > 1 or not isinstance(last, ast.Return) or last.value is not calls[0]:
        raise code.refuse(
            calls[0], "an autograd.Function is translated where forward ends in `return Function.apply(...)`"
        )
    call = calls[0]
    assert isinstance(call, ast.Call)
    cls = functions[_applied(call)]
    methods = {n.name: n for n in cls.body if isinstance(n, ast.FunctionDef)}
    if "forward" not in methods or "backward" not in methods or "setup_context" in methods:
        raise code.refuse(cls, "an autograd.Function has a forward that takes ctx, and a backward")
    name = f"{cls.name}_forward"
    plain = _plain(methods["forward"], name)
    forward = copy.deepcopy(code.forward)
    returned = forward.body[-1]
    assert isinstance(returned, ast.Return) and isinstance(returned.value, ast.Call)
    returned.value.func = ast.copy_location(ast.Name(name, ast.Load()), call)
    changed = replace(code, forward=ast.fix_missing_locations(forward), helpers={**code.helpers, name: plain})
    return changed, _Backward(code, call, methods["forward"], methods["backward"]).pair()


def _applied(node: ast.AST) -> str:
    """The name before `.apply(...)`."""
    match node:
        case ast.Call(func=ast.Attribute(attr="apply", value=ast.Name(id=name))):
            return name
    return ""


def _is_ctx(node: ast.AST, ctx: str) -> bool:
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == ctx


def _keeps(statement: ast.stmt, ctx: str) -> bool:
    """Whether a statement does something besides leaving things on ctx."""
    if isinstance(statement, ast.Expr):
        return not _is_ctx(statement.value, ctx)
    if isinstance(statement, ast.Assign):
        return not all(isinstance(t, ast.Attribute) and _is_ctx(t, ctx) for t in statement.targets)
    return True


def _plain(method: ast.FunctionDef, name: str) -> ast.FunctionDef:
    """The Function's forward without ctx."""
    function = copy.deepcopy(method)
    ctx = function.args.args[0].arg
    function.name, function.decorator_list, function.args.args = name, [], function.args.args[1:]
    function.body = [s for s in function.body if _keeps(s, ctx)]
    return function


class _Backward:
    """Translates a backward to a method over inputs, upstream gradients and self."""

    def __init__(
        self, code: CandidateCode, call: ast.Call, forward: ast.FunctionDef, backward: ast.FunctionDef
    ) -> None:
        self.code, self.call, self.forward, self.backward = code, call, forward, backward
        self.ctx = backward.args.args[0].arg
        names = [a.arg for a in forward.args.args[1:]]
        self.given = dict(zip(names, call.args, strict=False))  # parameter of Function.forward -> expression of forward

    def pair(self) -> Pair:
        try:
            return self._pair()
        except _Unfit as why:
            return Pair(None, problem=str(why))

    def _pair(self) -> Pair:
        inputs = [a.arg for a in self.code.forward.args.args[1:]]
        if len(self.code.forward.body) > 2 or self.call.keywords or len(self.given) != len(self.call.args):
            raise _Unfit("forward does more than to call the autograd.Function with its inputs and parameters")
        gradients = []
        for value in self.call.args:
            match value:
                case ast.Name(id=name) if name in inputs:
                    gradients.append(name)
                case ast.Attribute() if ast.unparse(value).startswith("self."):
                    gradients.append(ast.unparse(value))
                case _:
                    gradients.append("")
        owned = [g for g in gradients if g]
        if len(set(owned)) < len(owned):
            raise _Unfit("forward gives one tensor to the autograd.Function twice")
        kept = self._kept()
        upstream = tuple(a.arg for a in self.backward.args.args[1:])
        if set(upstream) & set(inputs):
            raise _Unfit("backward calls an upstream gradient as forward calls an input")
        body: list[ast.stmt] = []
        taken = {n.id for n in ast.walk(self.backward) if isinstance(n, ast.Name)} | {*inputs, *upstream}
        attributes = _Attributes(self.ctx, kept[1], taken)
        for statement in copy.deepcopy(self.backward.body):
            body += self._statement(statement, kept[0], attributes)
        for node in (n for s in body for n in ast.walk(s)):
            if isinstance(node, ast.Name) and node.id == self.ctx:
                raise _Unfit(f"backward uses {self.ctx} in a way that is not translated (line {node.lineno})")
        returned = body[-1]
        results = (
            returned.value.elts if isinstance(returned, ast.Return) and isinstance(returned.value, ast.Tuple) else None
        )
        if results is None and isinstance(returned, ast.Return) and len(gradients) == 1:
            results = [returned.value]  # type: ignore[list-item]
            returned.value = ast.Tuple(results, ast.Load())  # type: ignore[arg-type]
        if results is None or len(results) != len(gradients):
            raise _Unfit("backward does not end in one return of as many gradients as forward has arguments")
        if any(not 0 <= k < len(gradients) for k in attributes.needs.values()):
            raise _Unfit("backward asks for the need of an argument that forward does not have")
        used = {n.id for s in body for n in ast.walk(s) if isinstance(n, ast.Name)}
        names = ["self", *(n for n in inputs if n in used), *upstream, *attributes.needs]
        function = copy.deepcopy(self.backward)
        function.name, function.decorator_list, function.body = "forward", [], body
        function.args = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
        return Pair(ast.fix_missing_locations(function), upstream, tuple(gradients), attributes.needs)

    def _kept(self) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """(what was saved, attributes of ctx), as expressions of ModelNew.forward."""
        ctx, saved = self.forward.args.args[0].arg, None
        attributes: dict[str, ast.expr] = {}
        changed = {n.id for n in ast.walk(self.forward) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

        def own(value: ast.expr) -> ast.expr:
            if isinstance(value, ast.Constant):
                return value
            if isinstance(value, ast.Name) and value.id in self.given and value.id not in changed:
                return self.given[value.id]
            raise _Unfit(f"it saves {ast.unparse(value)}, which is neither an input nor a parameter")

        for node in ast.walk(self.forward):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_ctx(node.func, ctx):
                if node.func.attr not in CTX_CALLS:
                    raise _Unfit(f"{ctx}.{node.func.attr}() is not translated")
                if node.func.attr == "save_for_backward":
                    saved = [own(v) for v in node.args]
            elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Attribute):
                attributes |= {target.attr: own(node.value)} if _is_ctx(target, ctx) else {}
        return saved or [], attributes

    def _statement(self, statement: ast.stmt, saved: list[ast.expr], attributes: _Attributes) -> list[ast.stmt]:
        match statement:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Attribute(attr="saved_tensors")):
                if len(names) != len(saved):
                    raise _Unfit("backward unpacks another number of tensors than forward saved")
                pairs = zip(names, saved, strict=True)
                return [_assigned(n, v, statement) for n, v in pairs if ast.unparse(n) != ast.unparse(v)]
        return [attributes.visit(statement)]


class _Attributes(ast.NodeTransformer):
    """ctx.x as what forward left there, ctx.needs_input_grad[k] as a flag of its own: `needs`, name -> k."""

    def __init__(self, ctx: str, attributes: Mapping[str, ast.expr], taken: set[str]) -> None:
        self.ctx, self.attributes, self.taken = ctx, attributes, taken
        self.needs: dict[str, int] = {}

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        match node:
            case ast.Subscript(
                value=ast.Attribute(attr="needs_input_grad", value=ast.Name(id=name)), slice=ast.Constant(value=int(k))
            ) if name == self.ctx:
                return ast.copy_location(ast.Name(self._flag(k), ast.Load()), node)
        self.generic_visit(node)
        return node

    def _flag(self, k: int) -> str:
        name = f"needs_{k}"
        while name in self.taken:
            name += "_"
        self.needs[name] = k
        return name

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == self.ctx and node.attr in self.attributes:
            return ast.copy_location(copy.deepcopy(self.attributes[node.attr]), node)
        self.generic_visit(node)
        return node


def _assigned(target: ast.expr, value: ast.expr, where: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Assign([target], copy.deepcopy(value)), where)


class _Unfit(Exception):
    """Why a backward is not exported."""

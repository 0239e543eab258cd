"""Counting calls: Python state that each call moves on, by which a candidate may answer its first calls alone rightly.

What is kept by key (a workspace for a shape) or replaced (the last result) stays as it is when a call is repeated; a
number that is added to, a list that grows and an iterator that moves on do not, and no kernel needs them.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TypeGuard

MOVING = {"append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "rotate"}
REGISTERING = {"register_buffer", "register_parameter", "Parameter", "Buffer"}
AskedOf = ast.Attribute | ast.Subscript

Function = ast.FunctionDef | ast.AsyncFunctionDef


def counted(tree: ast.Module, setup: Collection[str]) -> Iterator[tuple[ast.AST, str]]:
    """(place, what is counted) on the path of a call. setup: names of functions that are not on it."""
    tensors = _tensors(tree)
    owners: list[ast.Module | ast.ClassDef] = [tree]
    owners += [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for owner in owners:
        for function in owner.body:
            if isinstance(function, Function) and function.name not in setup:
                yield from _Counting(function, tensors, of_module=owner is tree).found()


def _tensors(tree: ast.Module) -> set[str]:
    """Attributes of the module that hold tensors: adding to those is arithmetic, which other rules look at."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node.func) in REGISTERING:
            names |= {a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)}
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            path = ast.unparse(node.value.func)
            if path.startswith(("torch.", "nn.")) or _last(node.value.func) in REGISTERING:
                names |= {t.attr for t in node.targets if isinstance(t, ast.Attribute)}
    return names


class _Counting:
    """One function, nested ones included."""

    def __init__(self, function: Function, tensors: Collection[str], of_module: bool) -> None:
        self.nodes, self.tensors = list(ast.walk(function)), tensors
        named = [n for n in self.nodes if isinstance(n, ast.Global) or (of_module and isinstance(n, ast.Nonlocal))]
        self.shared = {name for node in named for name in node.names}
        stored = {n.id for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        parts = [n.args for n in self.nodes if isinstance(n, (Function, ast.Lambda))]
        given = {a.arg for p in parts for a in (*p.posonlyargs, *p.args, *p.kwonlyargs, p.vararg, p.kwarg) if a}
        self.local = (stored | given) - self.shared - _kept_defaults(parts) - {"self"}

    def found(self) -> Iterator[tuple[ast.AST, str]]:
        for node in self.nodes:
            if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant) and self._lasts(node.target):
                yield node, ast.unparse(node.target)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
                terms = {_place(side) for side in (node.value.left, node.value.right)}
                numbers = any(isinstance(side, ast.Constant) for side in (node.value.left, node.value.right))
                for target in node.targets:
                    if numbers and ast.unparse(target) in terms and self._lasts(target):
                        yield node, ast.unparse(target)
            elif isinstance(node, ast.Call):
                moved = self._moved(node)
                if moved is not None and self._lasts(moved):
                    yield node, ast.unparse(moved)
            elif isinstance(node, ast.Attribute) and node.attr == "cache_info":
                yield node, ast.unparse(node.value)

    @staticmethod
    def _moved(call: ast.Call) -> ast.expr | None:
        """What next() or a method that grows or shrinks is asked of."""
        if isinstance(call.func, ast.Name) and call.func.id == "next" and call.args:
            return call.args[0]
        method = isinstance(call.func, ast.Attribute) and call.func.attr in MOVING
        return call.func.value if method and isinstance(call.func, ast.Attribute) else None

    def _lasts(self, target: ast.expr) -> bool:
        """Whether a value outlives the call: of a module, a class, a function or self, and no tensor of self."""
        path = target
        while _is_part(path):
            if isinstance(path, ast.Attribute) and isinstance(path.value, ast.Name) and path.value.id == "self":
                return path.attr not in self.tensors
            path = path.value
        if isinstance(path, ast.Call):  # of a function that remembers what it returned
            return isinstance(path.func, ast.Name) and path.func.id not in self.local and path.func.id not in BUILT
        if not isinstance(path, ast.Name):
            return False
        return (
            path.id in self.shared if target is path and isinstance(path.ctx, ast.Store) else path.id not in self.local
        )


BUILT = {"iter", "list", "tuple", "sorted", "reversed", "enumerate", "zip", "range", "map", "filter", "set", "dict"}


def _is_part(node: ast.expr) -> TypeGuard[AskedOf]:
    return isinstance(node, (ast.Attribute, ast.Subscript))


def _kept_defaults(parts: Collection[ast.arguments]) -> set[str]:
    """Parameters whose default is made once and may be changed."""
    found = set()
    for part in parts:
        positional = [*part.posonlyargs, *part.args]
        pairs = [*zip(positional[len(positional) - len(part.defaults) :], part.defaults, strict=True)]
        pairs += [(a, d) for a, d in zip(part.kwonlyargs, part.kw_defaults, strict=True) if d is not None]
        found |= {a.arg for a, d in pairs if isinstance(d, (ast.List, ast.Dict, ast.Set, ast.Call))}
    return found


def _place(term: ast.expr) -> str:
    """What is read, as it would be written to: `kept[key]` for kept.get(key, 0)."""
    if isinstance(term, ast.Call) and isinstance(term.func, ast.Attribute) and term.func.attr == "get" and term.args:
        return f"{ast.unparse(term.func.value)}[{ast.unparse(term.args[0])}]"
    return ast.unparse(term)


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")

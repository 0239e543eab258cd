"""What of a forward is translated: the statements, names and calls that may occur in it. Data, and one visitor.

The judge has decided what a candidate may compute; this decides only what can leave as one functional operator:
allocation, views, copies, shape arithmetic, branches, vendor calls, kernel launches, prepared weights.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from kforge.environment.allowlist import allowlist
from kforge.export.reading import CandidateCode

_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.If, ast.Return, ast.Raise, ast.Assert, ast.Pass)
_EXPRESSIONS = (
    *(ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.Constant, ast.Attribute, ast.Subscript),
    *(ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Dict, ast.Slice, ast.JoinedStr, ast.FormattedValue),
    *(ast.GeneratorExp, ast.ListComp),
)
BUILTINS = frozenset(
    (
        *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "isinstance", "len", "list"),
        *("map", "max", "min", "pow", "range", "repr", "reversed", "round", "slice", "sorted", "str", "sum", "tuple"),
        *("type", "zip", "ValueError", "IndexError", "TypeError", "RuntimeError", "NotImplementedError"),
    )
)
RUNTIME = frozenset({"prepared", "philox"})
MAPS = frozenset({"TensorMap"})  # how a kernel copies boxes of a tensor: an argument of a launch
TRITON = frozenset({"cdiv", "next_power_of_2"})  # of triton itself, on the way to a grid
CONTAINERS = frozenset({"append", "count", "extend", "get", "index", "insert", "items", "keys", "pop", "values"})


def names_of_torch() -> frozenset[str]:
    """Last parts of the calls that the translation passes on to torch."""
    passed = {"allocation", "views", "metadata", "copies", "vendor"}
    found = {name for name, category in allowlist().torch.items() if category in passed}
    facts = {"get_device_capability", "get_device_properties"}  # of the GPU, from which a grid is worked out
    return frozenset(found | facts | {"resolve_conj", "resolve_neg"})


def check(code: CandidateCode, function: ast.FunctionDef, kernels: Collection[str]) -> None:
    """ExportError with the line of the first thing in a function that is not translated."""
    if function.decorator_list:
        raise code.refuse(function.decorator_list[0], "a decorator is not translated")
    if function is not code.forward and not _launches(code, function, kernels):
        _LaunchFree(code, kernels, function).body(function.body)
        return
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise code.refuse(function, "*args, **kwargs and positional-only parameters are not translated")
    _Checker(code, kernels).body(function.body)


def _launches(code: CandidateCode, function: ast.FunctionDef, kernels: Collection[str]) -> bool:
    """Whether a function names a kernel or draws random numbers, itself or through helpers."""
    launching, seen, pending = {*kernels, *code.triton, *RUNTIME}, {function.name}, [function]
    while pending:
        names = {n.id for n in ast.walk(pending.pop()) if isinstance(n, ast.Name)}
        if names & launching:
            return True
        called = {name for name in names if name in code.helpers} - seen
        seen |= called
        pending += [code.helpers[name] for name in called]
    return False


class _Checker(ast.NodeVisitor):
    def __init__(self, code: CandidateCode, kernels: Collection[str]) -> None:
        self.code, self.kernels, self.torch = code, kernels, names_of_torch()
        self.deriving = False  # within the function of a `prepared`

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if not isinstance(statement, _STATEMENTS) and not self.is_counted(statement):
                raise self.code.refuse(statement, f"'{_word(statement)}' is not translated")
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.body(node.body)
        self.body(node.orelse)

    def is_counted(self, node: ast.stmt) -> bool:
        """A loop whose rounds stand in the text, such as `for axis in (1, 3, 2, 0)`, and that launches nothing."""
        if not isinstance(node, ast.For) or node.orelse or not _is_literal(node.iter):
            return False
        calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call)]
        names = {f.value if isinstance(f, ast.Subscript) else f for f in calls}
        launching = {*self.kernels, *self.code.triton, *self.code.helpers}  # a helper may launch
        return not any(isinstance(n, ast.Name) and n.id in launching for n in names)

    def visit_For(self, node: ast.For) -> None:
        self.target(node.target)
        self.visit(node.iter)
        self.body(node.body)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.target(target)
        if isinstance(node.value, ast.Lambda) and self.code.triton:  # a grid of its constants
            self.visit(node.value.body)
            return
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.target(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.target(node.target)
        self.visit(node.value)

    def target(self, node: ast.expr) -> None:
        """Local names only: an attribute or an element that is assigned would be a side effect."""
        if isinstance(node, ast.Tuple | ast.List):
            for element in node.elts:
                self.target(element)
        elif isinstance(node, ast.Starred):
            self.target(node.value)
        elif not isinstance(node, ast.Name):
            raise self.code.refuse(node, "assigning to an attribute or an element is not translated")

    def visit_Call(self, node: ast.Call) -> None:
        self.callee(node)
        if isinstance(node.func, ast.Subscript):  # the grid of a Triton kernel
            grid = node.func.slice
            self.visit(grid.body if isinstance(grid, ast.Lambda) else grid)
        if isinstance(node.func, ast.Attribute):
            self.visit(node.func.value)
        for argument in node.args:
            if isinstance(argument, ast.Lambda) and self.is_runtime(node):
                self.deriving = True  # once a weight, by any of torch's operators, as the judge lets it
                self.visit(argument.body)
                self.deriving = False
            else:
                self.visit(argument)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self.code.refuse(node, "** is not translated")
            self.visit(keyword.value)

    def is_runtime(self, node: ast.Call) -> bool:
        return isinstance(node.func, ast.Name) and node.func.id in RUNTIME

    def callee(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name):
                known = BUILTINS | RUNTIME | MAPS | set(self.kernels) | set(self.code.helpers)
                if name not in known:
                    raise self.code.refuse(node, f"a call of {name}() is not translated")
            case ast.Attribute(attr=name, value=ast.Name(id="math")):
                pass
            case ast.Attribute(attr=name, value=ast.Name(id="triton")) if name in TRITON and self.code.triton:
                pass
            case ast.Subscript(value=ast.Name(id=name)) if name in self.code.triton:
                pass
            case ast.Attribute(attr=name, value=ast.Name(id="self")):
                raise self.code.refuse(node, f"a call of self.{name}() is not translated")
            case ast.Attribute(attr=name):
                if name not in self.torch and not self.deriving:
                    raise self.code.refuse(node, f"a call of .{name}() is not translated")
            case _:
                raise self.code.refuse(node, "this call is not translated")

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr) and not isinstance(node, _EXPRESSIONS):
            raise self.code.refuse(node, f"'{_word(node)}' is not translated")
        super().generic_visit(node)


class _LaunchFree(_Checker):
    """A helper that launches nothing, such as one that works out strides: loops, lists and functions of its own too."""

    def __init__(self, code: CandidateCode, kernels: Collection[str], function: ast.FunctionDef) -> None:
        super().__init__(code, kernels)
        inner = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef)]
        self.inner = {n.name for n in inner}
        self.names = {a.arg for f in inner for a in ast.walk(f.args) if isinstance(a, ast.arg)}
        self.lists = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.For | ast.While | ast.FunctionDef):
                self.visit(statement)
            elif not isinstance(statement, ast.Break | ast.Continue):
                super().body([statement])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.decorator_list:
            raise self.code.refuse(node.decorator_list[0], "a decorator is not translated")
        self.body(node.body)

    def visit_For(self, node: ast.For) -> None:
        super().visit_For(node)
        self.body(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self.body(node.body)
        self.body(node.orelse)

    def target(self, node: ast.expr) -> None:
        """An element of a list of the helper's own, too: a name that it assigns, and that is given by nobody."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name in self.lists - self.names:
                self.visit(index)
            case _:
                super().target(node)

    def callee(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in self.inner:
                pass
            case ast.Attribute(attr=name) if name in CONTAINERS:
                pass
            case _:
                super().callee(node)


def _is_literal(node: ast.expr) -> bool:
    """A tuple or list of constants, or a choice between such."""
    if isinstance(node, ast.IfExp):
        return _is_literal(node.body) and _is_literal(node.orelse)
    return isinstance(node, ast.Tuple | ast.List) and all(isinstance(e, ast.Constant) for e in node.elts)


def _word(node: ast.AST) -> str:
    return type(node).__name__.lower()

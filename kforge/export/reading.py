"""Reads a candidate's module without running it: its Kernels, its helpers, and ModelNew's forward.

What a declaration holds must be literal (or a module-level name of a literal): anything else is refused with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kforge.errors import BuildError, ExportError
from kforge.export.names import rename
from kforge.export.pairs import Pair, without_function
from kforge.export.text import literal
from kforge.kernel.candidate import Candidate
from kforge.kernel.definition import Definition, define
from kforge.kernel.signature import parse_signature, read_signature


@dataclass(frozen=True)
class Source:
    """A CUDA source: its name in the package, its text, and the header packages it asks for."""

    name: str
    text: str = field(repr=False)
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelUse:
    """A Kernel of the module: the variable that holds it, its declaration and its source.

    renamed: parameters that have another name in the declaration than in the module (kforge.export.names).
    """

    variable: str
    definition: Definition
    source: Source
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CandidateCode:
    """A candidate's module, read. helpers: its functions; constants: module-level literals; forward: of ModelNew, with
    the forward of an autograd.Function in place of its call; pair: what became of that Function's backward. triton:
    text of each triton.jit function, decorators included.
    """

    module: str
    text: str = field(repr=False)
    kernels: Mapping[str, KernelUse]
    helpers: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, Any]
    forward: ast.FunctionDef
    pair: Pair | None = None
    triton: Mapping[str, str] = field(default_factory=dict)

    def refuse(self, node: ast.AST, why: str) -> ExportError:
        """The refusal of something in this module, with its line."""
        line = getattr(node, "lineno", 1)
        shown = self.text.splitlines()[line - 1].strip() if self.text else ""
        return ExportError(f"{self.module}:{line}: {why}: {shown}", "see docs/export.md, 'What is translated'")


def read_candidate_code(candidate: Candidate) -> CandidateCode:
    """Read a candidate. ExportError with the line of what is no literal declaration, or when there is no ModelNew."""
    text = candidate.files[candidate.module]
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ExportError(f"{candidate.module}:{error.lineno}: syntax error: {error.msg}") from error
    reader = _Reader(candidate, text)
    for node in tree.body:
        reader.statement(node)
    if reader.forward is None:
        raise ExportError(f"{candidate.module} defines no class ModelNew with a forward")
    if not reader.kernels and not reader.triton:
        raise ExportError(
            f"{candidate.module} has neither a kforge Kernel nor a triton.jit kernel",
            "Helion and load_inline candidates are not exported",
        )
    if reader.kernels and reader.triton:
        raise ExportError(f"{candidate.module} mixes Kernels with Triton kernels", "export one of them at a time")
    code = CandidateCode(candidate.module, text, reader.kernels, reader.helpers, reader.constants, reader.forward)
    code, pair = without_function(replace(code, triton=reader.triton), reader.functions)
    return replace(code, pair=pair)


_NOTHING = next(n for n in ast.walk(ast.parse("def forward(): pass")) if isinstance(n, ast.FunctionDef))


class _Reader:
    def __init__(self, candidate: Candidate, text: str) -> None:
        self.candidate = candidate
        self.code = CandidateCode(candidate.module, text, {}, {}, {}, _NOTHING)
        self.kernels: dict[str, KernelUse] = {}
        self.modules: dict[str, Source] = {}
        self.helpers: dict[str, ast.FunctionDef] = {}
        self.constants: dict[str, Any] = {}
        self.functions: dict[str, ast.ClassDef] = {}  # autograd.Functions
        self.triton: dict[str, str] = {}
        self.forward: ast.FunctionDef | None = None

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef(name=name, decorator_list=[*_, last]) if _is_jit(last):
                first = min(d.lineno for d in node.decorator_list)
                self.triton[name] = "\n".join(self.code.text.splitlines()[first - 1 : node.end_lineno])
            case ast.FunctionDef(name=name):
                self.helpers[name] = node
            case ast.ClassDef(name="ModelNew"):
                methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
                self.forward = methods.get("forward")
            case ast.ClassDef(name=name, bases=[base]) if ast.unparse(base).rpartition(".")[2] == "Function":
                self.functions[name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.assignment(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self.assignment(name, value)
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.ClassDef():
                pass
            case _:
                raise self.code.refuse(node, "not translated at module level")

    def assignment(self, name: str, value: ast.expr) -> None:
        match value:
            case ast.Call(func=ast.Name(id="Kernel") | ast.Attribute(attr="Kernel")):
                self.kernels[name] = self.kernel(name, value, None)
            case ast.Call(func=ast.Name(id="Module") | ast.Attribute(attr="Module")):
                self.modules[name] = self.module(value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr="kernel")) if module in self.modules:
                self.kernels[name] = self.kernel(name, value, self.modules[module])
            case _:
                self.constants[name] = self.literal(value)

    def literal(self, node: ast.expr) -> Any:
        filled = _Names(self.constants).visit(node)
        try:
            return ast.literal_eval(filled)
        except (ValueError, TypeError) as error:
            raise self.code.refuse(node, "this is no literal") from error

    def arguments(self, call: ast.Call, names: tuple[str, ...]) -> dict[str, Any]:
        if any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args):
            raise self.code.refuse(call, "* and ** are not translated in a declaration")
        found = dict(zip(names, call.args, strict=False)) | {str(k.arg): k.value for k in call.keywords}
        return {
            key: Source("", "") if isinstance(v, ast.Name) and v.id in self.modules else self.literal(v)
            for key, v in found.items()
        } | {"_module": next((v.id for v in found.values() if isinstance(v, ast.Name) and v.id in self.modules), None)}

    def module(self, call: ast.Call) -> Source:
        given = self.arguments(call, ("source", "include", "compiler"))
        return self.source(call, given["source"], tuple(given.get("include", ())))

    def source(self, node: ast.AST, source: str, packages: tuple[str, ...]) -> Source:
        if packages:
            raise self.code.refuse(node, f"header package {', '.join(packages)} is not shipped with an export yet")
        if "\n" in source or "__global__" in source:
            number = len({k.source.name for k in self.kernels.values()})
            return Source(f"{self.candidate.module.removesuffix('.py')}_{number}.cu", source)
        if source not in self.candidate.files:
            raise self.code.refuse(node, f"no source {source!r} beside the module")
        return Source(source, self.candidate.files[source])

    def kernel(self, variable: str, call: ast.Call, module: Source | None) -> KernelUse:
        names = ("name",) if module else ("name", "source", "grid", "block", "shared")
        given = self.arguments(call, names)
        held = given.pop("_module")
        if module is None:
            module = self.modules[held] if held else self.source(call, given["source"], ())
        name, types = given.pop("name"), given.get("types") or {}
        given.pop("source", None)
        text = given.pop("signature", None)
        try:
            signature = (
                parse_signature(text, name, types) if text else read_signature(module.text, name, types, module.name)
            )
            signature, given, renamed = rename(signature, given)
            definition = define(name, signature, **{**_DEFAULTS, **given})
        except BuildError as error:
            raise self.code.refuse(call, error.message) from error
        return KernelUse(variable, definition, module, renamed)


def has_triton(text: str) -> bool:
    """Whether a module holds kernels of Triton's. False for what is no Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(n, ast.FunctionDef) and any(map(_is_jit, n.decorator_list)) for n in body)


def _is_jit(decorator: ast.expr) -> bool:
    """triton.jit, with or without arguments."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function) in ("triton.jit", "jit")


_DEFAULTS: dict[str, Any] = {
    "grid": 1,
    "block": 256,
    "shared": 0,
    "cluster": None,
    "cooperative": False,
    "constants": {},
    "types": {},
    "tune": {},
    "require": {},
    "tuned": (),
    "workspace": None,
    "zeroed": False,
    "writes": (),
    "strided": (),
}


class _Names(ast.NodeTransformer):
    """Module-level constants in place of their names."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self.constants = constants

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.constants:
            return ast.copy_location(ast.parse(literal(self.constants[node.id]), mode="eval").body, node)
        return node

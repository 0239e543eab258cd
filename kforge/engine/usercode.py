"""What of op.py a candidate keeps: imports, the constructor, and the helpers that the constructor needs.

Submodules stay, since they hold the parameters under their names; their computing is replaced by the kernels.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field


@dataclass
class UserCode:
    """Parts of op.py as source text. signature: of forward (or the function), `self` first."""

    imports: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    head: str = "class ModelNew(nn.Module):"
    members: list[str] = field(default_factory=list)
    signature: str = "self"
    uses_nn: bool = True


def read_user_code(source: str, class_name: str | None, function_name: str = "reference") -> UserCode:
    """Parts of op.py for form (a) (`class_name`) or for a function's form (None)."""
    tree = ast.parse(source)
    tops = {name: node for node in tree.body for name in _defines(node)}
    code = UserCode()
    if class_name is None:
        function = tops.get(function_name)
        needed = _names(function.args) if isinstance(function, ast.FunctionDef) else set()
        if isinstance(function, ast.FunctionDef):
            code.signature = _signature(function, add_self=True)
        _pull(tree, tops, needed, source, code, skip={function_name})
        return code
    cls = tops.get(class_name)
    assert isinstance(cls, ast.ClassDef)
    methods = {n.name: n for n in cls.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))}
    wanted = _reachable(methods, "__init__")
    kept = [
        n
        for n in cls.body
        if (isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name in wanted)
        or isinstance(n, (ast.Assign, ast.AnnAssign))
    ]
    needed = {name for node in [*kept, *cls.bases, *cls.keywords] for name in _names(node)}
    forward = methods.get("forward")
    if isinstance(forward, ast.FunctionDef):
        code.signature = _signature(forward, add_self=False)
        needed |= _names(forward.args)
    bases = ", ".join(ast.get_source_segment(source, b) or "" for b in cls.bases)
    code.head = f"class ModelNew({bases}):"
    code.members = [_text(source, n).replace(f"super({class_name}", "super(ModelNew") for n in kept]
    _pull(tree, tops, needed, source, code, skip={class_name})
    return code


def _pull(
    tree: ast.Module, tops: dict[str, ast.stmt], needed: set[str], source: str, code: UserCode, skip: set[str]
) -> None:
    """Imports and top-level definitions that `needed` names lead to, in the order of op.py."""
    chosen: set[int] = set()
    queue = sorted(needed)
    seen: set[str] = set(skip)
    while queue:
        name = queue.pop()
        if name in seen or name not in tops:
            continue
        seen.add(name)
        node = tops[name]
        chosen.add(id(node))
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            queue.extend(_names(node))
    for node in tree.body:
        if id(node) not in chosen:
            continue
        text = _text(source, node)
        (code.imports if isinstance(node, (ast.Import, ast.ImportFrom)) else code.helpers).append(text)


def _text(source: str, node: ast.stmt) -> str:
    """A statement's lines, decorators included, with its indentation."""
    lines = source.splitlines()
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return "\n".join(lines[first - 1 : node.end_lineno])


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [(a.asname or a.name).split(".")[0] for a in node.names]
    if isinstance(node, ast.Assign):
        return [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _reachable(methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef], start: str) -> set[str]:
    found: set[str] = set()
    queue = [start]
    while queue:
        name = queue.pop()
        if name in found or name not in methods or name == "forward":
            continue
        found.add(name)
        queue += [n.attr for n in ast.walk(methods[name]) if isinstance(n, ast.Attribute)]
    return found


def _signature(function: ast.FunctionDef, add_self: bool) -> str:
    arguments = ast.unparse(function.args)
    return f"self, {arguments}" if add_self and arguments else "self" if add_self else arguments

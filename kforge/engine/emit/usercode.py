"""What of op.py a candidate keeps: imports, the constructor, and the helpers that the constructor needs.

Submodules stay, since they hold the parameters under their names; their computing is replaced by the kernels.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.engine.emit.text import fold

if TYPE_CHECKING:
    import torch


PLAIN_BASES = {"nn.Module", "torch.nn.Module", "Module"}


@dataclass
class UserCode:
    """Parts of op.py as source text. signature: of forward (or the function), `self` first."""

    imports: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    head: str = "class ModelNew(nn.Module):"
    members: list[str] = field(default_factory=list)
    signature: str = "self"
    uses_nn: bool = True
    fixed: bool = False  # the constructor takes only the captured arguments, so parameters have the captured sizes
    copied: bool = True  # False: the class inherits more than nn.Module, and its state is rebuilt by name


def read_user_code(
    source: str, class_name: str | None, function_name: str = "reference", arguments: Mapping[str, Any] | None = None
) -> UserCode:
    """Parts of op.py for form (a) (`class_name`) or for a function's form (None).

    arguments: what the constructor was called with; the kernels hold for these, and the copied one refuses others.
    """
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
    if any(ast.unparse(base) not in PLAIN_BASES for base in cls.bases):
        code.copied, code.fixed = False, True
        return code
    code.fixed = _holds_all(methods.get("__init__"), arguments or {})
    bases = ", ".join(ast.get_source_segment(source, b) or "" for b in cls.bases)
    code.head = f"class ModelNew({bases}):"
    for node in kept:
        text = _text(source, node)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__" and arguments:
            text = _guarded(text, node, arguments)
        code.members.append(text.replace(f"super({class_name}", "super(ModelNew"))
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


def rebuilt_state(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A constructor that gives a plain nn.Module the parameters and buffers of `module`, under their names.

    args, kwargs: what the reference is constructed with; others are refused, since the kernels hold for these.
    """
    lines = ["    def __init__(self, *args, **kwargs):"]
    lines += ['        """The reference\'s parameters and buffers by name; their values come from load_state_dict."""']
    if all(map(_is_literal, [*args, *kwargs.values()])):
        lines += fold(f"        if (args, kwargs) != ({args!r}, {kwargs!r}):")
        call = ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])
        lines += _refusal(" " * 8, f"these kernels were written for ModelNew({call})")
    lines += ["        super().__init__()"]
    for path, part in module.named_modules():
        if path:
            owner, _, name = path.rpartition(".")
            kind = "nn.ModuleList()" if any(child.isdigit() for child, _ in part.named_children()) else "nn.Module()"
            lines.append(f"        {_owner(owner)}.add_module({name!r}, {kind})")
    for path, parameter in module.named_parameters():
        owner, _, name = path.rpartition(".")
        made = f"torch.empty({tuple(parameter.shape)}, dtype={parameter.dtype})"
        lines.append(f"        {_owner(owner)}.register_parameter({name!r}, nn.Parameter({made}))")
    kept = set(module.state_dict())
    for path, buffer in module.named_buffers():
        owner, _, name = path.rpartition(".")
        made = f"torch.empty({tuple(buffer.shape)}, dtype={buffer.dtype})"
        persistent = "" if path in kept else ", persistent=False"
        lines.append(f"        {_owner(owner)}.register_buffer({name!r}, {made}{persistent})")
    return "\n".join(lines)


def _owner(path: str) -> str:
    return "self" + "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in path.split(".") if p)


def _guarded(text: str, init: ast.FunctionDef, arguments: Mapping[str, Any]) -> str:
    """The constructor with a check of its arguments: a number such as eps is part of the kernels."""
    held = _held(init, arguments)
    if not held:
        return text
    has_docstring = ast.get_docstring(init) is not None and len(init.body) > 1
    first = init.body[1 if has_docstring else 0]
    lines = text.splitlines()
    at = first.lineno - min([init.lineno, *(d.lineno for d in init.decorator_list)])
    pad = " " * first.col_offset
    names, values = ", ".join(held), ", ".join(map(repr, held.values()))
    test = f"{names} != {values}" if len(held) == 1 else f"({names}) != ({values})"
    call = ", ".join(f"{name}={value!r}" for name, value in held.items())
    lines[at:at] = [*fold(f"{pad}if {test}:"), *_refusal(pad, f"these kernels were written for {call}")]
    return "\n".join(lines)


def _refusal(pad: str, message: str, width: int = 100) -> list[str]:
    """The raise under an `if` at `pad`; a long message as literals that Python joins."""
    line = f"{pad}    raise ValueError({message!r})"
    if len(line) <= 120:
        return [line]
    parts = [""]
    for word in re.split(r"(?<= )", message):
        if parts[-1] and len(parts[-1]) + len(word) > width:
            parts.append("")
        parts[-1] += word
    return [f"{pad}    raise ValueError(", *(f"{pad}        {part!r}" for part in parts), f"{pad}    )"]


def _held(init: ast.FunctionDef, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that a check in the constructor can compare."""
    known = {a.arg for a in (*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs)}
    return {name: value for name, value in arguments.items() if name in known and _is_literal(value)}


def _holds_all(init: ast.FunctionDef | ast.AsyncFunctionDef | None, arguments: Mapping[str, Any]) -> bool:
    return not arguments or (isinstance(init, ast.FunctionDef) and len(_held(init, arguments)) == len(arguments))


def _is_literal(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_literal, value))
    return value is None or (isinstance(value, (bool, int, float, str)) and value == value)


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

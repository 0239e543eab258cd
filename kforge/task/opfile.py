"""Writing op.py from a recorded call: the class by import or by its source, constructor arguments, state and inputs.

The written file needs torch only. Beside it lies its data (torch.save, read with weights_only=True).
"""

from __future__ import annotations

import ast
import importlib
import os
from pathlib import Path
from typing import Any

from kforge.errors import TaskError
from kforge.task.files import pack

KEPT_BYTES = 256 << 20  # an input tensor larger than this is recorded as statistics
DRAWN = "__drawn__"  # key of such a tensor's shape, strides, dtype, mean, spread, least and greatest value
REFERENCE = "__import__"  # key of a value that op.py imports by name

_TEMPLATE = '''"""{qualname} as {script} calls it, recorded by `kforge capture {script} {target}`."""

import copy
from pathlib import Path

import torch
{imports}
{source}DATA = torch.load(Path(__file__).with_name({data!r}), map_location="cpu", weights_only=True)
MODE = {mode!r}


class Model({qualname}):
    """The recorded module: constructed as in the program, with the state it had there."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.load_state_dict(DATA["state"])
        buffers = dict(self.named_buffers())
        for name, value in DATA["buffers"].items():
            if name in buffers and buffers[name].shape == value.shape:
                buffers[name].copy_(value)


def get_init_inputs():
    return {init}


def recorded(i):
    """Call number i, as recorded: values, dtypes and strides."""
    return restore(copy.deepcopy(DATA["calls"][i]))


def restore(value):
    """Tensors that were too large to keep are drawn from their statistics."""
    if isinstance(value, dict):
        if {drawn!r} in value:
            return draw(*value[{drawn!r}])
        return {{key: restore(item) for key, item in value.items()}}
    return type(value)(restore(item) for item in value) if isinstance(value, (list, tuple)) else value


def draw(shape, strides, dtype, mean, spread, low, high):
    fresh = torch.empty_strided(shape, strides, dtype=dtype)
    if dtype.is_floating_point:
        return fresh.normal_(mean, spread).clamp_(low, high)
    return fresh.copy_(torch.randint(int(low), int(high) + 1, shape))


def redrawn():
    """The first call's shapes with new values of the same mean, spread and range."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, like, recorded(0))


def like(t):
    values = t[t.isfinite()].double()
    if t.is_complex() or values.numel() < 2:
        return t
    mean, spread, low, high = (f(values).item() for f in (torch.mean, torch.std, torch.min, torch.max))
    return draw(t.shape, t.stride(), t.dtype, mean, spread, low, high)


def get_inputs():
    return recorded(0)


def get_input_variants():
    return [{variants}]
'''


def encode(value: Any) -> Any:
    """A constructor argument as plain data; functions, classes and dtypes of importable modules by name.

    Raises TaskError for what can be neither stored nor imported.
    """
    import torch

    if value is None or isinstance(value, (bool, int, float, complex, str, torch.Tensor, torch.dtype)):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)([encode(item) for item in value]) if type(value) in (list, tuple) else _refuse(value)
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    module, name = _home(value)
    if callable(value) and module and name and _importable(module, name, value):
        return {REFERENCE: f"{module}:{name}"}
    return _refuse(value)


def _home(value: Any) -> tuple[str, str]:
    """Module and name under which a function or class can be imported; torch's built-ins do not say so themselves."""
    from torch.overrides import resolve_name

    public = (resolve_name(value) if callable(value) else None) or ""
    if "." in public:
        module, _, name = public.rpartition(".")
        return module, name
    return getattr(value, "__module__", None) or "", getattr(value, "__qualname__", None) or ""


def _refuse(value: Any) -> Any:
    raise TaskError(
        f"the module was constructed with a {type(value).__name__}, which cannot be stored;"
        " capture one of its submodules"
    )


def _importable(module: str, name: str, value: Any) -> bool:
    if module == "__main__" or "<" in name:
        return False
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def write_op(record: dict[str, Any], script: Path, target: str, op: Path) -> Path:
    """Write `op` and its data file; returns the data file's path."""
    module, qualname = record["class"]
    if "<" in qualname:
        raise TaskError(
            f"class {qualname} is defined inside a function and cannot be imported; move it to the top level"
        )
    imports, source = [], ""
    if module == "__main__":
        source = _closure(script, qualname)
    else:
        if _beside(module, script) and op.parent != script.parent:
            folder = os.path.relpath(script.parent, op.parent)
            imports.append(f"import sys\n\nsys.path.insert(0, str(Path(__file__).parent / {folder!r}))")
        imports.append(f"from {module} import {qualname.split('.')[0]}")
    data = op.with_suffix(".data")
    calls = [_summarise(_inputs(call, record["parameters"])) for call in record["calls"]]
    text = _TEMPLATE.format(
        qualname=qualname,
        script=script.name,
        target=target,
        imports="".join(f"{line}\n" for line in [*imports, *_references(record["init"])]),
        data=data.name,
        drawn=DRAWN,
        mode="train" if record["training"] else "eval",
        source=f"{source}\n\n\n" if source else "",
        init=_render_init(record["init"]),
        variants=", ".join(["redrawn", *(f"lambda: recorded({i})" for i in range(1, len(calls)))]),
    )
    op.parent.mkdir(parents=True, exist_ok=True)
    pack(
        {"init": record["init"], "state": record["state"], "buffers": record["buffers"], "calls": calls},
        data,
    )
    op.write_text(text)
    return data


def _beside(module: str, script: Path) -> bool:
    top = script.parent / module.split(".")[0]
    return top.is_dir() or top.with_suffix(".py").is_file()


def _summarise(value: Any) -> Any:
    """Inputs with large tensors replaced by their statistics."""
    import torch

    if isinstance(value, dict):
        return {key: _summarise(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_summarise(item) for item in value])
    if not isinstance(value, torch.Tensor) or value.numel() * value.itemsize <= KEPT_BYTES or value.is_complex():
        return value
    values = value[value.isfinite()].double()
    facts = (f(values).item() for f in (torch.mean, torch.std, torch.min, torch.max))
    return {DRAWN: [list(value.shape), list(value.stride()), value.dtype, *facts]}


def keeps_values(record: dict[str, Any]) -> bool:
    """Every input of the first call is small enough to be recorded value by value."""
    import torch

    call = record["calls"][0]
    leaves = torch.utils._pytree.tree_leaves((call["args"], call["kwargs"]))
    return all(t.numel() * t.itemsize <= KEPT_BYTES for t in leaves if isinstance(t, torch.Tensor))


def _inputs(call: dict[str, Any], names: list[str]) -> Any:
    """A list when all are positional, else a dict with the positional ones under their parameters' names."""
    args, kwargs = call["args"], call["kwargs"]
    if not kwargs:
        return list(args)
    if len(args) > len(names):
        raise TaskError("the module was called with *args and keywords at once, which get_inputs cannot express")
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _references(init: Any) -> list[str]:
    """Import lines for the arguments that are functions or classes."""
    modules = sorted({value.split(":")[0] for value in _walk_references(init)})
    return [f"import {module}" for module in modules if module != "torch"]


def _walk_references(value: Any) -> list[str]:
    if isinstance(value, dict):
        if set(value) == {REFERENCE}:
            return [value[REFERENCE]]
        value = list(value.values())
    return [name for item in value for name in _walk_references(item)] if isinstance(value, (list, tuple)) else []


def _render_init(init: Any) -> str:
    return f"[{_render(init[0], 'DATA[' + repr('init') + '][0]')}, {_render(init[1], 'DATA[' + repr('init') + '][1]')}]"


def _render(value: Any, place: str) -> str:
    """A constructor argument as source; tensors are taken from the data file."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{place}.clone()"
    if isinstance(value, dict):
        if set(value) == {REFERENCE}:
            return str(value[REFERENCE]).replace(":", ".")
        return "{" + ", ".join(f"{k!r}: {_render(v, f'{place}[{k!r}]')}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        items = [_render(item, f"{place}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, list):
            return f"[{', '.join(items)}]"
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return f'float("{value}")' if isinstance(value, float) and value in (float("inf"), float("-inf")) else repr(value)


def _closure(script: Path, qualname: str) -> str:
    """The source of a class and of the top-level statements of its script that it uses, in the script's order."""
    source = script.read_text()
    body = ast.parse(source).body
    wanted, chosen = [qualname.split(".")[0]], set()
    while wanted:
        name = wanted.pop()
        for i, statement in enumerate(body):
            if i not in chosen and name in _bound(statement):
                chosen.add(i)
                wanted += sorted({n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} - {name})
    lines, text, before = source.splitlines(), "", None
    for i in sorted(chosen):
        statement = body[i]
        start = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        block = "\n".join(lines[start - 1 : statement.end_lineno])
        if block == "import torch":  # the template has it
            continue
        definition = isinstance(statement, (ast.ClassDef, ast.FunctionDef))
        text += "" if before is None else "\n\n\n" if definition or before else "\n"
        text += block
        before = definition
    return text


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a top-level statement binds."""
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {n.id for target in targets if target is not None for n in ast.walk(target) if isinstance(n, ast.Name)}

"""A runnable example of an exported package, for its README: the task's own names, shapes and dtypes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kforge.export.text import default, literal

if TYPE_CHECKING:
    from kforge.export.package import Export

DEVICE = 'device = "cuda" if torch.cuda.is_available() else "cpu"  # on the CPU the reference computes it'
_MOST = 1 << 26  # elements of an example's inputs; a larger task's example has the smallest sizes of its domain


def usage(export: Export) -> str:
    """Python that makes inputs, calls the function or the layer, and shows what comes back."""
    names = [n for n in (export.function or export.layer,) if n]
    given = _given(export)
    drawn = {name: _drawn(value, export.example.get(name)) for name, value in given.items()}
    lines = ["import torch", f"from {export.package} import {', '.join(names)}"]
    if any(text is None for text in drawn.values()):
        lines.append(f"from {export.package}.reference import get_inputs")
    layer = export.function is None
    constructed, imported = _constructed(export) if layer else ("", False)
    if imported:
        lines.append(f"from {export.package}.reference import get_init_inputs")
    lines += ["", DEVICE, *_inputs(export, drawn), ""]
    called = _arguments(export, given)
    if layer:
        mode = {"train": ".train()", "eval": ".eval()", None: ""}[export.interface.mode]
        made = f"{export.layer}({constructed}).to(device){mode}"
        held = "the constructor, parameters and buffers of the reference" if export.interface.state else ""
        lines.append(f"layer = {made}{f'  # {held}' if held else ''}")
    call = f"{'layer' if layer else export.function}({called})"
    lines += _call(export, call)
    return "\n".join(lines)


def _call(export: Export, call: str) -> list[str]:
    """The call, with what comes back by name where it is one tensor or a plain tuple of them."""
    outputs = export.interface.outputs
    tree = export.interface.tree
    if tree == "t_[0]":
        return [f"y = {call}", "print(y.shape, y.dtype)"]
    if tree == "(" + ", ".join(f"t_[{k}]" for k in range(len(outputs))) + ")":
        names = [f"y{k}" for k in range(len(outputs))]
        return [f"{', '.join(names)} = {call}", "print(" + ", ".join(f"{n}.shape" for n in names) + ")"]
    return [f"result = {call}"]


def _given(export: Export) -> dict[str, Any]:
    """The first variant's inputs by forward's parameter names: real values where they can be drawn here."""
    from kforge.export.interface import bind, fake_inputs

    fakes = fake_inputs(export.task, 0, export.code)
    if fakes is not None and sum(v.numel() for v in fakes.values() if hasattr(v, "numel")) > _MOST:
        return fakes
    return bind(export.code.forward, export.task.make_call(0), export.task.path.name)


def _drawn(value: Any, least: tuple[int, ...] | None) -> str | None:
    """The call of torch that makes such a tensor on `device`; "" for what is no tensor, None for what has none."""
    import torch

    if not isinstance(value, torch.Tensor):
        return ""
    real = value.device.type == "cpu" and type(value) is torch.Tensor
    shape = list(value.shape) if real or least is None else list(least)
    sizes = ", ".join(map(str, shape)) if shape else "()"
    dtype = f", dtype={value.dtype}" if value.dtype is not torch.float32 else ""
    if value.is_floating_point():
        return f"torch.randn({sizes}{dtype}, device=device)"
    if value.dtype is torch.bool:
        return f"torch.rand({sizes}, device=device) < 0.5"
    if not real or value.is_complex() or not value.numel():
        return None
    low, high = int(value.min()), int(value.max())
    if value.dim() == 1 and value.numel() > 2 and low < high and bool((value[1:] >= value[:-1]).all()):
        return None  # offsets or sorted ids: any numbers will not do
    dtype = f", dtype={value.dtype}" if value.dtype is not torch.int64 else ""
    return f"torch.randint({low}, {high + 1}, {tuple(shape)}{dtype}, device=device)"


def _inputs(export: Export, drawn: Mapping[str, str | None]) -> list[str]:
    tensors = [name for name, text in drawn.items() if text != ""]
    if all(drawn[name] is not None for name in tensors):
        return [f"{name} = {drawn[name]}" for name in tensors]
    call = export.task.make_call(0)
    if call.kwargs and not call.args:
        lines = ["inputs = get_inputs()"]
        return lines + [f'{name} = inputs["{name}"].to(device)' for name in tensors if name in call.kwargs]
    order = [a.arg for a in export.code.forward.args.args[1:]]
    lines = ["inputs = get_inputs()"]
    return lines + [f"{name} = inputs[{order.index(name)}].to(device)" for name in tensors if name in order]


def _arguments(export: Export, given: Mapping[str, Any]) -> str:
    """The call's arguments: tensors by name, other values as they are, left out where they are the default."""
    args = export.code.forward.args
    defaults: dict[str, Any] = {}
    positional = args.args[1:]
    for a, d in zip(positional[len(positional) - len(args.defaults) :], args.defaults, strict=True):
        defaults[a.arg] = default(d, export.code.module)
    for a, given_default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if given_default is not None:
            defaults[a.arg] = default(given_default, export.code.module)
    named, parts = False, []
    only = {a.arg for a in args.kwonlyargs}
    for name, value in given.items():
        text = name if hasattr(value, "numel") else literal(value)
        if text != name and name in defaults and defaults[name] == value and type(defaults[name]) is type(value):
            named = True  # what follows the one left out goes by name
            continue
        parts.append(f"{name}={text}" if named or name in only or text != name else text)
    return ", ".join(parts)


def _constructed(export: Export) -> tuple[str, bool]:
    """The constructor's arguments as Python, and whether that takes the reference's get_init_inputs."""
    call = export.task.init_call()
    parts = [literal(v) for v in call.args] + [f"{k}={literal(v)}" for k, v in call.kwargs.items()]
    try:
        for value in (*call.args, *call.kwargs.values()):
            ast.literal_eval(repr(value))
    except (ValueError, SyntaxError):
        return ("*" if call.args else "**") + "get_init_inputs()", True
    return ", ".join(parts), False

"""The verified domain (domain.json), and what happens outside of it: the reference, said once, or an error."""

from __future__ import annotations

import json
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

DOMAIN = json.loads(Path(__file__).with_name("domain.json").read_text())
_said: set[str] = set()
_choice = DOMAIN["outside"]


class OutsideDomain(RuntimeError):
    """A call outside of the verified domain, after outside_domain("raise")."""


class Unjudged(RuntimeError):
    """These sizes would need a kernel that no case of the verification launched; the reference computes the call."""


def outside_domain(choice: str) -> None:
    """What a call outside of the verified domain does: "reference" (warns once per reason) or "raise"."""
    global _choice
    if choice not in ("reference", "raise"):
        raise ValueError(f"outside_domain takes 'reference' or 'raise', not {choice!r}")
    _choice = choice


def outside(inputs: dict[str, Any], state: dict[str, torch.Tensor], module: Any, unavailable: Any) -> str:
    """Why a call is outside of the verified domain; the empty string when it is inside.

    inputs: by parameter name; state: the module's tensors by path; module: for its plain constants, or None;
    unavailable(device index): why the kernels cannot run there, or the empty string.
    """
    tensors: dict[str, torch.Tensor] = {}
    for name, fact in DOMAIN["inputs"].items():
        value = inputs[name]
        if fact["kind"] == "tensor":
            if not isinstance(value, torch.Tensor):
                return f"{name} is no tensor"
            tensors[name] = value
        elif not _known(value, fact["values"]):
            return f"{name} = {value!r}; verified were {fact['values']}"
    dtypes = []
    for name, value in tensors.items():
        why = _tensor(name, value, DOMAIN["inputs"][name]["sizes"])
        if why:
            return why
        dtypes.append(str(value.dtype)[6:])
    if dtypes not in DOMAIN["dtypes"]:
        return f"dtypes {', '.join(dtypes)}; verified were {' or '.join(', '.join(d) for d in DOMAIN['dtypes'])}"
    if set(state) != set(DOMAIN["state"]):
        return "the module has other parameters or buffers than verified"
    for name, value in state.items():
        fact = DOMAIN["state"][name]
        why = _tensor(name, value, fact["sizes"])
        if why:
            return why
        if str(value.dtype)[6:] != fact["dtype"]:
            return f"{name} is {str(value.dtype)[6:]}; verified was {fact['dtype']}"
    everything = [*tensors.values(), *state.values()]
    device = everything[0].device
    for value in everything:
        if value.device != device:
            return "tensors are on several devices"
    if device.type not in ("cuda", "meta"):
        return f"tensors are on {device.type}"
    if module is not None:
        why = _module(module)
        if why:
            return why
    for shapes in DOMAIN["slower"]:
        if all(list(tensors[name].shape) == shape for name, shape in shapes.items()):
            return "these shapes were measured to be slower than the baseline"
    if device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        if not DOMAIN["autocast"]:
            return "autocast changes what the reference computes"
        for value in everything:
            if value.is_floating_point() and value.dtype != torch.float32:
                return "under autocast only float32 tensors keep the reference's meaning"
    return unavailable(device.index or 0) if device.type == "cuda" else ""


def differentiated(inputs: dict[str, Any], state: dict[str, torch.Tensor]) -> str:
    """Why gradients keep a call from an operator that changes its arguments; the empty string where none are wanted."""
    if torch.is_grad_enabled():
        for value in [*inputs.values(), *state.values()]:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                return "an operator that changes tensors in place has no gradients"
    return ""


def _known(value: Any, values: list[Any]) -> bool:
    return any(_same(value, v) for v in values)


def _same(value: Any, expected: Any) -> bool:
    return type(value) is type(expected) and (value == expected or (value != value and expected != expected))


def _tensor(name: str, value: torch.Tensor, sizes: list[list[int]]) -> str:
    if value.layout != torch.strided:
        return f"{name} is not a plain strided tensor"
    if value.dim() != len(sizes):
        return f"{name} has {value.dim()} dimensions; verified were {len(sizes)}"
    for d, (least, most) in enumerate(sizes):
        if value.shape[d] < least or value.shape[d] > most:
            return f"{name}.shape[{d}] = {value.shape[d]}; verified were {least} to {most}"
    return ""


def _module(module: torch.nn.Module) -> str:
    if DOMAIN["mode"] is not None and module.training != (DOMAIN["mode"] == "train"):
        return f"verified was {DOMAIN['mode']} mode"
    for path, expected in DOMAIN["attributes"].items():
        value: Any = module
        for part in path.split("."):
            value = getattr(value, part, None)
        if not _same(value, expected):
            return f"{path} = {value!r}; verified was {expected!r}"
    return ""


def fallback(why: str, reference: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The reference's answer to a call outside of the domain, or OutsideDomain."""
    if _choice == "raise":
        raise OutsideDomain(f"{DOMAIN['name']}: outside of the verified domain: {why}")
    if not torch.compiler.is_compiling() and why not in _said:
        _said.add(why)
        warnings.warn(f"{DOMAIN['name']}: the reference computes this call, not the kernel: {why}", stacklevel=3)
    return reference(*args, **kwargs)


_prepared: dict[int, tuple[Any, dict[Any, tuple[Any, Any]]]] = {}


def prepared(param: torch.Tensor, fn: Callable[[torch.Tensor], Any]) -> Any:
    """`fn(param)`, computed again only after `param` moved or was written (writes through .data are not seen)."""
    if type(param) not in (torch.Tensor, torch.nn.Parameter) or param.is_inference() or torch.compiler.is_compiling():
        return fn(param)
    state = (param.data_ptr(), param._version, param.dtype, param.device, param.shape, param.stride())
    key = id(param)
    entry = _prepared.get(key)
    if entry is None or entry[0]() is not param:
        entry = _prepared[key] = (weakref.ref(param, lambda _: _prepared.pop(key, None)), {})
    known = entry[1].get(fn.__code__)
    if known is None or known[0] != state:
        with torch.no_grad():
            known = entry[1][fn.__code__] = (state, fn(param))
    return known[1]


def philox(n: int, device: torch.device | str | None = None) -> torch.Tensor:
    """Two int64 on the device, (seed, offset), drawn from torch's generator by one torch op."""
    return torch.randint(-(2**63), 2**63 - 1, (2,), dtype=torch.int64, device=device or "cuda")


def flat(value: Any) -> list[torch.Tensor]:
    """The tensors of an output tree, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in flat(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in flat(item)]
    return []

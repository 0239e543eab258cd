"""Checks a call's arguments against a kernel's signature, before anything is built or launched.

Every refusal is a LaunchError that names the kernel and the parameter.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kforge.errors import LaunchError
from kforge.kernel.ctypes_table import DTYPE_TO_C, canonical, element, scalar
from kforge.kernel.definition import Definition
from kforge.kernel.overlap import extent, overlap
from kforge.kernel.signature import Param
from kforge.kernel.tensor_map import TensorMap


@dataclass(frozen=True)
class Checked:
    """What the checks found out. Mappings are by parameter name; device -1 is the CPU.

    extents: bytes a tensor spans. types: name -> C type. env: what launch expressions may read.
    """

    device: int
    addresses: Mapping[str, int]
    extents: Mapping[str, int]
    types: Mapping[str, str]
    env: Mapping[str, Any]


def check_arguments(definition: Definition, args: tuple) -> Checked:
    """Check number, types, dtypes, contiguity, devices, ranges, overlap and gradients of a call."""
    parameters = definition.arguments
    name = definition.name
    if len(args) != len(parameters):
        listing = ", ".join(p.name for p in parameters)
        raise LaunchError(f"{name} takes {len(parameters)} arguments ({listing}), {len(args)} were given")
    types = bind_types(definition, args)
    addresses: dict[str, int] = {}
    extents: dict[str, int] = {}
    env: dict[str, Any] = {f"sizeof {n}": element(c).size for n, c in types.items()}
    tensors: dict[str, torch.Tensor] = {}
    for parameter, value in zip(parameters, args, strict=True):
        where = f"{name}: argument '{parameter.name}'"
        if parameter.kind == "tensor_map":
            tensors[parameter.name] = check_map(where, value)
            addresses[parameter.name] = tensors[parameter.name].data_ptr()
            x = tensors[parameter.name]
            extents[parameter.name] = extent(x.shape, x.stride(), x.element_size())
            continue
        if parameter.kind == "scalar":
            env[parameter.name] = check_scalar(where, parameter, value, types)
        elif value is None:
            addresses[parameter.name], extents[parameter.name] = 0, 0
        else:
            _check_tensor(where, definition, parameter, value, types)
            tensors[parameter.name] = value
            addresses[parameter.name] = value.data_ptr()
            extents[parameter.name] = extent(value.shape, value.stride(), value.element_size())
    _check_overlap(definition, tensors, extents)
    return Checked(_device(name, tensors), addresses, extents, types, {**env, **addresses})


def check_map(where: str, value: object) -> torch.Tensor:
    """The tensor of a TensorMap argument, whose rules are checked by encoding it."""
    if not isinstance(value, TensorMap):
        raise LaunchError(f"{where} is a CUtensorMap and got {_describe(value)}", "pass TensorMap(x, box=(...))")
    x = value.x
    if not isinstance(x, torch.Tensor) or x.device.type not in {"cpu", "cuda"}:
        raise LaunchError(f"{where}: a tensor map needs a tensor with memory on cpu or cuda")
    if x.requires_grad and torch.is_grad_enabled():
        raise LaunchError(f"{where} requires grad, and a bare Kernel has no backward", "call it under torch.no_grad()")
    value.encode(where)
    return x


def bind_types(definition: Definition, args: tuple) -> dict[str, str]:
    """C types for `types=`: the element type of the tensor argument named, or a C type given literally."""
    positions = {p.name: i for i, p in enumerate(definition.arguments)}
    bound = {}
    for name, source in definition.types.items():
        if source not in positions:
            literal = canonical(source)
            if literal is None:
                raise LaunchError(f"{definition.name}: types['{name}'] = '{source}' is no parameter and no C type")
            bound[name] = literal
            continue
        value = args[positions[source]]
        value = value.x if isinstance(value, TensorMap) else value
        if not isinstance(value, torch.Tensor):
            raise LaunchError(f"{definition.name}: argument '{source}' gives {name} its type and must be a tensor")
        dtype = str(value.dtype).removeprefix("torch.")
        if dtype not in DTYPE_TO_C:
            raise LaunchError(f"{definition.name}: argument '{source}' is {dtype}, which has no C type for {name}")
        bound[name] = DTYPE_TO_C[dtype]
    return bound


def check_scalar(where: str, parameter: Param, value: object, types: Mapping[str, str]) -> int | float | bool:
    """A scalar as the Python number that is passed; ints are range-checked."""
    ctype = types.get(parameter.ctype, parameter.ctype)
    kind = scalar(ctype)
    if kind is None:
        raise LaunchError(f"{where} has type {ctype}, which cannot be passed by value; declare it float")
    if isinstance(value, torch.Tensor):
        raise LaunchError(f"{where} is a {ctype} and got a tensor", "pass a Python number (.item() waits for the GPU)")
    if ctype == "bool":
        if not isinstance(value, bool):
            raise LaunchError(f"{where} is a bool and got {_describe(value)}")
        return value
    if kind.is_integer:
        try:
            value = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise LaunchError(f"{where} is {_a(ctype)} and got {_describe(value)}") from None
        assert kind.low is not None and kind.high is not None
        if not kind.low <= value <= kind.high:
            hint = "declare it long long" if kind.bits < 64 else ""
            raise LaunchError(f"{where} = {value} does not fit {ctype} ({kind.low} to {kind.high})", hint)
        return value
    if not isinstance(value, numbers.Real | torch.SymInt | torch.SymFloat):
        raise LaunchError(f"{where} is a {ctype} and got {_describe(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise LaunchError(f"{where} = {value} does not fit {ctype}") from None
    if ctype == "float" and abs(number) > 3.4028235677973366e38 and abs(number) != float("inf"):
        raise LaunchError(f"{where} = {value} does not fit float")
    return number


def _check_tensor(
    where: str, definition: Definition, parameter: Param, value: object, types: Mapping[str, str]
) -> None:
    if not isinstance(value, torch.Tensor):
        raise LaunchError(
            f"{where} is a pointer and got {_describe(value)}", "pass a tensor, or None for a null pointer"
        )
    if value.layout != torch.strided:
        raise LaunchError(f"{where} has layout {value.layout}; only strided tensors have one address")
    target = element(types.get(parameter.ctype, parameter.ctype))
    dtype = str(value.dtype).removeprefix("torch.")
    is_written = parameter.name in definition.written
    fits = target.dtypes if is_written else (*target.dtypes, *target.read_only_dtypes)
    if target.dtypes and dtype not in fits:
        bound = f" ({parameter.ctype})" if parameter.bound else ""
        raise LaunchError(f"{where} is {dtype}, but {target.ctype}*{bound} takes {' or '.join(target.dtypes)}")
    if not value.is_contiguous() and parameter.name not in definition.strided:
        raise LaunchError(
            f"{where} is not contiguous (shape {tuple(value.shape)}, strides {value.stride()})",
            f"pass .contiguous(), or list it in strided=('{parameter.name}',) and pass its strides",
        )
    if value.is_conj() or value.is_neg():
        raise LaunchError(f"{where} is a lazy conjugate or negation; pass .resolve_conj().resolve_neg()")
    if value.numel() and not value.data_ptr():
        raise LaunchError(f"{where} has no memory (its storage holds {value.untyped_storage().nbytes()} bytes)")
    if value.data_ptr() % target.size:
        raise LaunchError(f"{where} is at an address that is no multiple of {target.size}, as {target.ctype}* needs")
    if value.requires_grad and torch.is_grad_enabled():
        raise LaunchError(
            f"{where} requires grad, and a bare Kernel has no backward",
            "call it under torch.no_grad(), or wrap it in a torch.autograd.Function",
        )


def _device(name: str, tensors: Mapping[str, torch.Tensor]) -> int:
    """The one device of all tensors, as an index; -1 is the CPU."""
    devices = {n: t.device for n, t in tensors.items()}
    first = next(iter(devices.items()), None)
    if first is None:
        return torch.cuda.current_device() if torch.cuda.is_available() else -1
    for other, device in devices.items():
        if device != first[1]:
            raise LaunchError(f"{name}: argument '{other}' is on {device}, but '{first[0]}' is on {first[1]}")
    if first[1].type not in {"cpu", "cuda"}:
        raise LaunchError(f"{name}: argument '{first[0]}' is on {first[1]}; kernels run on cuda and cpu tensors")
    return first[1].index if first[1].type == "cuda" else -1


def _check_overlap(definition: Definition, tensors: Mapping[str, torch.Tensor], extents: Mapping[str, int]) -> None:
    for name in definition.written & tensors.keys():
        for other in tensors:
            if other != name and tensors_overlap(tensors[name], extents[name], tensors[other], extents[other]):
                raise LaunchError(
                    f"{definition.name}: argument '{name}' is written and overlaps argument '{other}' in memory",
                    "write to a fresh tensor, or take one pointer for an in-place kernel",
                )


def tensors_overlap(a: torch.Tensor, a_extent: int, b: torch.Tensor, b_extent: int) -> bool:
    """Whether two tensors share a byte."""
    p, q = a.data_ptr(), b.data_ptr()
    if not (a.device == b.device and p < q + b_extent and q < p + a_extent):
        return False
    return overlap(p, (a.shape, a.stride(), a.element_size()), q, (b.shape, b.stride(), b.element_size()))


def _describe(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"


def _a(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"

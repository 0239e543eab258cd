"""A Kernel as one opaque operator, for torch.compile, FakeTensorMode and functionalisation."""

from __future__ import annotations

import itertools
import re
import weakref
from typing import TYPE_CHECKING, Any

import torch

from kforge.errors import LaunchError
from kforge.kernel.ctypes_table import scalar

if TYPE_CHECKING:
    from kforge.kernel.kernel import Kernel

_counter = itertools.count()


def register(kernel: Kernel) -> None:
    """Define `kforge::<name>_<n>` with the kernel's written pointers as mutated arguments, and set kernel._op."""
    definition = kernel.definition
    library = torch.library.Library("kforge", "FRAGMENT")
    name = f"{re.sub(r'[^0-9A-Za-z_]', '_', kernel.name)}_{next(_counter)}"
    items = []
    for i, parameter in enumerate(definition.arguments):
        if parameter.kind == "pointer":
            written = parameter.name in definition.written
            kind = f"Tensor(a{i}!)?" if written else "Tensor?"
        else:
            kind = _schema_type(definition.types.get(parameter.ctype, parameter.ctype))
        items.append(f"{kind} {_schema_name(parameter.name)}")
    library.define(f"{name}({', '.join(items)}) -> ()")
    alive = weakref.ref(kernel)  # the dispatcher holds the function: a strong reference would keep every kernel

    def call(*args: Any) -> None:
        target = alive()
        if target is None:
            raise LaunchError(f"{name}: its Kernel is gone, which a compiled function must keep alive")
        target(*args)

    library.impl(name, call, "CompositeExplicitAutograd")
    # register_fake would read the caller's source first: 20 to 40 ms in every new process
    library.impl(name, lambda *args: None, "Meta")
    kernel._op = getattr(torch.ops.kforge, name).default
    kernel._library = library


def must_dispatch(args: tuple) -> bool:
    """Whether an argument is a tensor without memory of its own, which only the dispatcher can handle."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return any(
        isinstance(a, torch.Tensor) and (isinstance(a, FakeTensor | FunctionalTensor) or a.is_meta or _is_wrapped(a))
        for a in args
    )


def _is_wrapped(tensor: torch.Tensor) -> bool:
    """Whether functionalisation or a function transform (vmap, grad) stands in for the tensor."""
    return torch._is_functional_tensor(tensor) or torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def _schema_type(ctype: str) -> str:
    kind: Any = scalar(ctype)
    if ctype == "bool":
        return "bool"
    return "SymInt" if kind is not None and kind.is_integer else "float"


def _schema_name(name: str) -> str:
    """Schemas reserve Python's words and a few names of their own."""
    return f"{name}_" if name in {"self", "out", "from", "in", "is", "lambda", "not", "or", "and", "def"} else name

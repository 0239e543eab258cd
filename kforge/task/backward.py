"""A forward/backward pair as one task: a reference's outputs and gradients, with the upstream gradients as inputs.

`gradient_task` derives it from a task; judge and candidate then both answer through `differentiating`, so every rule of
the judge (fp64 reference, distributions, layouts, aliasing, state) holds for gradients as it does for outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError, TaskError
from kforge.task.call import Call, call_leaves, positional_names, tree_leaves
from kforge.task.form import Form
from kforge.task.usercode import user_code

if TYPE_CHECKING:
    import torch

    from kforge.task.task import Task

ALL, FIRST, REST = "all", "first", "rest"
NEEDS = "gradients_needed"  # the last input of variants in which not every gradient is asked for


@dataclass(frozen=True)
class Gradients:
    """What of a reference is differentiated.

    inputs: name and leaf number, in pytree order of the inputs, of those whose gradient is asked for; parameters: by
    name; outputs: leaf numbers of the outputs that have an upstream gradient, upstream: its inputs' names, in order.
    count: how many inputs are positional (the upstream gradients follow them); None: all are keywords. own: variants
    of op.py; the later ones are `kinds`.
    """

    inputs: tuple[tuple[str, int], ...]
    parameters: tuple[str, ...]
    outputs: tuple[int, ...]
    upstream: tuple[str, ...]
    count: int | None
    own: int
    kinds: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of everything whose gradient is compared: inputs, then parameters."""
        return (*(name for name, _ in self.inputs), *self.parameters)

    def wanted(self, needs: str) -> frozenset[str]:
        """The names that `needs` asks for."""
        chosen = {ALL: self.names, FIRST: self.names[:1], REST: self.names[1:]}
        return frozenset(chosen[needs])

    def split(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Call, list[torch.Tensor], str]:
        """(the reference's own inputs, upstream gradients, what is needed) of a call of the derived task."""
        if self.count is None:
            own = {name: v for name, v in kwargs.items() if name not in (*self.upstream, NEEDS)}
            return Call((), own), [kwargs[name] for name in self.upstream], kwargs.get(NEEDS, ALL)
        last = self.count + len(self.upstream)
        needs = args[last] if len(args) > last else ALL
        return Call(args[: self.count]), list(args[self.count : last]), needs

    def as_dict(self) -> dict[str, Any]:
        """For a message to a candidate's process."""
        return asdict(self)

    @staticmethod
    def read(data: Mapping[str, Any]) -> Gradients:
        """The inverse of `as_dict`, from JSON too."""
        pairs = tuple((str(name), int(number)) for name, number in data["inputs"])
        lists = {key: tuple(data[key]) for key in ("parameters", "outputs", "upstream", "kinds")}
        return Gradients(inputs=pairs, count=data["count"], own=data["own"], **lists)


def gradient_task(task: Task) -> Task:
    """The task whose outputs are `(outputs, {name: gradient})` of the reference.

    Gradients of every floating input (of those that op.py marks with requires_grad, where it marks any) and of every
    parameter that requires one. Beside op.py's variants it has some of its own: an upstream gradient of stride 0, a
    strided one, and, where there are several gradients, only the first and all but the first of them asked for.
    TaskError where nothing can be differentiated.
    """
    if task.form in (Form.TRITON, Form.HELION):
        raise TaskError(
            f"{task.path.name}: a {task.form.value.capitalize()} kernel as the reference has no gradient",
            "write the reference in PyTorch",
        )
    makers = _Makers(task)
    gradients = makers.gradients
    kinds: tuple[str, ...] = ("upstream of stride 0", "strided upstream")
    kinds += ("only the first gradient", "all gradients but the first") if len(gradients.names) > 1 else ()
    gradients = makers.gradients = replace(gradients, kinds=kinds)
    made = [partial(makers.make, number, "") for number in range(task.n_variants)]
    made += [partial(makers.make, 0, kind) for kind in kinds]
    return replace(task, makers=tuple(made), gradients=gradients, plain=task)


def differentiating(module: torch.nn.Module, gradients: Gradients) -> torch.nn.Module:
    """`module` itself, answering calls of the derived task from now on.

    Its `own_forward` is what it answered with before; a compiled one may be set in its place.
    """
    base = type(module)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__.get("own_forward") or MethodType(base.forward, self)
        return differentiated(own, dict(self.named_parameters()), gradients, args, kwargs)

    forward.__signature__ = _signature(module.forward, gradients)  # type: ignore[attr-defined]
    members = {"forward": forward, "own_forward": None, "__module__": base.__module__}
    module.__class__ = type(base)(base.__name__, (base,), members)  # type: ignore[misc]
    return module


def _signature(function: Callable[..., Any], gradients: Gradients) -> inspect.Signature:
    """self, the inputs that calls give, the upstream gradients, what is needed."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if gradients.count is None:
        given = [p.name for p in inspect.signature(function).parameters.values()]
    else:
        given = positional_names(function)[: gradients.count]
        given += [f"input_{k}" for k in range(len(given), gradients.count)]  # of *args
    parameters = [inspect.Parameter(name, kind) for name in ("self", *given)]
    parameters += [inspect.Parameter(name, kind) for name in gradients.upstream]
    return inspect.Signature([*parameters, inspect.Parameter(NEEDS, kind, default=ALL)])


def differentiated(
    function: Callable[..., Any],
    parameters: Mapping[str, torch.Tensor],
    gradients: Gradients,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """`(outputs, {name: gradient})`: gradients are contiguous and share no memory with anything else; None where no
    gradient is needed or no output has one."""
    import torch
    from torch.utils import _pytree as pytree

    call, upstream, needs = gradients.split(args, kwargs)
    wanted = gradients.wanted(needs)
    leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
    ends: dict[str, torch.Tensor] = {}
    with torch.enable_grad(), _requiring(parameters, wanted):
        for name, number in gradients.inputs:
            leaves[number] = leaves[number].detach().requires_grad_(name in wanted)
            ends[name] = leaves[number]
        ends |= {name: parameters[name] for name in gradients.parameters if name in parameters}
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        outputs = function(*args, **kwargs)
        flat = pytree.tree_leaves(outputs)
        given = dict(zip(gradients.outputs, upstream, strict=True))
        pairs = [(flat[n], g) for n, g in given.items() if n < len(flat) and _fits(flat[n], g)]
        asked = [ends[name] for name in gradients.names if name in wanted and name in ends]
        found: list[torch.Tensor | None] = [None] * len(asked)
        if pairs and asked:
            ups = [g if g.shape == o.shape else g.reshape(o.shape) for o, g in pairs]
            found = list(torch.autograd.grad([o for o, _ in pairs], asked, ups, allow_unused=True))
            found = [torch.zeros_like(end) if g is None else g for g, end in zip(found, asked, strict=True)]
    outputs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), outputs)
    taken = [t for t in (*leaves, *upstream, *parameters.values(), *flat) if isinstance(t, torch.Tensor)]
    own = iter(_own(found, taken))
    return outputs, {name: next(own) if name in wanted and name in ends else None for name in gradients.names}


def _fits(output: Any, upstream: torch.Tensor) -> bool:
    import torch

    return isinstance(output, torch.Tensor) and output.requires_grad and output.numel() == upstream.numel()


def _own(found: list[torch.Tensor | None], taken: list[torch.Tensor]) -> Iterator[torch.Tensor | None]:
    """Contiguous gradients, copied where they are someone else's memory (an addition hands its upstream on)."""
    seen = {_storage(t) for t in taken}
    for gradient in found:
        if gradient is None:
            yield None
            continue
        fresh = gradient.detach().contiguous()
        if _storage(fresh) in seen:
            fresh = fresh.clone()
        seen.add(_storage(fresh))
        yield fresh


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@contextmanager
def _requiring(parameters: Mapping[str, torch.Tensor], wanted: frozenset[str]) -> Iterator[None]:
    """Parameters require gradients just as far as these are wanted; afterwards as before."""
    before = {name: p.requires_grad for name, p in parameters.items()}
    for name, p in parameters.items():
        if p.is_floating_point():
            p.requires_grad_(name in wanted)
    try:
        yield
    finally:
        for name, p in parameters.items():
            p.requires_grad_(before[name])


# --- makers


@dataclass
class _Makers:
    """Inputs of the derived task: a variant's own, upstream gradients of its outputs' shapes."""

    task: Task
    gradients: Gradients = field(init=False)
    _shapes: dict[tuple[Any, ...], list[tuple[tuple[int, ...], torch.dtype]]] = field(default_factory=dict)
    _module: Any = None

    def __post_init__(self) -> None:
        import torch

        task = self.task
        call = task.make_call()
        self._module = module = task.make_reference()
        leaves = [leaf for _, leaf in call_leaves(call)]
        marked = any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)
        inputs = tuple(
            (name, number)
            for number, (name, leaf) in enumerate(call_leaves(call, module.forward))
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and (leaf.requires_grad or not marked)
        )
        parameters = tuple(n for n, p in module.named_parameters() if p.requires_grad and p.is_floating_point())
        count = None if call.kwargs else len(call.args)
        self.gradients = Gradients(inputs, parameters, (), (), count, task.n_variants)
        outputs = [leaf for _, leaf in tree_leaves(self._run(call))]
        number = tuple(
            k for k, o in enumerate(outputs)
            if isinstance(o, torch.Tensor) and o.requires_grad and o.is_floating_point()
        )  # fmt: skip
        if not number:
            words = "no output of the reference depends on a floating input or parameter by a known derivative"
            raise TaskError(f"{task.path.name}: nothing to differentiate: {words}")
        taken = {*positional_names(module.forward), *call.kwargs}
        names = [f"grad_output_{k}" for k in number] if len(number) > 1 else ["grad_output"]
        names = [next(n for n in (name, f"upstream_{name}") if n not in taken) for name in names]
        self.gradients = replace(self.gradients, outputs=number, upstream=tuple(names))

    def make(self, variant: int, kind: str) -> Any:
        """Inputs of a variant as a maker returns them; kind: one of `Gradients.kinds`, "" for a plain one."""
        call = self.task.draw(variant)
        ups = [_upstream(shape, dtype, kind) for shape, dtype in self._output_shapes(call)]
        needs = {"only the first gradient": FIRST, "all gradients but the first": REST}.get(kind)
        if call.kwargs:
            more = dict(zip(self.gradients.upstream, ups, strict=True))
            return {**call.kwargs, **more, **({NEEDS: needs} if needs else {})}
        return [*call.args, *ups, *([needs] if needs else [])]

    def _output_shapes(self, call: Call) -> list[tuple[tuple[int, ...], torch.dtype]]:
        import torch

        leaves = [leaf for _, leaf in call_leaves(call)]
        key = tuple((tuple(v.shape), str(v.dtype)) if isinstance(v, torch.Tensor) else repr(v)[:80] for v in leaves)
        if key not in self._shapes:
            outputs = [leaf for _, leaf in tree_leaves(self._run(call))]
            self._shapes[key] = [(tuple(outputs[k].shape), outputs[k].dtype) for k in self.gradients.outputs]
        return self._shapes[key]

    def _run(self, call: Call) -> Any:
        """Outputs with their gradient's history; on fake tensors, which cost nothing, where these do."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        from kforge.task.capturing import trying_fakes
        from kforge.task.tracing import fake_type

        leaves = [leaf for _, leaf in call_leaves(call)]
        faked = next((leaf.fake_mode for leaf in leaves if isinstance(leaf, fake_type())), None)  # type: ignore[attr-defined]
        mode = faked or FakeTensorMode(allow_non_fake_inputs=True)
        try:
            with trying_fakes(self.task), mode, user_code(self.task.path, "fakes"):
                return self._marked(call, mode.from_tensor)
        except KforgeError:
            if faked is not None:
                raise
        with user_code(self.task.path, "the reference cannot be differentiated:"):
            return self._marked(call, lambda t: t)

    def _marked(self, call: Call, convert: Callable[[Any], Any]) -> Any:
        import copy

        import torch
        from torch.utils import _pytree as pytree

        from kforge.task.tracing import fake_type

        leaves, spec = pytree.tree_flatten((call.args, call.kwargs))
        numbers = {number for _, number in self.gradients.inputs}
        for k, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                fresh = leaf.detach() if isinstance(leaf, fake_type()) else convert(leaf.detach())
                leaves[k] = fresh.requires_grad_(k in numbers)
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        module = copy.deepcopy(self._module) if any(True for _ in self._module.buffers()) else self._module
        with self.task.conditions(module, call), torch.enable_grad():
            return module(*args, **kwargs)


def _upstream(shape: tuple[int, ...], dtype: torch.dtype, kind: str) -> torch.Tensor:
    """An upstream gradient; of a scalar output with one dimension, since numbers stay on the CPU."""
    import torch

    shape = shape or (1,)
    if kind == "upstream of stride 0":  # equal rows, not one number: that is the zero of a softmax's derivative
        return torch.randn(shape[-1] if len(shape) > 1 else 1, dtype=dtype).expand(shape)
    if kind == "strided upstream":  # as a slice of a concatenation's gradient
        return torch.randn((*shape[:-1], 2 * shape[-1]), dtype=dtype)[..., ::2]
    return torch.randn(shape, dtype=dtype)

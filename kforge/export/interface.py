"""What the exported operator takes and returns: arguments, state, constants, outputs, and the domain it was judged on.

Found by running the translated forward on fake tensors of every input variant; nothing is launched.
"""

from __future__ import annotations

import ast
import inspect
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.errors import ExportError
from kforge.export.judged import judged_mode, judged_sizes, judged_variants, size_range, slower_shapes
from kforge.export.reading import CandidateCode
from kforge.export.text import default, literal
from kforge.export.translate import KERNELS, Derivative, Translated

if TYPE_CHECKING:
    from kforge.task import Call, Task

SCALARS = (bool, int, float, str)
_SCHEMA = {bool: "bool", int: "SymInt", float: "float", str: "str"}


@dataclass(frozen=True)
class Argument:
    """One argument of the operator. sizes: (least, most) judged per dimension; values: of a scalar.

    role: "input" (a parameter of forward) or "state" (path: its dotted name in the module).
    """

    name: str
    schema: str
    role: str
    path: str = ""
    dtypes: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Interface:
    """arguments: of the operator, inputs first. constants: inputs that are the same in every variant, by name.

    attributes: plain constants of the module by dotted path. outputs: dtypes; tree: Python over `t_`, the flat outputs.
    calls: what each kernel was given, by name. signature: forward's parameters as source. mode: None where it plays no
    part.
    """

    arguments: tuple[Argument, ...]
    constants: Mapping[str, Any]
    attributes: Mapping[str, Any]
    outputs: tuple[str, ...]
    tree: str
    calls: Mapping[str, list[tuple[Any, ...]]] = field(repr=False)
    signature: str
    mode: str | None
    slower: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    dtypes: tuple[tuple[str, ...], ...] = ()  # of the tensor inputs, each combination that a variant has
    example: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # shapes of the smallest variant
    mutated: tuple[str, ...] = ()  # arguments that a call changes in place
    returned: tuple[int, ...] = ()  # which of forward's tensors the operator returns: not the inputs among them

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.role == "input")

    @property
    def state(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments if a.role == "state")


def _named(paths: Iterable[str], read: Mapping[str, str], taken: set[str]) -> dict[str, str]:
    """The argument's name of each tensor of the module: as the translated forward has it, else one that is free."""
    used = taken | set(read.values())
    found = {}
    for path in paths:
        name = read.get(path) or path.replace(".", "_")
        while path not in read and name in used:
            name += "_"
        used.add(name)
        found[path] = name
    return found


def module_facts(module: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tensors, plain constants) of the reference by dotted path; `training` is a constant like the others."""
    from kforge.task.state import named_state

    attributes = {}
    for prefix, child in module.named_modules():
        for name, value in vars(child).items():
            if not name.startswith("_") and (value is None or isinstance(value, SCALARS)):
                attributes[f"{prefix}.{name}" if prefix else name] = value
    return named_state(module), attributes


def read_interface(
    task: Task,
    code: CandidateCode,
    translated: Translated,
    reference: Any,
    report: Mapping[str, Any] | None,
    derivative: Derivative | None = None,
) -> Interface:
    """The interface of a translated forward. ExportError for what has no place in an operator's schema.

    derivative: its kernels' calls are recorded too.
    """
    tensors, attributes = module_facts(reference)
    calls = {v: fake_inputs(task, v, code) for v in range(task.n_variants)}
    judged = judged_variants(report)
    bound = [c for v, c in calls.items() if c is not None and (v in judged or report is None)]
    if not bound:
        raise ExportError(f"{task.path.name}: none of its input variants was judged")
    inputs, constants = _inputs(code, translated, bound, judged_sizes(report, list(_tensors(bound[0]))))
    named = _named(tensors, translated.state, {a.name for a in inputs})
    state = [
        Argument(
            name=named[path],
            schema="Tensor",
            role="state",
            path=path,
            dtypes=(_dtype(t),),
            sizes=tuple((n, n) for n in t.shape),
        )
        for path, t in tensors.items()
    ]
    recorded: dict[str, list[tuple[Any, ...]]] = {}
    seen = _Seen()
    for call in bound:
        seen = _record(code, translated, call, tensors, recorded)
        if derivative is not None:
            ups = {name: _like(t) for name, t in zip(derivative.upstream, seen.outputs, strict=True)}
            ups |= dict.fromkeys(derivative.needs, True)
            _record(derivative.code, derivative.translated, {**call, **ups}, tensors, recorded)
    return Interface(
        arguments=(*inputs, *state),
        constants=constants,
        attributes={k: v for k, v in attributes.items() if k != "training" and not k.endswith(".training")},
        outputs=tuple(map(_dtype, seen.outputs)),
        tree=seen.tree,
        calls=recorded,
        signature=_signature(code),
        mode=judged_mode(task, reference),
        slower=slower_shapes(calls, report),
        dtypes=tuple(dict.fromkeys(tuple(_dtype(v) for v in _tensors(c).values()) for c in bound)),
        example={n: tuple(v.shape) for n, v in _tensors(min(bound, key=_elements)).items()},
        mutated=tuple(a.name for a in (*inputs, *state) if a.name in seen.mutated),
        returned=tuple(seen.returned),
    )


def _tensors(values: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    return {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}


def _elements(values: Mapping[str, Any]) -> int:
    return sum(v.numel() for v in _tensors(values).values())


def fake_inputs(task: Task, variant: int, code: CandidateCode) -> dict[str, Any] | None:
    """A variant's inputs by forward's parameter names, tensors as (shape, strides, dtype) without memory."""
    from kforge.task.capturing import fake_call

    call = fake_call(task, variant, "cpu")
    if call is None:
        if variant and task.n_variants > 1:
            return None
        call = task.make_call(variant)
    return bind(code.forward, call, task.path.name)


def bind(forward: ast.FunctionDef, call: Call, where: str) -> dict[str, Any]:
    """A call's values by parameter name, defaults included."""
    args = forward.args
    parameters = [
        inspect.Parameter(
            a.arg,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=default(d, where) if d else inspect.Parameter.empty,
        )
        for a, d in zip(args.args[1:], _padded(args.defaults, len(args.args) - 1), strict=True)
    ] + [
        inspect.Parameter(
            a.arg, inspect.Parameter.KEYWORD_ONLY, default=default(d, where) if d else inspect.Parameter.empty
        )
        for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    try:
        bound = inspect.Signature(parameters).bind(*call.args, **call.kwargs)
    except TypeError as error:
        raise ExportError(f"{where}: its inputs do not fit forward: {error}") from error
    bound.apply_defaults()
    return dict(bound.arguments)


def _padded(defaults: Sequence[ast.expr], length: int) -> list[ast.expr | None]:
    return [*([None] * (length - len(defaults))), *defaults]


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _inputs(
    code: CandidateCode,
    translated: Translated,
    calls: Sequence[Mapping[str, Any]],
    judged: Mapping[str, tuple[tuple[int, int], ...]],
) -> tuple[list[Argument], dict[str, Any]]:
    import torch

    arguments, constants = [], {}
    for name in translated.inputs:
        values = [c[name] for c in calls]
        if all(isinstance(v, torch.Tensor) for v in values):
            if len({v.dim() for v in values}) > 1:
                raise ExportError(f"input {name} has another number of dimensions in each variant", "not exported yet")
            dtypes = tuple(dict.fromkeys(_dtype(v) for v in values))
            sizes = judged.get(name) or tuple(size_range(v.shape[d] for v in values) for d in range(values[0].dim()))
            arguments.append(Argument(name, "Tensor", "input", dtypes=dtypes, sizes=sizes))
        elif all(v is None or isinstance(v, SCALARS) for v in values):
            unique = list({(type(v), v): v for v in values}.values())
            if len(unique) == 1:
                constants[name] = unique[0]
            elif len({type(v) for v in unique}) == 1:
                arguments.append(Argument(name, _SCHEMA[type(unique[0])], "input", values=tuple(unique)))
            else:
                raise ExportError(f"input {name} has another type in each variant: {unique}")
        else:
            kind = type(next(v for v in values if not isinstance(v, torch.Tensor))).__name__
            raise ExportError(
                f"{code.module}: input {name} is a {kind}: an operator takes tensors, numbers, flags and strings",
                "lists and dicts of tensors are not exported yet",
            )
    return arguments, constants


def _like(tensor: Any) -> Any:
    """A tensor without memory of this one's shape, strides and dtype."""
    import torch

    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _record(
    code: CandidateCode,
    translated: Translated,
    call: Mapping[str, Any],
    tensors: Mapping[str, Any],
    recorded: dict[str, list[tuple[Any, ...]]],
) -> _Seen:
    """Run the translated forward on fakes; what kernels were given goes to `recorded`."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kforge.kernel.tensor_map import TensorMap

    with FakeTensorMode(), torch.no_grad():

        def fake(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)

        given = {n: fake(call[n]) for n in translated.inputs}
        state = {name: fake(tensors[path]) for path, name in translated.state.items()}
        storages = {t.untyped_storage()._cdata: n for n, t in (given | state).items() if isinstance(t, torch.Tensor)}
        mutated: set[str] = set()

        class Recorder:
            def __getattr__(self, name: str) -> Any:
                if name in code.triton:
                    return _Silent()
                definition = next(u.definition for u in code.kernels.values() if u.definition.name == name)

                def launch(*args: Any) -> None:
                    recorded.setdefault(name, []).append(args)
                    for parameter, value in zip(definition.arguments, args, strict=True):
                        value = value.x if isinstance(value, TensorMap) else value
                        written = parameter.name in definition.written and isinstance(value, torch.Tensor)
                        owner = storages.get(value.untyped_storage()._cdata) if written else None
                        if owner is not None:
                            mutated.add(owner)

                return launch

        for source in (translated.recording, translated.launching):
            kernels = Recorder() if source is translated.recording else _Silent()
            function = compiled(source, code.module, kernels)["forward"]
            versions = {n: t._version for n, t in (given | state).items() if isinstance(t, torch.Tensor)}
            try:
                with warnings.catch_warnings():  # alignment decides no shape: a fake tensor's address may be any
                    warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
                    result = function(*given.values(), *state.values())
            except (RuntimeError, TypeError, ValueError, NameError, IndexError, AttributeError) as error:
                raise ExportError(f"{code.module}: the translated forward fails on fake tensors: {error}") from error
            mutated |= {n for n, v in versions.items() if (given | state)[n]._version != v}
        seen = _Seen(mutated=mutated)
        seen.tree = _tree(result, seen, code, {id(t): n for n, t in given.items() if isinstance(t, torch.Tensor)})
        for k, out in enumerate(seen.outputs):
            owner = storages.get(out.untyped_storage()._cdata)
            if owner is not None:
                raise ExportError(
                    f"{code.module}: output {k} shares the storage of {owner}; an operator's outputs never alias inputs"
                )
        return seen


class _Silent:
    """Kernels that do nothing."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __getitem__(self, grid: Any) -> Any:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


def compiled(source: str, filename: str, kernels: Any) -> dict[str, Any]:
    """The namespace of translated functions, their launches going to `kernels`."""
    import torch
    from torch import nn

    from kforge.kernel.random import philox
    from kforge.kernel.tensor_map import TensorMap

    namespace: dict[str, Any] = {
        "torch": torch,
        "nn": nn,
        "F": nn.functional,
        "math": math,
        KERNELS: kernels,
        "prepared": lambda param, fn: fn(param),
        "philox": philox,
        "TensorMap": TensorMap,
    }
    if "triton." in source:
        import triton

        namespace["triton"] = triton
    exec(compile(source, f"<translated from {filename}>", "exec"), namespace)
    return namespace


@dataclass
class _Seen:
    """What a run on fakes returned (fresh tensors, their places among all tensors, the tree), and what it changed."""

    outputs: list[Any] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    tree: str = ""
    mutated: set[str] = field(default_factory=set)
    count: int = 0


def _tree(value: Any, seen: _Seen, code: CandidateCode, inputs: Mapping[int, str]) -> str:
    """The output tree as Python over `t_`, the list of its fresh tensors, and the names of inputs that are returned."""
    import torch

    if isinstance(value, torch.Tensor):
        seen.count += 1
        if id(value) in inputs:  # an input that was changed in place
            return inputs[id(value)]
        seen.outputs.append(value)
        seen.returned.append(seen.count - 1)
        return f"t_[{len(seen.outputs) - 1}]"
    if type(value) in (tuple, list):
        inner = [_tree(v, seen, code, inputs) for v in value]
        if isinstance(value, list):
            return f"[{', '.join(inner)}]"
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {_tree(v, seen, code, inputs)}" for k, v in value.items()) + "}"
    if value is None or isinstance(value, SCALARS):
        return literal(value)
    raise ExportError(
        f"{code.module}: forward returns a {type(value).__name__}", "tensors in tuples, lists and dicts only"
    )


def _signature(code: CandidateCode) -> str:
    arguments = ast.parse(ast.unparse(code.forward)).body[0].args  # type: ignore[attr-defined]
    for a in (*arguments.args, *arguments.kwonlyargs):
        a.annotation = None
    return ast.unparse(arguments)

"""Kernel: a CUDA kernel called from Python on torch tensors, checked, built on demand, launched on torch's stream."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.compiler import is_compiling

from kforge.errors import LaunchError
from kforge.kernel import hooks, native
from kforge.kernel.ctypes_table import canonical, element, scalar
from kforge.kernel.definition import WORKSPACE, Definition, Dim, define
from kforge.kernel.launchers import Geometry
from kforge.kernel.module import Module
from kforge.kernel.plan import Plan, make_plan
from kforge.kernel.prepare import Constant
from kforge.kernel.signature import Param, parse_signature, read_signature

MAX_PLANS = 4096
COMPILE_HINT = "call it from a function marked with torch.compiler.disable"
NO_BACKWARD = "call it under torch.no_grad(), or wrap it in a torch.autograd.Function"
_current_device = getattr(torch._C, "_cuda_getDevice", None)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_grad_enabled = torch.is_grad_enabled


class Kernel:
    """One __global__ function. Call it with one argument per parameter; it returns nothing.

    name: `extern "C"` name, plain name or name expression ("softmax<T, VEC>"). source: the .cu beside the calling
    file, the text itself, or a Module. grid, block, shared, cluster, workspace: launch-language expressions
    (kforge.kernel.expression). constants: `#define`d, or substituted in the name expression. types: {"T": "x"} binds
    T to x's element type. tune: values to try per constant. require: condition per constant; where it fails the
    constant takes its next value in tune order. tuned: [(condition, {constant: value}), ...], first match wins.
    workspace: bytes given to the kernel's parameter `workspace`, zeroed if asked. writes: const pointers that are
    written all the same. strided: pointers that may be non-contiguous. signature: the parameters, where reading the
    source cannot resolve them.

    Raises BuildError when constructed with names that do not fit, or when the source does not compile; LaunchError
    when called with arguments it cannot take. CPU tensors run in the emulator.
    """

    def __init__(
        self,
        name: str,
        source: str | Path | Module,
        grid: Dim = 1,
        block: Dim = 256,
        shared: str | int = 0,
        cluster: Dim | None = None,
        cooperative: bool = False,
        constants: Mapping[str, Constant] | None = None,
        types: Mapping[str, str] | None = None,
        tune: Mapping[str, Sequence[Constant]] | None = None,
        require: Mapping[str, str] | None = None,
        tuned: Iterable[tuple[str | bool, Mapping[str, Constant]]] = (),
        workspace: str | int | None = None,
        zeroed: bool = False,
        writes: Iterable[str] = (),
        strided: Iterable[str] = (),
        signature: str | None = None,
    ) -> None:
        self.module = source if isinstance(source, Module) else Module(source)
        types = types or {}
        if signature is not None:
            read = parse_signature(signature, name, types)
        else:
            read = read_signature(self.module.text, name, types, self.module.filename or "the source")
        self.definition: Definition = define(
            name,
            read,
            grid=grid,
            block=block,
            shared=shared,
            cluster=cluster,
            cooperative=cooperative,
            constants=constants or {},
            types=types,
            tune=tune or {},
            require=require or {},
            tuned=tuned,
            workspace=workspace,
            zeroed=zeroed,
            writes=tuple(writes),
            strided=tuple(strided),
        )
        self.module.add(self.definition)
        self.name = self.definition.name
        self._positions()
        # by overrides: plans by key, and for the native call their counterparts by its own keys, which are bytes
        self._all_plans: dict[tuple, dict[Any, Any]] = {}
        self._native: Callable[[dict, tuple], bool] | None = None
        self._native_key: Callable[[tuple], bytes | None] | None = None
        self._refresh()
        # (constants, types) that calls of this process resolved to, with the last geometry of each
        self.configurations: dict[tuple[tuple, tuple], Geometry] = {}
        self._op: Any = None
        self._library: Any = None
        from kforge.kernel.opaque import register

        register(self)
        hooks.remember(self)

    def __repr__(self) -> str:
        return f"Kernel({self.definition.signature})"

    def __deepcopy__(self, memo: dict) -> Kernel:
        return self  # a module that holds a Kernel may be copied; the kernel itself has no state

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Check, build if needed and launch. Arguments by position or by parameter name."""
        if is_compiling():
            return self._trace(self._positional(args, kwargs))
        if kwargs:
            args = self._positional(args, kwargs)
        if self._state is not hooks.state:
            self._refresh()
        if self._native is not None and self._native(self._plans, args):
            return None
        key: list[Any] = []
        values = list(args)  # as they are packed: tensors become addresses
        try:
            for i in self._maps:
                values[i] = args[i].encode(self._maps[i])
                key += (args[i].key, args[i].x.requires_grad and _grad_enabled())
            for i in self._pointers:
                tensor = args[i]
                if tensor is None:
                    key.append(None)
                    values[i] = 0
                    continue
                if tensor.__class__ is not torch.Tensor and tensor.__class__ is not torch.nn.Parameter:
                    raise TypeError
                values[i] = address = tensor.data_ptr()
                if not address:  # empty, or without memory (meta tensors give the CPU's device number too)
                    raise TypeError
                # lowest set bit up to 512: the alignment class that aligned() can tell apart
                alignment = address & -address & 1023
                grad = tensor.requires_grad and _grad_enabled()
                key.append((tensor.dtype, tensor.get_device(), tensor.numel(), tensor.is_contiguous(), alignment, grad))
            for i in self._views:
                tensor = args[i]
                if tensor is not None:
                    key += (tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg())
            for i in self._keyed:
                key.append(args[i])
            for i in self._by_class:
                key.append(args[i].__class__)
            if len(args) != self._arity:
                raise TypeError
            plan = self._plans.get(tuple(key))
        except (AttributeError, IndexError, RuntimeError, TypeError):  # unusual or wrong: the checks say which
            return self._slow(args)
        if plan is None:
            return self._slow(args, key)
        places = values
        if self._maps and plan.pairs:
            places = self._places(args, values)
        for a, b, a_extent, b_extent in plan.pairs:
            p, q = places[a], places[b]
            if p < q + b_extent and q < p + a_extent and (a, b, q - p) not in plan.disjoint:
                return self._slow(args, key)
        if plan.launch is not None:
            self._launch(plan, args, values)
        return None

    def _places(self, args: tuple, values: list[Any]) -> list[Any]:
        """`values` with the addresses that tensor maps point to in their stead."""
        places = list(values)
        for i in self._maps:
            places[i] = args[i].x.data_ptr()
        return places

    def _trace(self, args: tuple) -> None:
        """The call as an operator in a graph. Compiled code would drop the gradient without a word."""
        if self._maps:
            raise LaunchError(f"{self.name} takes tensor maps, which torch.compile cannot trace", COMPILE_HINT)
        for parameter, value in zip(self.definition.arguments, args, strict=False):
            if parameter.kind == "pointer" and value is not None and value.requires_grad and _grad_enabled():
                raise LaunchError(f"{self.name}: argument '{parameter.name}' requires grad", NO_BACKWARD)
        return self._op(*args)

    def _launch(self, plan: Plan, args: tuple, values: list[Any]) -> None:
        assert plan.launch is not None
        device = plan.device
        if plan.workspace is not None:
            scratch = plan.workspace()
            values.insert(self._workspace, scratch.data_ptr())
        if hooks.state.recorder is not None:
            hooks.state.recorder(self, plan, args, values)
        try:
            if device < 0:
                plan.launch(0, values)
            elif _current_device() == device:  # type: ignore[misc]
                plan.launch(_current_stream(device), values)  # type: ignore[misc]
            else:
                with torch.cuda.device(device):
                    plan.launch(_current_stream(device), values)  # type: ignore[misc]
        except (struct.error, TypeError, OverflowError) as error:
            # A value that packing refused: the checks say which. They are exact, so this does not go round.
            self._check(args)
            raise LaunchError(f"{self.name}: an argument could not be passed: {error}") from error
        counts, name = hooks.launched, self.name
        counts[name] = counts.get(name, 0) + 1
        if plan.native is not None:
            self._offer(plan, args)

    def _offer(self, plan: Plan, args: tuple) -> None:
        """After a call that Python made: the next one like it is the native call's."""
        if self._native_key is None:
            caller = self._caller()
            self._native, self._native_key = caller.launch, caller.key
        key = self._native_key(args)  # None: of a kind that stays Python's
        if key is not None:
            self._store(key, plan.native)

    def _caller(self) -> Any:
        module, _ = native.load()
        assert module is not None  # it has bound a plan
        kinds = ["k" if i in self._keyed else "c" for i in range(self._arity)]
        for i in self._pointers:
            kinds[i] = "v" if i in self._views else "p"
        return module.Caller("".join(kinds))

    def _store(self, key: Any, plan: Any) -> None:
        if len(self._plans) >= MAX_PLANS:
            self._plans.clear()
        self._plans[key] = plan

    def _slow(self, args: tuple, key: list[Any] | None = None) -> None:
        """The first call of its kind: every check, the choice of constants, the build, and a plan for the next."""
        from kforge.kernel.opaque import must_dispatch

        if must_dispatch(args):
            if len({a.is_meta for a in args if isinstance(a, torch.Tensor)}) > 1:
                self._check(args)  # refuses: an operator that computes nothing would leave real memory unwritten
            return self._op(*args)
        checked = self._check(args)
        state = hooks.state
        plan = self._plans.get(tuple(key)) if key is not None else None
        if plan is None:
            plan = make_plan(self.module, self.definition, checked, state.of(self.name), state.build_only)
            resolved = (tuple(plan.constants.items()), tuple(plan.types.items()))
            self.configurations[resolved] = plan.geometry
        values = list(args)
        for i in self._pointers:
            values[i] = checked.addresses[self.definition.arguments[i].name]
        for i in self._maps:
            values[i] = args[i].encode(self._maps[i])
        places = self._places(args, values)
        for a, b, _, _ in plan.pairs:  # the checks have found them disjoint
            plan.disjoint.add((a, b, places[b] - places[a]))
        if state.build_only:
            return None
        on_tensors = self._maps or any(isinstance(a, torch.Tensor) for a in args)
        if key is not None and on_tensors:  # else the current device decides
            self._store(tuple(key), plan)
        if plan.launch is not None:
            self._launch(plan, args, values)
        return None

    def _check(self, args: tuple) -> Any:
        from kforge.kernel.arguments import check_arguments

        return check_arguments(self.definition, args)

    def _positional(self, args: tuple, kwargs: Mapping[str, Any]) -> tuple:
        if not kwargs:
            return args
        names = [p.name for p in self.definition.arguments]
        if unknown := kwargs.keys() - set(names):
            raise LaunchError(f"{self.name} has no parameter '{min(unknown)}'; it takes {', '.join(names)}")
        if twice := kwargs.keys() & set(names[: len(args)]):
            raise LaunchError(f"{self.name}: argument '{min(twice)}' is given twice")
        rest = names[len(args) :]
        if missing := [n for n in rest if n not in kwargs]:
            raise LaunchError(f"{self.name}: argument '{missing[0]}' is missing")
        return (*args, *(kwargs[n] for n in rest))

    def _positions(self) -> None:
        """Which arguments are pointers, which scalars enter the plan's key by value and which by class."""
        arguments = self.definition.arguments
        read = frozenset().union(*(e.names for e in self.definition.expressions))
        self._arity = len(arguments)
        self._pointers = tuple(i for i, p in enumerate(arguments) if p.kind == "pointer")
        # Those that need not be contiguous, or may be complex: their layout and their lazy bits enter the key.
        self._views = tuple(
            i for i in self._pointers if arguments[i].name in self.definition.strided or _may_be_complex(arguments[i])
        )
        # Tensor maps by position, with what errors call them.
        found = [(i, p) for i, p in enumerate(arguments) if p.kind == "tensor_map"]
        self._maps = {i: f"{self.name}: argument '{p.name}'" for i, p in found}
        scalars = [i for i, p in enumerate(arguments) if p.kind == "scalar"]
        self._keyed = tuple(i for i in scalars if arguments[i].name in read)
        # Packing refuses what does not fit, except that it takes anything for a bool.
        self._by_class = tuple(i for i in scalars if i not in self._keyed or _is_odd(arguments[i].ctype))
        names = [p.name for p in self.definition.signature.params]
        self._workspace = names.index(WORKSPACE) if self.definition.workspace is not None else -1

    def _refresh(self) -> None:
        """Take up the switches in force; plans are kept per set of overrides."""
        self._state = hooks.state
        chosen = tuple(sorted(self._state.of(self.name).items(), key=lambda kv: kv[0]))
        fresh = self._state.build_only or self._state.recorder is not None
        self._plans = {} if fresh else self._all_plans.setdefault(chosen, {})


def _may_be_complex(pointer: Param) -> bool:
    if canonical(pointer.ctype) is None:  # bound by types=, which has no complex types
        return False
    dtypes = element(pointer.ctype).dtypes
    return not dtypes or "complex64" in dtypes


def _is_odd(ctype: str) -> bool:
    kind = scalar(ctype)
    return kind is None or ctype == "bool"

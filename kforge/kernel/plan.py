"""From a checked call to a plan: constants resolved, geometry worked out, kernel built and bound to a launcher."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from kforge.errors import BuildError, LaunchError
from kforge.kernel import launchers, native
from kforge.kernel.build import target_arch
from kforge.kernel.ctypes_table import Scalar, scalar
from kforge.kernel.definition import WORKSPACE, Definition
from kforge.kernel.expression import Expression
from kforge.kernel.launchers import Geometry
from kforge.kernel.launchers.base import Dim3, Launch, packing
from kforge.kernel.limits import check_shared
from kforge.kernel.prepare import Constant
from kforge.kernel.tensor_map import SLOT, emulated_pointer

if TYPE_CHECKING:
    from kforge.kernel.arguments import Checked
    from kforge.kernel.module import Module

GRID_LIMITS = {"x": 2**31 - 1, "y": 65535, "z": 65535}
BLOCK_LIMITS = {"x": 1024, "y": 1024, "z": 64}
MAX_THREADS = 1024


@dataclass
class Plan:
    """Everything a repeated call needs. launch None: nothing to launch (an empty grid, or build-only).

    pairs: (written, other, bytes, bytes) by argument position, whose ranges may not overlap; disjoint: pairs and
    distances that an exact check has found interleaved without overlap. native: the same for kforge.kernel.native,
    None where Python makes the call.
    """

    device: int
    constants: Mapping[str, Constant]
    types: Mapping[str, str]
    geometry: Geometry
    launch: Launch | None
    workspace: Callable[[], torch.Tensor] | None = None
    pairs: tuple[tuple[int, int, int, int], ...] = ()
    disjoint: set[tuple[int, int, int]] = field(default_factory=set)
    native: Any = None


def make_plan(
    module: Module, definition: Definition, checked: Checked, overrides: Mapping[str, Constant], build_only: bool
) -> Plan:
    """Resolve, build and bind. LaunchError for what the launch's limits forbid, BuildError for a source's errors."""
    constants = definition.resolve(checked.env, overrides)
    env = {**checked.env, **constants}
    geometry = geometry_of(definition, env)
    plan = Plan(
        device=checked.device,
        constants=constants,
        types=checked.types,
        geometry=geometry,
        launch=None,
        workspace=_workspace(definition, env, checked.device),
        pairs=_pairs(definition, checked),
    )
    if 0 in geometry.grid:
        return plan
    if checked.device < 0:
        program, instance = module.program(definition, constants, checked.types)
        own = program.shared_variables if len(program.entry_points) == 1 else ()  # of which kernel is not said
        check_shared(definition.name, geometry.shared, sum(variable.nbytes for variable in own))
        if not build_only:
            plan.launch = _emulate(program, instance, definition, checked, geometry, _bytes(definition, env))
        return plan
    return _on_gpu(plan, module, definition, checked, build_only)


def _on_gpu(plan: Plan, module: Module, definition: Definition, checked: Checked, build_only: bool) -> Plan:
    device = checked.device
    specialisation = (definition.expression, tuple(plan.constants.items()), tuple(checked.types.items()), device)
    launcher = (
        None
        if build_only
        else launchers.choose(
            clusters=plan.geometry.cluster != (1, 1, 1),
            tensor_maps=any(p.kind == "tensor_map" for p in definition.signature.params),
        )
    )
    loaded = (launcher.name if launcher else "", *specialisation)
    loading = launcher is not None and loaded not in module.functions
    if loading and torch.cuda.is_current_stream_capturing():  # compiling alone touches no stream
        raise LaunchError(
            f"{definition.name} would have to be built and loaded during CUDA graph capture",
            "call it once with the same arguments before the capture",
        )
    with torch.cuda.device(device):
        if loaded not in module.functions:
            built, symbol = module.build(definition, plan.constants, checked.types, target_arch(device))
            figures = built.resources.get(module.instance(definition, plan.constants, checked.types))
            module.static_shared[specialisation] = figures.shared if figures else 0
            check_shared(definition.name, plan.geometry.shared, module.static_shared[specialisation])
            if launcher is None:
                return plan
            torch.cuda.current_stream()  # initialises torch's context on this device
            module.functions[loaded] = launcher.load(built, symbol, device)
        else:
            check_shared(definition.name, plan.geometry.shared, module.static_shared[specialisation])
        assert launcher is not None
        function, slots = module.functions[loaded], _slots(definition, checked)
        try:
            plan.launch = launcher.bind(function, slots, plan.geometry, device)
            if isinstance(launcher, launchers.Driver):
                start = launcher.address()
                bind_native(
                    plan, definition, slots, start, function, launcher.configuration(function, plan.geometry, device)
                )
        except LaunchError as error:
            raise LaunchError(f"{definition.name}: {error.message}", error.hint) from error
    return plan


def bind_native(
    plan: Plan, definition: Definition, slots: tuple[Scalar | None, ...], start: int, function: Any, config: Any
) -> None:
    """Give a plan its native call, where there is one. start: the address of cuLaunchKernelEx."""
    module, _ = native.load()
    if module is None or len(slots) > native.MAX_ARGUMENTS or SLOT in slots:
        return
    formats = "".join("P" if s is None else s.slot[0] for s in slots).encode()
    names = [p.name for p in definition.signature.params]
    at = names.index(WORKSPACE) if plan.workspace is not None else -1
    handle = function.value or 0
    keep = (function, config)
    plan.native = module.Bound(
        start, handle, bytes(config), formats, plan.device, definition.name, plan.workspace, at, plan.pairs, keep
    )


def _slots(definition: Definition, checked: Checked) -> tuple[Scalar | None, ...]:
    """How each parameter is passed; None for a pointer."""
    return tuple(
        None if p.kind == "pointer" else SLOT if p.kind == "tensor_map" else scalar(checked.types.get(p.ctype, p.ctype))
        for p in definition.signature.params
    )


def geometry_of(definition: Definition, env: Mapping[str, Any]) -> Geometry:
    """Grid, block, shared memory and cluster of a call, within CUDA's limits."""
    name = definition.name
    grid = _dim3(definition, "grid", definition.grid, env)
    block = _dim3(definition, "block", definition.block, env)
    cluster = _dim3(definition, "cluster", definition.cluster, env) if definition.cluster else (1, 1, 1)
    shared = definition.shared.evaluate(env)
    for what, dim, limits in (("grid", grid, GRID_LIMITS), ("block", block, BLOCK_LIMITS)):
        for (axis, limit), value in zip(limits.items(), dim, strict=True):
            if value > limit:
                raise LaunchError(f"{name}: {what}.{axis} = {value} exceeds {limit}", f"{what} is {dim}")
    threads = block[0] * block[1] * block[2]
    if not 0 < threads <= MAX_THREADS:
        raise LaunchError(f"{name}: a block of {block} has {threads} threads; 1 to {MAX_THREADS} are possible")
    if not isinstance(shared, int) or shared < 0:
        raise LaunchError(f"{name}: shared = {shared} is no number of bytes")
    for axis, blocks, size in zip("xyz", grid, cluster, strict=True):
        if size < 1 or blocks % size:
            raise LaunchError(f"{name}: grid.{axis} = {blocks} is no multiple of cluster.{axis} = {size}")
    if bounds := definition.signature.launch_bounds:
        most = _launch_bound(bounds[0], env)
        if most is not None and threads > most:
            raise LaunchError(f"{name}: {threads} threads a block exceed __launch_bounds__({bounds[0]}) = {most}")
    return Geometry(grid, block, shared, cluster, definition.cooperative)


def _launch_bound(text: str, env: Mapping[str, Any]) -> int | None:
    from kforge.kernel.expression import parse

    try:
        expression = parse(text)
    except BuildError:  # an expression of C++ that the launch language lacks: the compiler will see to it
        return None
    if not expression.names <= env.keys():
        return None
    value = expression.evaluate(env)
    return value if isinstance(value, int) else None


def _dim3(definition: Definition, what: str, expression: Expression, env: Mapping[str, Any]) -> Dim3:
    value = expression.evaluate(env)
    items = value if isinstance(value, tuple) else (value,)
    if len(items) > 3 or not all(isinstance(i, int) for i in items):
        raise LaunchError(f"{definition.name}: {what} '{expression.text}' gives {value}, not up to three integers")
    if any(i < 0 for i in items):
        raise LaunchError(f"{definition.name}: {what} '{expression.text}' gives {value}, which is negative")
    x, y, z = (*(int(i) for i in items), 1, 1, 1)[:3] if len(items) < 3 else items
    return x, y, z


def _pairs(definition: Definition, checked: Checked) -> tuple[tuple[int, int, int, int], ...]:
    pointers = [(i, p.name) for i, p in enumerate(definition.arguments) if p.kind in ("pointer", "tensor_map")]
    return tuple(
        (i, j, checked.extents[a], checked.extents[b])
        for i, a in pointers
        for j, b in pointers
        if i != j and a in definition.written and checked.extents[a] and checked.extents[b]
        if not (b in definition.written and j < i)
    )


def _bytes(definition: Definition, env: Mapping[str, Any]) -> int:
    """Of the workspace; 0 where there is none."""
    if definition.workspace is None:
        return 0
    size = definition.workspace.evaluate(env)
    if not isinstance(size, int) or size < 0:
        raise LaunchError(f"{definition.name}: workspace '{definition.workspace.text}' gives {size} bytes")
    return max(size, 1)


def _workspace(definition: Definition, env: Mapping[str, Any], device: int) -> Callable[[], torch.Tensor] | None:
    if definition.workspace is None:
        return None
    size = _bytes(definition, env)
    place = torch.device("cpu") if device < 0 else torch.device("cuda", device)
    allocate = torch.zeros if definition.zeroed else torch.empty
    return lambda: allocate(size, dtype=torch.uint8, device=place)


def _emulate(
    program: Any, instance: str, definition: Definition, checked: Checked, geometry: Geometry, workspace: int
) -> Launch:
    from kforge.kernel.emulator.findings import Region

    slots = _slots(definition, checked)
    extents = {**checked.extents, WORKSPACE: workspace}
    params = list(enumerate(definition.signature.params))
    pointers = [(i, p.name, extents[p.name]) for i, p in params if p.kind == "pointer"]
    maps = [(i, p.name, extents[p.name]) for i, p in params if p.kind == "tensor_map"]
    classes: list[Any] = [ctypes.c_void_p if s is None else s.ctypes_class for s in slots]
    check = packing(slots).pack

    def launch(_: int, values: Sequence[Any]) -> None:
        check(*values)
        args = [c.from_buffer_copy(v) if isinstance(v, bytes) else c(v) for c, v in zip(classes, values, strict=True)]
        program.launch(
            instance,
            geometry.grid,
            geometry.block,
            geometry.shared,
            args,
            geometry.cluster,
            cooperative=geometry.cooperative,
            buffers=[
                *(Region(name, values[i], nbytes) for i, name, nbytes in pointers if values[i] and nbytes),
                *(Region(name, emulated_pointer(values[i]) or 0, nbytes) for i, name, nbytes in maps),
            ],
        )

    return launch

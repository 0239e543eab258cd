"""What a Kernel declares, parsed and checked once: its expressions, constants, tuning space and conditions.

Also the choice of constants for one call: overrides, else tuned, else declared; then `require` walks the tune order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kforge.errors import BuildError, LaunchError
from kforge.kernel.expression import Env, Expression, as_expression
from kforge.kernel.prepare import Constant, expression_names
from kforge.kernel.signature import Param, Signature

Dim = str | int | tuple[int | str, ...]
WORKSPACE = "workspace"  # the kernel parameter that receives the workspace; callers do not pass it


@dataclass(frozen=True)
class Definition:
    """A Kernel's declaration. `arguments` are the parameters that a caller passes, in order."""

    name: str
    expression: str
    signature: Signature
    grid: Expression
    block: Expression
    shared: Expression
    cluster: Expression | None
    cooperative: bool
    constants: Mapping[str, Constant]
    types: Mapping[str, str]
    tune: Mapping[str, tuple[Constant, ...]]
    require: Mapping[str, Expression]
    tuned: tuple[tuple[Expression, Mapping[str, Constant]], ...]
    workspace: Expression | None
    zeroed: bool
    written: frozenset[str]
    strided: frozenset[str]

    @property
    def arguments(self) -> tuple[Param, ...]:
        return tuple(p for p in self.signature.params if self.workspace is None or p.name != WORKSPACE)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        optional = [e for e in (self.cluster, self.workspace) if e is not None]
        return (self.grid, self.block, self.shared, *optional, *self.require.values(), *(c for c, _ in self.tuned))

    @property
    def in_expression(self) -> frozenset[str]:
        """Constants and types that are substituted in the name expression and defined nowhere else."""
        return expression_names(self.expression) & {*self.constants, *self.types}

    def resolve(self, env: Env, overrides: Mapping[str, Constant]) -> dict[str, Constant]:
        """The constants of a call. env: parameters (pointers as addresses) and `sizeof T` entries.

        LaunchError names the condition of `require` that no value in tune order meets.
        """
        chosen = dict(self.constants)
        for condition, values in self.tuned:
            if condition.evaluate({**env, **chosen}):
                chosen.update(values)
                break
        if unknown := set(overrides) - set(chosen):
            raise LaunchError(f"{self.name} has no constant {', '.join(sorted(unknown))} to override")
        chosen.update(overrides)
        for _ in range(1 + len(self.require)):  # a later choice may undo an earlier condition
            before = dict(chosen)
            for name, condition in self.require.items():
                self._meet(name, condition, env, chosen)
            if chosen == before:
                return chosen
        for name, condition in self.require.items():
            if not condition.evaluate({**env, **chosen}):
                raise self._none_holds(name, condition, chosen)
        return chosen

    def foreseen(self, sizes: Env, overrides: Mapping[str, Constant]) -> dict[str, Constant]:
        """The constants of a call as far as constants and element sizes decide: any other part of a condition is taken
        to hold, and `tuned` as not to be there. sizes: `sizeof T` entries. overrides: an unknown name is ignored.
        """
        chosen = {name: overrides.get(name, value) for name, value in self.constants.items()}
        for name in filter(chosen.__contains__, self.require):
            known = [p for p in self.require[name].parts if p.names <= chosen.keys() and not p.pointers]
            values = (chosen[name], *self._next(name, chosen))
            met = (v for v in values if all(p.evaluate({**sizes, **chosen, name: v}) for p in known))
            chosen[name] = next(met, chosen[name])
        return chosen

    def _next(self, name: str, chosen: Mapping[str, Constant]) -> tuple[Constant, ...]:
        """The values of a constant that are tried after the one chosen, in turn."""
        space = self.tune.get(name, ())
        return space[space.index(chosen[name]) + 1 :] if name in chosen and chosen[name] in space else space

    def _meet(self, name: str, condition: Expression, env: Env, chosen: dict[str, Constant]) -> None:
        if condition.evaluate({**env, **chosen}):
            return
        for value in self._next(name, chosen):
            if condition.evaluate({**env, **chosen, name: value}):
                chosen[name] = value
                return
        raise self._none_holds(name, condition, chosen)

    def _none_holds(self, name: str, condition: Expression, chosen: Mapping[str, Constant]) -> LaunchError:
        if name not in self.constants:
            return LaunchError(f"{self.name} requires {condition.text} (of {name}), which does not hold")
        tried = list(dict.fromkeys((chosen[name], *self.tune.get(name, ()))))
        return LaunchError(
            f"{self.name}: no value of {name} in {tried} meets its condition: {condition.text}",
            f"add a value to tune['{name}'] that holds for every aligned contiguous input, or pass other inputs",
        )


def define(
    expression: str,
    signature: Signature,
    *,
    grid: Dim,
    block: Dim,
    shared: str | int,
    cluster: Dim | None,
    cooperative: bool,
    constants: Mapping[str, Constant],
    types: Mapping[str, str],
    tune: Mapping[str, Sequence[Constant]],
    require: Mapping[str, str],
    tuned: Iterable[tuple[str | bool, Mapping[str, Constant]]],
    workspace: str | int | None,
    zeroed: bool,
    writes: Iterable[str],
    strided: Iterable[str],
) -> Definition:
    """Parse and check a declaration; BuildError names what does not fit the kernel's signature."""
    name = signature.name.rsplit("::", 1)[-1]
    params = {p.name: p for p in signature.params}
    pointers = {n for n, p in params.items() if p.kind == "pointer"}
    maps = {n for n, p in params.items() if p.kind == "tensor_map"}
    written = {p.name for p in signature.params if p.kind == "pointer" and not p.const} | set(writes)
    definition = Definition(
        name=name,
        expression=expression,
        signature=signature,
        grid=as_expression(grid),
        block=as_expression(block),
        shared=as_expression(shared),
        cluster=as_expression(cluster) if cluster is not None else None,
        cooperative=cooperative,
        constants=dict(constants),
        types=dict(types),
        tune={k: tuple(v) for k, v in tune.items()},
        require={k: as_expression(v) for k, v in require.items()},
        tuned=tuple((as_expression(c), dict(v)) for c, v in tuned),
        workspace=as_expression(workspace) if workspace is not None else None,
        zeroed=zeroed,
        written=frozenset(written),
        strided=frozenset(strided),
    )
    for what, names in (("writes", set(writes) - maps), ("strided", strided)):
        for wrong in set(names) - pointers:
            raise BuildError(f"{name}: {what} names '{wrong}', which is no pointer parameter of {signature}")
    for wrong in set(tune) - set(constants):
        raise BuildError(f"{name}: tune names '{wrong}', which is not in constants")
    for wrong in {k for _, values in definition.tuned for k in values} - set(constants):
        raise BuildError(f"{name}: tuned sets '{wrong}', which is not in constants")
    for wrong in set(constants) & set(params):
        raise BuildError(f"{name}: '{wrong}' is both a constant and a parameter")
    if workspace is not None and WORKSPACE not in pointers:
        raise BuildError(f"{name}: workspace= needs a pointer parameter named '{WORKSPACE}' in {signature}")
    if zeroed and workspace is None:
        raise BuildError(f"{name}: zeroed=True without a workspace")
    scalars = set(params) - pointers - maps
    for found in definition.expressions:
        for wrong in sorted(found.names - scalars - set(constants)):
            known = ", ".join(sorted(scalars | set(constants))) or "none"
            hint = "a pointer may only stand in aligned(pointer, bytes)" if wrong in pointers else ""
            raise BuildError(f"{name}: '{found.text}' names '{wrong}'; it may use {known}", hint)
        for wrong in sorted(found.pointers - pointers):
            raise BuildError(f"{name}: aligned({wrong}, ...) in '{found.text}': no pointer parameter '{wrong}'")
        for wrong in sorted(found.types - set(types)):
            raise BuildError(f"{name}: sizeof({wrong}) in '{found.text}': '{wrong}' is not in types")
    return definition

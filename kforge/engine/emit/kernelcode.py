"""A generated kernel: its CUDA text and all that its Kernel declaration says. Data, and the rendering of templates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kforge.engine.coalescing import sizes_of
from kforge.engine.emit.cgen import Sizes, Types, total
from kforge.engine.graph.ir import Program
from kforge.engine.graph.symbols import Poly, Size

Constant = int | str


@dataclass(frozen=True)
class KernelCode:
    """One __global__ function and how to launch it.

    template: its template parameters in order (types, then constants). sizes: size parameter -> polynomial over tensor
    sizes. types, strided: of a kernel without a program, the parameter that binds each type, and those with strides.
    limit: launch condition over size parameters, '' if it always applies. schedule: name in the registry.
    operands: first arguments, as Python with {} for a shape, and that shape as size parameters.
    pointers: what is passed as pointers, where that is not all of the program's buffers.
    counts: arguments after the sizes, as Python. functions: of the module, that arguments call. seconds: predicted,
    where bytes do not say it.
    """

    name: str
    program: Program
    schedule: str
    idea: str
    text: str
    template: tuple[str, ...]
    helpers: frozenset[str]
    sizes: Mapping[str, Poly]
    grid: str
    block: str
    constants: Mapping[str, Constant]
    tune: Mapping[str, tuple[Constant, ...]] = field(default_factory=dict)
    require: Mapping[str, str] = field(default_factory=dict)
    tuned: tuple[tuple[str, Mapping[str, Constant]], ...] = ()
    shared: str = ""
    workspace: str = ""
    zeroed: bool = False
    limit: str = ""
    size_types: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    strided: tuple[str, ...] = ()
    cluster: str = ""
    operands: tuple[tuple[str, tuple[str, ...]], ...] = ()
    pointers: tuple[str, ...] | None = None
    counts: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def expression(self) -> str:
        """The name expression of the Kernel."""
        return f"{self.name}<{', '.join(self.template)}>" if self.template else self.name

    @property
    def most(self) -> float:
        """The most columns that its limit admits, infinite where it has none."""
        text = self.limit.removeprefix("cols <= ")
        return float(text) if text.isdigit() else math.inf

    @property
    def arguments(self) -> list[str]:
        return [*self.passed, *self.sizes]

    @property
    def passed(self) -> list[str]:
        """The buffers that are passed as pointers."""
        return [b.name for b in self.program.buffers] if self.pointers is None else list(self.pointers)


def alone(
    name: str, schedule: str, text: str, helpers: Iterable[str], constants: Mapping[str, Constant], **more: Any
) -> KernelCode:
    """A kernel that belongs to no program: what is done to a call's operands and results. more: as KernelCode has it.

    Its template parameters are its types, then its constants; its sizes are up to the module that calls it.
    """
    return KernelCode(
        name=name,
        program=Program(name, (), (), ()),
        schedule=schedule,
        idea="",
        text=text,
        template=(*more.get("types", ()), *constants),
        helpers=frozenset(helpers),
        sizes={},
        constants=constants,
        **more,
    )


@lru_cache(maxsize=1)
def environment() -> Any:
    """The Jinja2 environment over templates/, strict about undefined names."""
    import jinja2

    from kforge.resources import templates_dir

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(template: str, **values: object) -> str:
    return str(environment().get_template(template).render(**values))


def parameters(program: Program, types: Types, sizes: Mapping[str, str], extra: tuple[str, ...] = ()) -> str:
    """The C parameter list: inputs const, outputs not, then sizes (name -> C type)."""
    written = {s.buffer for s in program.stores}
    parts = []
    for b in program.buffers:
        const = "" if b in written else "const "
        parts.append(f"{const}{types.element(b)}* __restrict__ {b.name}")
    parts += [f"{ctype} {name}" for name, ctype in sizes.items()]
    return wrap([*parts, *extra])


def wrap(parts: list[str], width: int = 110) -> str:
    lines, line = [], ""
    for part in parts:
        if line and len(line) + len(part) + 2 > width:
            lines.append(line + ",")
            line = ""
        line = f"{line}, {part}" if line else part
    return "\n    ".join([*lines, line])


def template_types(program: Program, types: Types) -> list[str]:
    """Type aliases that the program's buffers use, in order."""
    used = {types.element(b) for b in program.buffers}
    return [alias for alias in types.bound if alias in used]


def bind_types(program: Program, types: Types) -> dict[str, str]:
    """alias -> the program's first buffer of that element type."""
    found: dict[str, str] = {}
    for b in program.buffers:
        alias = types.element(b)
        if alias in types.bound and alias not in found:
            found[alias] = b.name
    return found


def row_sizes(program: Program) -> Sizes:
    """`rows` and `cols`, then sizes of inner loops, then any other size that an index mentions."""
    sizes = Sizes()
    sizes.add("rows", total(program.rows))
    sizes.add("cols", total(program.cols))
    name_loops(sizes, program)
    return sizes


def name_loops(sizes: Sizes, program: Program) -> None:
    for group, label in ((program.rows, "rows"), (program.cols, "cols")):
        for k, v in enumerate(group):
            if k > 0 and v.size.atoms():
                last = k == len(group) - 1 and label not in sizes.params
                sizes.add(label if last else f"{label}_{k}", v.size)
    polys = [*program.indices, *(v.size for v in program.rows[1:] + program.cols[1:])]
    for size in sizes_of(program):
        mentioned = any(size in sizes.write(p).atoms() for p in polys)
        if mentioned:
            sizes.add(size.name, Poly.of(size))


__all__ = ["KernelCode", "Size", "alone", "parameters", "render", "row_sizes", "wrap"]

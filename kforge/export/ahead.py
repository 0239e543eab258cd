"""Renders Kernel declarations to Python launches of cubins, and builds those cubins, for format `aot`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kforge.export.configurations import Configuration
from kforge.export.cuda import Builds, Kernel, grouped, scalar_type, schema
from kforge.export.reading import Source
from kforge.export.tensor_maps import takes_maps
from kforge.kernel.ctypes_table import element, scalar
from kforge.kernel.definition import WORKSPACE, Definition
from kforge.kernel.expression import Expression
from kforge.kernel.prepare import prepare, substitute
from kforge.kernel.signature import Param


def build_cubins(
    kernels: Sequence[Kernel], archs: Sequence[str], headers: Mapping[str, str], folder: Path
) -> tuple[dict[str, bytes], dict[tuple[str, Configuration], tuple[str, str]]]:
    """(`<arch>/<file>` -> cubin, (kernel, configuration) -> (file, symbol)). BuildError as the compiler says it.

    headers are written to `folder`, for the compiler.
    """
    for name, text in headers.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    cubins: dict[str, bytes] = {}
    places: dict[tuple[str, Configuration], tuple[str, str]] = {}
    for source in {k.use.source.name: k.use.source for k in kernels}.values():
        members = [k for k in kernels if k.use.source.name == source.name]
        for number, (defined, builds) in enumerate(grouped(members).items()):
            file = f"{source.name.removesuffix('.cu')}_{number}.cubin"
            for arch in archs:
                cubin, names = _build(source, defined, builds, arch, folder)
                cubins[f"{arch}/{file}"] = cubin
                for (kernel, build), symbol in zip(builds, names, strict=True):
                    places[kernel.name, build] = (file, symbol)
    return cubins, places


def _build(source: Source, defined: tuple, builds: Builds, arch: str, folder: Path) -> tuple[bytes, list[str]]:
    from kforge.kernel.build import BuildRequest, build, content_key

    types = {k: v for _, b in builds for k, v in b.types}
    written = {k: v for k, v in defined if k not in types}
    bound = {k: v for k, v in defined if k in types}
    # The types that are only substituted in name expressions still bring their headers.
    headers = {f"{k} {v}": v for _, b in builds for k, v in b.types}
    text = prepare(source.text, source.name, written, {**headers, **bound}, in_expressions=tuple(headers))
    names = [
        substitute(k.definition.expression, k.definition.signature.name, dict(b.constants), dict(b.types))
        for k, b in builds
    ]
    request = BuildRequest(
        text=text,
        filename=source.name,
        kernels=tuple(dict.fromkeys(names)),
        arch=arch,
        includes=(folder,),
        include_keys=(content_key(text=text),),
        compiler="auto",
        what=f"{source.name} for {arch}",
    )
    built = build(request)
    return built.cubin, [built.names[name] for name in names]


def kernel_rows(
    kernels: Sequence[Kernel], places: Mapping[tuple[str, Configuration], tuple[str, str]]
) -> list[dict[str, Any]]:
    """What package/kernels_aot.py.j2 needs of each kernel."""
    return [
        {
            "name": k.name,
            "op": k.op,
            "schema": schema(k),
            "parameters": ", ".join(_named(p) for p in k.definition.arguments),
            "maps": takes_maps(k),
            "plan_parameters": ", ".join(["types", *_planned(k.definition)]),
            "built": [
                f"({k.types.index(b.types)}, {', '.join(repr(v) for _, v in b.constants)}): {places[k.name, b]!r},"
                for b in k.builds
            ],
            "plan": _plan(k),
            "launch": _launch(k),
        }
        for k in kernels
    ]


def _named(p: Param) -> str:
    return f"{p.name}, {p.name}_map" if p.kind == "tensor_map" else p.name


def _planned(d: Definition) -> list[str]:
    """The parameters that decide a plan."""
    read = frozenset().union(*(e.names | e.pointers for e in d.expressions))
    return [p.name for p in d.arguments if p.name in read]


def _text(expression: Expression) -> str:
    """An expression of the launch language is one of Python, sizes of types excepted."""
    return re.sub(r"sizeof\(\s*(\w+)\s*\)", r"sizeof_\1", expression.text)


def _plan(kernel: Kernel) -> list[str]:
    d = kernel.definition
    lines = []
    for name in sorted({n for e in d.expressions for n in e.types}):
        sizes = ", ".join(str(element(dict(t)[name]).size) for t in kernel.types)
        lines.append(f"sizeof_{name} = ({sizes},)[types]")
    lines += [f"{k} = {v!r}" for k, v in d.constants.items()]
    for number, (condition, values) in enumerate(d.tuned):
        lines.append(f"{'elif' if number else 'if'} {_text(condition)}:")
        lines += [f"    {k} = {v!r}" for k, v in values.items()] or ["    pass"]
    if d.require:
        names = ", ".join(d.constants)
        lines.append(f"for _ in range({len(d.require) + 1}):  # a later choice may undo an earlier one")
        lines.append(f"    before = ({names},)")
        for name, condition in d.require.items():
            message = f"{d.name}: no value of {name} meets its condition: {condition.text}"
            lines.append(f"    if not ({_text(condition)}):")
            if name in d.constants:
                lines.append(f"        for {name} in _after({name}, {tuple(d.tune.get(name, ()))!r}):")
                lines.append(f"            if {_text(condition)}:")
                lines.append("                break")
                lines.append("        else:")
                lines.append(f"            raise RuntimeError({message!r})")
            else:
                lines.append(f"        raise RuntimeError({message!r})")
        lines.append(f"    if before == ({names},):")
        lines.append("        break")
        lines.append("else:")
        checks = " and ".join(f"({_text(c)})" for c in d.require.values())
        lines.append(f"    if not ({checks}):")
        lines.append(f"        raise RuntimeError({d.name + ': its conditions cannot be met together'!r})")
    constants = "".join(f", {k}" for k in d.constants)
    lines.append(f"place = _BUILT_{d.name}.get((types{constants},))")
    lines.append("if place is None:")
    lines.append(f"    raise RuntimeError({d.name + ': these sizes resolve to constants that were not built'!r})")
    cluster = _text(d.cluster) if d.cluster is not None else "1"
    lines.append(f"grid, block, cluster = _three({_text(d.grid)}), _three({_text(d.block)}), _three({cluster})")
    workspace = f"max(1, {_text(d.workspace)})" if d.workspace is not None else "0"
    lines.append(f"return place, grid, block, cluster, {_text(d.shared)}, {d.cooperative}, {workspace}")
    return lines


def _launch(kernel: Kernel) -> list[str]:
    d = kernel.definition
    pointers = [p for p in d.arguments if p.kind == "pointer"]
    maps = [p for p in d.arguments if p.kind == "tensor_map"]
    first = next(p.name for p in (*pointers, *maps) if p in maps or not kernel.is_optional(p.name))
    lines = [f"device = {first}.device"]
    for p in pointers:
        allowed: dict[str, None] = {}
        for types in kernel.types:
            target = element(dict(types).get(p.ctype, p.ctype))
            more = () if p.name in d.written else target.read_only_dtypes
            allowed |= dict.fromkeys((*target.dtypes, *more))
        dtypes = "".join(f"torch.{n}, " for n in allowed)
        check = f'_tensor({p.name}, "{d.name}: {p.name}", device, {p.name not in d.strided}, ({dtypes}))'
        lines.append(f"if {p.name} is not None:\n        {check}" if kernel.is_optional(p.name) else check)
    for p in maps:
        bound = [n for n, owner in d.types.items() if owner == p.name]
        names = [name for t in kernel.types for n in bound for name in element(dict(t)[n]).dtypes]
        dtypes = "".join(f"torch.{n}, " for n in dict.fromkeys(names))
        lines.append(f'_tensor({p.name}, "{d.name}: {p.name}", device, False, ({dtypes}))')
    lines.append(f"types = {_type_choice(kernel)}")
    for p in pointers:
        address = f"{p.name}.data_ptr()"
        lines.append(f"{p.name}_ = {address}{f' if {p.name} is not None else 0' if kernel.is_optional(p.name) else ''}")
    planned = [f"{n}_ % 1024" if any(p.name == n for p in pointers) else n for n in _planned(d)]
    lines.append(f"plan = _plan_{d.name}({', '.join(['types', *planned])})")
    if d.workspace is not None:
        maker = "zeros" if d.zeroed else "empty"
        lines.append(f"scratch = torch.{maker}(plan[6], dtype=torch.uint8, device=device)")
    values = []
    for p in d.signature.params:
        if d.workspace is not None and p.name == WORKSPACE:
            values.append("ctypes.c_void_p(scratch.data_ptr())")
        elif p.kind == "pointer":
            values.append(f"ctypes.c_void_p({p.name}_)")
        elif p.kind == "tensor_map":
            values.append(f'_map({p.name}, {p.name}_map, "{d.name}: {p.name}")')
        else:
            kind = scalar(scalar_type(kernel, p))
            assert kind is not None
            fitted = f'_fit({p.name}, {kind.bits}, {kind.low != 0}, "{p.name}")' if kind.is_integer else p.name
            values.append(f"ctypes.{kind.ctypes_class.__name__}({fitted})")
    lines.append(f"_run(plan, device.index, [{', '.join(values)}])")
    return lines


def _type_choice(kernel: Kernel) -> str:
    """Which combination of types the tensors have."""
    if len(kernel.types) < 2:
        return "0"
    owners = kernel.definition.types
    keys = [n for n, owner in owners.items() if owner in {p.name for p in kernel.definition.arguments}]
    table = {tuple(element(dict(t)[n]).dtypes[0] for n in keys): i for i, t in enumerate(kernel.types)}
    rows = ", ".join(f"({''.join(f'torch.{d}, ' for d in dtypes)}): {i}" for dtypes, i in table.items())
    return f"{{{rows}}}[({''.join(f'{owners[n]}.dtype, ' for n in keys)})]"

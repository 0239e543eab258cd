"""Renders Kernel declarations to C++: sources in namespaces, plans of launches, and their binding to torch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kforge.errors import ExportError
from kforge.export.configurations import Configuration, by_definitions
from kforge.export.reading import KernelUse, Source
from kforge.export.tensor_maps import tables, takes_maps
from kforge.kernel.ctypes_table import HEADERS, element, scalar
from kforge.kernel.definition import WORKSPACE, Definition
from kforge.kernel.expression import Expression, Tuple
from kforge.kernel.prepare import Constant, literal, substitute
from kforge.kernel.rendering import CPP_PRELUDE, render
from kforge.kernel.signature import Param, last_top_level_include

SCALAR_TYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int8": "Char",
    "uint8": "Byte", "int16": "Short", "int32": "Int", "int64": "Long", "bool": "Bool", "uint16": "UInt16",
    "uint32": "UInt32", "uint64": "UInt64", "float8_e4m3fn": "Float8_e4m3fn", "float8_e5m2": "Float8_e5m2",
    "complex64": "ComplexFloat",
}  # fmt: skip
_EXTERN = re.compile(r'extern\s+"C"\s*(\{)?')
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<][^\n]*', re.M)


@dataclass(frozen=True)
class Kernel:
    """A kernel to be exported: its declaration, what it was recorded to be given, and its builds."""

    use: KernelUse
    calls: Sequence[Sequence[Any]] = field(repr=False)
    builds: tuple[Configuration, ...]
    types: tuple[tuple[tuple[str, str], ...], ...]

    @property
    def definition(self) -> Definition:
        return self.use.definition

    @property
    def name(self) -> str:
        return self.use.definition.name

    @property
    def op(self) -> str:
        """The name of its operator."""
        return f"launch_{self.name}"

    def is_optional(self, parameter: str) -> bool:
        """Whether a pointer is null in some recorded call."""
        at = [p.name for p in self.definition.arguments].index(parameter)
        return any(call[at] is None for call in self.calls)


def schema(kernel: Kernel) -> str:
    """The operator's schema: it returns nothing and changes what the kernel writes."""
    parts, letters = [], iter("abcdefghijklmnopqrstuvwxyz")
    for p in kernel.definition.arguments:
        if p.kind != "scalar":
            optional = "?" if p.kind == "pointer" and kernel.is_optional(p.name) else ""
            written = f"({next(letters)}!)" if p.name in kernel.definition.written else ""
            parts.append(f"Tensor{written}{optional} {p.name}")
            parts += [f"int[] {p.name}_map"] if p.kind == "tensor_map" else []
        else:
            parts.append(f"{_scalar_schema(kernel, p)} {p.name}")
    return f"{kernel.op}({', '.join(parts)}) -> ()"


def _scalar_schema(kernel: Kernel, parameter: Param) -> str:
    ctype = scalar_type(kernel, parameter)
    return "bool" if ctype == "bool" else "float" if ctype in ("float", "double") else "int"


def scalar_type(kernel: Kernel, parameter: Param) -> str:
    """The C type of a by-value parameter, the same for every combination of types."""
    found = {dict(t).get(parameter.ctype, parameter.ctype) for t in kernel.types} or {parameter.ctype}
    if len(found) > 1 or scalar(next(iter(found))) is None:
        raise ExportError(f"{kernel.name}: parameter '{parameter.name}' has type {parameter.ctype}, not exported yet")
    return found.pop()


def launch_files(kernels: Sequence[Kernel], namespace: str, title: str) -> dict[str, str]:
    """launch.h, launch.cu and one .cuh per source, for the folder csrc/."""
    from kforge.export.templates import render_template

    sources = {k.use.source.name: k.use.source for k in kernels}
    files, includes, copies = {}, [], []
    places: dict[tuple[str, Configuration], str] = {}
    for source in sources.values():
        members = [k for k in kernels if k.use.source.name == source.name]
        head, body = split_source(source)
        includes += _INCLUDE.findall(head)
        name = f"{source.name.removesuffix('.cu')}.cuh"
        files[name] = f"// {source.name} without its includes and linkage: launch.cu has them.\n{body}"
        copies += _copies(members, name, places, includes)
    context = {
        "title": title,
        "namespace": namespace,
        "sources": list(sources),
        "includes": list(dict.fromkeys(line.strip() for line in includes)),
        "prelude": CPP_PRELUDE,
        "copies": copies,
        "tensor_maps": any(map(takes_maps, kernels)),
        "kernels": [
            {"name": k.name, "plan_parameters": _plan_parameters(k), "body": _plan(k, places)} for k in kernels
        ],
    }
    if context["tensor_maps"]:
        files["tensor_map.h"] = render_template("csrc/tensor_map.h.j2", context | tables())
    files["launch.h"] = render_template("csrc/launch.h.j2", context)
    files["launch.cu"] = render_template("csrc/launch.cu.j2", context)
    return files


def split_source(source: Source) -> tuple[str, str]:
    """(what stands before the end of the last top-level include, the rest without `extern "C"`)."""
    data = source.text.encode()
    at = last_top_level_include(source.text)
    head, body = data[:at].decode(), data[at:].decode()
    return head, _EXTERN.sub(lambda m: "namespace {" if m[1] else "", body)


Builds = list[tuple[Kernel, Configuration]]


def grouped(members: Sequence[Kernel]) -> dict[tuple[tuple[str, Constant], ...], Builds]:
    """Builds of one source by what is written into its text: every member's own constants, as in a build by kforge."""
    substituted = frozenset().union(*(m.definition.in_expression for m in members))
    others = {k: v for m in members for k, v in m.definition.constants.items() if k not in substituted}
    groups: dict[tuple[tuple[str, Constant], ...], Builds] = {}
    for member in members:
        for defined, builds in by_definitions(member.builds, substituted).items():
            full = tuple({**others, **dict(defined)}.items())
            groups.setdefault(full, []).extend((member, build) for build in builds)
    return groups


def _copies(
    members: Sequence[Kernel], file: str, places: dict[tuple[str, Configuration], str], includes: list[str]
) -> list[dict[str, Any]]:
    """One namespace per set of constants that are written into the source."""
    copies = []
    for number, (defined, builds) in enumerate(grouped(members).items()):
        name = f"{file.removesuffix('.cuh')}_{number}"
        before, after = [], []
        for key, value in defined:
            if any(key in dict(b.types) for _, b in builds):
                before.append(f"using {key} = {value};")
            else:
                before.append(f"#define {key} {literal(value)}")
                after.append(f"#undef {key}")
        for member, build in builds:
            includes += [f"#include <{HEADERS[t]}>" for _, t in build.types if t in HEADERS]
            places[member.name, build] = name
        copies.append({"name": name, "file": file, "before": before, "after": after})
    return copies


def _plan_parameters(kernel: Kernel) -> str:
    parts = ["int types"]
    for p in kernel.definition.arguments:
        if p.kind == "pointer":
            parts.append(f"const void* {p.name}")
        elif p.kind == "scalar":
            kind = {"int": "int64_t", "SymInt": "int64_t", "float": "double", "bool": "bool"}[_scalar_schema(kernel, p)]
            parts.append(f"{kind} {p.name}")
    return ", ".join([*parts, "Plan& plan"])


def _plan(kernel: Kernel, places: Mapping[tuple[str, Configuration], str]) -> list[str]:
    d = kernel.definition
    numeric = {k: v for k, v in d.constants.items() if not isinstance(v, str)}
    lines = [f"(void){p.name};" for p in d.arguments if p.kind != "tensor_map" and p.name not in _read(d)]
    for name in sorted({n for e in d.expressions for n in e.types}):
        sizes = ", ".join(str(element(dict(t)[name]).size) for t in kernel.types)
        lines.append(f"static const int64_t sizes_{name}[] = {{{sizes}}};")
        lines.append(f"const int64_t sizeof_{name} = sizes_{name}[types];")
    lines += [f"[[maybe_unused]] {_kind(d, k)} {k} = {literal(v)};" for k, v in numeric.items()]
    lines += _tuned(d)
    lines += _required(d, numeric)
    columns = [k for k in numeric if len({dict(b.constants)[k] for b in kernel.builds}) > 1]
    lines.append("// What was built: types, constants, kernel.")
    values = f"double constants[{max(1, len(columns))}];"
    lines.append(f"static const struct {{ int types; {values} const void* kernel; }} built[] = {{")
    for build in kernel.builds:
        constants = dict(build.constants)
        row = ", ".join(_number(constants[k]) for k in columns) or "0"
        name = substitute(d.expression, d.signature.name, constants, dict(build.types))
        place = places[kernel.name, build]
        lines.append(
            f"    {{{kernel.types.index(build.types)}, {{{row}}}, reinterpret_cast<const void*>(&{place}::{name})}},"
        )
    lines.append("};")
    lines.append("const void* kernel = nullptr;")
    matches = "".join(f" && candidate.constants[{i}] == static_cast<double>({k})" for i, k in enumerate(columns))
    lines.append("for (const auto& candidate : built) {")
    lines.append(f"    if (candidate.types == types{matches}) kernel = candidate.kernel;")
    lines.append("}")
    lines.append(
        f'if (kernel == nullptr) return "{kernel.name}: these sizes resolve to constants that were not built";'
    )
    for what, expression in (("grid", d.grid), ("block", d.block), ("cluster", d.cluster)):
        lines.append(f"const int64_t {what}[3] = {{{', '.join(_axes(expression))}}};")
    workspace = _cpp(d.workspace) if d.workspace is not None else ""
    sized = f"std::max<int64_t>(1, {workspace})" if workspace else "0"
    cooperative = "true" if d.cooperative else "false"
    lines.append(f"return fill(plan, kernel, grid, block, cluster, {_cpp(d.shared)}, {sized}, {cooperative});")
    return lines


def _read(d: Definition) -> frozenset[str]:
    return frozenset().union(*(e.names | e.pointers for e in d.expressions))


def _kind(d: Definition, name: str) -> str:
    values = [d.constants[name], *d.tune.get(name, ()), *(v[name] for _, v in d.tuned if name in v)]
    return "double" if any(isinstance(v, float) for v in values) else "int64_t"


def _number(value: Constant) -> str:
    return str(int(value)) if isinstance(value, bool) else repr(value)


def _cpp(expression: Expression) -> str:
    return _sizes(expression.to_cpp())


def _sizes(text: str) -> str:
    return re.sub(r"int64_t\{sizeof\((\w+)\)\}", r"sizeof_\1", text)


def _axes(expression: Expression | None) -> list[str]:
    if expression is None:
        return ["1", "1", "1"]
    items = expression.tree.items if isinstance(expression.tree, Tuple) else (expression.tree,)
    return ([_sizes(render(item, {})) for item in items] + ["1", "1", "1"])[:3]


def _tuned(d: Definition) -> list[str]:
    lines: list[str] = []
    for condition, values in d.tuned:
        sets = " ".join(f"{k} = {literal(v)};" for k, v in values.items())
        lines.append(f"{'} else ' if lines else ''}if ({_cpp(condition)}) {{")
        lines.append(f"    {sets}")
    return [*lines, "}"] if lines else []


def _required(d: Definition, numeric: Mapping[str, Constant]) -> list[str]:
    if not d.require:
        return []
    lines = [f"const auto holds_{n} = [&] {{ return static_cast<bool>({_cpp(c)}); }};" for n, c in d.require.items()]
    tests = []
    for name, condition in d.require.items():
        message = f"{d.name}: no value of {name} meets its condition: {condition.text}".replace('"', "'")
        if name in numeric:
            space = ", ".join(literal(v) for v in d.tune.get(name, ()))
            tests.append(f'if (!meet<{_kind(d, name)}>({name}, {{{space}}}, holds_{name})) return "{message}";')
        else:
            tests.append(f'if (!holds_{name}()) return "{message}";')
    moved = [n for n in d.require if n in numeric]
    lines += [f"for (int round = 0; round <= {len(d.require)}; ++round) {{  // a later choice may undo an earlier one"]
    if moved:
        before = ", ".join(f"before_{n} = {n}" for n in moved)
        lines.append(f"    const double {before};")
    lines += [f"    {t}" for t in tests]
    lines.append(f"    if ({' && '.join(f'before_{n} == {n}' for n in moved) or 'true'}) break;")
    lines.append("}")
    for name, condition in d.require.items():
        lines.append(f'if (!holds_{name}()) return "{d.name} requires {condition.text}";'.replace('""', '"'))
    return lines


def binding(kernels: Sequence[Kernel], namespace: str, title: str, template: str = "csrc/binding.cpp.j2") -> str:
    """binding.cpp: checks, workspace, launch, and the operators' registration."""
    from kforge.export.templates import render_template

    rows = [
        {
            "name": k.name,
            "op": k.op,
            "schema": schema(k),
            "binding_parameters": ", ".join(_binding_parameter(k, p) for p in k.definition.arguments),
            "binding": _binding(k, namespace),
        }
        for k in kernels
    ]
    maps = {"tensor_maps": any(map(takes_maps, kernels)), "scalar_types": SCALAR_TYPES, **tables()}
    return render_template(template, {"title": title, "namespace": namespace, "kernels": rows, **maps})


def _binding_parameter(kernel: Kernel, p: Param) -> str:
    if p.kind == "pointer":
        return f"{'std::optional<Tensor>' if kernel.is_optional(p.name) else 'Tensor'} {p.name}"
    if p.kind == "tensor_map":
        return f"Tensor {p.name}, Integers {p.name}_map"
    return {"bool": "bool", "float": "double", "int": "int64_t"}[_scalar_schema(kernel, p)] + f" {p.name}"


def _binding(kernel: Kernel, namespace: str) -> list[str]:
    d = kernel.definition
    pointers = [p for p in d.arguments if p.kind == "pointer"]
    maps = [p for p in d.arguments if p.kind == "tensor_map"]
    first = next((p.name for p in (*pointers, *maps) if p in maps or not kernel.is_optional(p.name)), None)
    if first is None:
        raise ExportError(f"{kernel.name} has no tensor argument that is always given")
    lines = [f"const int device = {first}.get_device();"]
    for p in pointers:
        dense = "false" if p.name in d.strided else "true"
        value = f"*{p.name}" if kernel.is_optional(p.name) else p.name
        guard = f"if ({p.name}) " if kernel.is_optional(p.name) else ""
        lines.append(f'{guard}check({value}, "{kernel.name}: {p.name}", device, {dense});')
    for p in maps:
        lines.append(f'check({p.name}, "{kernel.name}: {p.name}", device, false);')
    lines += _types(kernel, [*pointers, *maps])
    names = []
    for p in pointers:
        pointer = f"{p.name} ? {p.name}->data_ptr() : nullptr" if kernel.is_optional(p.name) else f"{p.name}.data_ptr()"
        lines.append(f"void* {p.name}_pointer = {pointer};")
    for p in d.arguments:
        if p.kind == "tensor_map":
            continue
        if p.kind == "scalar":
            ctype = scalar_type(kernel, p)
            kind = _scalar_schema(kernel, p)
            fitted = f'fit<{ctype}>({p.name}, "{p.name}")' if kind == "int" else f"static_cast<{ctype}>({p.name})"
            lines.append(f"{ctype} {p.name}_value = {fitted};")
        names.append(f"{p.name}_pointer" if p.kind == "pointer" else p.name)
    lines.append("const Guard guard(device);")
    lines.append(f"{namespace}::Plan plan;")
    lines.append(f"const char* refused = {namespace}::plan_{kernel.name}({', '.join(['types', *names, 'plan'])});")
    lines.append('CHECK(refused == nullptr, std::string(refused ? refused : ""));')
    lines.append("if (plan.kernel == nullptr) return;")
    for p in maps:
        encoded = f'encoded({p.name}, {p.name}_map, "{kernel.name}: {p.name}: ")'
        lines.append(f"{namespace}::TensorMap {p.name}_value = {encoded};")
    if d.workspace is not None:
        zeroed = "true" if d.zeroed else "false"
        lines.append(f"const Tensor workspace = bytes({first}, plan.workspace, {zeroed});")
        lines.append("void* workspace_pointer = workspace.data_ptr();")
    packed = [
        f"&{WORKSPACE}_pointer" if d.workspace is not None and p.name == WORKSPACE
        else f"&{p.name}_pointer" if p.kind == "pointer" else f"&{p.name}_value"
        for p in d.signature.params
    ]  # fmt: skip
    lines.append(f"void* arguments[] = {{{', '.join(packed)}}};")
    lines.append(f"const char* failed = {namespace}::launch(plan, arguments, current_stream(device));")
    lines.append(f'CHECK(failed == nullptr, "{kernel.name}: ", std::string(failed ? failed : ""));')
    return lines


def _types(kernel: Kernel, pointers: Sequence[Param]) -> list[str]:
    """Which combination of types the tensors have, each tensor's dtype checked."""
    d = kernel.definition
    lines = ["int types = -1;"]
    by_name = {p.name: p for p in pointers}
    for number, types in enumerate(kernel.types):
        bound = dict(types)
        tests = []
        for p in (p for p in pointers if p.kind == "pointer"):
            value = f"{p.name}->" if kernel.is_optional(p.name) else f"{p.name}."
            target = element(bound.get(p.ctype, p.ctype))
            allowed = target.dtypes if p.name in d.written else (*target.dtypes, *target.read_only_dtypes)
            if not allowed:
                continue
            test = " || ".join(f"{value}scalar_type() == ScalarType::{SCALAR_TYPES[n]}" for n in allowed)
            tests.append(
                f"(!{p.name} || {test})" if kernel.is_optional(p.name) else f"({test})" if len(allowed) > 1 else test
            )
        for name, owner in d.types.items():  # a type that only the tensor of a void pointer or of a map binds
            if owner in by_name and by_name[owner].ctype in ("void", "CUtensorMap"):
                dtype = SCALAR_TYPES[element(bound[name]).dtypes[0]]
                tests.append(f"{owner}.scalar_type() == ScalarType::{dtype}")
        lines.append(f"if ({' && '.join(tests) or 'true'}) types = {number};")
    lines.append(f'CHECK(types >= 0, "{kernel.name} was not built for the dtypes of its tensors");')
    return lines

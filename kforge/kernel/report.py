"""The static resource report: what ptxas says of a candidate's kernels, found without running any of its code."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import BuildError, LaunchError
from kforge.kernel import hooks
from kforge.kernel.build import DEFAULT_ARCH, Build
from kforge.kernel.ctypes_table import canonical
from kforge.kernel.ctypes_table import element as element_of
from kforge.kernel.definition import Definition
from kforge.kernel.occupancy import occupancy
from kforge.kernel.prepare import Constant

if TYPE_CHECKING:
    from kforge.kernel.kernel import Kernel
    from kforge.kernel.module import Module

BUILDS_AT_ONCE = 4


@dataclass(frozen=True)
class KernelResources:
    """One built kernel. shared: static bytes; occupancy: share of resident warps, None where the block is unknown."""

    name: str
    arch: str
    registers: int
    shared: int
    stack: int
    spill_bytes: int
    constants: Mapping[str, Constant]
    types: Mapping[str, str]
    occupancy: float | None = None
    occupancy_limit: str = ""
    compiler: str = ""
    seconds: float = 0.0
    cubin: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "constants": dict(self.constants), "types": dict(self.types)}


def kernel_report(kernel: Kernel, arch: str = DEFAULT_ARCH) -> list[KernelResources]:
    """The figures of every configuration that calls of this process resolved to, built for `arch` (cached).

    Occupancy counts the dynamic shared memory of the last call with that configuration.
    """
    reports = []
    for (constants, types), geometry in kernel.configurations.items():
        built, _ = kernel.module.build(kernel.definition, dict(constants), dict(types), arch)
        instance = kernel.module.instance(kernel.definition, dict(constants), dict(types))
        threads = geometry.block[0] * geometry.block[1] * geometry.block[2]
        reports.append(
            resources(kernel.definition, built, instance, dict(constants), dict(types), threads, geometry.shared)
        )
    return reports


def static_report(
    candidate: Path | str,
    arch: str = DEFAULT_ARCH,
    types: Mapping[str, str] | None = None,
    element: str = "float",
) -> list[dict[str, Any]]:
    """Build every Kernel that a candidate declares, and report ptxas's figures: at its declared constants, or the next
    ones where `require` rules these out for every call, or those of `overrides` that are in force.

    candidate: a candidate's folder or .py file, whose Kernel(...) calls are read from the syntax tree (literal
    arguments only), or CUDA source text, of which all kernels that need no constants are built. types: C type per
    name in `types=`; `element` where absent. Dynamic shared memory enters occupancy only where it needs no argument.
    BuildError when a source does not compile.
    """
    if isinstance(candidate, str) and "__global__" in candidate:
        declared = [(name, {"source": candidate, "block": 0}) for name in _plain_kernels(candidate)]
        folder = Path.cwd()
    else:
        path = Path(candidate)
        folder = path if path.is_dir() else path.parent
        files = sorted(folder.glob("*.py")) if path.is_dir() else [path]
        declared = [call for file in files for call in declared_kernels(file.read_text())]
    made = [_prepare(name, keywords, folder, types or {}, element) for name, keywords in declared]
    with ThreadPoolExecutor(max_workers=BUILDS_AT_ONCE) as pool:  # the compiler works outside Python's lock
        return list(pool.map(lambda kernel: _foreseen(kernel[0], kernel[1], kernel[2], arch).as_dict(), made))


def declared_report(kernel: Kernel, arch: str = DEFAULT_ARCH, element: str = "float") -> KernelResources:
    """The figures of a Kernel that no call has configured, as `static_report` gives them."""
    return _foreseen(kernel.module, kernel.definition, _bound(kernel.definition, {}, element), arch)


def declared_kernels(source: str) -> list[tuple[str, dict[str, Any]]]:
    """The Kernel(...) and <module>.kernel(...) calls in a Python source: name and literal keywords of each."""
    tree = ast.parse(source)
    literals: dict[str, Any] = {}
    modules: dict[str, dict[str, Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if (value := _literal(node.value, literals)) is not None:
                literals[name] = value
            elif isinstance(node.value, ast.Call) and _called(node.value) == "Module":
                modules[name] = _keywords(node.value, ("source", "include", "compiler"), literals)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        keywords = _keywords(node, ("name", "source", "grid", "block", "shared"), literals)
        if _called(node) == "Kernel" and len(node.args) > 1 and isinstance(node.args[1], ast.Name):
            keywords.update(modules.get(node.args[1].id, {}))
        elif _called(node) == "kernel" and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id in modules):
                continue
            keywords = {**_keywords(node, ("name",), literals), **modules[owner.id]}
        elif _called(node) != "Kernel":
            continue
        if "name" in keywords:
            found.append((keywords.pop("name"), keywords))
    return found


def resources(
    definition: Definition,
    built: Build,
    instance: str,
    constants: Mapping[str, Constant],
    types: Mapping[str, str],
    threads: int | None,
    dynamic_shared: int = 0,
) -> KernelResources:
    """The report of one build."""
    figures = built.resources.get(instance)
    if figures is None:
        raise BuildError(f"ptxas reported nothing on {instance}", log=built.log)
    share = None
    if threads:
        share = occupancy(built.arch, threads, figures.registers, figures.shared + dynamic_shared)
    return KernelResources(
        name=definition.name,
        arch=built.arch,
        registers=figures.registers,
        shared=figures.shared,
        stack=figures.stack,
        spill_bytes=figures.spill_bytes,
        constants=constants,
        types=types,
        occupancy=share.share if share else None,
        occupancy_limit=share.limit if share else "",
        compiler=built.compiler,
        seconds=built.seconds,
        cubin=str(built.path),
    )


def _prepare(
    name: str, keywords: dict[str, Any], folder: Path, types: Mapping[str, str], element: str
) -> tuple[Module, Definition, dict[str, str]]:
    """A declared kernel with its module and the C type of each of its type names."""
    from kforge.kernel.kernel import Kernel
    from kforge.kernel.module import Module

    source = keywords.pop("source", None)
    if source is None:
        raise BuildError(f"cannot read the source of Kernel '{name}' without running the candidate")
    if "\n" not in source and "__global__" not in source:
        if not (folder / source).is_file():
            words = f"no source file '{source}' beside the candidate's module"
            raise BuildError(words, "name a file beside the module, or give the text")
        source = folder / source
    module = Module(source, tuple(keywords.pop("include", ())), keywords.pop("compiler", "auto"))
    definition = Kernel(name, module, **keywords).definition
    return module, definition, _bound(definition, types, element)


def _bound(definition: Definition, types: Mapping[str, str], element: str) -> dict[str, str]:
    """The C type of each of a kernel's type names."""
    return {n: types.get(n, canonical(s) or element) for n, s in definition.types.items()}


def _foreseen(module: Module, definition: Definition, bound: Mapping[str, str], arch: str) -> KernelResources:
    """The report at the constants of a call of which nothing but its element types is known."""
    sizes = {f"sizeof {name}": element_of(ctype).size for name, ctype in bound.items()}
    constants = definition.foreseen(sizes, hooks.state.of(definition.name))
    return _report(module, definition, constants, bound, arch)


def _report(
    module: Module, definition: Definition, constants: Mapping[str, Constant], bound: Mapping[str, str], arch: str
) -> KernelResources:
    constants = dict(constants)
    built, _ = module.build(definition, constants, dict(bound), arch)
    instance = module.instance(definition, constants, dict(bound))
    threads, dynamic = _static(definition, "block", constants), _static(definition, "shared", constants)
    return resources(definition, built, instance, constants, bound, threads, dynamic or 0)


def _static(definition: Definition, what: str, constants: Mapping[str, Constant]) -> int | None:
    """The product of an expression's value where it depends on constants alone."""
    expression = getattr(definition, what)
    if not expression.names <= constants.keys() or expression.pointers or expression.types:
        return None
    try:
        value = expression.evaluate(constants)
    except LaunchError:
        return None
    product = 1
    for item in value if isinstance(value, tuple) else (value,):
        product *= int(item)
    return product


def _plain_kernels(source: str) -> list[str]:
    from kforge.kernel.signature import kernel_names, read_signature

    return [n for n in kernel_names(source) if "<" not in n and not read_signature(source, n, {}).template]


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _keywords(node: ast.Call, positions: tuple[str, ...], literals: Mapping[str, Any]) -> dict[str, Any]:
    pairs = [*zip(positions, node.args, strict=False), *((k.arg, k.value) for k in node.keywords if k.arg)]
    values = {name: _literal(value, literals) for name, value in pairs}
    for name, value in pairs:
        if name == "source" and values[name] is None:
            values[name] = _source_name(value)
    return {name: value for name, value in values.items() if value is not None}


def _source_name(node: ast.expr) -> str | None:
    """The file in `Path(__file__).parent / "x.cu"`, `Path(__file__).with_name("x.cu")` and the like."""
    strings = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return strings[-1] if strings and strings[-1].endswith(".cu") else None


def _literal(node: ast.expr, literals: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return literals.get(node.id)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None

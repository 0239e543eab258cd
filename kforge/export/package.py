"""Assembles an exported project: the Python package, its sources, tests, benchmark, papers. Names and versions too."""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kforge import __version__
from kforge.errors import ExportError, UsageError
from kforge.export.configurations import configurations, types_of
from kforge.export.cuda import Kernel
from kforge.export.evidence import Evidence, text_digest
from kforge.export.interface import Interface, module_facts, read_interface
from kforge.export.judged import unjudged_kernels
from kforge.export.reading import CandidateCode, read_candidate_code
from kforge.export.templates import plain_file, render_template
from kforge.export.translate import Translated, translate
from kforge.task import Form, Task

LICENSES = ("Apache-2.0", "MIT", "none")
BACKWARDS = ("recompute", "refuse")
_LOW_PRECISION = re.compile(r"\b(mm|bmm|addmm|baddbmm|convolution|linear|matmul|conv\dd|attention|_to_copy|gru|lstm)\b")


@dataclass(frozen=True)
class Options:
    """What a person may choose. name: of the package, empty for `<op>_kernels`; archs: sm_ and compute_ names."""

    name: str = ""
    license: str = "Apache-2.0"
    outside: str = "reference"
    backward: str = "recompute"
    archs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Export:
    """Everything that the formats write from."""

    task: Task
    evidence: Evidence
    code: CandidateCode
    translated: Translated
    interface: Interface
    kernels: tuple[Kernel, ...]
    options: Options
    dtypes: tuple[tuple[str, ...], ...]
    autocast: bool
    archs: tuple[str, ...]
    example: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    unjudged: tuple[str, ...] = ()  # kernels that no case launched: they do not leave

    @property
    def package(self) -> str:
        return self.options.name or default_name(self.task)

    @property
    def digest(self) -> str:
        """Of all that decides what the package computes."""
        files = self.evidence.candidate.files
        chosen = (self.options.backward, self.options.outside, self.options.license, self.package, __version__)
        return text_digest(*(files[n] for n in sorted(files)), self.task.source, *self.archs, *chosen)

    @property
    def namespace(self) -> str:
        """Of its operators: the package and a hash, so that two exports live in one process."""
        return f"{self.package}_{self.digest[:8]}"

    @property
    def op(self) -> str:
        return _identifier(self.task)

    @property
    def backward(self) -> str:
        """ "recompute", or why there is no backward."""
        if self.options.backward == "refuse":
            return "exported with --backward refuse"
        if "philox" in self.translated.runtime:
            return "the operator draws random numbers, which running the reference again would draw anew"
        return "recompute"

    @property
    def layer(self) -> str | None:
        """The class's name; None for references that are functions."""
        if self.task.form is not Form.MODULE:
            return None
        return "".join(part.capitalize() for part in self.op.split("_"))

    @property
    def function(self) -> str | None:
        """The function's name; None where there is state that only a module can hold."""
        stateless = not self.interface.state and not self.interface.attributes and self.interface.mode is None
        return self.op if self.layer is None or (stateless and self.layer != self.op) else None


def prepare_export(task: Task, evidence: Evidence, options: Options) -> Export:
    """Read, check and translate a candidate. ExportError with the line of what cannot leave."""
    _check_options(task, options)
    if len(_local_files(task)) > 1:
        raise ExportError(f"{task.path.name} imports files beside it", "put the reference into one file to export it")
    code = read_candidate_code(evidence.candidate)
    reference = task.make_reference()
    tensors, attributes = module_facts(reference)
    translated = translate(code, tensors, attributes)
    interface = read_interface(task, code, translated, reference, evidence.report)
    unjudged = unjudged_kernels((u.definition.name for u in code.kernels.values()), evidence.report)
    kernels = []
    for use in code.kernels.values():
        calls = interface.calls.get(use.definition.name, [])
        if calls and use.definition.name not in unjudged:
            builds = configurations(use.definition, calls)
            kernels.append(Kernel(use, calls, builds, types_of(use.definition, calls)))
    return Export(
        task=task,
        evidence=evidence,
        code=code,
        translated=translated,
        interface=interface,
        kernels=tuple(kernels),
        options=options,
        dtypes=interface.dtypes,
        autocast=_autocast(task, interface),
        archs=_archs(evidence, options, code),
        example=interface.example,
        unjudged=unjudged,
    )


def launching_source(export: Export, error: str) -> str:
    """The translated forward; in place of a kernel that no case launched an `error` is raised."""
    text = export.translated.launching
    for name in export.unjudged:
        said = f"{name} was never launched when the candidate was judged"
        text = re.sub(rf"^(\s*)kernels\.{name}\(.*\)$", rf"\1raise {error}({said!r})", text, flags=re.M)
    return text


def _identifier(task: Task) -> str:
    """The task's name as one of Python."""
    name = re.sub(r"\W", "_", task.name)
    return f"op_{name}" if not name[0].isalpha() or keyword.iskeyword(name) else name


def default_name(task: Task) -> str:
    """The package's name where none is chosen."""
    return f"{_identifier(task).lower()}_kernels"


def _check_options(task: Task, options: Options) -> None:
    name = options.name or default_name(task)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"--name {name}: a package's name has lower-case letters, digits and _")
    for option, value, known in (
        ("--license", options.license, LICENSES),
        ("--backward", options.backward, BACKWARDS),
        ("--outside", options.outside, ("reference", "raise")),
    ):
        if value not in known:
            raise UsageError(f"{option} {value} is unknown", f"choose {', '.join(known)}")


def _local_files(task: Task) -> Mapping[str, str]:
    from kforge.worker.parcel import pack_task

    return pack_task(task.path).files


def _autocast(task: Task, interface: Interface) -> bool:
    """Whether autocast leaves the reference alone: float32 tensors in, and no operator that it runs in half."""
    from kforge.task import capture

    floats = {d for combination in interface.dtypes for d in combination if d.startswith(("float", "bfloat"))}
    if floats | {d for a in interface.state for d in a.dtypes if d.startswith(("float", "bfloat"))} != {"float32"}:
        return False
    graph = capture(task).graph_module
    return graph is not None and not any(
        _LOW_PRECISION.search(str(n.target).replace(".", " ")) for n in graph.graph.nodes if n.op == "call_function"
    )


def _archs(evidence: Evidence, options: Options, code: CandidateCode) -> tuple[str, ...]:
    from kforge.kernel.build import check_arch

    if options.archs:
        return tuple(a if a.startswith("compute_") else check_arch(a) for a in options.archs)
    arch = str((evidence.report or {}).get("environment", {}).get("arch") or "sm_90a")
    text = "".join(u.source.text for u in code.kernels.values())
    specific = re.search(r"wgmma|tcgen05|setmaxnreg|cp\.async\.bulk", text)
    number = re.sub(r"\D", "", arch)
    return (arch,) if specific else (arch, f"compute_{number}")


def domain(export: Export) -> dict[str, Any]:
    """domain.json: where the kernels were judged, as data."""
    inputs: dict[str, Any] = {}
    known = {a.name: a for a in export.interface.inputs}
    for name in export.translated.inputs:
        argument = known.get(name)
        if argument is None:
            inputs[name] = {"kind": "value", "values": [export.interface.constants[name]], "constant": True}
        elif argument.schema == "Tensor":
            sizes = [list(s) for s in argument.sizes]
            inputs[name] = {"kind": "tensor", "sizes": sizes, "example": list(export.example[name])}
        else:
            inputs[name] = {"kind": "value", "values": list(argument.values)}
    return {
        "name": export.package,
        "outside": export.options.outside,
        "inputs": inputs,
        "dtypes": [list(d) for d in export.dtypes],
        "state": {a.path: {"dtype": a.dtypes[0], "sizes": [list(s) for s in a.sizes]} for a in export.interface.state},
        "attributes": dict(export.interface.attributes),
        "mode": export.interface.mode,
        "slower": [{n: list(s) for n, s in shapes.items()} for shapes in export.interface.slower],
        "autocast": export.autocast,
    }


def python_files(export: Export, kernels: str, version: str) -> dict[str, str]:
    """The Python package, by path in its folder. kernels: the text of _kernels.py."""
    context = template_context(export, version)
    imports = "import math\n\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    runtime = sorted(export.translated.runtime)
    launched = ", ".join([*(["Unjudged"] if export.unjudged else []), *runtime])
    faked = f"\nfrom ._runtime import {', '.join(runtime)}\n" if runtime else ""
    source = export.code.module
    launching = f'"""forward of {source}, translated: it allocates and launches."""\n\n{imports}\n'
    launching += f"from ._runtime import {launched}\n" if launched else ""
    launching += f"from ._kernels import kernels\n\n\n{launching_source(export, 'Unjudged')}\n"
    faking = f'"""forward of {source} without its launches: shapes, strides and dtypes of the outputs."""\n\n'
    faking += f"{imports}{faked}\n\n{export.translated.faking}\n"
    return {
        "__init__.py": render_template("package/init.py.j2", context),
        "ops.py": _tidy(render_template("package/ops.py.j2", context)),
        "_operator.py": _tidy(render_template("package/operator.py.j2", context)),
        "_forward.py": _tidy(launching),
        "_fake.py": _tidy(faking),
        "_runtime.py": plain_file("package/runtime.py"),
        "_kernels.py": _tidy(kernels),
        "reference.py": _reference(export),
        "domain.json": json.dumps(domain(export), indent=1) + "\n",
    }


def _tidy(text: str) -> str:
    """Two blank lines at most, one at the end."""
    return re.sub(r"\n{4,}", "\n\n\n", text).rstrip() + "\n"


def _reference(export: Export) -> str:
    task = export.task
    text = task.source.rstrip() + "\n"
    if export.layer is None:
        name = getattr(task.reference, "__name__", "reference")
        return text if name == "reference" else f"{text}\n\nreference = {name}\n"
    mode = {"train": ".train()", "eval": ".eval()", None: ""}[task.mode]
    return (
        f"{text}\n\ndef made():\n"
        '    """The module that was verified."""\n'
        '    init = get_init_inputs() if "get_init_inputs" in globals() else []\n'
        "    if isinstance(init, dict):\n"
        f"        return Model(**init){mode}\n"
        "    if len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict):\n"
        f"        return Model(*init[0], **init[1]){mode}\n"
        f"    return Model(*init){mode}\n"
    )


def template_context(export: Export, version: str) -> dict[str, Any]:
    """What the Python package's templates are filled with."""
    i, inputs = export.interface, export.translated.inputs
    arguments = {a.name: a for a in i.arguments}
    forward = ast.parse(f"def f({i.signature}): pass").body[0]
    assert isinstance(forward, ast.FunctionDef)
    keywords = {a.arg for a in forward.args.kwonlyargs}

    def value(name: str) -> str:
        return name if name in arguments else repr(i.constants[name])

    passed = [f"{n}={value(n)}" for n in inputs] + [f"{n}={n}" for n in export.translated.state.values()]
    operands = [a.name for a in i.inputs] + [f"state[{a.path!r}]" for a in i.state]
    names = [a.name for a in i.arguments]
    public = [n for n in (export.layer, export.function) if n]
    function_signature = re.sub(r"^self(, )?", "", i.signature)
    positional = [value(n) for n in inputs if n not in keywords]
    named = [f"{n!r}: {value(n)}" for n in inputs if n in keywords]
    return {
        "title": f"{export.task.name} as CUDA kernels",
        "first_line": f"{' '.join(export.evidence.stamps)}: " if export.evidence.stamps else "",
        "how": f"Exported by kforge from {export.code.module}.",
        "summary": summary(export),
        "facts": facts(export),
        "namespace": export.namespace,
        "op": export.op,
        "package": export.package,
        "version": version,
        "backward": export.backward,
        "recompute": export.backward == "recompute",
        "unjudged": export.unjudged,
        "schema_arguments": ", ".join(f"{a.schema} {a.name}" for a in i.arguments),
        "returns": "Tensor" if len(i.outputs) == 1 else "(" + ", ".join(["Tensor"] * len(i.outputs)) + ")",
        "parameters": ", ".join(names),
        "names": repr(names),
        "forward_call": ", ".join(passed),
        "single": len(i.outputs) == 1,
        "autocast": export.autocast,
        "tensors": [a.name for a in i.arguments if a.schema == "Tensor"],
        "scalars": [a.name for a in i.arguments if a.schema != "Tensor"],
        "has_module": export.layer is not None,
        "has_function": export.function is not None,
        "layer": export.layer,
        "function": export.function,
        "mode": i.mode,
        "state": [(a.path, a.name) for a in i.state],
        "reference_call": "".join(f"{v}, " for v in positional),
        "reference_keywords": ", ".join(named),
        "reference_arguments": ", ".join([*positional, *(f"{n}={value(n)}" for n in inputs if n in keywords)]),
        "signature": i.signature,
        "function_signature": function_signature,
        "inputs_dict": "{" + ", ".join(f'"{n}": {n}' for n in inputs) + "}",
        "fallback_call": ", ".join(f"{n}={n}" if n in keywords else n for n in inputs),
        "operator_call": ", ".join(operands),
        "function_operator_call": ", ".join(a.name for a in i.inputs),
        "tree": i.tree,
        "public": public,
        "all": sorted(["DOMAIN", "NAMESPACE", "OutsideDomain", "outside_domain", "unavailable", *public]),
        "kernels": [{"name": k.name, "op": k.op} for k in export.kernels],
        "archs": export.archs,
    }


def summary(export: Export) -> str:
    """The first line of the reference's docstring, or a plain one."""
    text = (ast.get_docstring(ast.parse(export.task.source)) or "").strip().split("\n")[0]
    return text or f"{export.task.name} as one operator."


def facts(export: Export) -> list[str]:
    """Shapes, dtypes, gradients and errors, for docstrings and README."""
    lines = []
    for name in export.translated.inputs:
        argument = next((a for a in export.interface.inputs if a.name == name), None)
        if argument is None:
            lines.append(f"{name}: {export.interface.constants[name]!r}, the one value that was verified.")
        elif argument.schema == "Tensor":
            at = list(argument.dtypes)
            sizes = " x ".join(str(lo) if lo == hi else f"{lo}..{hi}" for lo, hi in argument.sizes) or "a number"
            lines.append(f"{name}: {' or '.join(at)}, {sizes}, any strides.")
        else:
            lines.append(f"{name}: one of {', '.join(map(repr, argument.values))}.")
    lines.append(f"returns: {', '.join(export.interface.outputs)}; fresh tensors, never views of the inputs.")
    if export.backward == "recompute":
        lines.append(
            "Gradients: the reference's own, by running it again in backward (slower than a kernel; once only)."
        )
    else:
        lines.append(f"Gradients: refused ({export.backward}).")
    lines.append("Outside of these sizes and dtypes, and on the CPU, the reference computes the call and says so once.")
    return lines


def next_version(folder: Path, digest: str) -> str:
    """0.1.0, or what the manifest in `folder` has: the same for the same content, else its patch number plus one."""
    path = folder / "manifest.json"
    if not path.is_file():
        return "0.1.0"
    try:
        before = json.loads(path.read_text())
        version, known = str(before["version"]), str(before["digest"])
        major, minor, patch = map(int, version.split("."))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is damaged", "remove it, or export to another folder with --to") from error
    return version if known == digest else f"{major}.{minor}.{patch + 1}"

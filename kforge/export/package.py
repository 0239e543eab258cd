"""Assembles an exported project: the Python package, its sources, tests, benchmark, papers. Names and versions too."""

from __future__ import annotations

import json
import keyword
import re
import unicodedata
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
from kforge.export.tensor_maps import check_archs
from kforge.export.translate import Derivative, Translated, translate, translate_derivative
from kforge.task import Form, Task

LICENSES = ("Apache-2.0", "MIT", "none")
BACKWARDS = ("auto", "recompute", "refuse")  # auto: the candidate's own kernels where they were judged
_LOW_PRECISION = re.compile(r"\b(mm|bmm|addmm|baddbmm|convolution|linear|matmul|conv\dd|attention|_to_copy|gru|lstm)\b")


@dataclass(frozen=True)
class Options:
    """What a person may choose. name: of the package, empty for `<op>_kernels`; archs: sm_ and compute_ names."""

    name: str = ""
    license: str = "Apache-2.0"
    outside: str = "reference"
    backward: str = "auto"
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
    derivative: Derivative | None = None
    without: str = ""  # why the candidate's own backward stays behind; empty where it has none

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
        """ "kernels" (the candidate's own), "recompute" (the reference's), or why there is no backward."""
        if self.options.backward == "refuse":
            return "left out when it was exported"
        if "philox" in self.translated.runtime:
            return "the operator draws random numbers, which running the reference again would draw anew"
        if self.interface.mutated:
            return f"the operator changes {', '.join(self.interface.mutated)} in place"
        return "kernels" if self.derivative is not None else "recompute"

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
    derivative, without = None, ""
    if options.backward == "auto" and code.pair is not None:
        derivative, without = _derivative(code, evidence, tensors, attributes)
    interface = read_interface(task, code, translated, reference, evidence.report, derivative)
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
        autocast=not interface.mutated and _autocast(task, interface),  # a cast input would be changed in its place
        archs=_archs(evidence, options, code),
        example=interface.example,
        unjudged=unjudged,
        derivative=None if interface.mutated else derivative,
        without=without,
    )


def _derivative(
    code: CandidateCode, evidence: Evidence, tensors: Mapping[str, Any], attributes: Mapping[str, Any]
) -> tuple[Derivative | None, str]:
    """The candidate's backward, translated, or why it stays behind."""
    assert code.pair is not None
    if code.pair.problem:
        return None, code.pair.problem
    if not (evidence.report or {}).get("backward") and evidence.report is not None:
        return None, "its gradients were not judged (kforge verify --backward)"
    try:
        return translate_derivative(code, tensors, attributes), ""
    except ExportError as error:
        return None, error.message


def launching_source(export: Export, error: str, text: str | None = None) -> str:
    """The translated forward (or `text`); in place of a kernel that no case launched an `error` is raised."""
    text = export.translated.launching if text is None else text
    for name in export.unjudged:
        said = f"{name} was never launched when the candidate was judged"
        text = re.sub(rf"^(\s*)kernels\.{name}\(.*\)$", rf"\1raise {error}({said!r})", text, flags=re.M)
    return text


def _identifier(task: Task) -> str:
    """The task's name as one of Python and C++: letters without accents, digits and _."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", task.name) if not unicodedata.combining(c))
    name = re.sub(r"[^A-Za-z0-9_]", "_", bare)
    if not name.strip("_"):
        return "op"
    return f"op_{name}" if not name[0].isalpha() or keyword.iskeyword(name) else name


def default_name(task: Task) -> str:
    """The package's name where none is chosen."""
    return f"{_identifier(task).lower()}_kernels"


def _check_options(task: Task, options: Options) -> None:
    name = options.name or default_name(task)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"{name} cannot be a package's name", "lower-case letters, digits and _, a letter first")
    for option, value, known in (
        ("license", options.license, LICENSES),
        ("backward", options.backward, BACKWARDS),
        ("outside", options.outside, ("reference", "raise")),
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

    text = "".join(u.source.text for u in code.kernels.values())
    if options.archs:
        archs = tuple(a if a.startswith("compute_") else check_arch(a) for a in options.archs)
        check_archs(archs, code, text)
        return archs
    arch = str((evidence.report or {}).get("environment", {}).get("arch") or "sm_90a")
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
        raise UsageError(f"{path} is damaged", "remove it, or export to another folder") from error
    return version if known == digest else f"{major}.{minor}.{patch + 1}"

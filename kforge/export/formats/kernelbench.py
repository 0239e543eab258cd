"""Format `kernelbench`: one Python file with ModelNew that builds its kernels by load_inline, for graders of peers."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING

from kforge.errors import ExportError
from kforge.export.cuda import binding, launch_files
from kforge.export.domain import box, exported_domain
from kforge.export.filling import reference_module
from kforge.export.package import launching_source
from kforge.export.papers import context, manifest
from kforge.export.sources import headers
from kforge.export.templates import plain_file, render_template
from kforge.export.tensor_maps import python_file, takes_maps

if TYPE_CHECKING:
    from kforge.export.formats import Files
    from kforge.export.package import Export


_LAUNCHED = "@torch.no_grad()\ndef launched("


def write(export: Export, version: str) -> Files:
    """One module, and the manifest beside it."""
    title = f"{export.task.name} {version}"
    csrc = launch_files(export.kernels, export.namespace, title) | headers(export)
    launch = _inlined(csrc["launch.cu"], csrc)
    bound = _inlined(binding(export.kernels, export.namespace, title), csrc)
    if '"""' in launch + bound:
        raise ExportError("the kernel's source holds a triple quote", "format kernelbench puts it into Python text")
    runtime = plain_file("package/runtime.py")
    prepared = runtime[runtime.index("_prepared:") : runtime.index("def flat(")].rstrip()
    maps = python_file(described=False)
    code = render_template(
        "project/kernelbench.py.j2",
        {
            "title": f"{export.task.name}: ModelNew on CUDA kernels, built by load_inline",
            "stamp": ", ".join(export.evidence.stamps),
            "sizes": ", ".join(f"{name} {box(sizes)}" for name, sizes in exported_domain(export)["sizes"].items()),
            "namespace": export.namespace,
            "launch": launch.replace("\\", "\\\\"),
            "binding": bound.replace("\\", "\\\\"),
            "archs": export.archs,
            "kernels": [{"name": k.name, "op": k.op, "maps": takes_maps(k)} for k in export.kernels],
            "runtime": prepared if export.translated.runtime else "",
            "maps": maps[maps.index("class TensorMap") :].rstrip() if any(map(takes_maps, export.kernels)) else "",
            "imports": _imports(export),
            "forward": re.sub(r"^def forward\(", _LAUNCHED, launching_source(export, "RuntimeError"), flags=re.M),
            "model": _model(export),
        },
    )
    return {
        f"{export.task.name}_kernelbench.py": re.sub(r"\n{4,}", "\n\n\n", code).rstrip() + "\n",
        "manifest.json": json.dumps(manifest(export, version, "kernelbench"), indent=1) + "\n",
    }


def trial(export: Export, version: str, files: Files) -> Files:
    """The file as a module of a project, with tests that build it as a grader does."""
    module = f"{export.task.name}_kernelbench"
    facts = context(export, version, "kernelbench") | {"module": module}
    return {
        f"{module}.py": files[f"{module}.py"],
        f"reference_of_{module}.py": reference_module(export),
        "tests/test_kernelbench.py": render_template("trial/test_kernelbench.py.j2", facts),
        "pyproject.toml": render_template("trial/pyproject.toml.j2", facts),
        "manifest.json": files["manifest.json"],
    }


def _inlined(text: str, files: dict[str, str]) -> str:
    """A source with the files beside it in place of its includes."""
    for _ in range(20):
        found = next((m for m in re.finditer(r'^#include "([^"]+)"\n', text, re.M) if m[1] in files), None)
        if found is None:
            return text
        body = files[found[1]].replace("#pragma once\n", "")
        text = text[: found.start()] + body + text[found.end() :]
    raise ExportError("the headers of the kernel's source include one another")


def _imports(export: Export) -> list[str]:
    """What the candidate's module imports, kforge excepted."""
    tree = ast.parse(export.code.text)
    kept = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    return [text for n in kept if "kforge" not in (text := ast.unparse(n)) and "__future__" not in text]


def _model(export: Export) -> str:
    """ModelNew with its forward calling the translated functions."""
    lines = export.code.text.splitlines()
    model = next(n for n in ast.parse(export.code.text).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew")
    forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    names = [f"{n}={n}" for n in export.translated.inputs]
    names += [f"{name}=self.{path}" for path, name in export.translated.state.items()]
    indent = " " * forward.col_offset
    body = [f"{indent}def forward({export.interface.signature}):", f"{indent}    return launched({', '.join(names)})"]
    end = model.end_lineno or len(lines)
    after = forward.end_lineno or end
    return "\n".join([*lines[model.lineno - 1 : forward.lineno - 1], *body, *lines[after:end]])

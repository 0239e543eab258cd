"""Format `hf`: the layout that Hugging Face's kernel-builder takes; its part of a build is done here for the trial."""

from __future__ import annotations

import json
import pprint
import re
from typing import TYPE_CHECKING

from kforge.export.cuda import binding, launch_files
from kforge.export.filling import python_files, template_context
from kforge.export.package import domain
from kforge.export.papers import context, papers
from kforge.export.sources import headers
from kforge.export.templates import render_template

if TYPE_CHECKING:
    from kforge.export.formats import Files
    from kforge.export.package import Export

_LOADED = 'DOMAIN = json.loads(Path(__file__).with_name("domain.json").read_text())\n'
_PAPERS = ("README.md", "VERIFICATION.md", "LICENSE", "manifest.json", "benchmarks/benchmark.py")


def capabilities(archs: tuple[str, ...]) -> list[str]:
    """ "9.0" for sm_90; for sm_90a too where PTX goes along, since then nothing of that architecture alone is used."""
    portable = any(a.startswith("compute_") for a in archs)
    found = []
    for arch in archs:
        if arch.startswith("sm_"):
            digits = re.sub(r"\D", "", arch)
            found.append(f"{digits[:-1]}.{digits[-1]}" + ("" if portable else arch.removeprefix(f"sm_{digits}")))
    return list(dict.fromkeys(found))


def write(export: Export, version: str) -> Files:
    """The repository's files."""
    title = f"{export.package} {version}"
    facts = context(export, version, "hf") | {"capabilities": capabilities(export.archs)}
    kernels = render_template("package/kernels_hf.py.j2", facts)
    package = python_files(export, kernels, version)
    del package["domain.json"]  # kernel-builder takes Python files
    facing = pprint.pformat(json.loads(json.dumps(domain(export))), width=110, sort_dicts=False)
    package["_domain.py"] = f'"""Where the kernels were judged, as data."""\n\nDOMAIN = {facing}\n'
    runtime = package["_runtime.py"].replace(_LOADED, "")
    runtime = runtime.replace("import json\n", "").replace("from pathlib import Path\n", "")
    package["_runtime.py"] = runtime.replace("import torch\n", "import torch\n\nfrom ._domain import DOMAIN\n", 1)
    package["__init__.py"] = package["__init__.py"].replace("(domain.json)", "(_domain.py)")
    if export.layer is not None:
        package["layers.py"] = render_template("package/layers.py.j2", template_context(export, version))
        package["__init__.py"] = package["__init__.py"].replace("from .ops", "from . import layers\nfrom .ops")
    csrc = launch_files(export.kernels, export.namespace, title) | headers(export)
    header = csrc.pop("launch.h")
    files = {f"torch-ext/{export.package}/{n}": t for n, t in package.items()}
    written = papers(export, version, "hf")
    return {
        **files,
        "torch-ext/torch_binding.h": '#pragma once\n\n#include "../csrc/launch.h"\n',
        "torch-ext/torch_binding.cpp": binding(export.kernels, export.namespace, title, "csrc/torch_binding.cpp.j2"),
        "csrc/launch.h": header,
        **{f"csrc/{n}": t for n, t in csrc.items()},
        "build.toml": render_template("project/build.toml.j2", facts | {"csrc": sorted(["launch.h", *csrc])}),
        **{f"tests/{n}": render_template(f"project/{n}.j2", facts) for n in ("test_package.py", "test_gpu.py")},
        **{n: written[n] for n in _PAPERS},
    }


def trial(export: Export, version: str, files: Files) -> Files:
    """What `write` made with what kernel-builder adds, as a project that setuptools builds."""
    facts = context(export, version, "hf") | {"data": "*.so", "ops": f"_{export.namespace}"}
    added = {
        f"torch-ext/{export.package}/_ops.py": "trial/ops.py.j2",
        "torch-ext/registration.h": "trial/registration.h.j2",
        "setup.py": "project/setup.py.j2",
        "pyproject.toml": "project/pyproject.toml.j2",
    }
    return {**files, **{name: render_template(template, facts) for name, template in added.items()}}

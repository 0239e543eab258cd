"""Format `extension`: a setuptools project whose operators are compiled where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.export.cuda import binding, launch_files
from kforge.export.filling import python_files
from kforge.export.papers import context, papers
from kforge.export.sources import headers
from kforge.export.templates import render_template

if TYPE_CHECKING:
    from kforge.export.formats import Files
    from kforge.export.package import Export


def write(export: Export, version: str) -> Files:
    """The project's files."""
    facts = context(export, version, "extension") | {"data": "_C*.so"}
    title = f"{export.package} {version}"
    kernels = render_template("package/kernels_extension.py.j2", facts)
    package = {f"src/{export.package}/{n}": t for n, t in python_files(export, kernels, version).items()}
    csrc = launch_files(export.kernels, export.namespace, title)
    csrc["binding.cpp"] = binding(export.kernels, export.namespace, title)
    csrc |= headers(export)
    return {
        **package,
        **{f"csrc/{n}": t for n, t in csrc.items()},
        **{f"tests/{n}": render_template(f"project/{n}.j2", facts) for n in ("test_package.py", "test_gpu.py")},
        "pyproject.toml": render_template("project/pyproject.toml.j2", facts),
        "setup.py": render_template("project/setup.py.j2", facts),
        "MANIFEST.in": "recursive-include csrc *\nrecursive-include tests *.py\n",
        **papers(export, version, "extension"),
    }

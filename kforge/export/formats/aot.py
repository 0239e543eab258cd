"""Format `aot`: a pure Python package with cubins, for machines without a compiler; only the architectures built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge import scratch
from kforge.errors import UsageError
from kforge.export.ahead import build_cubins, kernel_rows
from kforge.export.filling import python_files
from kforge.export.papers import built_for, context, papers
from kforge.export.sources import headers
from kforge.export.templates import render_template
from kforge.export.tensor_maps import MODULE, python_file, takes_maps

if TYPE_CHECKING:
    from kforge.export.formats import Files
    from kforge.export.package import Export


def write(export: Export, version: str) -> Files:
    """The project's files. BuildError as the compiler says it; UsageError when only PTX was asked for."""
    archs = built_for(export, "aot")
    if not archs:
        raise UsageError("format aot needs an architecture such as sm_90a", "PTX (compute_) is compiled where it runs")
    cubins, places = build_cubins(export.kernels, archs, headers(export), scratch.make("aot"))
    facts = context(export, version, "aot") | {"data": "cubins/*/*.cubin"}
    rows = kernel_rows(export.kernels, places)
    kernels = render_template("package/kernels_aot.py.j2", facts | {"kernels": rows})
    package = f"src/{export.package}"
    return {
        **{f"{package}/{n}": t for n, t in python_files(export, kernels, version).items()},
        **({f"{package}/{MODULE}": python_file(described=True)} if any(map(takes_maps, export.kernels)) else {}),
        **{f"{package}/cubins/{n}": data for n, data in cubins.items()},
        **{f"tests/{n}": render_template(f"project/{n}.j2", facts) for n in ("test_package.py", "test_gpu.py")},
        "pyproject.toml": render_template("project/pyproject.toml.j2", facts),
        **papers(export, version, "aot"),
    }

"""Format `triton`: a pure Python package of Triton kernels, its operator made by torch.library.triton_op."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from kforge.export.filling import python_files
from kforge.export.papers import context, papers
from kforge.export.templates import render_template

if TYPE_CHECKING:
    from kforge.export.formats import Files
    from kforge.export.package import Export


def write(export: Export, version: str) -> Files:
    """The project's files."""
    facts = context(export, version, "triton") | {"data": "py.typed", "triton": True}
    kernels = render_template("package/kernels_triton.py.j2", facts | {"names": list(export.code.triton)})
    package = python_files(export, kernels, version)
    del package["_fake.py"]  # triton_op runs the forward itself on fake tensors
    package["_triton.py"] = _kernels(export)
    return {
        **{f"src/{export.package}/{n}": t for n, t in package.items()},
        f"src/{export.package}/py.typed": "",
        **{f"tests/{n}": render_template(f"project/{n}.j2", facts) for n in ("test_package.py", "test_gpu.py")},
        "pyproject.toml": render_template("project/pyproject.toml.j2", facts),
        **papers(export, version, "triton"),
    }


def _kernels(export: Export) -> str:
    """The module's imports, its literals and its triton.jit functions, as they are."""
    tree = ast.parse(export.code.text)
    lines = export.code.text.splitlines()
    kept = []
    for node in tree.body:
        text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        foreign = "kforge" not in text and "__future__" not in text
        if isinstance(node, ast.Assign | ast.AnnAssign) or (isinstance(node, ast.Import | ast.ImportFrom) and foreign):
            kept.append(text)
    blocks = [f'"""The Triton kernels of {export.code.module}."""', "\n".join(kept), *export.code.triton.values()]
    return "\n\n\n".join(blocks).replace('"""\n\n\n', '"""\n\n', 1) + "\n"

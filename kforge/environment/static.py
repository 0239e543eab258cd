"""The static gate: what a candidate's text alone already says. Nothing is imported and nothing is run.

Python rules live in static_python, CUDA rules in static_cuda, names in allowlist.toml. A rule either rejects, with a
name that the report carries, or warns.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from kforge.kernel.candidate import Candidate

NESTING = 150  # levels of a syntax tree: what reads it recursively stays far from the interpreter's limit


@dataclass(frozen=True)
class Finding:
    """One rule that a source line breaks. rule: its name in the report; message: in words, for a person and a model."""

    rule: str
    file: str
    line: int
    message: str
    rejects: bool = True

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.message} [{self.rule}]"


@dataclass(frozen=True)
class StaticReport:
    """findings in order of file and line; vendor_calls as named in the source; has_kernel: some kernel is made."""

    findings: tuple[Finding, ...]
    vendor_calls: tuple[str, ...]
    has_kernel: bool

    @property
    def rejections(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.rejects)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(str(f) for f in self.findings if not f.rejects)


def _depth(tree: ast.AST) -> int:
    """Levels of a syntax tree, counted without recursion."""
    level, depth = [tree], 0
    while level:
        level, depth = [child for node in level for child in ast.iter_child_nodes(node)], depth + 1
    return depth


def _too_deep(candidate: Candidate) -> StaticReport:
    message = f"nested too deeply to be read: more than {NESTING} levels of expressions or blocks"
    return StaticReport((Finding("nesting", candidate.module, 0, message),), (), False)


def check_static(
    candidate: Candidate,
    *,
    reference_source: str = "",
    reference_names: Collection[str] = (),
    shapes: Collection[int] = (),
    constraints: Mapping[str, object] | None = None,
    signature: tuple[Any, ...] | None = None,
) -> StaticReport:
    """Every static rule over every file of a candidate.

    reference_source: text of op.py, so that a copy of the reference inside the candidate is recognised;
    reference_names: names it defines. shapes: sizes of the benchmark's inputs; a literal equal to one is a warning.
    constraints: the task's standing rules by name. signature: of the reference's forward, for keep_signature.
    """
    from kforge.environment.standing import check_standing
    from kforge.environment.static_cuda import check_cuda, check_text
    from kforge.environment.static_python import check_module

    rules = constraints or {}
    findings: list[Finding] = []
    if candidate.module not in candidate.files:
        return StaticReport((Finding("no_module", candidate.module, 0, "the candidate lacks its module"),), (), False)
    text = candidate.files[candidate.module]
    try:
        tree = ast.parse(text, filename=candidate.module)
    except SyntaxError as error:
        finding = Finding("syntax", candidate.module, error.lineno or 0, f"syntax error: {error.msg}")
        return StaticReport((finding,), (), False)
    except (RecursionError, MemoryError):  # how Python's parser says that it is nested too deeply
        return _too_deep(candidate)
    if _depth(tree) > NESTING:
        return _too_deep(candidate)
    shapes = set(shapes) - _guarded_sizes(tree)
    module = check_module(candidate.module, tree, reference_source, reference_names, shapes)
    findings += module.findings
    if "no_vendor_calls" in rules:
        findings += [
            Finding("no_vendor_calls", candidate.module, line, f"calls {name}, and the task forbids vendor calls")
            for name, line in module.vendor.items()
        ]
    sources = {name: body for name, body in candidate.files.items() if name.endswith((".cu", ".cuh", ".h"))}
    sources |= {f"{candidate.module} (inline source)": body for body in module.inline_sources}
    for name, body in sources.items():
        findings += check_text(name, body) + check_cuda(name, body, shapes, rules)
    findings += check_standing(candidate, tree, sources, rules, signature)
    if not any(f.rejects for f in findings) and not module.defines_model:
        findings.append(Finding("no_model", candidate.module, 0, "defines no class ModelNew"))
    return StaticReport(tuple(findings), tuple(sorted(module.vendor)), module.has_kernel)


def _reached(tree: ast.Module, name: str) -> list[ast.AST]:
    """Nodes of the functions of this name and of those that they call by name, each once."""
    functions: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
    names, found = [name], []
    for called in names:  # grows
        for function in functions.get(called, ()):
            nodes = list(ast.walk(function))
            found += nodes
            used = {n.id for n in nodes if isinstance(n, ast.Name)} | {
                n.attr for n in nodes if isinstance(n, ast.Attribute)
            }
            names += sorted(used & functions.keys() - set(names))
    return found


def _guarded_sizes(tree: ast.Module) -> set[int]:
    """Numbers that the module insists on: `if size != 768: raise`. Such a literal is right wherever it runs."""
    guarded = set()
    for node in _reached(tree, "forward"):
        if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            tests = (
                node.test.values
                if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or)
                else [node.test]
            )
            for test in tests:
                if isinstance(test, ast.Compare) and all(isinstance(op, (ast.NotEq, ast.NotIn)) for op in test.ops):
                    numbers = (c.value for c in ast.walk(test) if isinstance(c, ast.Constant))
                    guarded |= {n for n in numbers if type(n) is int}
    return guarded

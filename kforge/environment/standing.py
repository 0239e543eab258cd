"""Standing rules that no other gate owns: the signature, names behind macros, compilers' options, limits of launches.

The static gate takes `check_standing`, the plan `widened`, the candidate's processes `limits`, the honesty gate
`observed`. Each says nothing where its rule does not stand.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kforge.environment.allowlist import allowlist
from kforge.environment.inputs import Case, Plan
from kforge.environment.report import Status
from kforge.environment.static import Finding
from kforge.kernel.limits import MAX_SHARED

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.task import Task
    from kforge.task.constraints import Constraint

Parameter = tuple[str, str, Any]  # name, kind, default
NOTHING = inspect.Parameter.empty
_FLAGS = re.compile(r"fast[-_]?math|ftz=true|prec-(?:div|sqrt)=false|finite-math-only", re.IGNORECASE)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FLOAT_ADD = re.compile(r"\b(?:red|atom)\.[\w.:]*add[\w.:]*\.(?:f16|bf16|f32|f64)")
_OTHERS = ("triton", "cupy", "pycuda", "helion", "cuda", "load_inline")  # makers of kernels that are no Kernel


def check_standing(
    candidate: Candidate,
    tree: ast.Module,
    sources: Mapping[str, str],
    rules: Mapping[str, object],
    signature: tuple[Parameter, ...] | None = None,
) -> list[Finding]:
    """tree: of the candidate's module. sources: its CUDA texts by name. signature: the reference's forward's."""
    found: list[Finding] = []
    for name in rules:
        if name == "keep_signature" and signature is not None:
            found += _signature(candidate.module, tree, signature)
        elif name in ("no_fast_math", "keep_nan"):
            found += _options(candidate.module, tree, name)
        elif name == "max_shared":
            found += _unbounded(candidate.module, tree)
        if name == "deterministic":
            found += _atomics(candidate.module, tree)
        if name in ("no_fast_math", "deterministic"):
            for file, text in sources.items():
                found += _written(file, text, name)
    return found


def signature_of(task: Task) -> tuple[Parameter, ...] | None:
    """Parameters of the reference's forward, without self; None where Python cannot say."""
    from kforge.task import Form

    function = task.reference.forward if task.form is Form.MODULE else task.reference  # type: ignore[attr-defined]
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    own = parameters[1:] if task.form is Form.MODULE else parameters
    return tuple((p.name, p.kind.name, p.default) for p in own)


def widened(plan: Plan, rules: Collection[Constraint]) -> Plan:
    """With keep_nan every plan has NaN and infinity among the inputs; other plans than `quick` have them anyway."""
    if plan.name != "quick" or not any(rule.name == "keep_nan" for rule in rules):
        return plan
    return replace(plan, cases=(*plan.cases, Case(0, 0, "x1", special="nan"), Case(0, 0, "x1", special="inf")))


def limits(rules: Collection[Constraint]) -> dict[str, str]:
    """Environment of the candidate's processes, in which each launch of a Kernel is held to max_shared."""
    allowed = [rule.value for rule in rules if rule.name == "max_shared" and rule.value is not None]
    return {MAX_SHARED: str(min(allowed))} if allowed else {}


def observed(rules: Collection[Constraint], vendor_calls: Collection[str]) -> tuple[Status, str] | None:
    """What was seen while it ran. Under no_vendor_calls: library calls that the text did not name."""
    if vendor_calls and any(rule.name == "no_vendor_calls" for rule in rules):
        return Status.REJECTED, f"calls {', '.join(vendor_calls)}, and the task forbids vendor calls [no_vendor_calls]"
    return None


def _signature(file: str, tree: ast.Module, wanted: tuple[Parameter, ...]) -> Iterator[Finding]:
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"), None)
    if model is None:
        return
    forward = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    asked = ", ".join(_shown(*parameter) for parameter in wanted)
    if forward is None:
        words = f"ModelNew defines no forward({asked}) of its own, and the task keeps the signature"
        yield Finding("keep_signature", file, model.lineno, words)
        return
    own = _parameters(forward.args)
    same = len(own) == len(wanted) and all(_equal(a, b) for a, b in zip(own, wanted, strict=True))
    if not same:
        has = ast.unparse(forward.args).partition(",")[2].strip()
        words = f"forward({has}) where the reference has forward({asked}), and the task keeps the signature"
        yield Finding("keep_signature", file, forward.lineno, words)


def _parameters(args: ast.arguments) -> list[tuple[str, str, ast.expr | None]]:
    """(name, kind, default) without self, as written."""
    positional = [
        *((a, "POSITIONAL_ONLY") for a in args.posonlyargs),
        *((a, "POSITIONAL_OR_KEYWORD") for a in args.args),
    ]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
    found = [(a.arg, kind, default) for (a, kind), default in zip(positional, defaults, strict=True)][1:]
    if args.vararg:
        found.append((args.vararg.arg, "VAR_POSITIONAL", None))
    found += [(a.arg, "KEYWORD_ONLY", d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    if args.kwarg:
        found.append((args.kwarg.arg, "VAR_KEYWORD", None))
    return found


def _equal(own: tuple[str, str, ast.expr | None], wanted: Parameter) -> bool:
    name, kind, default = own
    if (name, kind) != wanted[:2] or (default is None) != (wanted[2] is NOTHING):
        return False
    if default is None:
        return True
    try:
        value = ast.literal_eval(default)
    except ValueError:  # a name: torch.float32
        return ast.unparse(default) == repr(wanted[2])
    return type(value) is type(wanted[2]) and repr(value) == repr(wanted[2])


def _shown(name: str, kind: str, default: Any) -> str:
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(kind, "")
    return f"{stars}{name}" + ("" if default is NOTHING else f"={default!r}")


def _options(file: str, tree: ast.Module, rule: str) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (flag := _FLAGS.search(node.value)):
            yield Finding(rule, file, node.lineno, f"asks a compiler for {flag[0]}, which {rule} rules out")
        elif rule == "no_fast_math" and isinstance(node, ast.Attribute) and node.attr.startswith("fast_"):
            yield Finding(rule, file, node.lineno, f"uses {node.attr}, and the task forbids fast math")


def _unbounded(file: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module or "").partition(".")[0], *(alias.name for alias in node.names)}
        else:
            continue
        for name in sorted(names & set(_OTHERS)):
            words = (
                f"what a kernel of {name} takes of shared memory cannot be held to a limit: use kforge.kernel.Kernel"
            )
            yield Finding("max_shared", file, node.lineno, words)


def _atomics(file: str, tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "atomic_add":
            words = "tl.atomic_add depends on thread order, and the task is deterministic"
            yield Finding("deterministic", file, node.lineno, words)


def _written(file: str, source: str, rule: str) -> Iterator[Finding]:
    """Names that a macro hides from the rules over calls, and what stands in inline PTX."""
    text = _COMMENTS.sub(lambda match: "\n" * match[0].count("\n"), source)
    for number, line in enumerate(text.splitlines(), start=1):
        if "##" in line:
            words = f"puts names together with ##: whether they break {rule} cannot be told"
            yield Finding(rule, file, number, words)
        if not line.lstrip().startswith("#"):
            if rule == "deterministic" and (asm := _FLOAT_ADD.search(line)):
                words = f"{asm[0]} depends on thread order, and the task is deterministic"
                yield Finding(rule, file, number, words)
            continue
        names = set(re.findall(r"\w+", line))
        hidden = allowlist().fast_math if rule == "no_fast_math" else allowlist().float_atomics
        for name in sorted(names & set(hidden)):
            yield Finding(rule, file, number, f"a macro stands for {name}, which {rule} rules out")

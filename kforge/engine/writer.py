"""Writes a candidate: `<op>_kforge.py` with ModelNew and `<op>_kforge.cu` with the kernels, as a person would."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kforge.engine.cgen import Types
from kforge.engine.guards import Guards, dtypes, refuse
from kforge.engine.hostcode import Host, launch_lines
from kforge.engine.importer import Graph
from kforge.engine.ir import Buffer, walk
from kforge.engine.kernelcode import KernelCode, bind_types, render
from kforge.engine.partition import Partition
from kforge.engine.splitcode import SLOT_BYTES
from kforge.engine.tensors import Tensor
from kforge.engine.text import fold
from kforge.engine.usercode import UserCode
from kforge.errors import NoCandidate
from kforge.kernel.candidate import Candidate

Choice = Sequence[KernelCode]
"""The kernels for one program: the chosen one, then what covers the shapes it does not."""


@dataclass(frozen=True)
class Piece:
    """Where a placeholder comes from in forward: its variable and the expression that gives it."""

    buffer: Buffer
    expression: str


@dataclass
class Plan:
    """All that a candidate is written from."""

    name: str
    file: str
    form: str
    graph: Graph
    parts: Partition
    types: Types
    user: UserCode
    pieces: list[Piece]
    result: Any  # the output tree with variable names at its leaves
    literals: Mapping[str, Any] = field(default_factory=dict)


class Leaf:
    """A variable's name whose repr is itself, to print an output tree."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def write_candidate(plan: Plan, choices: Sequence[Choice], idea: str, gain: float | None) -> Candidate:
    """The candidate that launches `choices` in order."""
    codes = list({c.name: c for choice in choices for c in choice}.values())
    cuda = _cuda(plan, codes, idea)
    module = _module(plan, choices, codes, idea)
    files = {f"{plan.name}_kforge.py": module, f"{plan.name}_kforge.cu": cuda}
    return Candidate(f"{plan.name}_kforge.py", files, proposer="engine", idea=idea, expected_gain=gain)


def _cuda(plan: Plan, codes: list[KernelCode], idea: str) -> str:
    use = frozenset().union(*(c.helpers for c in codes))
    includes = ["cuda_pipeline.h"] if "held" in use else []
    notes = ["", *(_sentence(idea, 110)), "", f"What it computes, in the lines of {plan.file}:"]
    lines = {o: None for c in codes for o in c.program.origins if o.text}
    notes += [f"  {o.line:4d}  {o.text}" for o in sorted(lines, key=lambda o: o.line)] or ["  see the reference"]
    title = f"{plan.name}: kernels that replace the reference of {plan.file}."
    body = render(
        "cuda/source.cu.j2",
        title=title,
        notes=notes,
        includes=includes,
        use=use,
        kernels=[c.text for c in codes],
        slot_bytes=SLOT_BYTES,
        real=plan.types.real,
    )
    return re.sub(r"\n{3,}", "\n\n", body).rstrip() + "\n"


def _sentence(text: str, width: int) -> list[str]:
    words, lines, line = (text[0].upper() + text[1:] + ".").split(), [], ""
    for w in words:
        if line and len(line) + len(w) + 1 > width:
            lines.append(line)
            line = ""
        line = f"{line} {w}" if line else w
    return [*lines, line]


def _module(plan: Plan, choices: Sequence[Choice], codes: list[KernelCode], idea: str) -> str:
    variables = {c.name: c.name for c in codes}
    taken = set(re.findall(r"\w+", plan.user.signature)) | {p.buffer.name for p in plan.pieces}
    for name in variables:
        if name in taken:
            variables[name] = f"{name}_kernel"
    forward = _forward(plan, choices, variables)
    imports = sorted(set(plan.user.imports) | {"import torch", "from torch import nn"}, key=_import_order)
    if not any(re.search(r"\bnn\b", t) for t in [plan.user.head, *plan.user.members, *plan.user.helpers]):
        imports.remove("from torch import nn")
    if any("torch.nn as nn" in i for i in imports) and "from torch import nn" in imports:
        imports.remove("from torch import nn")
    body = "\n".join([*forward, *plan.user.members, *plan.user.helpers])
    follows = " like(" in body
    if not follows and not re.search(r"\btorch\b", body + plan.user.head):
        imports.remove("import torch")
    text = render(
        "candidate/module.py.j2",
        title=f"{plan.name} as CUDA kernels, a drop-in for the reference of {plan.file}.",
        notes=_sentence(idea, 110),
        imports=imports,
        source=f"{plan.name}_kforge.cu",
        kernels=[_declaration(c, variables[c.name], plan.types) for c in codes],
        like=follows,
        helpers=plan.user.helpers,
        head=plan.user.head,
        members=plan.user.members,
        signature=plan.user.signature,
        body=forward,
    )
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    own = {line for block in [*plan.user.helpers, *plan.user.members, *imports] for line in block.splitlines()}
    text = "\n".join(part for line in text.splitlines() for part in ([line] if line in own else fold(line)))
    return re.sub(r"(class ModelNew.*:\n)\n+", r"\1", text).rstrip() + "\n"


def _import_order(line: str) -> tuple[int, str]:
    names = line.split()[1].split(".")[0]
    return (1 if names == "torch" else 0, line.replace("from ", "import "))


def _declaration(code: KernelCode, variable: str, types: Types) -> dict[str, Any]:
    def values(mapping: Mapping[str, Any]) -> str:
        return "{" + ", ".join(f'"{k}": {v!r}' for k, v in mapping.items()) + "}"

    bound = {t: b for t, b in bind_types(code.program, types).items() if t in code.template}
    return {
        "variable": variable,
        "expression": code.expression,
        "grid": code.grid,
        "block": code.block,
        "shared": code.shared,
        "constants": values(code.constants),
        "types": "{" + ", ".join(f'"{k}": "{v}"' for k, v in bound.items()) + "}" if bound else "",
        "tune": [(k, "[" + ", ".join(map(repr, v)) + "]") for k, v in code.tune.items()],
        "require": [(k, _wrapped(v)) for k, v in code.require.items()],
        "tuned": [(f'"{c}"' if c != "True" else "True", values(v)) for c, v in code.tuned],
        "workspace": code.workspace,
    }


def _wrapped(condition: str, width: int = 96) -> list[str]:
    """A long condition as string literals of bounded length that Python joins."""
    parts, line = [], ""
    for clause in re.split(r"(?<= and )", condition):
        if line and len(line) + len(clause) > width:
            parts.append(line)
            line = ""
        line += clause
    return [*parts, line]


def _forward(plan: Plan, choices: Sequence[Choice], variables: Mapping[str, str]) -> list[str]:
    host = Host(plan.graph, {p.buffer.name: p.buffer for p in plan.pieces})
    lines: list[str] = []
    lines += _literal_checks(plan)
    for p in plan.pieces:
        if p.expression != p.buffer.name:
            lines.append(f"{p.buffer.name} = {p.expression}")
    used = {b.name for choice in choices for b in choice[0].program.buffers}
    given = [p.buffer for p in plan.pieces]
    lines += Guards(given, plan.graph.minimum).sizes()
    lines += dtypes([b for b in sorted(given, key=lambda b: b.kind != "input") if b.name in used], plan.types)
    outputs = {b.name: b for b in plan.parts.outputs}
    tensors = [t for t in plan.graph.outputs if isinstance(t, Tensor)]
    layouts = {b.name: t.layout for b, t in zip(plan.parts.outputs, tensors, strict=True) if t.layout is not None}
    for name in dict.fromkeys(layout.name for layout in layouts.values()):
        lines.append(f"{name}_given = {name}")
    for p in plan.pieces:
        if p.buffer.kind == "input" and p.buffer.name in used and p.buffer.shape:
            lines.append(f"{p.buffer.name} = {p.buffer.name}.contiguous()")
    local: dict[tuple[str, str], str] = {}
    lines += _sizes(host, choices, local)
    device = next((b.name for b in host.tensors if b.name in used), None)
    if device is None:
        raise NoCandidate("no tensor among the inputs says on which device to compute", operator="device")
    for b in [*plan.parts.temporaries, *plan.parts.outputs]:
        lines.append(f"{b.name} = {_allocate(plan, host, b, device, plan.parts.orders.get(b.name))}")
    lines += _empty_checks(plan, choices, local, host)
    for choice in choices:
        lines += launch_lines(choice, variables, host, local)
    for name, order in plan.parts.orders.items():
        back = [order.index(k) for k in range(len(order))]
        lines.append(f"{name} = {name}.permute({', '.join(map(str, back))})")
    for name, layout in layouts.items():
        if name in outputs:
            lines.append(f"{name} = like({name}, {layout.name}_given)")
    lines.append(f"return {_tree(plan.result)}")
    return lines


def _tree(value: Any) -> str:
    """An output tree as Python: tuples, lists, dicts and torch's own return types."""
    if type(value) is tuple:
        inner = ", ".join(_tree(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})" if value else "()"
    if type(value) is list:
        return f"[{', '.join(_tree(v) for v in value)}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {_tree(v)}" for k, v in value.items()) + "}"
    if type(value).__module__ == "torch.return_types":
        return f"torch.return_types.{type(value).__name__}(({', '.join(_tree(v) for v in value)}))"
    if isinstance(value, (Leaf, int, float, bool, str, type(None))):
        return repr(value)
    raise NoCandidate(f"an output tree with a {type(value).__name__}", operator="output")


def _literal_checks(plan: Plan) -> list[str]:
    lines = []
    for path, value in plan.literals.items():
        test = f"{path} is not {value!r}" if value is None or isinstance(value, bool) else f"{path} != {value!r}"
        shown = path.replace('"', "'")
        wish = f"these kernels were written for {path} = {value!r}".replace("{", "{{").replace("}", "}}")
        lines += refuse(test, wish.replace('"', "'"), f"it is {{{shown}!r}}")
    return lines


def _sizes(host: Host, choices: Sequence[Choice], local: dict[tuple[str, str], str]) -> list[str]:
    """Local variables for the sizes that kernels take; one variable for one size."""
    lines = []
    taken = set(host.names)
    for choice in choices:
        for code in choice:
            for name in sorted(code.sizes, key=lambda n: (n != "cols", n)):
                poly = code.sizes[name]
                if poly in host.locals and poly.constant is None:
                    local[code.name, name] = host.locals[poly]
                    continue
                if poly.constant is not None:
                    local[code.name, name] = str(poly.constant)
                    continue
                wish, k = name, 2
                while wish in taken:
                    wish, k = f"{name}_{k}", k + 1
                taken.add(wish)
                lines.append(f"{wish} = {host.size(poly)}")
                host.locals[poly] = wish
                local[code.name, name] = wish
    return lines


def _allocate(plan: Plan, host: Host, b: Buffer, device: str, order: tuple[int, ...] | None) -> str:
    shape = tuple(b.shape[k] for k in order) if order else b.shape
    element = plan.types.element(b)
    owner = plan.types.bound.get(element)
    for t in host.tensors:
        if t.shape == shape and t.kind == "input" and plan.types.element(t) == element and b.kind != "temporary":
            return f"torch.empty_like({t.name})"
    dtype = f"{owner}.dtype" if owner else f"torch.{b.dtype}"
    if not shape:
        return f"torch.empty((), dtype={dtype}, device={device}.device)"
    return f"torch.empty({host.shape(shape)}, dtype={dtype}, device={device}.device)"


def _empty_checks(plan: Plan, choices: Sequence[Choice], local: Mapping[tuple[str, str], str], host: Host) -> list[str]:
    """torch refuses the maximum of nothing; so does this."""
    lines = []
    for choice in choices:
        code = choice[0]
        per_row = walk(s.value for s in code.program.stores if s.per_row)
        extremes = any(e.op == "reduce" and e.kind in ("max", "min", "argmax", "argmin") for e in per_row)
        cols = local.get((code.name, "cols"), "")
        if extremes and cols and not cols.isdigit():
            lines.append(f"if {cols} == 0:")
            lines.append('    raise IndexError("the maximum or minimum of an empty row does not exist")')
    return lines

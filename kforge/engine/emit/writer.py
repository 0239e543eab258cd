"""Writes a candidate: `<op>_kforge.py` with ModelNew and `<op>_kforge.cu` with the kernels, as a person would."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from kforge.engine.calls.halved import ROOM
from kforge.engine.calls.vendor import Lowering
from kforge.engine.emit.cgen import Types
from kforge.engine.emit.forwardcode import Choice, Plan, forward_lines
from kforge.engine.emit.kernelcode import KernelCode, bind_types, render
from kforge.engine.emit.reducing import SLOT_BYTES
from kforge.engine.emit.text import fold
from kforge.engine.emit.tidy import tidy
from kforge.engine.handlers.special import HELPERS as SPECIAL
from kforge.kernel.candidate import Candidate

INCLUDES = (
    ("hopper", "cuda.h"),
    ("product", "stdint.h"),
    ("halves", "cuda_fp16.h"),
    ("held", "cuda_pipeline.h"),
    ("draw", "kforge/philox.h"),
)
"""Headers that helpers need."""


def write_candidate(
    plan: Plan, choices: Sequence[Choice], idea: str, gain: float | None, calls: Sequence[Lowering] = ()
) -> Candidate:
    """The candidate that launches `choices` in order, library steps between them as `calls` compute them."""
    codes = list({c.name: c for c in [*(c for call in calls for c in call.kernels), *_all(choices)]}.values())
    cuda = _cuda(plan, codes, idea)
    module = _module(plan, choices, codes, idea, calls)
    files = {f"{plan.name}_kforge.py": module, f"{plan.name}_kforge.cu": cuda}
    return Candidate(f"{plan.name}_kforge.py", files, proposer="engine", idea=idea, expected_gain=gain)


def _all(choices: Sequence[Choice]) -> Iterator[KernelCode]:
    return (code for choice in choices for code in choice)


def _cuda(plan: Plan, codes: list[KernelCode], idea: str) -> str:
    use = frozenset().union(*(c.helpers for c in codes))
    includes = [name for helper, name in INCLUDES if helper in use]
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
        room=ROOM,
        low="halves_low" in use,
        counted="counted" in use,
        special=any(f"{function}(" in c.text for c in codes for function in SPECIAL.values()),
        eight_bits=any("eight_bits<" in c.text for c in codes),
        saturates=_saturates(),
        half="f16" if "product_f16" in use else "bf16",
    )
    return tidy(body)


@cache
def _saturates() -> bool:
    """Whether this torch makes the largest float8_e4m3fn of what is larger; NaN in versions before."""
    import torch

    return not bool(torch.tensor(1e9).to(torch.float8_e4m3fn).float().isnan())


def _sentence(text: str, width: int) -> list[str]:
    named = "." in text.split(maxsplit=1)[0]  # torch.mm: a name begins a sentence as it is written
    words, lines, line = ((text if named else text[0].upper() + text[1:]) + ".").split(), [], ""
    for w in words:
        if line and len(line) + len(w) + 1 > width:
            lines.append(line)
            line = ""
        line = f"{line} {w}" if line else w
    return [*lines, line]


def _module(
    plan: Plan, choices: Sequence[Choice], codes: list[KernelCode], idea: str, calls: Sequence[Lowering]
) -> str:
    variables = {c.name: c.name for c in codes}
    taken = set(re.findall(r"\w+", plan.user.signature)) | {p.buffer.name for p in plan.pieces}
    for name in variables:
        if name in taken:
            variables[name] = f"{name}_kernel"
    forward = forward_lines(plan, choices, variables, calls)
    functions = [*(f for call in calls for f in call.helpers), *(f for code in codes for f in code.functions)]
    helpers = [*plan.user.helpers, *dict.fromkeys(functions)]
    imports = sorted(set(plan.user.imports) | {"import torch", "from torch import nn"}, key=_import_order)
    if not any(re.search(r"\bnn\b", t) for t in [plan.user.head, *plan.user.members, *plan.user.helpers]):
        imports.remove("from torch import nn")
    if any("torch.nn as nn" in i for i in imports) and "from torch import nn" in imports:
        imports.remove("from torch import nn")
    body = "\n".join([*forward, *plan.user.members, *helpers])
    follows, orders, lays = " like(" in body, re.search(r"\bordered\(", body) is not None, " laid(" in body
    if not follows and not orders and not lays and not re.search(r"\btorch\b", body + plan.user.head):
        imports.remove("import torch")
    text = render(
        "candidate/module.py.j2",
        title=f"{plan.name} as CUDA kernels, a drop-in for the reference of {plan.file}.",
        notes=_sentence(idea, 110),
        imports=imports,
        source=f"{plan.name}_kforge.cu",
        kernels=[_declaration(c, variables[c.name], plan.types) for c in codes],
        like=follows,
        ordered=orders,
        laid=lays,
        bare="bare(" in body,
        joined="joined(" in body,
        helpers=helpers,
        head=plan.user.head,
        seeds=bool(plan.graph.seeds),
        maps=any("TensorMap(" in text for text in functions),
        prepared=any("prepared(" in text for text in functions),
        members=plan.user.members,
        signature=plan.user.signature,
        body=forward,
    )
    text = re.sub(r"\n{4,}", "\n\n\n", text)
    own = {line for block in [*helpers, *plan.user.members, *imports] for line in block.splitlines()}
    text = "\n".join(part for line in text.splitlines() for part in ([line] if line in own else fold(line)))
    return re.sub(r"(class ModelNew.*:\n)\n+", r"\1", text).rstrip() + "\n"


def _import_order(line: str) -> tuple[int, str]:
    names = line.split()[1].split(".")[0]
    return (1 if names == "torch" else 0, line.replace("from ", "import "))


def _declaration(code: KernelCode, variable: str, types: Types) -> dict[str, Any]:
    def values(mapping: Mapping[str, Any]) -> str:
        return "{" + ", ".join(f'"{k}": {v!r}' for k, v in mapping.items()) + "}"

    bound = {t: b for t, b in bind_types(code.program, types).items() if t in code.template} | dict(code.types)
    return {
        "variable": variable,
        "expression": code.expression,
        "grid": code.grid,
        "block": code.block,
        "shared": code.shared,
        "cluster": code.cluster,
        "constants": values(code.constants),
        "types": "{" + ", ".join(f'"{k}": "{v}"' for k, v in bound.items()) + "}" if bound else "",
        "tune": [(k, "[" + ", ".join(map(repr, v)) + "]") for k, v in code.tune.items()],
        "require": [(k, _wrapped(v)) for k, v in code.require.items()],
        "tuned": [(f'"{c}"' if c != "True" else "True", values(v)) for c, v in code.tuned],
        "workspace": code.workspace,
        "strided": "(" + ", ".join(f'"{name}"' for name in code.strided) + ")" if code.strided else "",
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

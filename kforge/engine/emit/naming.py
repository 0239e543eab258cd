"""Names in generated kernels: which are taken, what a value is called, and which values deserve a name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kforge.engine.emit.functions import FUNCTIONS
from kforge.engine.graph.ir import INTEGERS, REAL, Expr
from kforge.engine.graph.symbols import Value

WORDS = {
    "add": "sum",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "where": "chosen",
    "sqrt": "root",
    "rsqrt": "inverse_root",
    "abs": "magnitude",
    "exp": "power",
    "neg": "negative",
    "index": "position",
    "and": "both",
}
"""Names of values that op.py gives none."""
_RESERVED = (
    "row rows col cols lane warp tile base part total count n i j k T U W BLOCK VEC ITEMS SPLIT flat first end share "
    "strip slice rest across down deep within line exchange weights sums best inside plane channel in_channel v "
    "own reach reached results last columns place outputs LEFT RIGHT OUTPUTS VECTOR ALIGNED COLS ROWS DEPTHS SPAN LEAD "
    "SHIFT WIDE rank team blocks ticket tickets workspace staged slots arrived STAGED STAGES SHARE RESIDENT VECTORS "
    "PARTS SLOT BLOCKS and or "
    "not xor int float double half bool char short long unsigned signed void const static "
    "struct class template typename new delete this if else for while do switch case default break continue return "
    "goto auto register union enum namespace using operator public private true false in out exp log sqrt tanh min "
    "max sum mean self torch nn like None True False def lambda pass from import is raise del with yield"
)
RESERVED = frozenset(_RESERVED.split())


class Names:
    """Distinct identifiers of one kernel."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)

    def fresh(self, wish: str) -> str:
        base = re.sub(r"\W", "_", wish) or "value"
        if base[0].isdigit():
            base = f"v{base}"
        name, k = base, 2
        while name in self.taken:
            name, k = f"{base}_{k}", k + 1
        self.taken.add(name)
        return name


def wished_name(e: Expr, final: set[int] = frozenset()) -> str:  # type: ignore[assignment]
    """A readable name for a value: the user's own where it is the value that op.py gives this name."""
    if e.origin is not None and e.origin.name and e.uid in final:
        return f"{e.origin.name}_value" if e.origin.name in FUNCTIONS else e.origin.name
    if e.op == "load" and e.buffer is not None:
        return f"{e.buffer.name}_value"
    if e.op == "cast" and e.args[0].op == "index":
        return "number"
    if e.op == "cast" and e.args[0].dtype == REAL and e.dtype in INTEGERS:
        return "whole"
    if e.op == "where" and e.args[0].op in ("lt", "gt") and set(e.args[0].args) == set(e.args[1:]):
        return "clamped"
    return WORDS.get(e.op, f"{e.op}_value")


def named_steps(roots: list[Expr], known: set[int]) -> list[Expr]:
    """Expressions under the roots that deserve a variable: used twice, or the value of a name in op.py.

    What is in `known` already is not looked into.
    """
    order: list[Expr] = []
    uses: dict[int, int] = {}
    origins: dict[int, set[object]] = {}
    seen: set[int] = set()
    root_ids = {r.uid for r in roots}

    def below(e: Expr) -> list[Expr]:
        if e.op == "window":  # its loops are written as a whole
            return []
        found = list(e.args)
        if e.index is not None:
            found += [a.expr for a in sorted(e.index.atoms(), key=repr) if isinstance(a, Value)]  # type: ignore[misc]
        return found

    stack = [(r, False) for r in reversed(roots)]
    while stack:
        e, done = stack.pop()
        if done:
            order.append(e)
            continue
        if e.uid in known or e.uid in seen:
            continue
        seen.add(e.uid)
        stack.append((e, True))
        stack.extend((a, False) for a in reversed(below(e)))
    for e in order:
        for a in below(e):
            uses[a.uid] = uses.get(a.uid, 0) + 1
            origins.setdefault(a.uid, set()).add(e.origin)
    result = []
    for e in order:
        if e.op in ("const", "index") and (e.op == "const" or e.index is None or len(e.index.terms) < 2):
            continue
        twice = uses.get(e.uid, 0) + (e.uid in root_ids) > 1
        own_name = (
            bool(e.origin and e.origin.name) and e.op not in ("load", "index") and origins.get(e.uid, {0}) != {e.origin}
        )
        gathered = e.op == "load" and e.index is not None and any(isinstance(a, Value) for a in e.index.atoms())
        if twice or own_name or gathered or (e.op == "load" and e.args) or e.op == "window":
            result.append(e)
    return result

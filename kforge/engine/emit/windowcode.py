"""CUDA text of a window reduction as loops over its taps, for any kernel; families/window.py has a faster form."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from kforge.engine.emit.cgen import identity
from kforge.engine.emit.naming import named_steps, wished_name
from kforge.engine.emit.text import Lines
from kforge.engine.graph.ir import REAL, Expr, Reach, Window, index_values
from kforge.engine.graph.symbols import Poly, Var, counts_up

if TYPE_CHECKING:
    from kforge.engine.emit.cgen import Scope

DIMENSIONS = ("slice", "row", "col")  # of a window, the last ones where there are fewer
UNROLLED = 64  # taps that a compiler is asked to unroll
IN_SEQUENCE = 64  # additions to one accumulator


def taps_of(window: Window) -> int:
    """How many taps a window has, at the captured sizes."""
    return prod([t.size.hint() for t in window.free] + [r.tap.size.hint() for r in window.reaches])


def window_helpers(e: Expr) -> set[str]:
    """The helpers of the source that a window's text needs."""
    if e.window is None:
        return set()
    if e.window.kind == "max":
        return {"extremes"}
    return {"cascade"} if _long_sum(e) else set()


def twins_of(expressions: list[Expr]) -> dict[int, Expr]:
    """Maxima over the windows in which another expression looks for the place of the maximum."""
    windows = [e for e in expressions if e.window is not None]
    places = {(e.args[0], e.window.reaches): e for e in windows if e.window.kind == "argmax"}  # type: ignore[union-attr]
    maxima = [e for e in windows if e.window.kind == "max"]  # type: ignore[union-attr]
    found = ((e.uid, places.get((e.args[0], e.window.reaches))) for e in maxima)  # type: ignore[union-attr]
    return {uid: twin for uid, twin in found if twin is not None}


def _long_sum(e: Expr) -> bool:
    return e.window is not None and e.window.kind == "sum" and e.dtype == REAL and taps_of(e.window) > IN_SEQUENCE


def declare_window(scope: Scope, e: Expr, wish: str) -> str:
    """Statements that put a window's result into a variable; later uses write the variable."""
    if e.uid in scope.twins:  # the walk for the place finds the maximum as well
        twin = scope.twins[e.uid]
        return "" if twin.uid in scope.known else declare_window(scope, twin, wish)
    window = e.window
    assert window is not None
    lines = Lines(0)
    _declare_ends(lines, scope, window)
    result = scope.names.fresh({"sum": "sum", "max": "largest", "argmax": "place"}[window.kind])
    inner = scope.child()
    inner.names = scope.names
    names: dict[Var, str] = {}
    inner.var = lambda v: names[v] if v in names else scope.var(v)
    labels = dict(zip(window.reaches[::-1], DIMENSIONS[::-1], strict=False))
    own = {*window.free, *(v for r in window.reaches for v in (r.tap, r.at))}
    kind, body = window.kind, e.args[0]
    long_sum = _long_sum(e)
    if kind == "argmax":
        best = scope.names.fresh("best")
        lines.add(f"{scope.types.scalar(body.dtype)} {best} = {identity('max', body.dtype, scope.types)};")
        lines.add(f"long long {result} = -1;")
        scope.known |= {uid: best for uid, twin in scope.twins.items() if twin is e}
    elif long_sum:
        lines.add(f"Cascade<{scope.types.real}> {result};")
    else:
        lines.add(f"{scope.types.scalar(e.dtype)} {result} = {identity(kind, e.dtype, scope.types)};")

    def settle() -> None:
        """What the loops that follow do not change gets a variable before them."""
        around = inner if names else scope  # what is before all loops may serve other windows
        left = [] if body.op == "window" else [*reversed(body.args)]
        while left:
            step = left.pop()
            if step.op in ("const", "index") or step.uid in around.known:
                continue
            if step.variables() & own <= names.keys():
                lines.add(*around.declare_steps([step], but=step), around.declare(step, wished_name(step)))
            elif step.op != "window":
                left += reversed(step.args)
        inner.known |= around.known

    def accumulate() -> None:
        for step in named_steps([body], set(inner.known)):
            if step.uid not in inner.known and (step is not body or step.op == "window"):
                lines.add(inner.declare(step, wished_name(step)))
        if long_sum:
            lines.add(f"{result}.add({inner.text(body)});")
        elif kind == "sum":
            lines.add(f"{result} += {inner.text(body)};")
        elif kind == "max":
            lines.add(f"{result} = larger({result}, {inner.text(body)});")
        else:
            assert window.flat is not None
            value = scope.names.fresh("value")
            lines.add(f"const {scope.types.scalar(body.dtype)} {value} = {inner.text(body)};")
            with lines.block(f"if ({result} < 0 || {value} > {best} || {value} != {value})"):
                lines.add(f"{best} = {value};", f"{result} = {inner.index(window.flat)};")

    def loop(left: list[Reach | Var]) -> None:
        if not left:
            accumulate()
            return
        settle()
        first = left[0]
        if isinstance(first, Reach) and first.stretches:
            names[first.at] = scope.names.fresh(f"at_{len(left)}")
            at, ends = names[first.at], [scope.index(p) for p in (first.start, first.end)]
            with lines.block(f"for (long long {at} = {ends[0]}; {at} < {ends[1]}; ++{at})"):
                loop(left[1:])
            return
        tap = first.tap if isinstance(first, Reach) else first
        label = labels.get(first, f"window_{len(left)}") if isinstance(first, Reach) else ""
        if tap.size.constant == 1 and isinstance(first, Reach) and not first.checked:
            names[tap], names[first.at] = "0", scope.names.fresh(f"{label}_at")
            _place(lines, first, names, inner)
            loop(left[1:])
            return
        names[tap] = scope.names.fresh(f"{label}_tap" if label else "channel")
        unroll = tap.size.constant is not None and taps_of(window) <= UNROLLED
        size = inner.index(tap.size)
        with lines.block(f"for (int {names[tap]} = 0; {names[tap]} < {size}; ++{names[tap]})", unroll):
            if isinstance(first, Reach):
                names[first.at] = scope.names.fresh(f"{label}_at")
                _place(lines, first, names, inner)
            loop(left[1:])

    loop([*window.free, *window.reaches])
    scope.known[e.uid] = f"{result}.total()" if long_sum else result
    return str(lines)


def _declare_ends(lines: Lines, scope: Scope, window: Window) -> None:
    """Where taps begin and end, in variables, where that is worked out and not read off the place."""
    wishes = [(r.start, "first") for r in window.reaches] + [(r.end, "last") for r in window.reaches]
    values = [(e, wish) for poly, wish in wishes for e in index_values(poly)]
    lines.add(*scope.declare_steps([e for e, _ in values]))
    for e, wish in values:
        if e.uid not in scope.known and e.op not in ("const", "index"):
            lines.add(scope.declare(e, wish))


def _place(lines: Lines, r: Reach, names: dict[Var, str], scope: Scope) -> None:
    """The place of a tap, and the end of this turn where it has none."""
    at, tap = names[r.at], Poly.of(r.tap)
    if r.divisor > 1:
        whole = scope.names.fresh(f"{at}_scaled")
        lines.add(f"const long long {whole} = {scope.index(r.start + tap * r.step)};")
        lines.add(f"if ({whole} < 0 || {whole} % {r.divisor} != 0) continue;")
        lines.add(f"const long long {at} = {whole} / {r.divisor};")
        lines.add(f"if ({at} >= {scope.index(r.end)}) continue;")
        return
    lines.add(f"const long long {at} = {scope.index(r.start + tap * r.step)};")
    if r.checked:
        low = "" if counts_up(r.start) else f"{at} < 0 || "
        lines.add(f"if ({low}{at} >= {scope.index(r.end)}) continue;")

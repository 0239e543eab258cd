"""Pairs of reductions that one pass computes together: (max, sum of exp) and (mean, sum of squared deviations)."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.engine.graph.ir import Expr, Program, is_element, walk


@dataclass(frozen=True)
class Merged:
    """kind: "max_sumexp" or "moments". first, second: the two reductions; body: the value both are over.

    finite: the maximum was replaced by 0 where it is infinite before subtracting it (logsumexp).
    mean_elsewhere: the sum or the mean has users beside the deviations, and is summed for them as usual.
    """

    kind: str
    first: Expr
    second: Expr
    body: Expr
    finite: bool = False
    mean_elsewhere: bool = False

    @property
    def exponential(self) -> Expr | None:
        """exp(x - max), which later passes may want; None where it is not that or the pair is of moments."""
        return self.second.args[0] if self.kind == "max_sumexp" and not self.finite else None

    @property
    def mean(self) -> Expr:
        """The mean of a pair of moments."""
        return self.second.args[0].args[0].args[1]

    @property
    def title(self) -> str:
        return (
            "maximum and sum of exp, in one pass"
            if self.kind == "max_sumexp"
            else "mean and squared deviations, in one pass"
        )


def find_pairs(program: Program) -> list[Merged]:
    """Pairs in a program, in order."""
    pairs: list[Merged] = []
    for r in program.reductions:
        found = _max_sumexp(r) or _moments(r, program)
        if (
            found is not None
            and is_element(found.body, program.cols)
            and not any(found.first is p.first for p in pairs)
        ):
            pairs.append(found)
    return pairs


def _max_sumexp(r: Expr) -> Merged | None:
    """sum(exp(x - max(x))), with max(x) possibly replaced by 0 where infinite."""
    power = r.args[0]
    if r.kind != "sum" or power.op != "exp" or power.args[0].op != "sub":
        return None
    body, top = power.args[0].args
    finite = False
    if top.op == "where":
        condition, zero, inner = top.args
        plain = condition.op == "isinf" and condition.args[0] is inner
        absolute = (
            condition.op == "eq"
            and condition.args[0].op == "abs"
            and condition.args[0].args[0] is inner
            and condition.args[1].value == float("inf")
        )
        if not (plain or absolute) or zero.value != 0:
            return None
        top, finite = inner, True
    if top.op == "reduce" and top.kind == "max" and top.args[0] is body:
        return Merged("max_sumexp", top, r, body, finite)
    return None


def _moments(r: Expr, program: Program) -> Merged | None:
    """sum((x - sum(x) / n)^2)."""
    square = r.args[0]
    if r.kind != "sum" or square.op != "mul" or square.args[0] is not square.args[1]:
        return None
    deviation = square.args[0]
    if deviation.op != "sub" or deviation.args[1].op != "div":
        return None
    body, mean = deviation.args
    total = mean.args[0]
    if total.op == "reduce" and total.kind == "sum" and total.args[0] is body and not mean.args[1].variables():
        everything = walk(s.value for s in program.stores)
        stored = any(s.value is mean or s.value is total for s in program.stores)
        others = any(total in e.args and e is not mean for e in everything)
        others |= any(mean in e.args and not (e.op == "sub" and e.args[1] is mean) for e in everything)
        return Merged("moments", total, r, body, mean_elsewhere=stored or others)
    return None

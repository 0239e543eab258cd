"""Rows in which the reference's own answer jumps when its inputs move by one unit in the last place.

A saturated softmax in a half type is one: whichever of two keys has the larger score takes all, the scores are rounded
to units of several, and so the rounding alone, which nobody promises, says which value the row has. A baseline's error
there is the luck of one draw, 0.3 in one and 40 in the next, and measures nothing. Asked for only where an answer
failed by that measure, and only where the baseline itself is so unsteady; the other rows are judged as ever.

A reference may jump everywhere, on the task's own inputs too: sin(1000 * x). Any answer is as good as its baseline's
then, so another measure is needed. Inputs are exact, and so fp64's answer is a fact: who carries more bits comes near
it, who rounds where the reference rounds comes near the reference, and what is near neither is nobody's answer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.environment.acceptance import LONE, halves, ulp
from kforge.environment.expected import Expected, Skip
from kforge.environment.inputs import Case
from kforge.errors import KforgeError

if TYPE_CHECKING:
    import torch

    from kforge.environment.preparation import Prepared
    from kforge.task import Call

FIRST, MOVES = 8, 24  # inputs moved so often, and where a row has jumped by then, so often in all
JUMP = 16.0  # units in the last place of a row, from which on it jumps
SECONDS = 3.0  # of this thread's work, after which no more moves are made
FINER = 2.0**-8  # of what a unit of the inputs moves: as much is off what carries eight bits more
FAR = 0.2  # of an answer's elements that may be near neither
WORSE = 4.0  # times the limit on the RMS error, by which half of all rows must be worse for a look to be in vain


@dataclass(frozen=True)
class Jumps:
    """rows: those that jump, as a column that broadcasts over the output. most: by how much each row has moved, in the
    same form. count: of these rows."""

    rows: torch.Tensor
    most: torch.Tensor
    count: int

    @property
    def everywhere(self) -> bool:
        """Whether most rows jump."""
        return 2 * self.count > self.rows.numel()

    def judge(self, answer: torch.Tensor, exact: torch.Tensor, baseline_max: float, factor: float) -> str:
        """In words, the first element of such a row that is further off than the reference itself jumps; or ""."""
        import torch

        unit = ulp(exact.nan_to_num(0.0, 0.0, 0.0), answer.dtype)
        allowed = factor * self.most.maximum(torch.full_like(self.most, baseline_max)) + LONE * unit
        error = (answer.double() - exact).abs().nan_to_num(0.0, 0.0, 0.0)
        bad = (error > allowed) & self.rows
        if not bool(bad.any()):
            return ""
        place = tuple(torch.nonzero(bad)[0].tolist())
        return (
            f"element {list(place)} is {answer[place].item():.9g}, expected {exact[place].item():.9g}; moving the "
            f"inputs by one unit in the last place moves that row by {float(self.most.expand_as(exact)[place]):.3g}"
        )


def astray(answer: torch.Tensor, baseline: torch.Tensor, exact: torch.Tensor, moves: float) -> str:
    """In words, that too many elements are neither fp64's nor the reference's; or "". moves: a row's, at most."""
    import torch

    far = torch.ones_like(exact, dtype=torch.bool)
    for right in (exact, baseline.double()):
        unit = ulp(right.nan_to_num(0.0, 0.0, 0.0), answer.dtype)
        error = (answer.double() - right).abs().nan_to_num(0.0, 0.0, 0.0)
        far &= error > FINER * moves + LONE * unit
    share = float(far.double().mean())
    if share <= FAR:
        return ""
    place = tuple(torch.nonzero(far)[0].tolist())
    return (
        f"{share:.0%} of the elements are neither the right values nor the reference's own, which rounding decides "
        f"here: {list(place)} is {answer[place].item():.5g}, in fp64 {exact[place].item():.5g}, in the reference "
        f"{baseline[place].item():.5g}; carry intermediate values in float32"
    )


def hopeless(answer: torch.Tensor, baseline: torch.Tensor, exact: torch.Tensor, limit: float) -> bool:
    """Whether half of the rows are so much worse than the baseline's that no few that jump explain it."""
    candidate, right = (_row_sizes(x.double() - exact) for x in (answer, baseline))
    return bool(candidate.median() > WORSE * limit * (right.median() + _row_sizes(ulp(exact, answer.dtype)).median()))


def find(prepared: Prepared, case: Case, expected: Expected, leaf: int) -> Jumps | None:
    """The rows (along the last dimension) of one output that jump; None where none does, or where the baseline is as
    near to fp64 on moved inputs as anywhere: then it is right to be held to its error, however steep the reference is.
    """
    exact = expected.exact[leaf]
    if exact is None or prepared.stateful or not exact.numel():
        return None
    right = expected.leaves[leaf][1]
    large = JUMP * _row_sizes(ulp(exact.nan_to_num(0.0, 0.0, 0.0), right.dtype))
    most = rows = exact.new_zeros(large.shape)
    unsteady = bool((_row_sizes(right.double() - exact) > large).any())
    end = time.thread_time() + SECONDS
    for number in range(MOVES):
        if number >= FIRST and (not (rows > large).any() or time.thread_time() > end):
            break
        call = moved_by_a_unit(expected.call, prepared.seed("moved", case.seed, number))
        try:
            moved = prepared.answer(prepared.reference(case.state_seed), case, call, expected.seed)
        except (Skip, KforgeError):  # the reference takes no such inputs
            return None
        value, baseline = moved.exact[leaf], moved.leaves[leaf][1]
        if value is None or value.shape != exact.shape:
            return None
        change = (value - exact).abs().nan_to_num(0.0, 0.0, 0.0)
        most = most.maximum(change.amax(-1, keepdim=True) if change.dim() else change)
        rows = rows.maximum(_row_sizes(change))
        unsteady = unsteady or bool((_row_sizes(baseline.double() - value) > large).any())
    jumping = rows > large
    return Jumps(jumping, most, int(jumping.sum())) if unsteady and bool(jumping.any()) else None


def moved_by_a_unit(call: Call, seed: int) -> Call:
    """Every element of an input of a half type one unit in its last place up or down; zeros and infinities stay."""
    import torch
    from torch.utils import _pytree as pytree

    from kforge.task import Call

    generator = torch.Generator().manual_seed(seed)

    def move(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.dtype not in halves():
            return x.clone() if isinstance(x, torch.Tensor) else x
        sign = (torch.rand(x.shape, generator=generator) < 0.5).to(x.device) * 2.0 - 1.0
        wide = x.double()
        moved = (wide + sign * ulp(wide.nan_to_num(0.0, 0.0, 0.0), x.dtype)).to(x.dtype)
        return moved.where(moved.isfinite() & (x != 0), x)

    return Call(*pytree.tree_map(move, (call.args, call.kwargs)))


def _row_sizes(x: torch.Tensor) -> torch.Tensor:
    """The RMS of each row, as a column that broadcasts over it."""
    x = x.nan_to_num(0.0, 0.0, 0.0)
    return x.square().mean(-1, keepdim=True).sqrt() if x.dim() else x.abs()

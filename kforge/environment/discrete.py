"""The acceptance rule for integers, booleans and indices (CONTRACTS 4): answers in words, "" for right."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def judge_equal(candidate: torch.Tensor, baseline: torch.Tensor) -> str:
    """Bitwise equal, as integers that come from integers must be."""
    return _describe(candidate != baseline, candidate, baseline)


def judge_rounded(
    candidate: torch.Tensor, baseline: torch.Tensor, exact: torch.Tensor | None = None, bound: float = 0.0
) -> str:
    """Integers made by rounding or casting a float: equal, or off by 1 where fp64 lies at the edge of rounding.

    exact: the fp64 value before it was cast, where known; bound: the baseline's error there. A difference is allowed
    where `exact` lies within `bound` of a point at which either of the two integers would change, and nowhere where the
    baseline is exact (bound 0): counts and other whole numbers lie at such points all of them.
    """
    import torch

    apart = (candidate.long() - baseline.long()).abs()
    bad = apart > 1
    if exact is not None:
        halves = exact * 2  # casts change at integers, round() at half-integers: both are integers here
        edge = (halves - halves.round()).abs() / 2 <= bound + exact.abs() * torch.finfo(torch.float32).eps
        bad |= (apart == 1) & (~edge if bound > 0.0 else torch.ones_like(edge))
    return _describe(bad, candidate, baseline)


def judge_booleans(
    candidate: torch.Tensor,
    baseline: torch.Tensor,
    margin: torch.Tensor | None = None,
    bound: float = 0.0,
    firm: torch.Tensor | None = None,
) -> str:
    """Equal, except where the fp64 margin of the comparison lies inside the baseline's error bound.

    margin: left minus right side in fp64, or None where the comparison is not known: then equal everywhere. firm:
    where no rounding moves either side (ties.py): there an exact tie, or a NaN, is answered as the reference does.
    """
    bad = candidate != baseline
    if margin is not None:
        told = margin.abs() > bound
        if firm is not None:
            told = told | (~(margin.abs() > 0) & firm)
        bad = bad & told
    return _describe(bad, candidate, baseline)


def judge_indices(
    candidate: torch.Tensor,
    baseline: torch.Tensor,
    values: torch.Tensor,
    dim: int | None,
    bound: float = 0.0,
    first_of_ties: bool = True,
    firm: torch.Tensor | None = None,
) -> str:
    """argmax, argmin, topk, sort: the fp64 value at the returned index must be (within bound) that at the right one.

    values: the fp64 tensor that was searched; dim None: flattened. Indices have the searched tensor's shape with `dim`
    reduced, kept as 1 or cut to k. Several indices along `dim` must be distinct. first_of_ties: torch documents that
    the first of equal extremes is returned (argmax, argmin, max, min), that a stable sort keeps the order of equals;
    topk and other sorts promise nothing. firm: where no rounding moves a value (ties.py), so that it ties in truth.
    """
    if dim is None:
        values, dim = values.reshape(-1), 0
        firm = None if firm is None else firm.reshape(-1)
        candidate, baseline = candidate.reshape(-1), baseline.reshape(-1)
    size = values.shape[dim]
    bad = (candidate < 0) | (candidate >= size)
    if bool(bad.any()):
        return "index out of range: " + _describe(bad, candidate, baseline)
    reduced = candidate.dim() == values.dim() - 1
    picked, right = (x.unsqueeze(dim) if reduced else x for x in (candidate, baseline))
    if picked.shape[dim] > 1:
        ordered = picked.sort(dim).values
        if bool((ordered.diff(dim=dim) == 0).any()):
            return "an index is returned twice along the searched dimension"
    got, want = values.gather(dim, picked), values.gather(dim, right)
    off = (got - want).abs()
    equal = (got == want) | (got.isnan() & want.isnan())
    bad = ~(equal | (off <= bound))
    if first_of_ties and bound == 0.0:
        bad |= equal & (picked > right)
    elif first_of_ties and firm is not None:
        bad |= equal & (picked > right) & firm.gather(dim, picked) & firm.gather(dim, right)
    return _describe(bad.reshape(candidate.shape), candidate, baseline)


def _describe(bad: torch.Tensor, candidate: torch.Tensor, baseline: torch.Tensor) -> str:
    import torch

    if not bool(bad.any()):
        return ""
    place = tuple(torch.nonzero(bad)[0].tolist()) if bad.dim() else ()
    got, want = candidate[place].item(), baseline[place].item()
    return f"{int(bad.sum())} of {bad.numel()} elements differ: {got} at {list(place)} where the reference gives {want}"

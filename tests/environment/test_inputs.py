"""The input plan: what each plan contains, and that a case changes layout or values exactly as its name says."""

from __future__ import annotations

import itertools

import pytest
import torch

from kforge.environment.distributions import DISTRIBUTIONS
from kforge.environment.inputs import CORE, Case, NotApplicable, make_plan, realise
from kforge.environment.layouts import LAYOUTS
from kforge.errors import UsageError
from kforge.task import Call
from kforge.task.domain import Domain


def test_quick_is_one_seed_two_distributions_two_layouts() -> None:
    """Plan quick: seed 0, variant 0, x1 and x-1, as given and strided, each pair once, diagonal first."""
    cases = make_plan("quick", 3).cases
    assert {(c.distribution, c.layout) for c in cases} == set(
        itertools.product(("x1", "x-1"), ("contiguous", "strided"))
    )
    assert {(c.variant, c.seed) for c in cases} == {(0, 0)}
    first, second = cases[:2]
    assert first.distribution != second.distribution and first.layout != second.layout
    assert not first.extra and not second.extra


def test_standard_has_five_seeds_four_distributions_and_both_layouts_of_each() -> None:
    """Plan standard: the required part is 5 seeds x 4 distributions with every distribution in both layouts."""
    required = [c for c in make_plan("standard").cases if not c.extra]
    assert {(c.seed, c.distribution) for c in required} == set(itertools.product(range(5), CORE))
    assert {(c.distribution, c.layout) for c in required} == set(itertools.product(CORE, ("contiguous", "strided")))
    assert {c.state_seed for c in required} == set(range(5))


def test_standard_names_every_kind_at_least_once() -> None:
    """Every registered distribution and layout occurs in standard, the rarer ones as extras."""
    cases = make_plan("standard").cases
    assert {c.distribution for c in cases} == set(DISTRIBUTIONS)
    assert {c.layout for c in cases} == set(LAYOUTS)
    assert {c.special for c in cases} >= {"nan", "inf", "negative_zero", "denormal"}


def test_full_is_standard_on_every_variant() -> None:
    """Plan full repeats standard for each variant, all required cases before all extras."""
    cases = make_plan("full", 3).cases
    assert len(cases) == 3 * len(make_plan("standard").cases) and {c.variant for c in cases} == {0, 1, 2}
    assert [c.extra for c in cases] == sorted(c.extra for c in cases)


def test_an_unknown_plan_lists_what_exists() -> None:
    """The error names the plans."""
    with pytest.raises(UsageError, match="unknown plan 'slow'") as error:
        make_plan("slow")
    assert "quick, standard, full" in error.value.hint


X = torch.arange(1.0, 61.0).view(3, 4, 5)


@pytest.mark.parametrize(
    "layout", [name for name in LAYOUTS if name not in ("contiguous", "expanded", "channels_last")]
)
def test_layouts_keep_values_and_change_strides_or_offset(layout: str) -> None:
    """A layout is the same numbers elsewhere in memory, and the tensor given is not written."""
    before = X.clone()
    y = LAYOUTS[layout](X)
    assert torch.equal(y, X) and torch.equal(X, before)
    assert (y.stride(), y.storage_offset()) != (X.stride(), X.storage_offset())


def test_the_gaps_of_a_strided_input_are_poisoned() -> None:
    """A kernel that ignores strides reads large values, not zeros."""
    y = LAYOUTS["strided"](X)
    assert float(torch.empty(0).set_(y.untyped_storage()).max()) == 1e4


def test_channels_last_and_expanded() -> None:
    """channels_last applies to 4-D only; expanded repeats the first slice by a stride of 0."""
    image = torch.rand(2, 3, 4, 5)
    assert LAYOUTS["channels_last"](image).is_contiguous(memory_format=torch.channels_last)
    assert LAYOUTS["channels_last"](X) is X
    y = LAYOUTS["expanded"](X)
    assert y.stride(0) == 0 and y.shape == X.shape and torch.equal(y[2], X[0])


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_keep_shape_and_dtype_and_are_seeded(name: str) -> None:
    """Each distribution gives the same values for the same seed, in the input's own dtype, without writing it."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        x = torch.rand(6, 7).to(dtype)
        before = x.clone()
        a, b = (DISTRIBUTIONS[name](x, torch.Generator().manual_seed(5)) for _ in range(2))
        assert a.dtype == dtype and a.shape == x.shape and torch.equal(a, b) and torch.equal(x, before)
        assert bool(torch.isfinite(a).all())


def test_only_floating_inputs_are_transformed() -> None:
    """Indices, masks, numbers and 0-dim tensors pass through; a task without floating inputs has no x3."""
    call = Call((torch.ones(4), torch.arange(4), torch.tensor(2.0), 7), {"mask": torch.ones(4, dtype=torch.bool)})
    out = realise(call, Case(distribution="x3"), seed=1)
    assert torch.equal(out.args[0], torch.full((4,), 3.0)) and torch.equal(out.args[1], torch.arange(4))
    assert float(out.args[2]) == 2.0 and out.args[3] == 7 and bool(out.kwargs["mask"].all())
    with pytest.raises(NotApplicable, match="no floating input"):
        realise(Call((torch.arange(4),)), Case(distribution="x3"), seed=1)


def test_a_layout_that_changes_nothing_is_not_applicable() -> None:
    """channels_last on a matrix would repeat the contiguous case."""
    with pytest.raises(NotApplicable, match="channels_last"):
        realise(Call((torch.rand(3, 4),)), Case(layout="channels_last"), seed=1)


def test_one_tensor_given_twice_stays_one_tensor() -> None:
    """Inputs that alias each other still do after a distribution and a layout."""
    x = torch.rand(4, 4)
    out = realise(Call((x, x)), Case(distribution="x3", layout="strided"), seed=1)
    assert out.args[0] is out.args[1]


def forward(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return x * p


def test_domain_is_honoured() -> None:
    """An input with a range keeps the task's own values; a predicate that says no makes the case not applicable."""
    call = Call((torch.ones(4), torch.full((4,), 0.5)))
    out = realise(call, Case(distribution="x3"), 1, Domain({"p": (0.0, 1.0)}), forward)
    assert torch.equal(out.args[0], torch.full((4,), 3.0)) and torch.equal(out.args[1], call.args[1])
    positive = Domain(accepts=lambda x, p: bool((x >= 0).all()))
    with pytest.raises(NotApplicable, match="DOMAIN"):
        realise(call, Case(distribution="x-1"), 1, positive, forward)


def test_specials_are_planted() -> None:
    """The nan case has NaN among numbers, the inf case both infinities."""
    call = Call((torch.rand(50, 50),))
    assert 0 < int(realise(call, Case(special="nan"), 1).args[0].isnan().sum()) < 10
    x = realise(call, Case(special="inf"), 1).args[0]
    assert bool(x.isposinf().any()) and bool(x.isneginf().any())

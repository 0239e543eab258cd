"""The input plan: what each plan contains, and that a case changes layout or values exactly as its name says."""

from __future__ import annotations

import itertools

import pytest
import torch

from kforge.environment.covering import covering, pairs_of
from kforge.environment.distributions import DISTRIBUTIONS, channel_scales
from kforge.environment.inputs import CORE, GIVEN, PLACES, VALUES, Case, NotApplicable, make_plan, realise
from kforge.environment.layouts import LAYOUTS
from kforge.environment.shapes import KINDS, RARE
from kforge.errors import UsageError
from kforge.task import Call
from kforge.task.domain import Domain


def test_quick_is_one_seed_two_distributions_two_layouts() -> None:
    """Plan quick: seed 0, variant 0, x1 and x-1, as given and strided, each pair once, diagonal first."""
    cases = make_plan("quick").cases
    assert {(c.distribution, c.layout) for c in cases} == set(
        itertools.product(("x1", "x-1"), ("contiguous", "strided"))
    )
    assert {(c.variant, c.seed) for c in cases} == {(0, 0)}
    first, second = cases[:2]
    assert first.distribution != second.distribution and first.layout != second.layout
    assert not first.extra and not second.extra


@pytest.mark.parametrize("name", ["quick", "standard"])
def test_plans_for_searching_have_each_further_variant_once(name: str) -> None:
    """One required case of each, after the first of variant 0, which is looked at before the others are built."""
    alone, cases = make_plan(name).cases, make_plan(name, 3).cases
    assert cases == (alone[0], Case(1), Case(2), *alone[1:])


def test_standard_has_five_seeds_four_distributions_and_both_layouts_of_each() -> None:
    """Plan standard: required are 5 seeds x 4 distributions, each of these in both layouts at the task's own sizes."""
    required = [c for c in make_plan("standard").cases if not c.extra]
    core = [c for c in required if c.distribution in CORE and c.special == "none"]
    assert {(c.seed, c.distribution) for c in core} >= set(itertools.product(range(5), CORE))
    given = {(c.distribution, c.layout) for c in core if c.shape == GIVEN}
    assert given >= set(itertools.product(CORE, ("contiguous", "strided")))
    assert {c.state_seed for c in required} == set(range(5))


def test_standard_requires_every_kind_of_shape_special_and_thread_order() -> None:
    """What is most often wrong does not wait for spare time: no derived shape or thread order is only an extra."""
    required = [c for c in make_plan("standard").cases if not c.extra]
    assert {c.shape for c in required} == {GIVEN, *KINDS, *RARE}
    assert {c.order for c in required} == {0, 1, 2, 3}
    assert {c.moved for c in required} == {"all", "first", "rest"}
    assert {c.special for c in required} >= {"nan", "inf", "nan_edges", "inf_edges", "two_nans", "false_rows"}
    assert {c.distribution for c in required} >= {"edges", "low_rows", "low", "x1e5", "offset"}


def test_special_values_meet_the_kernels_on_both_sides_of_a_number() -> None:
    """Where a candidate chooses by a size, NaN and infinities come at that size and at the next one, vectors beyond."""
    required = [c for c in make_plan("standard", sizes=(4096,)).cases if not c.extra]
    met = {(c.shape, c.layout, c.special) for c in required if c.shape.startswith("inner=")}
    specials = itertools.product(("inner=4096", "inner=4097"), ("contiguous",), ("none", "inf_edges", "nan_edges"))
    assert met == {*specials, *((("inner=4100"), layout, "none") for layout in ("contiguous", "offset"))}


def test_standard_covers_every_pair_of_values_places_and_shapes() -> None:
    """A covering array: any distribution or special meets any layout and any shape, and any layout any shape."""
    cases = make_plan("standard").cases
    rows = [((c.distribution, c.special), (c.layout, c.moved), c.shape) for c in cases]
    covered = set().union(*map(pairs_of, rows))
    factors = (VALUES, PLACES, (GIVEN, *KINDS))
    for (i, first), (j, second) in itertools.combinations(enumerate(factors), 2):
        assert {(i, a, j, b) for a in first for b in second} <= covered


def test_a_covering_array_covers_and_is_no_full_product() -> None:
    """Every pair of three factors of 3, 4 and 5 values, in far fewer rows than 60; given pairs are not asked again."""
    factors = ("abc", range(4), [None, *"vwxy"])
    rows = covering(factors)
    wanted = {p for row in itertools.product(*factors) for p in pairs_of(row)}
    assert set().union(*map(pairs_of, rows)) == wanted and 20 <= len(rows) <= 26
    assert covering(factors, wanted) == []


def test_sizes_of_the_candidate_are_met_from_both_sides() -> None:
    """A candidate that chooses a kernel at 1024 columns meets 1024 and 1025, as rows and as columns."""
    shapes = {c.shape for c in make_plan("standard", sizes=[1024]).cases if not c.extra}
    assert shapes >= {"inner=1024", "inner=1025", "outer=1024", "outer=1025"}


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


def test_each_stride_alone_is_no_multiple_of_a_vector() -> None:
    """Of rows that are whole vectors the addresses are not: by the row's stride (sliced), by the first one (apart)."""
    x = torch.rand(2, 3, 9, 24)
    odd = {name: [stride % 8 != 0 for stride in LAYOUTS[name](x).stride()] for name in ("sliced", "apart")}
    assert odd == {"sliced": [False, False, True, True], "apart": [True, False, False, True]}
    assert LAYOUTS["sliced"](x[0, 0]).stride() == (27, 1) and LAYOUTS["apart"](x[0, 0]).stride() == (25, 1)
    assert all(LAYOUTS[name](x).data_ptr() % 64 == 0 for name in odd)


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


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bits_are_transformed_too(dtype: torch.dtype) -> None:
    """torch computes nothing in them: values are formed in float32 and stay within the type, none becomes NaN."""
    x = torch.randn(6, 8, 4, 4).to(dtype)
    for name in DISTRIBUTIONS:
        (y,) = realise(Call((x,)), Case(distribution=name), seed=3).args
        assert y.dtype is dtype and y.shape == x.shape, name
        assert name == "channels" or y.float().isfinite().all(), name  # scales of 2^16 are beyond the type
    (three,) = realise(Call((x,)), Case(distribution="x3"), seed=3).args
    assert torch.equal(three.float(), (x.float() * 3).clamp(max=torch.finfo(dtype).max).to(dtype).float())
    for name in LAYOUTS:
        if name not in ("contiguous", "expanded"):
            (z,) = realise(Call((x,)), Case(layout=name), seed=3).args
            assert torch.equal(z.float(), x.float()), name
            assert z.stride() != x.stride() or z.storage_offset(), name
    assert realise(Call((x,)), Case(special="nan"), seed=3).args[0].float().isnan().any()


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


def test_specials_meet_the_edges_of_rows_and_tiles() -> None:
    """The first and last element of a row, the last row, and elements 31 and 32 are among the places."""
    x = realise(Call((torch.rand(40, 70),)), Case(special="nan_edges"), 1).args[0].isnan()
    assert bool(x[:, 0].any()) and bool(x[:, -1].any()) and bool(x[-1].any()) and bool(x[0].any())
    assert bool(x[:, 31].any()) and bool(x[:, 32].any()) and int(x.sum()) < 40


def test_two_nans_share_a_row() -> None:
    """Rows with two NaN, next to each other and a warp apart."""
    x = realise(Call((torch.rand(9, 70),)), Case(special="two_nans"), 1).args[0].isnan()
    assert x.sum(1).tolist() == [2, 2, 2, 2, 0, 0, 0, 0, 2] and bool(x[1, 0] & x[1, 32])


def test_an_outlier_of_edges_is_the_maximum_of_its_row() -> None:
    """At most one a row, at both ends of rows and at their last element among them."""
    x = realise(Call((torch.rand(40, 70),)), Case(distribution="edges"), 1).args[0] > 100
    assert int(x.sum(1).max()) == 1 and bool(x[:, -1].any()) and bool(x[:, 0].any())


def test_low_rows_leave_every_second_row_alone() -> None:
    """The first row is far below zero, the second as it was."""
    x = torch.rand(4, 5)
    y = realise(Call((x,)), Case(distribution="low_rows"), 1).args[0]
    assert float(y[0].max()) < -998 and torch.equal(y[1], x[1])


def test_false_rows_change_masks_only() -> None:
    """Of a mask the first row is all false and the last all true; floats stay; without a mask there is no such case."""
    mask, x = torch.rand(4, 6) < 0.5, torch.rand(4, 6)
    out = realise(Call((x, mask)), Case(special="false_rows"), 1)
    assert torch.equal(out.args[0], x) and not bool(out.args[1][0].any()) and bool(out.args[1][-1].all())
    with pytest.raises(NotApplicable) as reason:
        realise(Call((x,)), Case(special="false_rows"), 1)
    assert str(reason.value) == ""


def test_one_input_may_be_strided_and_the_others_not() -> None:
    """moved: the layout goes to the first input only, or to all but the first."""
    call = Call((torch.rand(4, 6), torch.rand(4, 6), torch.rand(6)))
    first = realise(call, Case(layout="strided", moved="first"), 1).args
    rest = realise(call, Case(layout="strided", moved="rest"), 1).args
    assert [x.is_contiguous() for x in first] == [False, True, True]
    assert [x.is_contiguous() for x in rest] == [True, False, False]


def test_channel_scales_cancel_in_a_product() -> None:
    """Scales of the columns of the first operand are inverted on the rows of the second: the product is unchanged."""
    a, b = torch.rand(5, 8, dtype=torch.float64), torch.rand(8, 3, dtype=torch.float64)
    x, y = channel_scales([a, b], torch.Generator().manual_seed(1))
    assert torch.allclose(x @ y, a @ b) and float((x / a).max() / (x / a).min()) > 16
    assert torch.equal((x / a)[0].log2(), (x / a)[0].log2().round())


def test_domain_edges_are_sampled() -> None:
    """An input with a range takes values inside it and both of its ends; the others keep theirs."""
    call = Call((torch.ones(20, 30), torch.full((20, 30), 0.5)))
    x, p = realise(call, Case(special="domain_edges"), 1, Domain({"p": (-0.5, 1.25)}), forward).args
    assert torch.equal(x, call.args[0]) and float(p.min()) == -0.5 and float(p.max()) == 1.25
    assert len(p.unique()) > 100

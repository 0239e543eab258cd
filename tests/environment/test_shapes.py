"""Derived shapes: sizes that belong together change together, and the inputs stay what the reference accepts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.environment.directed import compared_sizes, never_launched
from kforge.environment.expected import Skip
from kforge.environment.inputs import Case
from kforge.environment.overwrites import Overwrites
from kforge.environment.preparation import Prepared, prepare
from kforge.environment.shapes import KINDS, LARGEST, Sizes, derive, find_sizes, resize
from kforge.environment.trees import leaf_tensors
from kforge.environment.widened import run_widened
from kforge.kernel.candidate import Candidate
from kforge.task import Call, load_task


def accepts(function: Callable[..., object]) -> Callable[[Call], bool]:
    def run(call: Call) -> bool:
        try:
            function(*call.args)
        except (RuntimeError, IndexError):
            return False
        return True

    return run


def sizes_of(call: Call, function: Callable[..., object], tied: tuple[int, ...] = ()) -> Sizes:
    return find_sizes(call, tied, accepts(function))


def test_equal_sizes_change_together() -> None:
    """The batch and the length of values and mask are one symbol each; the width is a third and the inner one."""
    call = Call((torch.rand(6, 8, 10), torch.ones(6, 8)))
    sizes = sizes_of(call, lambda x, mask: x * mask[..., None])
    assert sizes.symbols == ((0, 1, 2), (0, 1)) and dict(sizes.given) == {0: 6, 1: 8, 2: 10} and sizes.inner == 2


def test_a_square_product_comes_apart() -> None:
    """Rows, columns and the summed dimension are three symbols although all are 16: wrong axes hide behind squares."""
    sizes = sizes_of(Call((torch.rand(16, 16), torch.rand(16, 16))), torch.matmul)
    (m, k), (k2, n) = sizes.symbols
    assert k == k2 and len({m, k, n}) == 3


def test_two_inputs_batch_is_one_batch() -> None:
    """Dimensions that may each change alone but stand at the same place of two inputs stay equal."""
    sizes = sizes_of(Call((torch.rand(4, 9), torch.rand(4, 7))), lambda a, b: (a + 1, b + 1))
    assert sizes.symbols == ((0, 1), (0, 2))


def test_sizes_of_parameters_are_tied() -> None:
    """A width that a parameter has does not change; the same number elsewhere does."""
    weight = torch.ones(12)
    sizes = sizes_of(Call((torch.rand(12, 12),)), lambda x: x * weight, tied=(12,))
    assert sizes.symbols == ((0, None),) and sizes.inner is None
    assert derive(sizes, "wide") is None and derive(sizes, "column") is None


@pytest.mark.parametrize("kind", [*KINDS, "inner=1025", "outer=33"])
def test_a_kind_changes_sizes_and_stays_small(kind: str) -> None:
    """Each kind gives other sizes than the task's, few enough elements for the emulator, and inputs of these sizes."""
    call = Call((torch.rand(64, 32, 512), torch.rand(64, 32)))
    sizes = sizes_of(call, lambda x, mask: x * mask[..., None])
    new = derive(sizes, kind)
    assert new is not None and new != dict(sizes.given) and sizes.elements(new) <= LARGEST
    x, mask = resize(call, sizes, new).args
    assert x.shape == (new[0], new[1], new[2]) and mask.shape == (new[0], new[1])
    assert (x * mask[..., None]).shape == x.shape


def test_kinds_are_what_their_names_say() -> None:
    """Ragged, one more, one less, one row, one column, empty; the ragged ones divide by no vector or tile."""
    sizes = sizes_of(Call((torch.rand(64, 96),)), torch.sin)
    made = {kind: derive(sizes, kind) for kind in KINDS}
    assert made["minus"] == {0: 63, 1: 95} and made["plus"] == {0: 65, 1: 97}
    assert made["row"] == {0: 1, 1: 96} and made["column"] == {0: 64, 1: 1}
    assert made["empty"] == {0: 0, 1: 96} and made["hollow"] == {0: 64, 1: 0}
    assert made["prime"] is not None and all(n % 2 for n in made["prime"].values())
    assert made["wide"] is not None and made["wide"][1] > 4096
    assert derive(sizes, "long") == {0: 8209, 1: 5}


def test_indices_stay_indices_and_lengths_lengths() -> None:
    """Class numbers stay below the new width, lengths up to the new length, offsets end where the rows end."""
    call = Call((torch.rand(8, 50), torch.randint(0, 50, (8,)), torch.tensor([0, 20, 50])))
    sizes = Sizes(((0, 1), (0,), (None,)), ((8, 50), (8,), (3,)), {0: 8, 1: 50}, 1)
    x, index, ends = resize(call, sizes, {0: 8, 1: 7}).args
    assert x.shape == (8, 7) and int(index.max()) < 7 and ends.tolist() == [0, 7, 7]
    with pytest.raises(ValueError, match="an index into nothing"):
        resize(call, sizes, {0: 8, 1: 0})


@pytest.mark.parametrize("rows", [5, 12])
def test_indices_that_differ_go_on_to_differ(rows: int) -> None:
    """In each column, at fewer and at more rows, and they stay below the size that they are indices into."""
    call = Call((torch.rand(9, 3), torch.rand(8, 3).argsort(0)))
    sizes = Sizes(((0, None), (1, None)), ((9, 3), (8, 3)), {0: 9, 1: 8}, 0)
    _, found = resize(call, sizes, {0: 14, 1: rows}).args
    assert found.shape == (rows, 3) and int(found.min()) >= 0 and int(found.max()) < 14
    assert bool((found.sort(0).values.diff(dim=0) > 0).all())


@pytest.mark.parametrize(
    ("call", "twice"),
    [
        (lambda x, i: x.scatter(0, i, x), True),
        (lambda x, i: x.scatter(0, i.argsort(0), x), False),
        (lambda x, i: x.scatter_add(0, i, x), False),
        (lambda x, i: x.index_copy(0, i[:, 0], x), True),
        (lambda x, i: x.index_put((i[:, 0],), x), True),
        (lambda x, i: x.index_put((i[:, 0],), x, accumulate=True), False),
        (lambda x, i: x.index_put((i, torch.arange(2)), x), True),
        (lambda x, i: x.index_put((i, torch.tensor([[0, 1], [1, 0], [0, 1]])), x), False),
        (lambda x, i: x.masked_fill(i > 0, 0.0), False),
    ],
)
def test_a_place_written_twice_is_seen(call: Any, twice: bool) -> None:
    """By the operators whose result torch leaves open then, and by no sum."""
    with Overwrites() as seen:
        call(torch.rand(3, 2), torch.tensor([[0, 1], [0, 1], [2, 2]]))
    assert seen.found is twice


def test_a_shape_at_which_the_reference_writes_a_place_twice_is_skipped(tmp_path: Path) -> None:
    """The task's own indices all differ; expanded they do not, and no candidate is judged there."""
    (tmp_path / "op.py").write_text(
        "import torch\n\ndef reference(x, index):\n    return x.scatter(0, index, x * 2)\n\n"
        "def get_inputs():\n    return [torch.rand(8, 4), torch.rand(8, 4).argsort(0)]\n"
    )
    ready = prepare(load_task(tmp_path / "op.py"), "cpu")
    assert ready.expected(Case()).outputs.shape == (8, 4)
    with pytest.raises(Skip, match="name a place twice"):
        ready.expected(Case(layout="expanded"))


def test_positions_go_on_as_they_were() -> None:
    """An increasing integer vector that grows keeps its step."""
    call = Call((torch.arange(0, 12, 2),))
    sizes = Sizes(((0,),), ((6,),), {0: 6}, 0)
    assert resize(call, sizes, {0: 8}).args[0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_a_maker_whose_sizes_vary_has_no_derived_shapes() -> None:
    """Sizes are read from one draw; another of other sizes is not resized by them."""
    sizes = Sizes(((0,),), ((6,),), {0: 6}, 0)
    with pytest.raises(ValueError, match="vary"):
        resize(Call((torch.rand(7),)), sizes, {0: 8})


def test_what_the_reference_rejects_is_skipped(prepared: Callable[[str], Prepared]) -> None:
    """argmax over no columns raises in torch: no such case, and the words say so."""
    with pytest.raises(Skip, match="the reference rejects"):
        prepared("argmax").expected(Case(shape="hollow"))


@pytest.mark.parametrize("task", ["softmax", "affine", "running"])
def test_the_reference_without_a_graph_is_the_one_with_it(prepared: Callable[[str], Prepared], task: str) -> None:
    """In float64 the eager run agrees with the captured graph to the last bits, and the module keeps its state."""
    ready = prepared(task)
    case = Case(shape="prime")
    expected = ready.expected(case)
    module = ready.reference(0)
    before = {k: v.clone() for k, v in module.state_dict().items()}
    wide = run_widened(module, expected.call, expected.seed)
    traced = ready.promoted(ready.variant(case)).run(module, expected.call, expected.seed)
    assert wide.outputs.dtype is torch.float64 and torch.allclose(wide.outputs, traced.outputs, rtol=1e-14, atol=0)
    assert wide.mutated_state.keys() == traced.mutated_state.keys()
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert [t.dtype for t in leaf_tensors(expected.call)] == [torch.float32]


def test_sizes_that_a_candidate_compares_with() -> None:
    """Numbers beside < and >= in its Python, not those of dimensions and not those that are only equal."""
    text = "def f(x):\n    if x.dim() > 3 or x.shape[0] == 77:\n        return 0\n    return 1024 >= x.shape[1] < 99\n"
    assert compared_sizes(Candidate("a.py", {"a.py": text})) == (99, 1024)


def test_kernels_that_never_ran_are_named() -> None:
    """By their bare names, whatever template arguments they were declared or launched with."""
    assert never_launched(["rows<T, 4>", "tail"], ["rows<float, 4>"]) == ["tail"]

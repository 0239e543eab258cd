"""The sizes that a report speaks of are those of its passed cases."""

from __future__ import annotations

from kforge.environment.inputs import Case
from kforge.environment.span import judged_sizes

SHAPES = {
    (0, "given"): {"x": (128, 64), "cfg['s']": (3,)},
    (0, "prime"): {"x": (17, 61), "cfg['s']": (3,)},
    (0, "empty"): {"x": (0, 64), "cfg['s']": (3,)},
    (1, "given"): {"x": (4, 4, 64), "cfg['s']": (3,)},
}


def test_box_of_what_passed() -> None:
    """Least and largest of each dimension over passed cases alone; other seeds and layouts add nothing."""
    cases = [Case(), Case(seed=1, layout="strided"), Case(shape="prime"), Case(shape="empty"), Case(shape="wide")]
    passed = {case.label for case in cases if case.shape != "empty"}
    assert judged_sizes(SHAPES, cases, passed) == {"x": ((17, 128), (61, 64)), "cfg['s']": ((3, 3),)}
    assert judged_sizes(SHAPES, cases, ()) == {}


def test_another_number_of_dimensions_has_no_box() -> None:
    """Variants that give an input another number of dimensions leave it out; the others keep theirs."""
    cases = [Case(), Case(variant=1)]
    assert judged_sizes(SHAPES, cases, {case.label for case in cases}) == {"cfg['s']": ((3, 3),)}

"""What is said of where an answer is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kforge.environment.spots import spots


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ((), "every element"),
        ((slice(None), slice(None), 6), "8 of 56 elements, all of [:, :, 6]"),  # a last column that is left out
        ((1, slice(1, 3)), "14 of 56 elements, all of [1, 1:3, :]"),
        ((slice(None), slice(None), slice(0, 7, 2)), "32 of 56 elements"),  # here and there in all of it
        ((0, slice(None), slice(1, 7, 2)), "12 of 56 elements, within [0, :, 1:6]"),
        ((1, 3, 6), "1 of 56 elements, all of [1, 3, 6]"),
        (slice(0, 0), ""),
    ],
)
def test_the_smallest_part_that_holds_what_is_wrong(index: Any, words: str) -> None:
    """Of a 2 x 4 x 7 output: how many elements, and the box around them as an index."""
    wrong = torch.zeros(2, 4, 7, dtype=torch.bool)
    wrong[index] = True
    assert spots(wrong) == words


def test_outputs_of_few_dimensions() -> None:
    """A number, a vector, and a dimension of one, which has no other index."""
    assert spots(torch.tensor(True)) == "the only element"
    assert spots(torch.tensor([False, True, True])) == "2 of 3 elements, all of [1:3]"
    assert spots(torch.tensor([[False, True, True]])) == "2 of 3 elements, all of [:, 1:3]"

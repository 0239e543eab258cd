"""Saturated attention in a half type: rounding alone says whose value a row has, and no right kernel fails by that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kforge.environment.backward import plan_for
from kforge.environment.inputs import Case
from kforge.environment.jumps import find, moved_by_a_unit
from kforge.environment.preparation import Prepared, prepare
from kforge.environment.values import Values
from kforge.task import Call, load_task

# Query i has one key of score 65536, the others lie thousands below; but for rows 0 to 3 keys 60 to 63 reach 65280, one
# unit in the last place less. Two further components cancel in every score, and move by hundreds with their inputs.
NEAR_TIES = """
import torch

def reference(q, k, v):
    return torch.softmax(q @ k.t(), -1) @ v

def get_inputs():
    signs = torch.tensor([[1.0 - 2 * (i >> b & 1) for b in range(8)] * 2 for i in range(64)])
    keys = 8 * signs
    keys[60:] = keys[:4] * (1 - 2**-8)
    signs[60:] = signs[4:8]
    q = torch.cat([512 * signs, torch.full((64, 2), 512.0)], 1)
    k = torch.cat([keys, torch.tensor([[32.0, -32.0]]).expand(64, 2)], 1)
    return [x.bfloat16() for x in (q, k, torch.randn(64, 32))]
"""
ATTENTION = """
import torch

def reference(q, k, v):
    scores = (q @ k.transpose(-1, -2)) * 0.25
    later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ v

def get_inputs():
    return [torch.randn(2, 4, 64, 16).bfloat16() for _ in range(3)]
"""
SEEDS = range(12)
Kernel = Callable[..., torch.Tensor]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As the judge does while it judges: on a busy machine threads that wait for one another take all the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Prepared]:
    def make(source: str) -> Prepared:
        path = tmp_path_factory.mktemp("jumps") / "task.py"
        path.write_text(source)
        ready = prepare(load_task(path), "cpu", entropy=1)
        ready.capture()  # shared by all that follow from it
        return ready

    return make


def judged(prepared: Prepared, case: Case, kernel: Kernel) -> tuple[str, list[str]]:
    """What is wrong with this kernel's answer, and what of it was not judged as closely."""
    judge, expected = Values(prepared, plan_for("quick", prepared.task)), prepared.expected(case)
    outputs = kernel(*expected.call.args)
    reply: Any = SimpleNamespace(outputs=outputs, inputs_after=expected.inputs_after, state_after={})
    problem = judge.judge(case, expected, reply, {})
    return problem.message if problem else "", list(judge.jumps.values())


def test_a_near_tie_may_go_either_way_and_nothing_else_may(made: Callable[[str], Prepared]) -> None:
    """Rows whose two best keys change places when inputs move by a unit may have the second's value, and the report
    says so; that value is held to the jump, and another row's, or all rows' by 2 %, are as wrong as ever."""
    ready = made(NEAR_TIES)

    def selecting(rows: dict[int, int], factor: float = 1.0, tied: float = 1.0) -> Kernel:
        def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            found = ready.task.reference(q, k, v) * factor
            for row, key in rows.items():
                found[row] = v[key] * tied
            return found

        return run

    second = {0: 60, 1: 61, 2: 62, 3: 63}
    assert judged(ready, Case(), selecting({})) == ("", [])
    words, lines = judged(ready, Case(), selecting(second))
    assert words == "" and len(lines) == 1
    assert "4 of 64 rows" in lines[0] and "when inputs move by one unit in the last place" in lines[0]
    for wrong in (
        selecting(second, tied=20.0),
        selecting({5: 6}),
        selecting(second | {5: 6}),
        selecting(second, factor=1.02),
    ):
        assert judged(ready, Case(), wrong)[0]


def fused(scale: float = 0.25, masked: bool = True, tail: bool = True) -> Kernel:
    """Attention as fused kernels compute it: queries scaled and rounded before the product, all else in float32."""

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scaled = (q * 0.3).bfloat16().float() / 0.3  # any factor that is no power of two
        scores = scaled @ k.float().transpose(-1, -2) * scale
        if masked:
            scores = scores.masked_fill(torch.ones(64, 64, dtype=torch.bool).triu(1), float("-inf"))
        weights = torch.softmax(scores, -1)
        if not tail:
            weights[..., 60:] = 0.0
        return (weights @ v.float()).bfloat16()

    return run


def test_attention_is_right_or_wrong_whatever_the_seed(made: Callable[[str], Prepared]) -> None:
    """A right kernel passes at scores of 1 and of 1e10; one whose scale is off by 1 %, one without mask and one without
    its last keys fail at scores of 1, where nothing jumps, for every seed."""
    ready = made(ATTENTION)
    for seed in SEEDS:
        again = ready.again(entropy=seed)
        for case in (Case(), Case(distribution="x1e5")):
            assert judged(again, case, fused())[0] == "", (seed, case.distribution)
        for wrong in (fused(scale=0.2525), fused(masked=False), fused(tail=False)):
            words, lines = judged(again, Case(), wrong)
            assert words and not lines, seed


def test_a_steep_reference_whose_baseline_is_steady_excuses_nothing(made: Callable[[str], Prepared]) -> None:
    """The softmax of large inputs moves far with them; its baseline rounds nothing before, and stays the measure."""
    ready = made(
        "import torch\n\ndef reference(x):\n    return torch.softmax(x, -1)\n\n"
        "def get_inputs():\n    return [(torch.randn(64, 64) - 200).bfloat16()]\n"
    )
    expected = ready.expected(Case())
    moved = ready.answer(ready.reference(), Case(), moved_by_a_unit(expected.call, 1)).exact[0]
    assert moved is not None and expected.exact[0] is not None
    assert float((moved - expected.exact[0]).abs().max()) > 0.1
    assert find(ready, Case(), expected, 0) is None


STEEP = """
import torch

def reference(x):
    return torch.sin(x * 1000)

def get_inputs():
    return [torch.randn(48, 40).bfloat16()]
"""
FINE: dict[str, Kernel] = {
    "in float32": lambda x: torch.sin(x.float() * 1000).bfloat16(),
    "as the reference rounds": lambda x: torch.sin((x.float() * 1000).bfloat16().float()).bfloat16(),
}
ASTRAY: dict[str, Kernel] = {
    "another function": lambda x: (2 * torch.sin(x.float() * 1000) + 0.5).bfloat16(),
    "another function of the reference": lambda x: 2 * torch.sin(x * 1000) + 0.5,
    "another factor": lambda x: torch.sin(x.float() * 1001).bfloat16(),
    "nothing": torch.zeros_like,
    "the other half": lambda x: torch.cat([torch.sin(x[:24].float() * 1000).bfloat16(), torch.zeros_like(x[24:])]),
}


@pytest.mark.parametrize("distribution", ["x1", "x-1"])
def test_a_reference_that_jumps_everywhere_is_no_measure(made: Callable[[str], Prepared], distribution: str) -> None:
    """Its own error is as large as its values, so that even zeros have less; right is what comes near fp64, or near the
    reference, and the report says why no RMS error was judged."""
    ready, case = made(STEEP), Case(distribution=distribution)
    for name, kernel in FINE.items():
        words, lines = judged(ready, case, kernel)
        assert words == "" and len(lines) == 1 and lines[0].startswith("out: RMS errors, since"), name
    for name, kernel in ASTRAY.items():
        words, _ = judged(ready, case, kernel)
        assert "of the elements are neither the right values nor the reference's own" in words, name


def test_an_answer_of_roundings_alone_is_no_jump(made: Callable[[str], Prepared]) -> None:
    """What is left of 1 after a sum of weights is noise, in the reference too: it moves with no input."""
    ready = made(
        "import torch\n\ndef reference(x):\n    return torch.softmax(x, -1).sum(-1) - 1\n\n"
        "def get_inputs():\n    return [torch.randn(2048, 40).half()]\n"
    )

    def other_order(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1).flip(-1).float().sum(-1).half() - 1

    words, lines = judged(ready, Case(), other_order)
    assert words == "" and lines == []


def test_what_is_moved() -> None:
    """Each element of a half type by one unit in its last place; zeros, infinities, other types stay, inputs do too."""
    x = torch.tensor([1.0, -3.0, 0.0, float("inf"), 100.0]).bfloat16()
    own, single = Call((x, 2), {"y": torch.ones(2)}), x.clone()
    moved = moved_by_a_unit(own, 3)
    change = (moved.args[0].double() - x.double()).nan_to_num(0.0).abs()
    assert change.tolist() == [2.0**-7, 2.0**-6, 0.0, 0.0, 0.5] and torch.equal(x, single)
    assert moved.args[1] == 2 and torch.equal(moved.kwargs["y"], torch.ones(2))

"""Where nothing can be timed the candidate that is kept has a reason: less to launch and to move, or it was first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kforge.agent.attempts import Attempt, Attempts
from kforge.agent.search.tree import Node
from kforge.agent.untimed import by_estimate, estimate_us
from kforge.environment.report import Report, Status, Verdict
from kforge.kernel.candidate import Candidate
from kforge.profiling.ceilings import sheet_for_arch
from tests.agent.small import RIGHT, Opened, candidate

TWICE = candidate(before="kernel(x, y, 0.5, x.numel())", idea="a launch for nothing")
ALIKE = candidate("1.0f + x[i] * factor", idea="the sum the other way round")


def attempt(number: int, name: str, rules: tuple[str, ...], **fields: Any) -> Attempt:
    report = Report("op.py", name, Status.VERIFIED, Verdict.UNTIMED, "quick", "emulator", **fields)
    return Attempt(Node(number, 0, name), Candidate(f"{name}.py", {f"{name}.py": name}), report, rules)


def test_untimed_attempts_keep_the_order_of_their_proposal() -> None:
    """A new rule has the first judged again, after the second: it stays the first. A time goes before both."""
    attempts = Attempts()
    for number, name, rules in ((1, "a", ()), (2, "b", ("no_fast_math",)), (1, "a", ("no_fast_math",))):
        attempts.add(attempt(number, name, rules))
    assert [a.node.id for a in attempts.verified(("no_fast_math",))] == [1, 2]
    attempts.add(attempt(3, "c", ("no_fast_math",), times_ms={"candidate": 2.0}))
    assert [a.node.id for a in attempts.verified(("no_fast_math",))] == [3, 1, 2]


def test_a_later_candidate_is_kept_only_where_its_estimate_is_clearly_lower(small: Opened) -> None:
    """Half the launches win over an earlier attempt, the same work does not, nor more; it is told as an estimate."""
    bench = small.bench
    twice, right, alike = (bench.evaluate(made) for made in (TWICE, RIGHT, ALIKE))
    assert [a.node.id for a in by_estimate(bench, [twice, right])] == [right.node.id, twice.node.id]
    assert "only a GPU can tell" in small.of("message")[-1]["text"]
    assert "untimed" in small.of("message")[-1]["text"]
    assert by_estimate(bench, [right, alike])[0] is right
    first = replace(right, candidate=replace(right.candidate, proposer="engine"))
    later = replace(twice, node=replace(twice.node, id=99))
    assert by_estimate(bench, [first, later])[0] is first


def test_the_engines_own_order_is_left_alone(small: Opened) -> None:
    """Nothing is profiled, and nothing is said, where only the engine has proposed."""
    bench = small.bench
    own = [
        replace(a, candidate=replace(a.candidate, proposer="engine"))
        for a in (bench.evaluate(TWICE), bench.evaluate(RIGHT))
    ]
    before = len(small.events)
    assert by_estimate(bench, own) == own
    assert len(small.events) == before


def test_a_library_call_has_no_estimate(small: Opened) -> None:
    """What its operators move is not known, so it takes nobody's place."""
    twice, right = small.bench.evaluate(TWICE), small.bench.evaluate(RIGHT)
    vendor = replace(right, report=replace(right.report, vendor_calls=("aten.mm.default",)))
    assert by_estimate(small.bench, [twice, vendor])[0] is twice


@pytest.mark.parametrize(
    ("kernels", "us"),
    [
        ([{"launches": 2, "traced_bytes": [3 * 10**9, 10**9]}], 2 * 833.3),
        ([{"launches": 1, "traced_bytes": [0, 0]}, {"launches": 0, "traced_bytes": None}], 0.0),
        ([{"launches": 1, "traced_bytes": None}], None),
        ([], None),
    ],
)
def test_the_estimate_adds_launches_and_bytes(kernels: list[dict[str, Any]], us: float | None) -> None:
    """Bytes at the data sheet's bandwidth (4.8e12 bytes/s on an H200), a launch's least time for each launch."""
    sheet = sheet_for_arch("sm_90a")
    found = estimate_us({"kernels": kernels}, sheet)
    launches = sum(kernel["launches"] for kernel in kernels)
    assert found == (None if us is None else pytest.approx(us + launches * sheet.launch_s * 1e6, rel=1e-3))

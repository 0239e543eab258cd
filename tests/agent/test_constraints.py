"""Standing rules: read from free text, added and released while a run works, checked on every later candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kforge.agent.control import Control
from kforge.agent.hunks import hunks, rejection
from kforge.agent.standing import Standing
from kforge.agent.steering import rules
from kforge.environment.report import Status
from kforge.errors import TaskError, UsageError
from kforge.task.constraints import Constraint, parse_constraint
from tests.agent.small import FAST_MATH, RIGHT, Opened, candidate


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("keep NaN semantics", ["keep_nan"]),
        ("Please preserve the NaN and inf behaviour of the reference.", ["keep_nan"]),
        ("NaNs must propagate", ["keep_nan"]),
        ("no fast-math", ["no_fast_math"]),
        ("don't use fast math intrinsics", ["no_fast_math"]),
        ("fast-math is not allowed", ["no_fast_math"]),
        ("without __expf and other approximate intrinsics", ["no_fast_math"]),
        ("must be deterministic", ["deterministic"]),
        ("results have to be bitwise reproducible", ["deterministic"]),
        ("no vendor calls", ["no_vendor_calls"]),
        ("avoid cuBLAS", ["no_vendor_calls"]),
        ("max 48 KB shared", ["max_shared=49152"]),
        ("use at most 32 KiB of shared memory per block", ["max_shared=32768"]),
        ("shared memory must stay under 16384 bytes", ["max_shared=16384"]),
        ("limit shared memory to 96 kb", ["max_shared=98304"]),
        ("keep signature", ["keep_signature"]),
        ("keep the forward signature as it is", ["keep_signature"]),
        ("do not change the signature", ["keep_signature"]),
        ("max_shared=1024 and keep_nan", ["max_shared=1024", "keep_nan"]),
        (
            "Deterministic, no fast-math, and no vendor calls; max 48 KB shared.",
            ["deterministic", "no_fast_math", "no_vendor_calls", "max_shared=49152"],
        ),
    ],
)
def test_a_phrase_becomes_the_rule_it_asks_for(text: str, expected: list[str]) -> None:
    """Each way of saying it gives exactly these rules, as CONSTRAINTS writes them."""
    assert [str(rule) for rule in rules(text)] == expected


@pytest.mark.parametrize(
    "text",
    [
        "try vectorised loads of 16 bytes",
        "it need not be deterministic",
        "you don't have to keep NaN semantics",
        "fast math is fine here",
        "the kernel is non-deterministic, look at why",
        "use more shared memory",
        "48 KB of shared memory would be plenty",
        "use cuBLAS for the product",
        "release keep_nan",
        "tile it by 64 in shared memory",
    ],
)
def test_other_words_ask_for_no_rule(text: str) -> None:
    """A wish, a question or a permission is for the model alone."""
    assert rules(text) == ()


def standing(task: tuple[Constraint, ...] = ()) -> tuple[Standing, list[tuple[str, str]]]:
    told: list[tuple[str, str]] = []

    def tell(kind: str, /, **data: Any) -> None:
        assert kind == "constraint"
        told.append((data["action"], data["name"]))

    return Standing(task, tell), told


def test_of_two_limits_the_tighter_holds_and_ops_own_cannot_be_released() -> None:
    """A steer may tighten op.py's limit and not loosen it; a released rule of the run holds no more."""
    rules_, told = standing((Constraint("max_shared", 2048), Constraint("keep_nan")))
    rules_.constrain("max 1 KB shared", "steer 1")
    assert rules_.constraints == (Constraint("max_shared", 1024), Constraint("keep_nan"))
    rules_.constrain(Constraint("max_shared", 4096), "steer 2")
    assert rules_.constraints[0] == Constraint("max_shared", 2048)
    rules_.release("max_shared")
    assert rules_.constraints == (Constraint("max_shared", 2048), Constraint("keep_nan"))
    with pytest.raises(UsageError, match="CONSTRAINTS"):
        rules_.release("keep_nan")
    with pytest.raises(UsageError, match="no rule"):
        rules_.release("deterministic")
    assert told == [("added", "max_shared=1024"), ("added", "max_shared=4096"), ("removed", "max_shared=4096")]


@pytest.mark.parametrize(
    "text",
    [f"max {'9' * 400} kb shared", f"max_shared={'9' * 5000}", "max 99999999999999999999 MB of shared memory"],
)
def test_a_limit_beyond_all_memory_is_no_rule(text: str) -> None:
    """Numbers that overflow are nobody's limit: the steer is heard, and no rule and no error comes of it."""
    assert rules(text) == ()


def test_a_rule_with_a_number_of_thousands_of_digits_is_refused() -> None:
    """As --constraint and CONSTRAINTS may have it."""
    with pytest.raises(TaskError, match="needs a whole number of bytes"):
        parse_constraint(f"max_shared={'9' * 5000}")


def test_what_a_model_has_written_into_a_rejected_hunk_is_no_rule() -> None:
    """Rules come from the developer's reason alone: a comment in the code that is quoted with it is a model's."""
    code = "int a;\n// must be deterministic, no vendor calls, max_shared=16\n\n \u2028keep NaN semantics\n"
    known = hunks({"my kernel.cu": "int b;\n"}, {"my kernel.cu": code})
    said = rejection(known, [{"id": hunk.id, "reason": "no fast-math, please"} for hunk in known])
    assert "max_shared=16" in said
    assert [str(rule) for rule in rules(said)] == ["no_fast_math"]
    assert [str(rule) for rule in rules("- no fast-math\n- must be deterministic")] == ["no_fast_math", "deterministic"]


def test_many_rejected_hunks_fit_into_one_steer() -> None:
    """However much is rejected, it is told: long hunks by their beginning, the last ones by their places."""
    old = {f"k{n}.cu": "int a;\n" * 2000 for n in range(60)}
    known = hunks(old, dict.fromkeys(old, "float b;\n" * 2000))
    steer = Control().steer(rejection(known, [{"id": hunk.id, "reason": "no"} for hunk in known]))
    assert all(f"k{n}.cu:1-2000 rejected: no" in steer.text for n in range(60))


def test_text_without_a_rule_is_refused_where_a_rule_was_meant() -> None:
    """The error lists what exists."""
    rules_, _ = standing()
    with pytest.raises(UsageError) as error:
        rules_.constrain("make it nice", "command line")
    assert "keep_nan" in error.value.hint


def test_a_steer_brings_its_rules_and_takes_them_back() -> None:
    """Heard at once, or when taken if queued; an edit replaces them, a drop releases them."""
    rules_, _ = standing()
    control = Control(rules_.steered)
    steer = control.steer("no fast-math and deterministic")
    assert {rule.name for rule in rules_.constraints} == {"no_fast_math", "deterministic"}
    control.edit(steer.id, "deterministic please")
    assert {rule.name for rule in rules_.constraints} == {"deterministic"}
    control.drop(steer.id)
    assert rules_.constraints == ()
    control.steer("no vendor calls", "queued")
    assert rules_.constraints == ()
    control.take(queued=True)
    assert rules_.constraints == (Constraint("no_vendor_calls"),)


def test_recorded_changes_bring_the_rules_back() -> None:
    """A resumed run stands under what was added and not released."""
    rules_, told = standing()
    for name, action in (("max_shared=512", "added"), ("keep_nan", "added"), ("keep_nan", "removed")):
        rules_.apply("constraint", {"name": name, "action": action, "origin": "steer 1"})
    assert rules_.constraints == (Constraint("max_shared", 512),) and rules_.origin("max_shared") == "steer 1"
    assert told == []


def test_a_rule_added_in_the_run_rejects_from_then_on_and_no_more_when_released(small: Opened) -> None:
    """A verdict under other rules is not reused: the same candidate is judged anew, both ways."""
    bench = small.bench
    assert bench.evaluate(FAST_MATH).verified
    bench.control.steer("no fast-math, please")
    assert small.of("constraint")[-1] == {"name": "no_fast_math", "action": "added", "origin": "steer 1"}
    assert bench.best is None
    attempt = bench.evaluate(FAST_MATH)
    assert attempt.report.status is Status.REJECTED and "no_fast_math" in attempt.report.failure
    assert attempt.constraints == ("no_fast_math",)
    assert small.of("evaluated")[-1]["constraints"] == ["no_fast_math"]
    assert bench.evaluate(RIGHT).verified and bench.best is not None
    count = bench.meter.evaluations
    bench.release("no_fast_math")
    assert bench.evaluate(FAST_MATH).verified
    assert bench.meter.evaluations == count


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        ("no_fast_math", candidate("x[i] * factor + E(0.0f)", prelude="#define E __expf\n")),
        ("keep_signature", candidate(second="factor=2.0")),
        ("keep_signature", candidate(second="scale=2")),
        ("max_shared=1024", candidate(shared="2048")),
        ("max_shared=1024", candidate(shared="n * 4")),
        ("deterministic", candidate("(atomicAdd(&y[i], 0.0f), x[i] * factor + 1.0f)")),
        ("no_vendor_calls", candidate(before="torch.mm(x, x.t())")),
        ("keep_nan", candidate("(x[i] == x[i] ? x[i] * factor + 1.0f : 0.0f)")),
    ],
    ids=["macro", "name", "default", "shared", "shared by size", "atomics", "vendor", "nan"],
)
def test_every_rule_refuses_what_breaks_it_on_plan_quick(small: Opened, rule: str, bad: Any) -> None:
    """Without the rule the candidate is not refused for it; with it, it is not verified and the report says why."""
    bench = small.bench
    before = bench.evaluate(bad)
    bench.constrain(rule, "test")
    try:
        attempt = bench.evaluate(bad)
        good = bench.evaluate(RIGHT)
    finally:
        bench.release(rule)
    assert before.verified and not attempt.verified
    name = rule.partition("=")[0]
    assert name in attempt.report.failure or (name == "keep_nan" and "NaN" in attempt.report.failure)
    assert good.verified, good.report.failure


def test_a_rule_that_comes_during_the_search_is_held_by_what_is_written(small: Opened, tmp_path: Path) -> None:
    """The best so far is judged again under the rule, and the run ends with one that keeps it."""
    from kforge.agent.opening import SuggestOptions
    from kforge.agent.suggest import find

    bench = small.bench
    assert bench.evaluate(FAST_MATH).verified and bench.evaluate(RIGHT).verified
    state = bench.session.folder.parents[1]
    options = SuggestOptions(tmp_path / "out", 3600.0, "quick", "cpu", state=state, here=tmp_path)
    bench.constrain("no_fast_math", "test")
    try:
        result = find(bench, options)
    finally:
        bench.release("no_fast_math")
    assert result.candidate is not None and "__fdividef" not in "".join(result.candidate.files.values())
    assert result.exit_code == 0 and bench.is_current(FAST_MATH.digest)

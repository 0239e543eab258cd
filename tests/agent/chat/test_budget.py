"""Budgets are hard: no call is begun that might not fit what is left, and what was spent is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kforge.agent.budget import BudgetSpent
from kforge.agent.chat.model import Key, Model, Prices
from kforge.agent.chat.ready import check_models
from kforge.agent.chat.tokens import Estimator, estimate
from kforge.errors import MissingError, ModelError, UsageError
from tests.agent.chat.conftest import PATIENCE, Run
from tests.agent.scripted_model import ScriptedModel, calls, repeat, stall, status, text, tool
from tests.patience import PATIENCE_S

LOOK = calls(tool("list_files"), usage=(3000, 500, 0))
GIVE_UP = calls(tool("give_up", reason="nothing is left"))


def test_no_call_is_begun_that_cannot_fit(begin: Callable[..., Run]) -> None:
    """With fewer tokens left than the request alone takes, nothing is sent."""
    run = begin(tokens=500)
    with ScriptedModel([GIVE_UP]) as served:
        with pytest.raises(BudgetSpent, match="would not fit the 500 tokens"):
            run.propose(served)
        assert served.requests == []


def test_the_answer_is_limited_to_what_is_left(begin: Callable[..., Run]) -> None:
    """The most tokens that an answer may have shrink with the budget, by tokens and by money."""
    run = begin(tokens=20_000)
    with ScriptedModel([GIVE_UP]) as served:
        run.propose(served)
        limit = served.requests[0].body["max_tokens"]
        assert 256 <= limit < 20_000
        asked = Estimator()(served.requests[0].body["messages"], served.requests[0].body["tools"])
    assert limit == min(16_384, 20_000 - asked)
    paid = begin(usd=0.02)
    with ScriptedModel([GIVE_UP]) as served:
        paid.propose(served, model_prices=Prices(0.1, 10.0, 0.1))
        assert served.requests[0].body["max_tokens"] <= 2000


def test_money_ends_before_it_is_overspent(begin: Callable[..., Run]) -> None:
    """Calls are made until the next might cost too much; the meter stays under the budget."""
    run = begin(usd=0.10)
    numbered = [calls(tool("read_file", name="a.cu", first_line=n), usage=(3000, 500, 0)) for n in range(1, 60)]
    with ScriptedModel(numbered) as served:
        with pytest.raises(BudgetSpent, match="USD that are left"):
            run.propose(served, model_prices=Prices(1.0, 10.0, 1.0), model_output=1000)
        assert 2 <= len(served.requests) < 59
    assert run.bench.meter.usd <= 0.10
    assert run.bench.meter.usd == pytest.approx(len(run.of("model_call")) * 0.008)


def test_time_ends_a_call_in_the_middle(begin: Callable[..., Run]) -> None:
    """When the seconds are over, an answer under way is not waited for."""
    run = begin()

    def late(body: Any) -> dict[str, Any]:
        run.bench.budget = type(run.bench.budget)(seconds=run.bench.session.seconds + 0.5)
        return stall(2 * PATIENCE_S, after="hm")

    with ScriptedModel([late]) as served, pytest.raises(BudgetSpent, match="s is spent"):
        run.propose(served)


def test_a_low_budget_is_told_once(begin: Callable[..., Run]) -> None:
    """Under a quarter of a limit the model is told what is left, once."""
    run = begin(evaluations=8)

    def spend(body: object) -> dict[str, object]:
        run.bench.meter.add_evaluations(7)
        return calls(tool("list_files"))

    with ScriptedModel([spend, calls(tool("device_facts")), GIVE_UP]) as served:
        run.propose(served)
        notes = [m["content"] for m in served.requests[-1].body["messages"] if "Budget left: " in str(m["content"])]
    assert len(notes) == 2  # the task's own, and the note
    assert "Submit the best verified candidate" in notes[1]


def test_estimates_are_on_the_safe_side_and_learn() -> None:
    """Before any report a token is 2.5 bytes; a reported figure corrects the next estimates, with a margin."""
    messages = [{"role": "user", "content": "int a;\n" * 1000}]
    count = Estimator()
    assert count(messages) == 8 + 2800
    count.learn(messages, [], 2106)
    assert 2106 < count(messages) < 2106 * 1.2
    assert estimate("ключ") == 4  # bytes, not characters


def test_price_is_known_before_work_under_a_budget_in_money() -> None:
    """--usd with a model of unknown price is refused before anything is asked, with the lines to write."""
    with ScriptedModel([]) as served:
        with pytest.raises(UsageError, match="the price of m is unknown") as caught:
            check_models([Model("m", served.base_url)], usd=2.0, patience=PATIENCE)
        assert served.all_requests == []
    assert '[prices."m"]' in caught.value.hint


def test_each_model_is_asked_once_before_work() -> None:
    """One model in several roles is asked for one token, once."""
    with ScriptedModel([], models=["a", "b"]) as served:
        a, b = Model("a", served.base_url), Model("b", served.base_url)
        check_models([a, b, a], patience=PATIENCE)
        assert [request.body["model"] for request in served.all_requests] == ["a", "b"]


@pytest.mark.parametrize(
    ("probe", "key", "words", "code"),
    [
        (None, "right", "refused the key", 3),
        (status(403, "not for you"), "", "refused the key (403): not for you", 3),
        (repeat(status(503, "down")), "", "cannot be reached", 3),
        (status(404, "no such model"), "", "has no model 'm'", 2),
    ],
)
def test_what_is_wrong_with_a_model_is_found_before_work(
    probe: dict[str, object] | None, key: str, words: str, code: int
) -> None:
    """Refused key, unknown model, endpoint out of order: one line and its exit code."""
    with (
        ScriptedModel([], models=["m"], key=key, probe=probe) as served,
        pytest.raises((MissingError, ModelError, UsageError)) as caught,
    ):
        check_models([Model("m", served.base_url, Key("wrong"))], patience=PATIENCE)
    assert words in caught.value.message
    assert caught.value.exit_code == code


def test_an_endpoint_that_nobody_serves_is_missing() -> None:
    """Connection refused is told with the address and what to do."""
    with ScriptedModel([text("x")]) as served:
        address = served.base_url
    with pytest.raises(MissingError) as caught:
        check_models([Model("m", address)], patience=PATIENCE)
    assert address in caught.value.message
    assert "--base-url" in caught.value.hint

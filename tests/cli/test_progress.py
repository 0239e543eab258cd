"""Lines that a person sees for the events of a run with a model, rules and steers; what `kforge runs show` adds up."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kforge.cli.progress import Progress, describe
from kforge.store.events import RunLog
from tests.patience import PATIENCE_S


@pytest.mark.parametrize(
    ("kind", "data", "line"),
    [
        (
            "model_call",
            {"call": 1, "role": "executor", "model": "m", "tokens_in": 1200, "tokens_out": 34, "usd": 0.0123},
            "m (executor) answered: 1200 tokens in, 34 out, 0.0123 USD",
        ),
        (
            "model_call",
            {"call": 1, "model": "m", "tokens_in": 12, "tokens_cached": 10, "tokens_out": 3, "usd": None},
            "m answered: 12 tokens in (10 cached), 3 out, price unknown",
        ),
        ("tool_call", {"tool": "evaluate", "result": "verified\nmore"}, "tool evaluate done: verified"),
        (
            "tool_call",
            {"tool": "edit_file", "result": "no such file", "error": True},
            "tool edit_file failed: no such file",
        ),
        ("steer", {"id": 2, "text": "use\nfloat4", "when": "now", "state": "taken"}, "steer 2 taken: use float4"),
        ("constraint", {"name": "keep_nan", "action": "added", "origin": "steer 1"}, "rule keep_nan stands (steer 1)"),
        ("constraint", {"name": "keep_nan", "action": "removed"}, "rule keep_nan is released"),
        ("resumed", {"seconds": 12.3}, "the run goes on after 12 s of work"),
        ("stopped", {"seconds": 1.0}, "stopped: the run is saved"),
        ("model_text", {"call": 1, "text": "hm"}, None),
        ("node", {"node": 1}, None),
    ],
)
def test_an_event_is_one_line_or_none(kind: str, data: dict[str, Any], line: str | None) -> None:
    """What is streamed or internal has no line; text of others stands in one."""
    assert describe(kind, data) == line


def test_a_long_answer_of_a_tool_is_cut() -> None:
    """The line ends with dots and stays short."""
    line = describe("tool_call", {"tool": "read_file", "result": "word " * 100})
    assert line is not None and line.endswith("...") and len(line) < 140


def test_without_a_terminal_the_question_to_a_model_is_not_shown() -> None:
    """Its answer is."""
    stream = io.StringIO()
    with Progress(stream) as progress:
        progress("model_started", {"call": 1, "model": "m"})
        progress("model_call", {"call": 1, "model": "m", "tokens_in": 1, "tokens_out": 1, "usd": 0.0})
    assert "asking" not in stream.getvalue() and "m answered" in stream.getvalue()


def test_runs_show_adds_up_calls_tokens_and_money(tmp_path: Path) -> None:
    """Two calls, three evaluations: one line says it, and --json has the meter."""
    with RunLog.create(tmp_path / ".kforge" / "runs", "op") as log:
        log.append("run_started", task="op.py")
        for call in (1, 2):
            log.append("model_call", call=call, model="m", tokens_in=100, tokens_out=20, tokens_cached=50, usd=0.25)
            log.append("evaluated", candidate=f"{call:016x}", status="wrong")
        log.append("evaluated", candidate="a" * 16, status="verified")
    show = [sys.executable, "-m", "kforge", "runs", "show", log.id]
    done = subprocess.run(show, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "2 model calls, 200 tokens in (100 cached), 40 out, 0.5 USD; 3 evaluations" in done.stdout
    done = subprocess.run(
        [*show, "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert '"usd":0.5' in done.stdout.splitlines()[-1]

"""What is steered while a run begins or ends: the reading thread speaks at any moment, and nothing of it is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kforge.agent.workbench import Workbench
from kforge.config import Config
from kforge.kernel.candidate import Candidate
from kforge.ui.serving.commands import CoreCommands
from kforge.ui.serving.shelf import Shelf
from kforge.ui.serving.warm import Warm
from tests.ui.test_server import SMALL


def aside(what: Callable[[], object]) -> None:
    """Do it in another thread, to its end."""
    failed: list[Exception] = []

    def work() -> None:
        try:
            what()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def before(monkeypatch: pytest.MonkeyPatch, where: type, name: str, what: Callable[[], object]) -> None:
    """Whenever this method is called, another thread does `what` first."""
    method = getattr(where, name)

    def called(self: Any, *arguments: Any) -> Any:
        aside(what)
        return method(self, *arguments)

    monkeypatch.setattr(where, name, called)


def test_what_is_said_while_a_run_begins_or_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules that are asked for or released before the judge is ready hold from its first verdict on; words that come
    while its processes end wait, in sight, for the next run."""
    op = tmp_path / "small.py"
    op.write_text(SMALL)
    told: list[tuple[str, dict[str, Any]]] = []
    settings = Config(state=tmp_path / ".kforge", out=str(tmp_path / "out"), device="cpu", plan="quick")
    core = CoreCommands(op, settings, lambda kind, data, run: told.append((kind, dict(data))), dict)

    def beginning() -> None:
        core.call("steer", {"text": "no fast-math please"})
        core.call("constrain", {"text": "keep_nan"})
        core.call("release", {"name": "max_shared"})

    before(monkeypatch, Warm, "_prepare", beginning)

    def queue(text: str) -> dict[str, Any]:
        return core.call("steer", {"text": text, "when": "queued"})

    before(monkeypatch, Workbench, "close", lambda: queue("deterministic order"))
    before(monkeypatch, Warm, "start", lambda: queue("wider loads"))
    try:
        core.call("constrain", {"text": "max_shared=1024"})
        core.call("run", {"model": "", "budget": 3600.0})
    finally:
        core.close()
    first = next(data for kind, data in told if kind == "evaluated")
    assert set(first["constraints"]) == {"no_fast_math", "keep_nan"}
    assert set(core.rules) >= {"no_fast_math", "keep_nan"} and "max_shared=1024" not in core.rules
    steers = [(data["text"], data["state"]) for kind, data in told if kind == "steer"]
    assert ("deterministic order", "received") in steers and ("wider loads", "received") in steers
    assert {"deterministic order", "wider loads"} <= {steer.text for steer in core.control.pending}


def test_a_candidate_is_laid_out_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for a candidate while another thread still writes it gets all of its files."""
    candidate = Candidate("a_kforge.py", {"a_kforge.py": "import torch\n", "a_kforge.cu": "// kernel\n"})
    shelf, write = Shelf(tmp_path), Candidate.write
    found: list[str] = []

    def half(self: Candidate, folder: Path) -> Any:
        monkeypatch.setattr(Candidate, "write", write)
        (folder / "a_kforge.py").write_text("import torch\n")
        aside(lambda: found.append(Candidate.read(shelf.lay_out(candidate)).digest))
        return write(self, folder)

    monkeypatch.setattr(Candidate, "write", half)
    found.append(Candidate.read(shelf.lay_out(candidate)).digest)
    assert found == [candidate.digest] * 2

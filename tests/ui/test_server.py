"""The core process over its pipe: protocol, reloading, stopping, a whole session on the emulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge.errors import TaskError
from kforge.store.events import replay
from tests.patience import PATIENCE_S, until
from tests.ui.corepipe import CorePipe, session_members

SMALL = """
import os

import torch
from torch import nn

print("printed by op.py")
os.write(1, b"written by op.py\\n")


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(16, 64)]
"""


def wait_for_the_end(pids: list[int]) -> None:
    """Of each of these processes."""
    until(lambda: not any(map(_runs, pids)))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_protocol_errors_and_reload(tmp_path: Path) -> None:
    """What op.py prints is no protocol; bad requests are answered; op.py is read again when it changed."""
    op = tmp_path / "small.py"
    op.write_text(SMALL)
    with CorePipe(op) as core:
        found = core.ask("open", op=str(op))
        assert found["task"] == "small" and found["target"] == "emulator" and found["rules"] == []
        core.write("no json")
        assert core.reply(None)["error"]["kind"] == "protocol"
        for request, kind in (
            ({"id": "a", "do": "fly"}, "protocol"),
            ({"id": "b", "do": "steer", "text": "x", "when": "never"}, "usage"),
            ({"id": "c", "do": "source", "candidate": "0000"}, "usage"),
            ({"id": "d", "do": "source", "wings": 2}, "usage"),
            ({"id": "e", "do": "release", "name": "keep_nan"}, "usage"),
            ({"id": "f", "do": "undo"}, "usage"),
        ):
            core.write(json.dumps(request))
            reply = core.reply(request["id"])
            assert not reply["ok"] and reply["error"]["kind"] == kind and reply["error"]["message"], reply
        op.write_text(SMALL + '\n\nCONSTRAINTS = ["keep_nan"]\n')
        assert core.ask("open", op=str(op))["rules"] == [{"name": "keep_nan", "origin": "op.py"}]
        assert core.kinds().count("task_loaded") == 2
        op.write_text("x = 1\n")
        assert core.reply(core.send("open", op=str(op)))["error"]["kind"] == "task"
        assert core.ask("constrain", text="no fast-math please")["rules"] == ["no_fast_math"]
        assert core.ask("steer", text="wider loads")["steer"]["id"] == 1
        assert core.ask("steer_edit", steer=1, text="wider stores")["steer"]["text"] == "wider stores"
        core.ask("steer_drop", steer=1)
        assert [d["state"] for k, d in core.events if k == "steer"] == ["received", "edited", "dropped"]
        assert core.ask("quit") == {} and core.process.wait(PATIENCE_S) == 0
        assert core.junk == []


def test_a_whole_session(tmp_path: Path) -> None:
    """Run, look, edit, take a part, accept, undo: all through the pipe, all recorded in the log of the run."""
    op = tmp_path / "small.py"
    op.write_text(SMALL)
    with CorePipe(op) as core:
        core.ask("open", op=str(op))
        core.ask("constrain", text="keep_nan")
        done = core.ask("run", model="", budget=3600)
        assert done["status"] == "verified" and done["verdict"] == "untimed"
        digest = core.event("best")["candidate"]
        source = core.ask("source", candidate=digest)
        kernel = next(name for name in source["files"] if name.endswith(".cu"))
        module = tmp_path / "kforge_out" / "small" / source["module"]
        assert module.is_file() and core.junk == []

        hunks = core.ask("hunks", candidate=digest, against="parent")
        assert hunks["against"] == "" and not hunks["related"] and hunks["reference"]["name"] == "small.py"
        assert core.ask("diff", a="op", b=digest)["diff"].startswith("--- a/")

        edited = source["files"][kernel].replace("2.0f", "2.0f + 0.0f", 1) + "\n// mine\n"
        judged = core.ask("verify", module=str(module), files={kernel: edited})
        assert judged["status"] == "verified" and judged["candidate"] != digest
        both = core.ask("hunks", candidate=judged["candidate"], against=digest)
        last = both["files"][-1]["hunks"][-1]["id"]
        reason = [{"id": last, "reason": "no such remark"}]
        part = core.ask("apply_hunks", candidate=judged["candidate"], against=digest, accepted=[], rejected=reason)
        assert part == {"candidate": digest, "judged": False}
        waiting = [d for k, d in core.events if k == "steer"][-1]
        assert "no such remark" in waiting["text"] and "+// mine" in waiting["text"] and waiting["when"] == "queued"

        evidence = core.ask("evidence", candidate=judged["candidate"])
        assert evidence["verified"] and evidence["stamps"] == ["EMULATOR ONLY", "UNTIMED"]
        assert "triton" not in evidence["formats"] and evidence["domain"][0].startswith("judged on sizes x ")
        assert "/verify full" in evidence["domain"][-1]
        core.ask("accept", candidate=judged["candidate"])
        assert (tmp_path / kernel).read_text() == edited
        (tmp_path / kernel).write_text(edited + "// by hand\n")  # which no run has
        mine = core.ask("hunks", candidate=digest, against="accepted")["against"]
        kept = core.ask("apply_hunks", candidate=digest, against=mine, accepted=[], rejected=[])
        assert kept == {"candidate": mine, "judged": False} and mine not in (digest, judged["candidate"])
        refused = core.reply(core.send("undo"))["error"]["message"]
        assert "edited since" in refused and (tmp_path / kernel).read_text().endswith("// by hand\n")
        (tmp_path / kernel).write_text(edited)
        core.ask("undo")
        assert not (tmp_path / kernel).exists()
        assert "no accept to undo" in core.reply(core.send("undo"))["error"]["message"]
        assert core.ask("prepare") == {} and core.kinds().count("task_inspected") >= 2

        runs = core.ask("runs")["runs"]
        assert [row["status"] for row in runs] == ["verified", "verified"]
        log = Path(runs[0]["folder"]) / "events.jsonl"
        kinds = [event.kind for event in replay(log)]
        assert kinds[-2:] == ["accepted", "undone"] and "hunk" in kinds
        assert core.ask("quit") == {}


def test_stop_ends_everything(tmp_path: Path) -> None:
    """Stop while a candidate is judged: the run ends as interrupted, its processes are gone, and it can go on."""
    op = tmp_path / "small.py"
    op.write_text(SMALL)
    with CorePipe(op) as core:
        core.ask("open", op=str(op))
        number = core.send("run", model="", budget=3600)
        core.event("building")
        before = session_members(core.process.pid)
        stopping = core.send("stop")
        reply = core.reply(number)
        assert reply["error"]["kind"] == "interrupted" and core.reply(stopping)["result"] == {"stopped": True}
        keep = {core.process.pid, *session_members(core.process.pid)}
        wait_for_the_end([pid for pid in before if pid not in keep])
        assert "stopped" in core.kinds()
        run = core.ask("runs")["runs"][0]
        assert run["status"] == "interrupted"
        assert core.ask("resume", run=run["id"])["status"] == "verified"


def test_stop_ends_what_the_judge_prepares(tmp_path: Path) -> None:
    """Stop in the middle of op.py's own get_inputs: answered as stopped by the same core, which goes on serving."""
    op, mark = tmp_path / "small.py", tmp_path / "slow"
    slow = f"    if not pathlib.Path({str(mark)!r}).exists():\n        pathlib.Path({str(mark)!r}).touch()\n"
    slow += "        time.sleep(3600)\n"
    op.write_text("import pathlib\nimport time\n" + SMALL.replace("def get_inputs():\n", "def get_inputs():\n" + slow))
    with CorePipe(op) as core:
        core.ask("open", op=str(op))
        number = core.send("prepare")
        until(mark.exists)
        core.send("stop")
        assert core.reply(number)["error"]["kind"] == "interrupted"
        assert core.ask("prepare") == {} and "task_inspected" in core.kinds()


def test_the_core_ends_with_the_ide(tmp_path: Path) -> None:
    """When the other side of the pipe is gone, so is the core, whatever it does, with everything it started."""
    op = tmp_path / "small.py"
    op.write_text(SMALL)
    with CorePipe(op) as core:
        core.ask("open", op=str(op))
        core.send("run", model="", budget=3600)
        core.event("building")
        members = session_members(core.process.pid)
        assert len(members) > 2
        core.process.stdin.close()
        wait_for_the_end(members)


def test_a_task_that_ends_the_process(tmp_path: Path) -> None:
    """op.py that calls os._exit ends the core with one object that names it."""
    op = tmp_path / "small.py"
    op.write_text("import os\nos._exit(7)\n")
    with CorePipe(op) as core:
        core.send("open", op=str(op))
        assert core.process.wait(PATIENCE_S) == 2
        core._thread.join()
        assert "exit code 7" in core.last["error"]["message"] and core.last["error"]["kind"] == "task"


class Broken:
    """Commands of which one has a fault."""

    immediate = lookups = frozenset()

    def __init__(self) -> None:
        self.told = ""

    def names(self) -> frozenset[str]:
        return frozenset({"break", "work"})

    def call(self, do: str, arguments: object) -> dict[str, int]:
        return {"value": 1 // (0 if do == "break" else 1)}

    def begin(self) -> None:
        pass

    stop = close = begin

    def crashed(self, text: str) -> None:
        self.told = text


def test_a_fault_is_a_reply() -> None:
    """An exception in a command is answered in one line, its traceback goes to the log, and the next command works."""
    from kforge.ui.serving.server import Server

    said: list[dict[str, object]] = []
    broken = Broken()
    lines = [json.dumps({"id": n, "do": do}).encode() for n, do in enumerate(["break", "work", "quit"])]

    def forever():
        yield from lines
        while len(said) < 3:
            time.sleep(0.01)
        time.sleep(3600)  # the pipe stays open: its end would end this process

    Server(broken, lambda value: bool(said.append(dict(value)) or True)).serve(forever())
    assert "ZeroDivisionError" in said[0]["error"]["message"] and "test_server.py" in said[0]["error"]["message"]
    assert broken.told.startswith("Traceback") and said[1]["result"] == {"value": 1}


def test_what_a_stop_cut_is_stopped() -> None:
    """A command that fails because it was stopped is answered as stopped, whatever it says; a later one is not."""
    from kforge.ui.serving.server import Server

    said: list[dict[str, object]] = []
    busy, cut = threading.Event(), threading.Event()

    class Cut(Broken):
        def names(self) -> frozenset[str]:
            return frozenset({"work"})

        def call(self, do: str, arguments: object) -> dict[str, object]:
            busy.set()
            assert cut.wait(PATIENCE_S)
            raise TaskError("the reference rejects its inputs")

        def stop(self) -> None:
            cut.set()

    def lines():
        yield b'{"id": 1, "do": "work"}'
        assert busy.wait(PATIENCE_S)
        yield b'{"id": 2, "do": "stop"}'
        yield b'{"id": 3, "do": "work"}'
        yield b'{"id": 4, "do": "quit"}'
        time.sleep(3600)

    Server(Cut(), lambda value: bool(said.append(dict(value)) or True)).serve(lines())
    kinds = {row["re"]: row["error"]["kind"] for row in said if "error" in row}
    assert kinds == {1: "interrupted", 3: "task"}


@pytest.fixture
def often_switched() -> Iterator[None]:
    """The interpreter changes threads as often as it can: what a loaded machine does once in a while, it does now."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_a_stop_is_for_what_came_before_it(often_switched: None) -> None:
    """Each command is ended by the stop right behind it, whether it waits, begins or works by then."""
    from kforge.ui.serving.server import Server

    said: list[dict[str, object]] = []
    cut = threading.Event()

    class Endless(Broken):
        def names(self) -> frozenset[str]:
            return frozenset({"work"})

        def begin(self) -> None:
            cut.clear()

        def call(self, do: str, arguments: object) -> dict[str, object]:
            raise TaskError("cut" if cut.wait(PATIENCE_S) else "not stopped")

        def stop(self) -> None:
            cut.set()

    rounds = range(0, 1000, 2)

    def lines():
        for number in rounds:
            yield b'{"id": %d, "do": "work"}' % number
            yield b'{"id": %d, "do": "stop"}' % (number + 1)
        yield b'{"id": -1, "do": "quit"}'
        threading.Event().wait()  # the pipe stays open: its end would end this process

    Server(Endless(), lambda value: bool(said.append(dict(value)) or True)).serve(lines())
    kinds = {row["re"]: row["error"]["kind"] for row in said if "error" in row}
    assert kinds == dict.fromkeys(rounds, "interrupted")
    assert [row["re"] for row in said if row.get("result") == {"stopped": True}] == [number + 1 for number in rounds]


def test_the_ide_process_has_no_torch() -> None:
    """The application, its panes and dialogs are imported without torch, openai or a compiler."""
    import subprocess
    import sys

    code = (
        "import sys, kforge.ui.app, kforge.ui.panes.diff, kforge.ui.panes.tree, kforge.ui.panes.profile, "
        "kforge.ui.panes.timeline, kforge.ui.dialogs.accept, kforge.ui.dialogs.export, kforge.ui.settings_screen\n"
        "print([m for m in ('torch', 'openai', 'jinja2', 'cuda', 'numpy', 'mcp', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout.strip() == "[]"


def test_no_stop_cuts_into_an_import(tmp_path: Path) -> None:
    """Before anything can be stopped all is imported that getting ready needs: a half imported torch stays broken."""
    (tmp_path / "small.py").write_text(SMALL)
    code = (
        "import sys; from pathlib import Path; from kforge.agent.verify import loaded\n"
        "from kforge.ui.serving.warm import import_all\n"
        "task = loaded(Path('small.py'), None); import_all(); known = set(sys.modules)\n"
        "from kforge.environment import prepare; prepare(task, 'cpu', folder=Path.cwd())\n"
        "print([name for name in set(sys.modules) - known if name.partition('.')[0] in ('torch', 'sympy', 'mpmath')])\n"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"

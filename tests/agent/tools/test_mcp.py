"""`kforge mcp`: the official SDK's client over stdio, a hostile op.py that prints, and paths that lead elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kforge.agent.desk import TOOLS, Desk
from kforge.agent.tools import ToolResult
from kforge.store.events import RunLog
from tests.agent.tools.sources import MODULE, OP, SOURCE
from tests.patience import PATIENCE_S

pytest.importorskip("mcp", reason="needs the extra mcp")

ROOT = Path(__file__).resolve().parents[3]
Ask = Callable[..., ToolResult]
LOUD = """
import os, sys
print("printed on import")
sys.__stdout__.write("written on import\\n")
os.write(1, b"{\\"jsonrpc\\": \\"2.0\\", \\"id\\": 1, \\"result\\": {}}\\n")
os.system("echo from a program")
sys.stdin.read()
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A task, a candidate, a wrong one, and a secret beside the workspace."""
    place = tmp_path / "workspace"
    wrong = place / "wrong"
    wrong.mkdir(parents=True)
    (tmp_path / "secret.cu").write_text("secret text\n")
    (place / "softmax.py").write_text(OP)
    (place / "softmax_kforge.py").write_text(MODULE)
    (place / "softmax_kforge.cu").write_text(SOURCE)
    (wrong / "softmax_kforge.py").write_text(MODULE)
    (wrong / "softmax_kforge.cu").write_text(SOURCE.replace("/ sum;", "/ sum * 1.01f;"))
    return place


@pytest.fixture
def desk(workspace: Path) -> Iterator[Desk]:
    made = Desk(workspace, workspace / ".kforge", "cpu")
    yield made
    made.close()


@pytest.fixture
def ask(desk: Desk) -> Ask:
    """ask(tool, **arguments), without the protocol."""
    return lambda tool, /, **arguments: desk.call(tool, arguments, lambda text: None)


def test_a_client_evaluates_over_stdio(workspace: Path) -> None:
    """The SDK's own client starts the server, lists the tools, evaluates examples' softmax with progress, gets errors
    as errors of the tool, and nothing that op.py prints comes between, not even what looks like an answer."""
    from mcp import Client, StdioServerParameters

    (workspace / "softmax.py").write_text(LOUD + (ROOT / "examples" / "softmax.py").read_text())
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "kforge", "mcp", "--device", "cpu"],
        env={"PYTHONPATH": str(ROOT), "KFORGE_CACHE": os.environ["KFORGE_CACHE"]},
        cwd=workspace,
    )
    heard: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async def session() -> tuple[list[str], Any, Any]:
        async with Client(server, read_timeout_seconds=PATIENCE_S) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            asked = {"op": "softmax.py", "candidate": "softmax_kforge.py", "plan": "quick"}
            good = await client.call_tool("evaluate", asked, progress_callback=progress)
            bad = await client.call_tool("evaluate", {**asked, "plan": "slow"})
            return names, good, bad

    names, good, bad = asyncio.run(session())
    assert names == list(TOOLS)
    assert not good.is_error and ": verified, untimed [plan quick, emulator]" in good.content[0].text
    assert bad.is_error and "plan must be one of quick, standard, full, not 'slow'" in bad.content[0].text
    assert "reading softmax.py" in heard and "gate correctness: passed" in heard
    (run,) = (workspace / ".kforge" / "runs").iterdir()
    with RunLog(run) as log:
        kinds = [event.kind for event in log.replay()]
    assert kinds[0] == "run_started" and kinds.count("tool_call") == 1 and kinds[-1] == "run_finished"


def test_a_task_stays_warm_until_it_changes(desk: Desk, ask: Ask, workspace: Path) -> None:
    """Two calls use one workbench; a changed op.py is read again; a wrong candidate is told why."""
    first = ask("evaluate", op="softmax.py", candidate=".", plan="quick")
    assert ": verified, untimed" in first.text
    bench = desk.bench("softmax.py")
    assert ask("evaluate", op=str(workspace / "softmax.py"), candidate="softmax_kforge.py", plan="quick") == first
    assert desk.bench("softmax.py") is bench
    text = ask("compare", op="softmax.py", a=".", b="wrong").text
    assert "verified untimed" in text and "wrong   untimed" in text and "* 1.01f;" in text
    assert ask("sweep", op="softmax.py", candidate=".").text.startswith("untimed: there is no GPU")
    assert "bytes read" in ask("device_facts", op="softmax.py").text
    (workspace / "softmax.py").write_text(OP.replace("6, 70", "3, 33"))
    assert "396 bytes read" in ask("device_facts", op="softmax.py").text
    assert desk.bench("softmax.py") is not bench


def test_a_stop_while_the_task_is_read_ends_the_call(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that nobody waits for any more judges nothing; the next one is not touched by it, nor by a late stop."""
    asked = {"op": "softmax.py", "candidate": "softmax_kforge.py", "plan": "quick"}
    ticket, opened = object(), Desk._open

    def stopped_meanwhile(self: Desk, path: Path) -> Any:
        found = opened(self, path)
        self.stop(object())
        self.stop(ticket)
        return found

    monkeypatch.setattr(Desk, "_open", stopped_meanwhile)
    result = desk.call("evaluate", asked, lambda text: None, ticket)
    assert result.is_error and "stopped" in result.text
    bench = desk.bench("softmax.py")
    assert list(bench.attempts) == []
    desk.stop(ticket)
    assert not desk.call("evaluate", asked, lambda text: None, object()).is_error


@pytest.mark.parametrize(
    ("op", "candidate", "said"),
    [
        ("../softmax.py", ".", "no such file"),
        ("/etc/passwd", ".", "outside of the workspace"),
        ("link.py", ".", "outside of the workspace"),
        ("softmax.py\0", ".", "is no path"),
        (".", ".", "no such file"),
        ("absent.py", ".", "no such file"),
        ("loop.py", ".", "no such file"),
        ("a" * 5000, ".", "no such file"),
        ("\ud800.py", ".", "is no Unicode text"),
        ("pipe.py", ".", "no such file"),
        ("softmax.py", "..", "outside of the workspace"),
        ("softmax.py", "linked", "outside of the workspace"),
        ("softmax.py", "absent", "no such file"),
        ("softmax.py", "empty", "holds 0 files *_kforge.py"),
    ],
)
def test_no_path_leads_out(ask: Ask, workspace: Path, op: str, candidate: str, said: str) -> None:
    """Paths, absolute or by .., links to files and beside a candidate are refused; pipes are not waited for."""
    (workspace / "link.py").symlink_to(workspace.parent / "secret.cu")
    (workspace / "empty").mkdir()
    os.mkfifo(workspace / "pipe.py")
    (workspace / "loop.py").symlink_to("loop.py")
    shutil.copytree(workspace / "wrong", workspace / "linked")
    (workspace / "linked" / "stolen.cu").symlink_to(workspace.parent / "secret.cu")
    if op == "../softmax.py":
        op = "../workspace/absent.py"
    result = ask("evaluate", op=op, candidate=candidate, plan="quick")
    assert result.is_error and said in result.text and "secret text" not in result.text


def test_only_the_tasks_given_are_judged(workspace: Path) -> None:
    """A server that was started for some tasks runs no other op.py."""
    (workspace / "other.py").write_text("raise SystemExit('it ran')")
    desk = Desk(workspace, workspace / ".kforge", "cpu", only=(workspace / "softmax.py",))
    result = desk.call("device_facts", {"op": "other.py"}, lambda text: None)
    assert result.is_error and "is not among the tasks" in result.text and "softmax.py" in result.text
    desk.close()


def test_a_broken_task_is_an_error_of_the_tool(ask: Ask, workspace: Path) -> None:
    """An op.py that is no task is told, and the server goes on."""
    (workspace / "broken.py").write_text("class Model: pass")
    assert ask("evaluate", op="broken.py", candidate=".").is_error
    assert ask("nothing").text.startswith("error: there is no tool 'nothing'\ntools: evaluate, ")
    assert "row" in ask("search_skills", query="softmax rows").text


def test_a_stop_ends_the_call_that_it_is_for(desk: Desk, workspace: Path) -> None:
    """A cancelled call is ended at once, its candidate is not blamed, and the next call works."""
    (workspace / "softmax_kforge.py").write_text(MODULE + "\nwhile True:\n    pass\n")
    ticket = object()

    def tell(text: str) -> None:
        if text == "building":
            desk.stop(object())  # of another call
            desk.stop(ticket)

    result = desk.call("evaluate", {"op": "softmax.py", "candidate": ".", "plan": "quick"}, tell, ticket)
    assert result.is_error and "stopped" in result.text
    (workspace / "softmax_kforge.py").write_text(MODULE)
    again = desk.call("evaluate", {"op": "softmax.py", "candidate": ".", "plan": "quick"}, lambda text: None)
    assert ": verified" in again.text


def test_an_op_py_that_ends_the_process_leaves_stdout_to_the_protocol(workspace: Path) -> None:
    """The server ends with it and says so on stderr; no object of ours is among the protocol's lines."""
    (workspace / "softmax.py").write_text("import os\nos._exit(3)\n")
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "evaluate", "arguments": {"op": "softmax.py", "candidate": "softmax_kforge.py"}}
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "kforge", "mcp", "--device", "cpu"],
        cwd=workspace, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stdin is not None and server.stdout is not None and server.stderr is not None
    with server:
        server.stdin.write("".join(json.dumps(item) + "\n" for item in asked))
        server.stdin.flush()
        said = [json.loads(line) for line in server.stdout]
        assert server.wait(PATIENCE_S) == 2
        assert "softmax.py: loading failed: the process ended with exit code 3" in server.stderr.read()
    assert all(line["jsonrpc"] == "2.0" for line in said)


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package, and one of another major version, end with exit code 3 and the extra's name."""
    import importlib.metadata

    from kforge.agent.mcp import check_sdk
    from kforge.errors import MissingError

    def absent(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    for version in (absent, lambda name: "1.9.4"):
        monkeypatch.setattr(importlib.metadata, "version", version)
        with pytest.raises(MissingError) as error:
            check_sdk()
        assert error.value.exit_code == 3 and "kforge-cuda[mcp]" in error.value.hint


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--root", "absent"], "absent"), (["absent.py"], "absent.py is no file below"), (["--device", "tpu"], "tpu")],
)
def test_a_wrong_command_line_leaves_stdout_alone(workspace: Path, arguments: list[str], said: str) -> None:
    """What is wrong at the start is said on stderr with exit code 2: stdout belongs to the protocol."""
    done = subprocess.run(
        [sys.executable, "-m", "kforge", "mcp", *arguments],
        cwd=workspace,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr

"""How the command ends: interrupts, crashes, closed and full streams; one JSON object at the end on every exit."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.driving import ENV, kforge, last_object
from tests.patience import PATIENCE_S

PROGRAM = """
import atexit, errno, hashlib, os, signal, sys, threading, time, typer
from pathlib import Path
from kforge.cli import options, output
from kforge.errors import BuildError

app = typer.Typer()

@app.command()
@output.command
def work(out: output.Output, how: str, json: options.Json = False, events: options.Events = False) -> int:
    if how == "quiet":
        output.narrate("nobody reads this")
    else:
        print("noise from user code")
    out.event("message", {"text": "begun"})
    if how == "sleep":
        output.narrate("ready")
        time.sleep(3600)
    if how == "swallow":
        try:
            output.narrate("ready")
            time.sleep(3600)
        except BaseException:
            raise ImportError("cannot load module more than once per process") from None
    if how == "crash":
        raise ValueError("broken\\nin two lines")
    if how == "exit":
        sys.exit(7)
    if how == "build":
        raise BuildError("does not compile", "line 3", log="k.cu(3): error\\x1b[31m")
    if how == "vanish":
        os._exit(0)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "deaf":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        output.narrate("ready")
        time.sleep(3600)
    if how == "compiled":
        output.narrate("ready")
        hashlib.pbkdf2_hmac("sha256", b"one call", b"of compiled code", 2 * 10**9)
    if how == "late":
        atexit.register(lambda: print("late", flush=True))
        threading.Thread(target=lambda: time.sleep(3600)).start()
    if how == "closed":
        sys.stdout.close()
        sys.stderr.close()
        sys.stdout = sys.stderr = None
        os.close(1)
        os.close(2)
    if how == "loud":
        for n in range(5000):
            print("noise", n, flush=True)
    if how == "odd":
        raise type("Odd", (BaseException,), {})("odd")
    if how == "full":
        raise OSError(errno.ENOSPC, "No space left on device", "/some/where")
    if how == "many":
        for n in range(20000):
            out.text(f"line {n}")
    out.result({"ok": True})
    return 0

app()
"""


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """A command built with the wrapper that all commands share, running in a process."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), *arguments]

    def heed() -> None:
        """A suite that runs in the background, or under nohup, has signals ignored, and its children would too."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        command, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    )


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("sleep", signal.SIGINT),
        ("sleep", signal.SIGTERM),
        ("sleep", signal.SIGHUP),
        ("swallow", signal.SIGINT),
    ],
)
def test_interrupts_end_with_130_and_one_object(tmp_path: Path, how: str, number: signal.Signals) -> None:
    """ctrl-c, a polite kill and a closed terminal all end with 130 and the error as the last object; so do those whose
    exception comes back as another one, as from an import that was broken off."""
    process = start(tmp_path, how, "--json")
    assert process.stderr is not None
    while process.stderr.readline() != "ready\n":
        assert process.poll() is None
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    value = last_object(out)
    assert (value["exit_code"], value["error"]["kind"]) == (130, "interrupted")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("crash", "ValueError: broken"),
        ("exit", "asked the process to exit with 7"),
        ("build", "does not compile"),
        ("full", "/some/where: No space left on device"),
        ("vanish", "the process of the command ended with exit code 0"),
        ("killed", "the process of the command ended by SIGKILL"),
    ],
)
def test_every_failure_ends_with_one_object(tmp_path: Path, how: str, message: str) -> None:
    """A fault of ours, an exit called by user code, a build error, a full disk, a death without a word: exit code 1
    and the reason as an object."""
    out, err = start(tmp_path, how, "--json").communicate(timeout=PATIENCE_S)
    value = last_object(out)
    assert value["exit_code"] == 1 and message in value["error"]["message"]
    assert "error: " in err and "\x1b" not in err
    assert ("Traceback" in err) == (how == "crash")
    assert ("k.cu(3): error" in err) == (how == "build")


@pytest.mark.parametrize("how", ["late", "closed", "loud"])
def test_what_user_code_leaves_behind_changes_nothing(tmp_path: Path, how: str) -> None:
    """Threads that never end, functions at exit, closed streams, floods: one object, exit code 0, and an end."""
    process = start(tmp_path, how, "--json")
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == ('{"schema":2,"ok":true,"exit_code":0}\n', 0)


def test_what_is_no_exception_is_one_line(tmp_path: Path) -> None:
    """A BaseException of the user's own ends with exit code 2 and no traceback."""
    out, err = start(tmp_path, "odd", "--json").communicate(timeout=PATIENCE_S)
    assert last_object(out)["exit_code"] == 2
    assert err.splitlines()[-1] == "error: code that was run raised Odd: odd" and "Traceback" not in err


@pytest.mark.parametrize(("how", "number"), [("deaf", signal.SIGTERM), ("compiled", signal.SIGINT)])
def test_a_stop_ends_what_does_not_listen(tmp_path: Path, how: str, number: signal.Signals) -> None:
    """A command whose code ignores signals, or is inside one long call of compiled code, is asked once: it
    ends with 130 and one object."""
    process = start(tmp_path, how, "--json")
    assert process.stderr is not None
    while process.stderr.readline() != "ready\n":
        assert process.poll() is None
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and last_object(out)["error"]["kind"] == "interrupted"


def test_the_worker_ends_with_its_guard(tmp_path: Path) -> None:
    """kill -9 of the process that was started ends the one that works too: nothing goes on unseen."""
    process = start(tmp_path, "sleep", "--json")
    assert process.stderr is not None and process.stdout is not None
    while process.stderr.readline() != "ready\n":
        assert process.poll() is None
    process.kill()
    assert last_object(process.stdout.read())["error"]["kind"] == "interrupted"  # read to its end: nobody holds it
    process.wait(timeout=PATIENCE_S)


def test_what_user_code_prints_is_narration(tmp_path: Path) -> None:
    """Data and only data on stdout: prints of user code go to stderr."""
    out, err = start(tmp_path, "fine", "--json").communicate(timeout=PATIENCE_S)
    assert out == '{"schema":2,"ok":true,"exit_code":0}\n'
    assert "noise from user code" in err


def test_events_stream_before_the_result(tmp_path: Path) -> None:
    """--events gives one object a line, the result last."""
    out, _ = start(tmp_path, "fine", "--events").communicate(timeout=PATIENCE_S)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"event": "message", "data": {"text": "begun"}},
        {"schema": 2, "ok": True, "exit_code": 0},
    ]


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    """`kforge ... | head -1`: no traceback, and the exit code is the command's own."""
    process = start(tmp_path, "many")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=PATIENCE_S) == 0
    assert "Traceback" not in err and "BrokenPipe" not in err


def test_closed_stderr_is_no_failure(tmp_path: Path) -> None:
    """Narration that nobody reads does not end a command."""
    process = start(tmp_path, "quiet", "--json")
    assert process.stdout is not None and process.stderr is not None
    process.stderr.close()
    assert process.stdout.read() == '{"schema":2,"ok":true,"exit_code":0}\n'
    assert process.wait(timeout=PATIENCE_S) == 0


def shell(tmp_path: Path, how: str, redirections: str) -> subprocess.CompletedProcess[str]:
    """The same program with its streams redirected by a shell."""
    (tmp_path / "program.py").write_text(PROGRAM)
    line = f"{sys.executable} program.py {how} {redirections}"
    return subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=ENV, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2>&- <&-"])
@pytest.mark.parametrize("how", ["fine", "loud"])
def test_the_object_comes_where_stderr_takes_nothing(tmp_path: Path, how: str, redirection: str) -> None:
    """A full or closed stderr loses the narration only, however much user code prints there."""
    done = shell(tmp_path, how, f"--json {redirection}")
    assert (done.stdout, done.returncode) == ('{"schema":2,"ok":true,"exit_code":0}\n', 0)


@pytest.mark.parametrize("options", ["--json", "--events", ""])
def test_full_stdout_is_one_line(tmp_path: Path, options: str) -> None:
    """A result that cannot be written is said on stderr, with exit code 1."""
    done = shell(tmp_path, "many", f"{options} >/dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "error: stdout cannot be written: No space left on device (send it elsewhere)"
    )
    assert "Traceback" not in done.stderr


def test_closed_stdout_is_no_failure(tmp_path: Path) -> None:
    """A command whose result nobody wants does its work; files it opens do not become its stdout."""
    assert shell(tmp_path, "fine", "--json >&-").returncode == 0


@pytest.mark.parametrize("arguments", ["--help", "--version", "suggest --help"])
def test_help_on_a_full_stdout(tmp_path: Path, arguments: str) -> None:
    """Help that cannot be written is one line and exit code 1."""
    line = f"{sys.executable} -m kforge {arguments} >/dev/full"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=ENV, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: stdout cannot be written: No space left on device\n")


def test_other_locales(tmp_path: Path) -> None:
    """A file name beyond ASCII is told as it is where the locale has no UTF-8."""
    env = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = kforge("verify", "op.py", "größe.py", "--json", cwd=tmp_path, **env)
    assert done.returncode == 2
    assert last_object(done.stdout)["error"]["message"] == "no such file: größe.py"

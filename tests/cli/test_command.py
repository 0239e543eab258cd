"""The command in processes of its own: error lines, exit codes, and one JSON object at the end on every exit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ENV = {key: value for key, value in os.environ.items() if not key.startswith("KFORGE_")}


def kforge(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs the command with its settings taken from `cwd` alone."""
    command = [sys.executable, "-m", "kforge", *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env=ENV | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def last_object(text: str) -> dict[str, Any]:
    """The last line of stdout as an object."""
    value = json.loads(text.splitlines()[-1])
    assert isinstance(value, dict)
    return value


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENV, "PYTHONPATH", str(Path(__file__).resolve().parents[2]))


USAGE = [
    (["suggest"], "Missing argument 'OP.PY'", "kforge suggest --help"),
    (["suggest", "op.py", "--frob"], "No such option: --frob", "kforge suggest --help"),
    (["softmax.py"], "No such command 'softmax.py'", "kforge suggest softmax.py"),
    (["frobnicate"], "No such command 'frobnicate'", "kforge --help"),
    (["suggest", "op.py", "--budget", "soon"], "'soon' is not a duration", "60s"),
    (["suggest", "op.py", "--plan", "thorough"], "'thorough' is not a plan", "quick, standard, full"),
    (["suggest", "op.py", "--device", "gpu"], "'gpu' is not a device", "cuda:N"),
    (["suggest", "op.py", "--arch", "hopper"], "'hopper' is not an architecture", "sm_90a"),
    (["suggest", "op.py", "--require", "slower"], "--require slower is unknown", "faster"),
    (["suggest", "op.py", "--tolerance", "rms=x"], "'rms=x' is not a tolerance", "rms=4,max=8"),
    (["verify", "op.py", "absent.py"], "no such file: absent.py", "softmax_kforge.py"),
    (["diff", "absent.py"], "no such file: absent.py", ""),
    (["runs", "show", "nothing"], "no run 'nothing'", "known: none"),
]


@pytest.mark.parametrize(
    ("arguments", "message", "hint"), USAGE, ids=lambda value: " ".join(value)[:40] if value else "-"
)
def test_usage_errors(tmp_path: Path, arguments: list[str], message: str, hint: str) -> None:
    """Each mistake is one line on stderr with what to do, exit code 2, and with --json the same as one object."""
    done = kforge(*arguments, "--json", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and message in line and hint in line
    value = last_object(done.stdout)
    assert value["exit_code"] == 2 and value["error"]["kind"] == "usage"
    assert message in value["error"]["message"] and hint in value["error"]["hint"]


def test_errors_without_json_leave_stdout_empty(tmp_path: Path) -> None:
    """Data only on stdout: an error says nothing there unless an object was asked for."""
    done = kforge("suggest", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_missing_task_is_one_line(tmp_path: Path) -> None:
    """`kforge suggest absent.py` names the file in one line and exits with 2."""
    done = kforge("suggest", "absent.py", "--json", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "absent.py" in line
    assert last_object(done.stdout)["error"]["kind"] == "task"


def test_capture_of_a_missing_program(tmp_path: Path) -> None:
    """`kforge capture` names the program that is absent and exits with 2."""
    done = kforge("capture", "absent.py", "model", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert "no such file: absent.py" in last_object(done.stdout)["error"]["message"]


def test_capture_writes_a_task_and_keeps_what_is_there(tmp_path: Path) -> None:
    """A module of a running program becomes op.py with its data; a file that exists is never overwritten."""
    (tmp_path / "program.py").write_text(
        "import sys, torch\nmodel = torch.nn.Sequential(torch.nn.LayerNorm(8))\nprint('hi')\n"
        "model(torch.ones(int(sys.argv[1]), 8))\n"
    )
    done = kforge("capture", "program.py", "model.0", "--out", "norm.py", "--json", "--", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    value = last_object(done.stdout)
    assert (value["module"], value["calls"], value["difference"]) == ("model.0", 1, 0.0)
    assert {Path(name).name for name in value["files"]} == {"norm.py", "norm.data"}
    assert all(Path(name).is_file() for name in value["files"])
    assert done.stdout.count("\n") == 1 and "hi" in done.stderr
    again = kforge("capture", "program.py", "model.0", "--out", "norm.py", "--json", cwd=tmp_path)
    assert again.returncode == 2
    assert "norm.py exists" in last_object(again.stdout)["error"]["message"]


def test_bad_settings_file_is_named(tmp_path: Path) -> None:
    """A misspelt key in kforge.toml stops a command with exit code 2 and lists what exists."""
    (tmp_path / "kforge.toml").write_text('devise = "cpu"\n')
    done = kforge("runs", "list", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert "did you mean device?" in last_object(done.stdout)["error"]["hint"]


def test_help_and_version(tmp_path: Path) -> None:
    """Help lists the commands on stdout with exit code 0, with and without arguments; the version is one line."""
    help_text = kforge("--help", cwd=tmp_path)
    assert help_text.returncode == 0 and help_text.stderr == ""
    for name in ("suggest", "verify", "diff", "capture", "runs", "doctor"):
        assert f"\n  {name}  " in help_text.stdout
    assert kforge(cwd=tmp_path).stdout == help_text.stdout
    assert kforge("--version", cwd=tmp_path).stdout == "kforge 0.1.0\n"


def test_no_runs_yet(tmp_path: Path) -> None:
    """A folder without runs is not an error: an empty list, and a hint on stderr."""
    done = kforge("runs", "list", "--json", cwd=tmp_path)
    assert done.returncode == 0 and last_object(done.stdout) == {"runs": []}
    assert "kforge suggest" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_runs_from_log_and_index(tmp_path: Path) -> None:
    """A recorded run is listed with its outcome and shown event by event; its id may be shortened."""
    from kforge.store.events import RunLog
    from kforge.store.index import Index

    with RunLog.create(tmp_path / ".kforge" / "runs", "softmax.py") as log:
        log.append("run_started", task="softmax.py")
        log.append("message", text="hello \x1b[31m[red]")
        log.append("run_finished", status="verified")
    with Index(tmp_path / ".kforge" / "index.sqlite") as index:
        index.start_run(log.id, "softmax.py", log.folder)
        index.finish_run(log.id, status="verified", verdict="untimed")
    listed = kforge("runs", "list", cwd=tmp_path)
    assert listed.returncode == 0 and log.id in listed.stdout and "untimed" in listed.stdout
    shown = kforge("runs", "show", log.id[:12], cwd=tmp_path)
    assert [line.split("s  ", 1)[1] for line in shown.stdout.splitlines()] == [
        "task softmax.py",
        "hello \ufffd[31m[red]",
    ]
    streamed = kforge("runs", "show", log.id, "--events", cwd=tmp_path).stdout.splitlines()
    assert [json.loads(line).get("event") for line in streamed] == ["run_started", "message", "run_finished", None]
    assert json.loads(streamed[-1])["run"] == log.id


def test_diff_of_a_task_and_of_candidates(tmp_path: Path) -> None:
    """From op.py the sources appear whole; between candidates only what changed; equal ones differ in nothing."""
    (tmp_path / "a.py").write_text("class Model: ...\n")
    for name, constant in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a_kforge.py").write_text("class ModelNew: ...\n")
        (tmp_path / name / "a_kforge.cu").write_text(f"// top\nint k = {constant};\n")
    done = kforge("diff", "a.py", "one", cwd=tmp_path)
    assert done.returncode == 0
    assert "-class Model: ..." in done.stdout and "+class ModelNew: ..." in done.stdout and "+// top" in done.stdout
    value = last_object(kforge("diff", "one", "two/a_kforge.py", "--json", cwd=tmp_path).stdout)
    assert [item["file"] for item in value["files"]] == ["a_kforge.cu"]
    assert "-int k = 1;\n+int k = 2;" in value["files"][0]["diff"]
    same = kforge("diff", "one", "one", cwd=tmp_path)
    assert (same.stdout, same.stderr) == ("", "no difference\n")


def test_doctor_tells_every_tool_and_the_modes(tmp_path: Path) -> None:
    """Doctor exits with 0 whatever is missing; each tool says why it matters and what works without it."""
    done = kforge("doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0
    value = last_object(done.stdout)
    tools = {tool["name"]: tool for tool in value["tools"]}
    for name in (
        "torch", "driver", "GPU", "g++", "NVRTC", "CUDA headers", "nvcc", "tree-sitter", "cuda-core", "cupy", "pycuda",
        "ncu", "nsys", "compute-sanitizer", "cuobjdump", "nvdisasm", "triton", "helion", "landlock", "seccomp",
        "bubblewrap",
    ):  # fmt: skip
        tool = tools[name]
        assert tool["why"] and tool["without"]
        assert tool["detail"] or tool["found"], name
    assert tools["torch"]["found"] and tools["torch"]["version"].startswith("2.")
    assert set(value["modes"]) == {"kernels are built by", "kernels run"}
    assert value["nvrtc"]


PROGRAM = """
import sys, time, typer
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
        time.sleep(60)
    if how == "crash":
        raise ValueError("broken\\nin two lines")
    if how == "exit":
        sys.exit(7)
    if how == "build":
        raise BuildError("does not compile", "line 3", log="k.cu(3): error\\x1b[31m")
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
    # a suite that runs in the background is started with interrupts ignored, and its children would be too
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    return subprocess.Popen(
        command, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupts_end_with_130_and_one_object(tmp_path: Path, number: signal.Signals) -> None:
    """ctrl-c, a polite kill and a closed terminal all end with 130 and the error as the last object."""
    process = start(tmp_path, "sleep", "--json")
    assert process.stderr is not None
    while process.stderr.readline() != "ready\n":
        assert process.poll() is None
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    value = last_object(out)
    assert (value["exit_code"], value["error"]["kind"]) == (130, "interrupted")


@pytest.mark.parametrize(
    ("how", "message"),
    [("crash", "ValueError: broken"), ("exit", "asked the process to exit with 7"), ("build", "does not compile")],
)
def test_every_failure_ends_with_one_object(tmp_path: Path, how: str, message: str) -> None:
    """A fault of ours, an exit called by user code and a build error: exit code 1 and the reason as an object."""
    out, err = start(tmp_path, how, "--json").communicate(timeout=30)
    value = last_object(out)
    assert value["exit_code"] == 1 and message in value["error"]["message"]
    assert "error: " in err and "\x1b" not in err
    assert ("Traceback" in err) == (how == "crash")
    assert ("k.cu(3): error" in err) == (how == "build")


def test_what_user_code_prints_is_narration(tmp_path: Path) -> None:
    """Data and only data on stdout: prints of user code go to stderr."""
    out, err = start(tmp_path, "fine", "--json").communicate(timeout=30)
    assert out == '{"ok":true}\n'
    assert "noise from user code" in err


def test_events_stream_before_the_result(tmp_path: Path) -> None:
    """--events gives one object a line, the result last."""
    out, _ = start(tmp_path, "fine", "--events").communicate(timeout=30)
    assert [json.loads(line) for line in out.splitlines()] == [
        {"event": "message", "data": {"text": "begun"}},
        {"ok": True},
    ]


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    """`kforge ... | head -1`: no traceback, and the exit code is the command's own."""
    process = start(tmp_path, "many")
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=30) == 0
    assert "Traceback" not in err and "BrokenPipe" not in err


def test_closed_stderr_is_no_failure(tmp_path: Path) -> None:
    """Narration that nobody reads does not end a command."""
    process = start(tmp_path, "quiet", "--json")
    assert process.stdout is not None and process.stderr is not None
    process.stderr.close()
    assert process.stdout.read() == '{"ok":true}\n'
    assert process.wait(timeout=30) == 0

"""The command in processes of its own: error lines, exit codes, what the smaller commands print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kforge.cli.doctor import tool_lines
from kforge.cli.probes import Tool
from tests.cli.driving import ENV, kforge, last_object
from tests.patience import PATIENCE_S

USAGE = [
    (["suggest"], "Missing argument 'OP.PY'", "kforge suggest --help"),
    (["suggest", "op.py", "--frob"], "No such option: --frob", "kforge suggest --help"),
    (["softmax.py"], "kforge softmax.py opens the IDE and takes nothing more (--json)", "kforge suggest softmax.py"),
    (["frobnicate"], "No such command 'frobnicate'", "kforge --help"),
    (["/"], "No such command '/'", "/ is a folder: name a task's op.py"),
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


@pytest.mark.parametrize("command", ["verify", "profile"])
def test_settings_are_no_candidate(tmp_path: Path, command: str) -> None:
    """What suggest writes where no kernel beats torch's settings is told as such, and read as no candidate."""
    (tmp_path / "op.py").write_text("")
    (tmp_path / "op_settings.py").write_text("class Settings:\n    pass\n")
    done = kforge(command, "op.py", "op_settings.py", cwd=tmp_path)
    assert done.returncode == 2 and "op_settings.py holds settings of torch and no kernel" in done.stderr


@pytest.mark.parametrize(("beside", "hint"), [(True, "give op_kforge.py"), (False, "reads its sources itself")])
def test_a_candidates_cuda_source_is_no_module(tmp_path: Path, beside: bool, hint: str) -> None:
    """Who gives the .cu is told which file to give, before anything is judged."""
    (tmp_path / "op.py").write_text("")
    (tmp_path / "op_kforge.cu").write_text("// 0x")
    if beside:
        (tmp_path / "op_kforge.py").write_text("")
    done = kforge("verify", "op.py", "op_kforge.cu", cwd=tmp_path)
    assert done.returncode == 2 and "op_kforge.cu is not the candidate's Python module" in done.stderr
    assert hint in done.stderr


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


@pytest.mark.parametrize("command", ["suggest", "profile"])
@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (lambda path: os.mkfifo(path), "pipe.py", "not a file: pipe.py"),
        (lambda path: path.symlink_to(path.name), "loop.py", "no such file: loop.py"),
        (lambda path: path.symlink_to("/dev/zero"), "zeros.py", "not a file: zeros.py"),
        (lambda path: path.mkdir(), "folder.py", "not a file: folder.py"),
        (lambda path: path.write_text("x = 1"), os.fsdecode(b"odd\xff.py"), r"odd\xff.py is no UTF-8"),
    ],
    ids=["pipe", "loop", "device", "folder", "bytes"],
)
def test_what_is_no_task_is_one_line(
    tmp_path: Path, command: str, make: Callable[[Path], None], name: str, message: str
) -> None:
    """A pipe is not waited for, a device not read, a link to itself not followed, a name of odd bytes not tried."""
    make(tmp_path / name)
    done = kforge(command, name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (tmp_path / ".kforge" / "runs").exists()


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
    done = kforge("runs", "--json", cwd=tmp_path)
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
    assert done.returncode == 0 and last_object(done.stdout) == {"schema": 2, "runs": [], "exit_code": 0}
    assert "kforge suggest" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_short_id_that_fits_several_runs_names_them(tmp_path: Path) -> None:
    """Of many runs those are named that the given beginning fits, not the latest."""
    for name in ("20260101-a", "20260101-b", *(f"20260202-{n}" for n in range(6))):
        (tmp_path / ".kforge" / "runs" / name).mkdir(parents=True)
    shown = kforge("runs", "show", "20260101", cwd=tmp_path)
    assert shown.returncode == 2
    assert "2 runs begin with '20260101'" in shown.stderr and "(known: 20260101-a, 20260101-b)" in shown.stderr


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
    listed = kforge("runs", "--limit", "3", cwd=tmp_path)  # `list` is what runs does where nothing else is named
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
    (tmp_path / "a.py").write_bytes("# r\xe9sum\xe9\nclass Model: ...\n".encode("latin-1"))
    odd = kforge("diff", "a.py", "one", cwd=tmp_path)
    assert odd.returncode == 0 and "-# r\ufffdsum\ufffd" in odd.stdout
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


def test_doctor_keeps_paths_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are aligned; a path that has no room beside its tool stands below it in one piece, the home as ~."""
    monkeypatch.setenv("HOME", "/home/me")
    tools = [
        Tool("nvcc", True, "13.0", "/home/me/cuda/bin/nvcc", "why", "less"),
        Tool("NVRTC", True, "13.0", f"/opt/{'a' * 70}/libnvrtc.so.13 (newest of 13.0)", "why", "less"),
        Tool(
            "a tool of a longer name", False, "", "not on PATH, in no NVIDIA wheel", "it measures", "the analytic one"
        ),
    ]
    assert list(tool_lines(tools, 60)) == [
        "found    nvcc                     13.0  ~/cuda/bin/nvcc",
        "found    NVRTC                    13.0",
        f"         /opt/{'a' * 70}/libnvrtc.so.13\n         (newest of 13.0)",
        "missing  a tool of a longer name",
        "         not on PATH, in no NVIDIA wheel",
        "         why: it measures. Without it: the analytic one",
    ]


def test_damaged_log_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    """What can be read is shown, and each part that cannot is named; a log that is gone is said to be."""
    from kforge.store.events import RunLog

    with RunLog.create(tmp_path / ".kforge" / "runs", "softmax.py") as log:
        log.append("run_started", task="softmax.py")
        log.append("message", text="readable")
    good = log.path.read_bytes()
    odd = b'{"schema":1,"seq":2,"time":1.0,"kind":"floor","data":{"floor_ms":"soon"}}\n'
    deep = b"[" * 100000 + b"\n"
    log.path.write_bytes(good + b"\xff\xfe garbage\n[1]\nnull\n" + deep + odd + b'{"schema":1,"seq":3,"ti')
    done = kforge("runs", "show", log.id, "--json", cwd=tmp_path)
    value = last_object(done.stdout)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert [event["kind"] for event in value["events"]] == ["run_started", "message", "floor"]
    assert [line.partition("events.jsonl")[2][:2] for line in value["damage"]] == [":3", ":4", ":5", ":6", ":8"]
    text = kforge("runs", "show", log.id, cwd=tmp_path)
    assert "readable" in text.stdout and "floor (its data cannot be read)" in text.stdout
    assert text.stderr.count("not readable: ") == 5
    log.path.unlink()
    gone = last_object(kforge("runs", "show", log.id, "--json", cwd=tmp_path).stdout)
    assert gone["events"] == [] and "No such file" in gone["damage"][0]


def test_doctor_names_broken_settings(tmp_path: Path) -> None:
    """Doctor says where the settings come from and what is wrong with them."""
    (tmp_path / "kforge.toml").write_text("device = [\n")
    done = kforge("doctor", "--json", cwd=tmp_path)
    value = last_object(done.stdout)
    assert value["settings"].endswith("kforge.toml") and "not valid TOML" in value["settings_problem"]


def test_capture_of_a_wrong_path_names_near_ones(tmp_path: Path) -> None:
    """A module that is never called: the hint has the paths and classes that are most like what was asked for."""
    (tmp_path / "program.py").write_text(
        "import torch\nmodel = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8))\n"
        "model(torch.ones(2, 8))\n"
    )
    for asked, offered in (("model.3", "model.1"), ("layernorm", "LayerNorm")):
        done = kforge("capture", "program.py", asked, "--out", "norm.py", "--json", cwd=tmp_path)
        error = last_object(done.stdout)["error"]
        assert done.returncode == 2 and f"{asked} was never called" in error["message"]
        assert offered in error["hint"]


def test_exit_codes_are_kept_where_the_caller_ignores_the_end_of_children(tmp_path: Path) -> None:
    """SIGCHLD set to be ignored is inherited; the system would then answer that there never was a child."""
    start = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", start, sys.executable, "-m", "kforge", "verify", "op.py", "absent.py", "--json"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=ENV, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert (ran.returncode, last_object(ran.stdout)["exit_code"]) == (2, 2)
    assert "no such file: absent.py" in ran.stderr and "stdout" not in ran.stderr

"""`kforge verify` and `kforge suggest` from the command line to the files, on the emulator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import scaling
from tests.patience import PATIENCE_S, until

ROOT = Path(__file__).resolve().parents[2]

TASK = scaling.task("x * 2.0 + 1.0", (16, 256))

KERNEL = scaling.kernel("x[i] * FACTOR + 1.0f")

MODULE = scaling.module(block=256)


def kforge(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command on the CPU, with the cache of this test run."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "KFORGE_DEVICE": "cpu"}
    command = [sys.executable, "-m", "kforge", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def last_object(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The last line of stdout as an object; what went wrong is in the assertion when there is none."""
    assert done.stdout, done.stderr
    value = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(value, dict)
    return value


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scale.py").write_text(TASK)
    return tmp_path


def _candidate(folder: Path, factor: str) -> None:
    folder.mkdir()
    (folder / "scale_kforge.py").write_text(MODULE)
    (folder / "scale_kforge.cu").write_text(KERNEL.replace("FACTOR", factor))


def test_verify_a_right_candidate(project: Path) -> None:
    """A right kernel is verified: exit code 0, gates passed, and without a GPU neither times nor a speed-up."""
    _candidate(project / "right", "2.0f")
    done = kforge("verify", "scale.py", "right", "--plan", "quick", "--json", cwd=project)
    value = last_object(done)
    assert (done.returncode, value["status"], value["verdict"], value["target"]) == (
        0,
        "verified",
        "untimed",
        "emulator",
    )
    assert {"speedup", "times_ms"}.isdisjoint(value)
    gates = {gate["name"]: gate["passed"] for gate in value["gates"]}
    assert gates["static"] is True and gates["correctness"] is True
    assert value["files"] == ["right/scale_kforge.py", "right/scale_kforge.cu"] and value["plan"] == "quick"
    assert (value["schema"], value["exit_code"], value["never_launched"]) == (2, 0, [])
    assert value["cases"]["run"] > 0 and value["rms_error"].keys() >= {"candidate_rms", "baseline_rms", "ratio"}
    (run,) = last_object(kforge("runs", "list", "--json", cwd=project))["runs"]
    assert (run["id"], run["status"], run["exit_code"], run["evaluations"]) == (value["run"], "verified", 0, 1)


def test_a_tolerance_below_the_rule_is_refused(project: Path) -> None:
    """--tolerance may widen the rule, never narrow it."""
    _candidate(project / "right", "2.0f")
    refused = kforge("verify", "scale.py", "right", "--tolerance", "rms=0.1", "--json", cwd=project)
    assert refused.returncode == 2 and "at least the rule's" in last_object(refused)["error"]["message"]


def test_verify_under_rules(project: Path) -> None:
    """--constraint adds to op.py's rules and --tolerance widens the bounds, both openly; the evidence carries them, and
    a rule that is broken is the reason of a rejection."""
    _candidate(project / "right", "2.0f")
    rule = ("--constraint", "max_shared=1024", "--constraint", "deterministic", "--tolerance", "rms=9")
    judged = kforge("verify", "scale.py", "right", "--plan", "quick", *rule, "--evidence", "kept", cwd=project)
    assert judged.returncode == 0 and "under the rules: max_shared=1024, deterministic" in judged.stdout, judged.stderr
    assert "user tolerance" in " ".join(judged.stdout.split())
    again = kforge("verify", "--replay", "kept", "--events", cwd=project)
    reports = [json.loads(line)["data"]["report"] for line in again.stdout.splitlines() if '"evaluated"' in line]
    assert again.returncode == 0 and [r["rules"] for r in reports] == [["max_shared=1024", "deterministic"]]
    assert "user tolerance" in reports[0]["precision_class"]
    _candidate(project / "fast", "__expf(0.6931472f)")
    broken = kforge("verify", "scale.py", "fast", "--plan", "quick", "--constraint", "no_fast_math", cwd=project)
    assert broken.returncode == 1 and "no_fast_math" in broken.stdout
    unknown = kforge("verify", "scale.py", "right", "--constraint", "quickly", cwd=project)
    assert unknown.returncode == 2 and "unknown constraint 'quickly'; available: keep_nan" in unknown.stderr


def test_a_build_error_keeps_its_lines(project: Path) -> None:
    """What the compiler says is shown line by line."""
    _candidate(project / "broken", "nothing_of_the_kind")
    done = kforge("verify", "scale.py", "broken", "--plan", "quick", cwd=project)
    assert done.returncode == 1
    assert done.stdout.startswith("BUILD_FAILED")
    assert "nothing_of_the_kind" in done.stdout and "gate build said:\n    " in done.stdout
    assert done.stdout.splitlines()[-1].endswith("exit code 1")


def test_verify_a_wrong_candidate(project: Path) -> None:
    """A wrong kernel is not verified: exit code 1, and the text says which gate failed and on which case."""
    _candidate(project / "wrong", "2.01f")
    done = kforge("verify", "scale.py", "wrong/scale_kforge.py", "--plan", "quick", cwd=project)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("WRONG on emulator, plan quick")
    assert "FAILED" in done.stdout and "wrong: " in done.stdout
    assert "gate correctness failed" in done.stderr


def test_suggest_writes_a_verified_candidate(project: Path) -> None:
    """From op.py to files: table, diff and kernel on stdout, stages on stderr, and the run is recorded."""
    done = kforge("suggest", "scale.py", cwd=project)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VERIFIED, UNTIMED on emulator, plan standard")
    assert "--- scale.py\n+++ scale_kforge.py" in done.stdout and "__global__" in done.stdout
    last = " ".join(done.stdout.rpartition("\n\n")[2].split())
    assert last.startswith("verified, untimed, plan standard (") and last.endswith("exit code 0")
    assert "wrote kforge_out/scale/scale_kforge.cu, kforge_out/scale/scale_kforge.py" in last
    assert max(map(len, done.stderr.splitlines())) <= 80
    assert "candidate " in done.stderr and "\x1b" not in done.stderr
    assert "class ModelNew" in (project / "kforge_out" / "scale" / "scale_kforge.py").read_text()
    (run,) = last_object(kforge("runs", "list", "--json", cwd=project))["runs"]
    assert (run["status"], run["exit_code"]) == ("verified", 0) and run["evaluations"] >= 2

    module = project / "kforge_out" / "scale" / "scale_kforge.py"
    module.write_text(module.read_text() + "# mine\n")
    refused = kforge("suggest", "scale.py", "--json", cwd=project)
    assert refused.returncode == 2
    assert "was edited since kforge wrote it" in last_object(refused)["error"]["message"]
    assert "move or remove it" in last_object(refused)["error"]["hint"]
    assert "task loaded" not in refused.stderr  # before any work
    assert module.read_text().endswith("# mine\n")


def test_events_dry_run_and_require(project: Path) -> None:
    """--events streams the run in order and ends with the result; --dry-run writes nothing but the record;
    --require faster turns 'untimed' into exit code 1."""
    options = ["--events", "--dry-run", "--require", "faster", "--plan", "quick"]
    done = kforge("suggest", "scale.py", *options, cwd=project)
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [line["event"] for line in lines[:-1]]
    assert kinds[0] == "run_started" and kinds[-1] == "run_finished"
    for kind in ("task_loaded", "captured", "proposed", "gate", "evaluated", "best"):
        assert kind in kinds
    assert (lines[-1]["status"], lines[-1]["verdict"], lines[-1]["files"]) == ("verified", "untimed", [])
    assert not (project / "kforge_out").exists()
    shown = kforge("runs", "show", lines[-1]["run"], "--json", cwd=project)
    assert [event["kind"] for event in last_object(shown)["events"]] == kinds


def test_interrupt_keeps_the_run(project: Path) -> None:
    """ctrl-c in the middle of a run: exit code 130, one object, and the run is recorded as interrupted."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "KFORGE_DEVICE": "cpu"}
    command = [sys.executable, "-m", "kforge", "suggest", "scale.py", "--json"]
    heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 (a background job ignores it)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, cwd=project, env=env, start_new_session=True, preexec_fn=heed, **pipes)
    assert process.stderr is not None
    while "candidate " not in (line := process.stderr.readline()):
        assert line, "the run ended before it proposed anything"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the group
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    value = json.loads(out.splitlines()[-1])
    assert (value["exit_code"], value["error"]["kind"]) == (130, "interrupted")
    assert "Traceback" not in err
    (run,) = last_object(kforge("runs", "list", "--json", cwd=project))["runs"]
    assert run["exit_code"] == 130
    until(lambda: not there(process.pid))  # nothing of the run is left


def there(group: int) -> bool:
    """Whether a process of this group is."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

"""`kforge bench`, `kforge worker` and the evidence of `kforge verify` as programs, on the emulator."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kforge.worker import wire
from kforge.worker.manifest import manifest
from kforge.worker.parcel import candidate_as_json, pack_task, read_candidate
from tests import scaling
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

HELPER = "FACTOR = 2.0\nprint('the helper prints')\n"
TASK = scaling.task("x * FACTOR", (16, 64), 'from helper import FACTOR\n\nprint("the task prints")')
MODULE = scaling.module(before='print("the candidate prints")')
KERNEL = scaling.kernel()


def kforge(*arguments: str, cwd: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs the command on the emulator, with the cache of this test run."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "KFORGE_DEVICE": "cpu", "KFORGE_PLAN": "quick"}
    command = [sys.executable, "-m", "kforge", *arguments]
    return subprocess.run(command, cwd=cwd, env=env, input=given, capture_output=True, check=False, timeout=PATIENCE_S)


def lines(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    """stdout, of which every line must be an object."""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Two pairs of the class maps: a right one and a wrong one."""
    for name, kernel in (("right", KERNEL), ("wrong", KERNEL.replace("2.0f", "2.1f"))):
        folder = tmp_path / "maps" / name
        folder.mkdir(parents=True)
        for file, text in {
            "op.py": TASK,
            "helper.py": HELPER,
            "scale_kforge.py": MODULE,
            "scale_kforge.cu": kernel,
        }.items():
            (folder / file).write_text(text)
    return tmp_path


def test_a_worker_answers_by_lines(suite: Path) -> None:
    """A task with a local import is judged from its text alone, other versions are refused by name, a bad line is
    answered; nothing that op.py, its import or the candidate prints is on stdout; the end of stdin ends it."""
    folder = suite / "maps" / "right"
    body = {
        "task": {**pack_task(folder / "op.py").as_json(), "manifest": manifest()},
        "candidate": candidate_as_json(read_candidate(folder / "scale_kforge.py")),
        "plan": "quick",
    }
    other = body | {"task": body["task"] | {"manifest": manifest() | {"torch": "1.0"}}}
    requests = [
        wire.request("d", "describe"),
        wire.request("a", "evaluate", **body),
        wire.request("o", "evaluate", **other),
    ]
    requests += [wire.request("f", "evaluate", **body, colour="red")]
    shutil.rmtree(suite / "maps")
    given = b"".join([*map(wire.encode, requests), b"junk\n"])
    done = kforge("worker", "--device", "cpu", cwd=suite, given=given)
    assert done.returncode == 0, done.stderr
    said = lines(done)
    ends = {message["id"]: message for message in said if message["kind"] in wire.FINAL}
    assert ends["d"]["target"] == "emulator" and ends["d"]["manifest"] == manifest()
    assert ends["a"]["report"]["status"] == "verified" and ends["a"]["report"]["plan"] == "quick"
    assert ends["o"]["error"]["kind"] == "mismatch" and "1.0 asked for" in ends["o"]["error"]["message"]
    assert "unknown field 'colour'" in ends["f"]["error"]["message"]
    assert "not JSON" in ends[None]["error"]["message"]
    assert b"the task prints" in done.stderr
    assert [m["event"] for m in said if m["id"] == "a" and m["kind"] == "event"].count("gate") >= 4


def test_a_suite_and_its_gate(suite: Path) -> None:
    """A table with statuses and classes, exit code 1 because one is wrong; saved, repaired, spoilt: the gate passes
    what is no worse and names the one that is. A task without a candidate is named as left out."""
    (suite / "maps" / "alone.py").write_text(TASK)
    done = kforge("bench", ".", "--save", "good.json", cwd=suite)
    text = done.stdout.decode()
    assert done.returncode == 1, done.stderr
    assert "maps/right  verified" in text and "maps/wrong  wrong" in text and "1 of 2 verified" in text
    assert b"no GPU: candidates are checked on the emulator and not timed" in done.stderr
    assert b"left out, without a candidate: maps/alone; with --out the engine is asked for one" in done.stderr

    (suite / "maps/right/scale_kforge.cu").write_text(KERNEL.replace("i < n", "i < n - 1"))
    (suite / "maps/wrong/scale_kforge.cu").write_text(KERNEL)
    worse = kforge("bench", ".", "--against", "good.json", "--json", cwd=suite)
    assert worse.returncode == 1, worse.stderr
    value = lines(worse)[-1]
    (change,) = [change for change in value["changes"] if change["regression"]]
    assert (change["name"], change["kind"]) == ("maps/right", "status")
    assert change["detail"].startswith("verified -> wrong")
    assert {row["name"]: row["status"] for row in value["rows"]} == {"maps/right": "wrong", "maps/wrong": "verified"}
    assert value["statistics"]["all"]["verified"] == 1
    assert b"judged once more" in worse.stderr


def test_candidates_side_by_side(suite: Path) -> None:
    """Several candidates of one task in one table in the order given, each with its own report under --json."""
    paths = ["maps/wrong", "maps/right/scale_kforge.py"]
    done = kforge("bench", "maps/right/op.py", *paths, "--json", cwd=suite)
    assert done.returncode == 1, done.stderr
    value = lines(done)[-1]
    assert [(row["name"], row["status"]) for row in value["rows"]] == [
        ("wrong/scale_kforge", "wrong"),
        ("right/scale_kforge", "verified"),
    ]
    assert value["workers"] == {"local": "emulator"} and value["exit_code"] == 1


def test_a_batch_goes_on_where_it_ended(suite: Path) -> None:
    """Reports in the order of the jobs, a bad line as an error of its own and exit code 1; --resume makes only what is
    missing or has changed."""
    job = {"op": "maps/right/op.py", "candidate": "maps/right"}
    jobs = [
        job | {"id": "a", "tag": "t"},
        {"op": "nowhere.py", "candidate": "maps/right"},
        job | {"id": "c", "timing": False},
    ]
    (suite / "jobs.jsonl").write_text("".join(json.dumps(item) + "\n" for item in jobs))
    done = kforge("bench", "jobs.jsonl", "--order", "job", cwd=suite)
    assert done.returncode == 1, done.stderr
    first, bad, last = lines(done)
    assert b"error: line 2: no such file: nowhere.py\n" in done.stderr
    assert (first["id"], first["tag"], first["report"]["status"]) == ("a", "t", "verified")
    assert (bad["id"], bad["error"]["kind"]) == ("2", "task") and "no such file" in bad["error"]["message"]
    assert (last["id"], last["report"]["status"]) == ("c", "verified")

    torn = done.stdout.splitlines()[0] + b"\n" + done.stdout.splitlines()[2][:40]
    (suite / "reports.jsonl").write_bytes(torn)
    refused = kforge("bench", "jobs.jsonl", "--out", "reports.jsonl", cwd=suite)
    assert refused.returncode == 2 and b"add --resume" in refused.stderr
    again = kforge("bench", "jobs.jsonl", "--out", "reports.jsonl", "--resume", "--json", cwd=suite)
    value = lines(again)[-1]
    assert (value["jobs"], value["skipped"], value["reports"], value["errors"]) == (3, 1, 1, 1)
    written = [json.loads(line) for line in (suite / "reports.jsonl").read_text().splitlines()]
    assert [line["id"] for line in written] == ["a", "2", "c"]


def test_what_bench_refuses(suite: Path) -> None:
    """A command line that names nothing to judge, or options that do not fit it, are usage errors with one object."""
    (suite / "jobs.jsonl").write_text("")
    for arguments in (
        ["maps/right/op.py"],
        ["jobs.jsonl", "--resume"],
        ["jobs.jsonl", "--each"],
        [".", "--worker", "a", "--ray", "local"],
        [".", "--against", "absent.json"],
    ):
        done = kforge("bench", *arguments, "--json", cwd=suite)
        assert done.returncode == 2, arguments
        assert lines(done)[-1]["exit_code"] == 2


def test_one_reason_for_all_is_the_error_of_the_command(suite: Path) -> None:
    """A GPU that is absent ends with exit code 3, a task that cannot be loaded with 2, as `kforge verify` would."""
    absent = kforge("bench", "maps/right/op.py", "maps/right", "--device", "cuda:63", "--json", cwd=suite)
    assert absent.returncode == 3 and lines(absent)[-1]["error"]["kind"] == "missing"
    (suite / "maps/right/op.py").write_text("import nothing_here\n")
    broken = kforge("bench", "maps/right/op.py", "maps/right", "maps/wrong", "--json", cwd=suite)
    assert broken.returncode == 2 and "nothing_here" in lines(broken)[-1]["error"]["message"]


def _of_results(differences: list[str]) -> list[str]:
    """Without how many cases were run: a plan runs while its time lasts."""
    return [line for line in differences if "run only then" not in line]


def test_evidence_is_kept_and_run_again(suite: Path) -> None:
    """A verified candidate's bundle runs again to the same status with the same seeds, without the first folder; a
    changed bundle is refused with exit code 2."""
    kept = kforge("verify", "maps/right/op.py", "maps/right", "--evidence", "bundle", "--json", cwd=suite)
    assert kept.returncode == 0, kept.stderr
    value = lines(kept)[-1]
    shutil.rmtree(suite / "maps")
    again = kforge("verify", "--replay", "bundle", "--json", cwd=suite)
    assert again.returncode == 0, again.stderr
    replayed = lines(again)[-1]
    assert replayed["replay"]["same_status"] is True and replayed["replay"]["digest"] == value["evidence"]["digest"]
    assert replayed["status"] == "verified" and _of_results(replayed["replay"]["differences"]) == []
    source = suite / "bundle/candidate/scale_kforge.cu"
    source.write_text(source.read_text().replace("2.0f", "3.0f"))
    refused = kforge("verify", "--replay", "bundle", "--json", cwd=suite)
    assert refused.returncode == 2
    assert "candidate/scale_kforge.cu does not have its hash" in lines(refused)[-1]["error"]["message"]


def test_a_file_of_reports_has_one_writer(suite: Path) -> None:
    """A second batch on the same file would make every report twice: it is refused at once."""
    (suite / "jobs.jsonl").write_text("{}\n")
    with (suite / "reports.jsonl").open("a") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        done = kforge("bench", "jobs.jsonl", "--out", "reports.jsonl", "--resume", cwd=suite)
    assert done.returncode == 2 and b"is being written by another batch" in done.stderr

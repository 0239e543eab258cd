"""The source ncu: which metrics it asks for, how it reads what comes back, what it says when it is refused."""

from __future__ import annotations

import gzip
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kforge.profiling.builds import with_counters
from kforge.profiling.evidence import KernelEvidence, KernelSass, Sampled, SassLine
from kforge.profiling.sources import Unavailable, ncu
from kforge.profiling.sources.ncu_metrics import METRICS, choose, named
from kforge.profiling.sources.ncu_report import read_csv
from kforge.worker import walled
from tests.patience import PATIENCE_S

STALL = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
CSV = f"""==PROF== Disconnected from process 1
"ID","PID","Kernel Name","dram__bytes_read.sum","{STALL}","launch__registers_per_thread","lts__t_sector_hit_rate.pct"
"","","","byte","inst","register/thread","%"
"0","1","scale(const float *)","1,024","0.5","32","48.5"
"1","1","other","2,048","1.5","n/a","10"
"""


def test_absent_names_are_left_out_and_the_first_known_one_is_taken() -> None:
    """An older name serves where the newer one is unknown; what a chip lacks is not asked for."""
    chosen = choose(["dram__bytes_read", "dram__throughput", "sm__inst_executed_pipe_tensor"])
    assert chosen["dram_read_bytes"] == "dram__bytes_read.sum"
    assert chosen["dram_percent"].startswith("dram__throughput.")
    assert chosen["tensor_percent"].startswith("sm__inst_executed_pipe_tensor.")
    assert "l2_hit_percent" not in chosen and "registers" in chosen


def test_counters_by_short_name_with_the_sum_of_stalls() -> None:
    """Every full name of the table has a short one; reasons of waiting add up; a warp that could issue has none."""
    values = {METRICS["stall_wait"][0]: 0.5, METRICS["stall_barrier"][0]: 1.5, "unknown.sum": 3.0}
    values[METRICS["stall_not_selected"][0]] = 4.0
    assert named(values) == {
        "stall_wait": 0.5, "stall_barrier": 1.5, "stall_not_selected": 4.0, "stall_total": 2.0,
    }  # fmt: skip


def test_the_raw_page_as_csv() -> None:
    """Units and the profiler's own lines are skipped, thousands separators removed, cells without a number left out."""
    first, second = read_csv(CSV)
    assert first.kernel == "scale(const float *)"
    assert first.counters == {
        "dram_read_bytes": 1024.0, "stall_wait": 0.5, "stall_total": 0.5, "registers": 32.0, "l2_hit_percent": 48.5,
    }  # fmt: skip
    assert second.counters["dram_read_bytes"] == 2048.0 and "registers" not in second.counters
    assert read_csv("==ERROR== nothing\n") == ()


RECORDED = Path(__file__).parent / "fixtures" / "h200"  # one launch of gpu/faults/occupancy.cu, both forms of it


def _recorded(form: str, folder: Path) -> Path:
    path = folder / f"occupancy.{form}"
    path.write_bytes(gzip.decompress((RECORDED / f"{path.name}.gz").read_bytes()))
    return path


def test_a_recorded_page_of_an_h200(tmp_path: Path) -> None:
    """Geometry and the compiler's figures are facts of the kernel: blocks of 64 threads read 12,000 floats each."""
    (launch,) = read_csv(_recorded("csv", tmp_path).read_text())
    assert launch.kernel.startswith("fault")
    found = launch.counters
    assert set(METRICS) - set(found) == set()
    assert found["registers"] == 18 and found["threads_per_instruction"] == 32
    assert 11 < found["warps_active_percent"] < 12.5  # 4 blocks of 2 warps of 64 fit
    assert found["global_load_requests"] == found["global_load_sectors"] / 8  # 128 bytes off their alignment: no 4
    assert found["stall_long_scoreboard"] > 0.6 * found["stall_total"]


def test_the_official_reader_and_the_page_agree(tmp_path: Path) -> None:
    """The same launch as .ncu-rep: the same counters, and in addition samples and accesses by source line."""
    pytest.importorskip("ncu_report", reason="needs NVIDIA's reader (pip install ncu-report)")
    from kforge.profiling.sources import ncu_report

    (launch,) = ncu_report.read(_recorded("ncu-rep", tmp_path))
    (page,) = read_csv(_recorded("csv", tmp_path).read_text())
    assert launch.counters == pytest.approx(page.counters, abs=0.006)  # the page has two decimals
    assert {row.file for row in launch.sampled if row.line} == {"occupancy.cu"}
    hot = max(launch.sampled, key=lambda row: row.samples)
    assert max(hot.stalls, key=lambda reason: hot.stalls[reason]) == "long_scoreboard"
    loads = [a for a in ncu_report.access_of(launch.sampled) if (a.space, a.access) == ("global", "read")]
    assert [(a.line, a.excess) for a in loads] == [(6, 2.0)]
    load = next(row for row in launch.sampled if row.sass.startswith("LDG"))
    assert load.sectors == 8 * load.executed == 2 * load.sectors_ideal


def test_instructions_lie_on_the_users_lines() -> None:
    """ncu names a header's line and loaded addresses; the SASS knows the source that the code was inlined into."""
    line = SassLine("k.cu", 7, {"global load": 1}, code=((0, "MOV R1, R2"), (16, "@P0 LDG.E R1, [R2]")))
    kernel = KernelEvidence("k", "k", sass=KernelSass(2, {}, {}, lines=(line,)))
    rows = (
        Sampled("helpers.h", 203, 4096, "MOV R1, R2", 1, {"wait": 1}, 10, 320),
        Sampled("helpers.h", 203, 4112, "@P0 LDG.E R1, [R2]", 3, {"wait": 3}, 10, 320, 160, 40),
        Sampled("helpers.h", 204, 4128, "EXIT", 0, {}, 10, 320),
    )
    (found,) = with_counters([kernel], [ncu.Profiled("k", {"duration_ns": 2000.0}, rows)])
    assert [(r.file, r.line) for r in found.sampled] == [("k.cu", 7), ("k.cu", 7), ("helpers.h", 204)]
    (access,) = found.access
    assert (access.file, access.line, access.units, access.ideal, access.requests) == ("k.cu", 7, 160, 40, 10)
    assert found.us == 2.0
    other = tuple(replace(row, sass="BRA 0x10") for row in rows)
    (kept,) = with_counters([kernel], [ncu.Profiled("k", {"duration_ns": 2000.0}, other)])
    assert {r.file for r in kept.sampled} == {"helpers.h"}  # another build than the one that was disassembled


def test_the_longest_launch_of_a_kernel_counts() -> None:
    """Two launches of one kernel: the slower one's figures; a launch of another kernel changes nothing."""
    launches = [
        ncu.Profiled(name, {"duration_ns": ns}) for name, ns in (("k", 1e3), ("k", 3e3), ("k", 2e3), ("j", 9e3))
    ]
    (found,) = with_counters([KernelEvidence("k", "k")], launches)
    assert found.us == 3.0


def _stub(folder: Path, profile: str) -> None:
    """A program that answers as ncu does to the questions before a profile, and then runs `profile`."""
    path = folder / "ncu"
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "NVIDIA (R) Nsight"; echo "Version 1.0 stub"; exit 0; fi\n'
        'if [ "$1" = --query-metrics ]; then echo "Device X"; echo "dram__bytes_read   Counter"; exit 0; fi\n'
        f"{profile}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


REPLAY = f'while [ "$1" != {sys.executable} ]; do shift; done; exec "$@"'  # what ncu does with its last words


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path / "cache"))
    ncu.find_ncu.cache_clear()
    yield tmp_path
    ncu.find_ncu.cache_clear()


def launches(root: Path) -> Path:
    """A folder of written launches of a candidate, without any."""
    folder = root / "candidate" / "tmp" / "launches"
    folder.mkdir(parents=True)
    (folder / "launches.json").write_text('{"launches": [], "buffers": []}')
    return folder


def test_denied_counters_name_what_an_administrator_does(stub: Path) -> None:
    """Both walls are tried; the reason names the driver's option, and nobody is told to take more rights."""
    _stub(stub, 'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1')
    with pytest.raises(Unavailable) as error:
        ncu.run(launches(stub), stub / "own", "cuda:0")
    assert "denied behind the walls 'full'" in error.value.reason and "'files'" in error.value.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in error.value.remedy and "sudo" not in error.value.remedy


def test_a_profile_without_a_report_says_why(stub: Path) -> None:
    """ncu's own error line is the reason."""
    _stub(stub, 'echo "==ERROR== Failed to connect to process 7"; exit 1')
    with pytest.raises(Unavailable, match="Failed to connect to process 7"):
        ncu.run(launches(stub), stub / "own", "cuda:0")


def test_an_endless_profile_is_ended_with_all_its_processes(stub: Path) -> None:
    """What it started is gone as well, whatever session it made for itself."""
    mark = f"{4000 + os.getpid() % 1000}.5"
    _stub(stub, f"setsid sleep {mark} & wait")
    with pytest.raises(Unavailable, match="no end after"):
        ncu.run(launches(stub), stub / "own", "cuda:0", timeout_s=1.0)
    commands = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if _readable(p)]
    assert not [c for c in commands if mark.encode() in c and b"sleep" in c.split(b"\0")[0]]


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_metric_names_are_asked_once(stub: Path) -> None:
    """The second time they come from the cache, by version and chip."""
    _stub(stub, "exit 1")
    assert ncu.available_metrics("gh100") == ("dram__bytes_read",)
    (stub / "ncu").write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo "Version 1.0 stub"; exit 0; fi\nexit 1\n')
    assert ncu.available_metrics("gh100") == ("dram__bytes_read",)


def test_without_ncu_the_source_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program, no counters: a reason and what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "toolkit_roots", list)
    ncu.find_ncu.cache_clear()
    try:
        found = ncu.find_ncu()
    except Unavailable as error:
        assert "ncu" in error.reason and error.remedy
    else:
        assert found.is_file()  # a copy under /opt is found without PATH
    finally:
        ncu.find_ncu.cache_clear()


@pytest.mark.parametrize("walls", walled.WALLS)
def test_a_profiler_stands_behind_walls(stub: Path, walls: str) -> None:
    """It writes its own folder and reads the candidate's; the user's files and sockets beyond Unix ones are closed."""
    secret, own, candidate = stub / "secret.txt", stub / "own", stub / "candidate"
    secret.write_text("secret")
    own.mkdir()
    (own / "tmp").mkdir()
    candidate.mkdir()
    (candidate / "book").write_text("a book")
    words = f"""
import socket, subprocess, sys
from pathlib import Path
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
print(Path({str(candidate / "book")!r}).read_text())
print(tried(lambda: Path({str(secret)!r}).read_text()))
print(tried(lambda: Path({str(candidate / "book")!r}).write_text("no")))
print(tried(lambda: Path({str(own / "report")!r}).write_text("yes")))
print(subprocess.run([sys.executable, "-c", "print('started')"], capture_output=True, text=True).stdout.strip())
print(type(tried(lambda: socket.socket(socket.AF_INET))).__name__)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "kforge.worker.walled", walls, str(own), str(candidate), sys.executable, "-c", words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(root), "HOME": str(own)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    internet = "socket" if walls == walled.FILES else "str"
    assert done.stdout.splitlines() == ["a book", "PermissionError", "PermissionError", "3", "started", internet]


def test_a_replay_starts_behind_the_walls_that_ncu_stands_behind(stub: Path) -> None:
    """What ncu starts finds kforge though the checkout is closed to it; here the driver's library is what it lacks."""
    _stub(stub, REPLAY)
    with pytest.raises(Unavailable) as error:
        ncu.run(launches(stub), stub / "own", "cuda:0")
    assert "libcuda.so.1" in error.value.reason
    assert [p.name for p in (stub / "own" / "packages").iterdir()] == ["kforge"]


def test_walls_that_none_worked_behind_are_remembered_for_a_while(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second profile does not wait for ncu again and names the file to remove; after a while it is tried anew."""
    _stub(stub, 'echo "==ERROR== broken"; exit 1')
    folder = launches(stub)
    for _ in range(2):
        with pytest.raises(Unavailable, match="broken") as error:
            ncu.run(folder, stub / "own", "cuda:0")
    assert "tried 0 minutes ago" in error.value.reason and "walls.json" in error.value.reason
    monkeypatch.setattr(ncu, "HOPELESS_MIN", 0.0)
    with pytest.raises(Unavailable) as error:
        ncu.run(folder, stub / "own", "cuda:0")
    assert "minutes ago" not in error.value.reason


@pytest.mark.parametrize(
    ("capabilities", "expected"), [("0000000000000000", None), ("000000ffffffffff", ("privileged", "files"))]
)
def test_the_drivers_own_word_saves_a_start_of_ncu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capabilities: str, expected: tuple[str, ...] | None
) -> None:
    """Counters for administrators only: without the capability none is asked, with it only walls that keep it."""
    (tmp_path / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    (tmp_path / "status").write_text(f"Name:\tpython\nCapEff:\t{capabilities}\n")
    monkeypatch.setattr(ncu, "_ADMIN_ONLY", tmp_path / "params")
    monkeypatch.setattr(ncu, "_STATUS", tmp_path / "status")
    if expected is None:
        with pytest.raises(Unavailable, match="administrators only") as error:
            ncu._promising()
        assert "NVreg_RestrictProfilingToAdminUsers=0" in error.value.remedy
    else:
        assert ncu._promising() == expected
    (tmp_path / "params").write_text("RmProfilingAdminOnly: 0\n")
    assert ncu._promising() == walled.WALLS


def test_long_launches_are_not_counted_by_instruction(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes tens of times as long is left out, said in a note, and the rest has more time."""
    rows = read_csv(_recorded("csv", stub).read_text())
    monkeypatch.setattr(ncu, "_read", lambda _: (rows, "csv"))
    asked: list[tuple[list[str], float]] = []

    def follow(command: list[str], environment: dict[str, str], folder: Path, log: Path, timeout_s: float) -> int:
        asked.append((command, timeout_s))
        log.write_text("")
        (folder / "profile.ncu-rep").write_text("")
        return 0

    monkeypatch.setattr(ncu, "_follow", follow)
    _stub(stub, "exit 0")
    folder = launches(stub)
    short, long = (ncu.run(folder, stub / "own", "cuda:0", call_s=s) for s in (0.001, 0.1))
    (one, quick), (other, slow) = asked
    assert "SourceCounters" in one and "SourceCounters" not in other and "WarpStateStats" in other
    assert slow - quick == pytest.approx(ncu.PASSES * 0.099)
    assert short.notes == () and "too long" in long.notes[0]

"""The source ncu: which metrics it asks for, how it reads what comes back, what it says when it is refused."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from kforge.profiling.sources import Unavailable, ncu
from kforge.profiling.sources.ncu_metrics import METRICS, choose, named
from kforge.profiling.sources.ncu_report import read_csv

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
    """Every full name of the table has a short one; waiting reasons add up for their shares."""
    values = {METRICS["stall_wait"][0]: 0.5, METRICS["stall_barrier"][0]: 1.5, "unknown.sum": 3.0}
    assert named(values) == {"stall_wait": 0.5, "stall_barrier": 1.5, "stall_total": 2.0}


def test_the_raw_page_as_csv() -> None:
    """Units and the profiler's own lines are skipped, thousands separators removed, cells without a number left out."""
    first, second = read_csv(CSV)
    assert first.kernel == "scale(const float *)"
    assert first.counters == {
        "dram_read_bytes": 1024.0, "stall_wait": 0.5, "stall_total": 0.5, "registers": 32.0, "l2_hit_percent": 48.5,
    }  # fmt: skip
    assert second.counters["dram_read_bytes"] == 2048.0 and "registers" not in second.counters
    assert read_csv("==ERROR== nothing\n") == ()


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


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path / "cache"))
    ncu.find_ncu.cache_clear()
    yield tmp_path
    ncu.find_ncu.cache_clear()


def test_denied_counters_name_what_an_administrator_does(stub: Path) -> None:
    """Both walls are tried; the reason names the driver's option, and nobody is told to take more rights."""
    _stub(stub, 'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"; exit 1')
    with pytest.raises(Unavailable) as error:
        ncu.run(stub, "cuda:0")
    assert "denied behind the walls 'full'" in error.value.reason and "'files'" in error.value.reason
    assert "NVreg_RestrictProfilingToAdminUsers=0" in error.value.remedy and "sudo" not in error.value.remedy


def test_a_profile_without_a_report_says_why(stub: Path) -> None:
    """ncu's own error line is the reason."""
    _stub(stub, 'echo "==ERROR== Failed to connect to process 7"; exit 1')
    with pytest.raises(Unavailable, match="Failed to connect to process 7"):
        ncu.run(stub, "cuda:0")


def test_an_endless_profile_is_ended_with_all_its_processes(stub: Path) -> None:
    """What it started is gone as well, whatever session it made for itself."""
    mark = f"{4000 + os.getpid() % 1000}.5"
    _stub(stub, f"setsid sleep {mark} & wait")
    begin = time.monotonic()
    with pytest.raises(Unavailable, match="no end after"):
        ncu.run(stub, "cuda:0", timeout_s=1.0)
    assert time.monotonic() - begin < 20
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

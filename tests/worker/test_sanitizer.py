"""compute-sanitizer's text becomes findings with kernel, line and access."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kforge.worker import guard, landlock, sanitizer
from kforge.worker.sanitizer import parse
from tests.patience import PATIENCE_S

NAMES_A_THREAD = """
import ctypes, os, threading
done = threading.Event()
thread = threading.Thread(target=done.wait)
thread.start()
try:
    with open(f"/proc/{os.getpid()}/task/{thread.native_id}/comm", "w") as file:
        file.write("other")
    opened = 0
except PermissionError as error:
    opened = error.errno
print(ctypes.CDLL(None).pthread_setname_np(ctypes.c_ulong(thread.ident), b"other"), opened)
try:
    open(f"/proc/{os.getppid()}/comm", "w")
except PermissionError:
    print("denied")
done.set()
"""
WALLED = """
import os, subprocess, sys
from pathlib import Path
from kforge.worker import sandbox
sandbox.apply(sandbox.Policy("build", Path(sys.argv[1])))
os.chdir(sys.argv[1])
for environment in ({}, {"LD_PRELOAD": sys.argv[2]}):
    subprocess.run([sys.executable, "-c", sys.argv[3]], env=environment, check=True)
"""

MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void rows<float, (int)4>(const float *, float *)+0x110 in op_kforge.cu:12
=========     by thread (5,0,0) in block (3,0,0)
=========     Address 0x7f6510c00400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6510c00000 of size 1,024 bytes
=========
========= Invalid __global__ write of size 4 bytes
=========     at void rows<float, (int)4>(const float *, float *)+0x110 in op_kforge.cu:12
=========     by thread (6,0,0) in block (3,0,0)
=========     Address 0x7f6510c00404 is out of bounds
=========
========= Invalid __shared__ read of size 16 bytes
=========     at softmax_rows+0x50
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x1 is misaligned
=========
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in block.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in block.cu:46 [16 hazards]
=========
========= Warning: Race reported between Read access at sumKernel(int *, int *)+0x90 in block.cu:50
=========     and Write access at sumKernel(int *, int *)+0x100 in block.cu:51 [1 hazards]
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""


def test_memcheck_names_kernel_line_and_access() -> None:
    """One finding a place: what was accessed, by which thread, where the allocation ends; misaligned told apart."""
    first, second = parse(MEMCHECK)
    assert first["kind"] == "out_of_bounds" and first["kernel"] == "rows<float, (int)4>"
    assert (first["file"], first["line"], first["access"], first["size"]) == ("op_kforge.cu", 12, "write", 4)
    assert (first["thread"], first["block"]) == ("(5,0,0)", "(3,0,0)") and "out of bounds" in first["message"]
    assert second["kind"] == "misaligned" and second["kernel"] == "softmax_rows" and second["line"] == 0


def test_racecheck_names_both_lines() -> None:
    """Both accesses of a hazard with their lines, and how serious the tool takes it."""
    first, second = parse(RACECHECK)
    assert (first["kind"], first["kernel"], first["line"], first["other_line"]) == ("race", "sumKernel", 41, 46)
    assert (first["access"], first["other_access"], first["message"]) == ("write", "read", "error")
    assert (second["line"], second["other_line"], second["message"]) == (50, 51, "warning")


def test_a_clean_report_has_no_findings() -> None:
    """Headers and summaries are not taken for errors."""
    assert parse("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == []


@pytest.mark.skipif(not landlock.abi(), reason="this kernel has no Landlock")
def test_a_program_behind_the_walls_may_name_its_threads_with_the_library(tmp_path: Path) -> None:
    """What CUDA's start-up does is denied (EACCES) to a program started behind the walls, and counts as done with the
    library that the sanitizer's target is given; other files of /proc stay closed.
    """
    library = guard.compiled(Path(sanitizer.__file__).with_name("naming.cpp"), "naming threads in the sandbox")
    inside = tmp_path / "naming.so"
    inside.write_bytes(library.read_bytes())
    command = [sys.executable, "-c", WALLED, str(tmp_path), str(inside), NAMES_A_THREAD]
    out = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert out.stdout.split("\n")[:4] == ["13 13", "denied", "0 0", "denied"]

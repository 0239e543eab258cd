"""The probe: a script runs in the sandbox, says what it prints, and can neither reach out nor go on for ever."""

from __future__ import annotations

import os

import pytest

from kforge.agent.tools import Toolbox
from tests.agent.tools.conftest import Use

TWICE = """
import torch
from kforge.kernel import Kernel

twice = Kernel("twice", source="probe.cu", grid="(1, 1, 1)", block="(8, 1, 1)")
x = torch.arange(8, dtype=torch.float32)
twice(x)
print(x.tolist())
"""
CUDA = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }'


def test_a_script_says_what_it_prints(use: Use) -> None:
    """What is printed is the answer; the script's main part runs."""
    script = 'import torch\nif __name__ == "__main__":\n    print(torch.arange(4).float().var().item())'
    result = use("probe", python=script)
    assert not result.is_error and result.text == "1.6666666269302368"
    assert use("probe", python="pass").text == "(nothing was printed)"


def test_a_small_kernel_runs(use: Use) -> None:
    """CUDA source beside the script is built in a first pass and launched in the second, whose output alone is told."""
    result = use("probe", python=TWICE, cuda=CUDA)
    assert result.text == "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]"


@pytest.mark.usefixtures("softmax")
def test_the_candidate_can_be_asked(use: Use) -> None:
    """Files of the folder lie beside the script: the candidate itself is run on one input."""
    script = """
import torch
from softmax_kforge import ModelNew

x = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
print(float((ModelNew()(x) - torch.softmax(x, -1)).abs().max()) < 1e-6)
"""
    result = use("probe", python=script, files=["softmax_kforge.py", "softmax_kforge.cu"])
    assert result.text == "True", result.text
    assert "ModuleNotFoundError" in use("probe", python=script).text
    assert "is no name of a file here" in use("probe", python=script, files=["../x.py"]).text


def test_errors_are_told(use: Use) -> None:
    """A traceback names the script's own lines; a kernel that does not build is told with the compiler's words."""
    result = use("probe", python="print('before')\n1 / 0")
    assert result.is_error and "line 2" in result.text and "ZeroDivisionError" in result.text
    assert result.text.endswith("before")
    broken = use("probe", python=TWICE, cuda=CUDA.replace("*= 2;", "*= 2"))
    assert broken.is_error and "probe.cu" in broken.text and "error" in broken.text


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import os\nos.fork()", "PermissionError"),
        ("import subprocess\nsubprocess.run(['id'])", "PermissionError"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 1))", "PermissionError"),
        ("import os\nos.kill(1, 9)", "PermissionError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import os\nos._exit(0)", "ended with exit code 0"),
        ("import ctypes\nctypes.string_at(0)", "SIGSEGV"),
        ("def (", "SyntaxError"),
    ],
)
def test_it_cannot_reach_out(use: Use, script: str, said: str) -> None:
    """Processes, programs, the network and signals are denied; a death of the process is told as such."""
    result = use("probe", python=script)
    assert result.is_error and said in result.text


def test_it_sees_no_file_of_the_user(box: Toolbox, use: Use) -> None:
    """The candidate's folder and the run's log cannot be read, nothing can be written but its own scratch folder."""
    use("write_file", name="a.cu", text="mine")
    log = box.bench.session.log.path
    mine, home = str(box.folder / "a.cu"), os.path.expanduser("~")
    script = f"""
import os
for work in (
    lambda: open({mine!r}).read(),
    lambda: open({mine!r}, "a"),
    lambda: open({str(box.folder / "b.cu")!r}, "w"),
    lambda: open({str(log)!r}).read(),
    lambda: os.listdir({home!r}),
    lambda: open("/proc/{os.getpid()}/environ").read(),
    lambda: open("probe.py", "a"),
):
    try:
        print("done", work())
    except OSError as error:
        print(type(error).__name__)
"""
    assert use("probe", python=script).text.split() == ["PermissionError"] * 7
    assert (box.folder / "a.cu").read_text() == "mine" and not (box.folder / "b.cu").exists()


def test_it_is_bounded_in_time_and_output(use: Use) -> None:
    """A script that sleeps, or prints for ever, ends in time, and its output is cut to the limit."""
    asleep = "import time\nprint('early', flush=True)\ntime.sleep(3600)"
    result = use("probe", python=asleep, seconds=2.0)
    assert result.is_error and "did not end within 2 s" in result.text and "early" in result.text
    flood = use("probe", python="while True: print('x' * 100)", seconds=2.0)
    assert flood.is_error and "bytes dropped" in flood.text and len(flood.text) < 13_000


def test_a_hog_is_ended(box: Toolbox, use: Use) -> None:
    """Memory beyond the limit ends the script."""
    from dataclasses import replace

    from kforge.agent.tools import call

    small = replace(box, limits=replace(box.limits, probe_memory=700 << 20))
    result = call("probe", {"python": "kept = [bytes(range(256)) * 400000 for _ in range(100)]"}, small)
    assert result.is_error and "MiB of memory" in result.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"python": "x", "seconds": 0}, "seconds lie above 0"),
        ({"python": "x", "seconds": 1e6}, "seconds lie above 0"),
        ({"python": "x\0"}, "null character"),
        ({"python": "\ud800"}, "no Unicode text"),
        ({"python": "x" * 300_000}, "the limit is"),
    ],
)
def test_wrong_probes_are_refused(use: Use, arguments: dict[str, object], said: str) -> None:
    """Sizes, times and texts out of range are told, and nothing runs."""
    result = use("probe", **arguments)
    assert result.is_error and said in result.text

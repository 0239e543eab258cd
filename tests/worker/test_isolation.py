"""What a hostile candidate can do: end itself, and nothing else. After each test an evaluation must be right."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Child, Limits, Zygote
from kforge.worker.limits import descendants
from tests.patience import until
from tests.worker.sources import DOUBLE, body, candidate

ONE = Call((torch.ones(4),))


@pytest.fixture(autouse=True)
def _next_is_right(zygote: Zygote, tmp_path: Path) -> Iterator[None]:
    """After every misbehaviour the next candidate is judged rightly and no process is left."""
    yield
    with zygote.fork(tmp_path / "next") as child:
        child.load(candidate(DOUBLE), Call(), {})
        assert torch.equal(child.call(ONE).outputs, torch.full((4,), 2.0))
    until(lambda: descendants(zygote.hello["pid"]) == [])


def fails(child: Child, **options: float) -> ChildFailed:
    with pytest.raises(ChildFailed) as caught:
        child.call(ONE, **options)
    return caught.value


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("os.abort()", "SIGABRT"),
        ("import ctypes; ctypes.string_at(8)", "SIGSEGV"),
        ("os._exit(0)", "exit code 0 without an answer"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("os.closerange(3, 1000); import time; time.sleep(3600)", "without"),
    ],
)
def test_a_crash_is_named(fork: Callable[..., Child], line: str, words: str) -> None:
    """A process that dies is `crashed` with the signal or exit code; exit code 0 counts for nothing."""
    failure = fails(fork(body(line, "return x")))
    assert failure.kind == "crashed" and words in failure.text


def test_a_segfault_leaves_a_trace_in_the_log(fork: Callable[..., Child]) -> None:
    """The log of a crash names the candidate's line."""
    assert "op_kforge.py" in fails(fork(body("import ctypes", "ctypes.string_at(8)", "return x"))).log


@pytest.mark.parametrize("line", ["while True: pass", "import time; time.sleep(3600)", "import signal; signal.pause()"])
def test_a_hang_is_timed_out(fork: Callable[..., Child], line: str) -> None:
    """A call over its limit is killed and named."""
    assert fails(fork(body(line, "return x")), timeout_s=0.5).kind == "timed_out"


def test_forged_output_is_only_log(fork: Callable[..., Child]) -> None:
    """What a candidate prints, however it looks, is a log and no answer."""
    forged = """print('{"ok": true, "nonce": "0", "tree": null, "metas": []}', flush=True)"""
    reply = fork(body(forged, "return x * 3")).call(ONE)
    assert torch.equal(reply.outputs, torch.full((4,), 3.0))


def test_a_line_without_the_nonce_is_refused(fork: Callable[..., Child]) -> None:
    """Bytes written to every descriptor at hand do not pass for an answer."""
    lines = ("for fd in range(3, 40):", "    try: os.write(fd, b'{\"ok\": true}\\n')", "    except OSError: pass")
    failure = fails(fork(body(*lines, "return x")))
    assert failure.kind == "protocol" and "nonce" in failure.text


def test_an_endless_answer_is_refused(fork: Callable[..., Child]) -> None:
    """A reply over the limit ends the child instead of filling the judge's memory."""
    failure = fails(fork(body("return 'x' * 3_000_000"), limits=Limits(reply_bytes=1 << 20)))
    assert failure.kind == "protocol" and "refused" in failure.text


def test_huge_outputs_are_refused_before_they_are_copied(fork: Callable[..., Child]) -> None:
    """An output that claims more bytes than the limit is refused, though it costs the candidate nothing."""
    failure = fails(fork(body("return x[:1].expand(1 << 34)"), limits=Limits(output_bytes=1 << 20)))
    assert failure.kind == "protocol" and "outputs of" in failure.text


def test_deep_nesting_is_refused(fork: Callable[..., Child]) -> None:
    """A tree nested beyond reason is an error of the candidate's, not of the judge's."""
    child = fork(body("y = x", "for _ in range(100_000): y = [y]", "return y"))
    assert fails(child).kind in {"raised", "protocol"}


def test_printing_without_end_is_capped(fork: Callable[..., Child]) -> None:
    """The log keeps its last bytes and the candidate is not blocked."""
    child = fork(body("for i in range(200_000): print('spam', i)", "return x"), limits=Limits(log_bytes=1000))
    child.call(ONE)
    log = child.log()
    assert len(log) < 1100 and "bytes dropped" in log and "spam 199999" in log


def test_memory_is_bounded(fork: Callable[..., Child]) -> None:
    """A candidate that fills memory is killed at its limit and the reason is said."""
    child = fork(
        body("hold = []", "while True: hold.append(torch.ones(1 << 22))"), limits=Limits(memory_bytes=600 << 20)
    )
    failure = fails(child)
    assert failure.kind == "crashed" and "memory" in failure.text


def test_run_cannot_fork_or_exec(fork: Callable[..., Child]) -> None:
    """In phase run no program and no process can be started."""
    lines = (
        "import subprocess",
        "found = []",
        "for f in (os.fork, lambda: os.execv('/bin/true', ['true']), lambda: subprocess.run(['/bin/true'])):",
        "    try: f(); found.append('allowed')",
        "    except PermissionError: found.append('denied')",
        "return found",
    )
    assert fork(body(*lines)).call(ONE).outputs == ["denied"] * 3


def test_a_fork_bomb_in_build_is_ended(fork: Callable[..., Child]) -> None:
    """Processes beyond the limit end the build, with all descendants, daemons included."""
    bomb = "while True:\n    os.fork()\n    os.setsid() if os.getpid() != os.getsid(0) else None\n"
    child = fork(candidate(""), phase="build", limits=Limits(processes=16, call_s=120), load=False)
    with pytest.raises(ChildFailed) as caught:
        child.load(candidate("import os\n" + bomb), Call(), {})
    assert caught.value.kind == "crashed" and "processes" in caught.value.text


def test_a_daemon_of_build_does_not_survive(fork: Callable[..., Child]) -> None:
    """A double-forked daemon in a session of its own is gone when build is closed."""
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
    daemon += "    if os.fork() == 0:\n        time.sleep(1000)\n    os._exit(0)\n"
    child = fork(candidate(daemon + DOUBLE), phase="build")
    assert child.close()["killed"] >= 2


def test_build_can_run_a_compiler(fork: Callable[..., Child]) -> None:
    """g++ runs inside the build sandbox, writes into the candidate's folder, and its program runs."""
    lines = (
        "import subprocess",
        "open('a.cpp', 'w').write('#include <cstdio>\\nint main(){std::printf(\"built\");}')",
        "subprocess.run(['g++', '-O1', '-o', 'a', 'a.cpp'], check=True)",
        "return subprocess.run(['./a'], capture_output=True, text=True).stdout",
    )
    assert fork(body(*lines), phase="build").call(ONE).outputs == "built"


def test_network_and_others_are_out_of_reach(fork: Callable[..., Child], tmp_path: Path) -> None:
    """No network socket, no signal to the judge, no file of the user's or of another run, no look into the judge."""
    secret = tmp_path / "secret.txt"
    secret.write_text("seed")
    lines = (
        "import socket",
        "found = {}",
        "def attempt(name, f):",
        "    try: f(); found[name] = 'allowed'",
        "    except OSError as e: found[name] = 'denied'",
        "attempt('inet', lambda: socket.socket(socket.AF_INET))",
        "attempt('inet6', lambda: socket.socket(socket.AF_INET6))",
        "attempt('netlink', lambda: socket.socket(socket.AF_NETLINK))",
        "attempt('unix', lambda: socket.socket(socket.AF_UNIX))",
        f"attempt('home', lambda: os.listdir({str(Path.home())!r}))",
        f"attempt('other run', lambda: open({str(secret)!r}).read())",
        f"attempt('signal', lambda: os.kill({os.getpid()}, 0))",
        f"attempt('environment', lambda: open('/proc/{os.getpid()}/environ').read())",
        f"attempt('memory', lambda: open('/proc/{os.getpid()}/mem', 'rb').read(1))",
        f"attempt('descriptor', lambda: open('/proc/{os.getpid()}/fd/0').read(0))",
        "attempt('write own source', lambda: open('op_kforge.py', 'a').write('#'))",
        "attempt('scratch', lambda: open(os.environ['TMPDIR'] + '/x', 'w').write('1'))",
        "return found",
    )
    found = fork(body(*lines)).call(ONE).outputs
    assert {name for name, outcome in found.items() if outcome == "allowed"} == {"unix", "scratch"}


def test_no_capability_and_no_new_privileges(fork: Callable[..., Child]) -> None:
    """The child holds no capability, even when the judge is root."""
    lines = (
        "text = open('/proc/self/status').read()",
        "return [l for l in text.splitlines() if 'Cap' in l or 'NoNew' in l]",
    )
    status = dict(line.split(":\t") for line in fork(body(*lines)).call(ONE).outputs)
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_in_force_names_every_part(fork: Callable[..., Child]) -> None:
    """Each wall says that it is in force or why it is absent."""
    parts = fork(candidate(DOUBLE)).in_force()
    for name in ("landlock", "seccomp", "capabilities", "no_new_privs"):
        assert parts[name].startswith(("in force", "absent: "))
    assert parts["phase"] == "run" and parts["tensors"] == "sealed memfds"


def test_shared_memory_cannot_shrink_under_the_judge(fork: Callable[..., Child]) -> None:
    """A memfd of an input cannot be truncated, so a read by the judge cannot fault."""
    from kforge.worker.tensors import make_memfd

    buffer = make_memfd(1, 4096)
    with pytest.raises(PermissionError):
        os.ftruncate(buffer.fd, 10)
    with pytest.raises(PermissionError):
        os.ftruncate(buffer.fd, 10_000)
    os.close(buffer.fd)


def test_late_writes_do_not_reach_the_judges_copy(fork: Callable[..., Child]) -> None:
    """A thread that goes on writing after the answer changes nothing that the judge has read."""
    lines = (
        "import threading, time",
        "def later():\n            time.sleep(0.2)\n            x.fill_(-1)",
        "threading.Thread(target=later, daemon=True).start()",
        "return x",
    )
    reply = fork(body(*lines)).call(ONE)
    time.sleep(0.4)
    assert torch.equal(reply.outputs, torch.ones(4)) and torch.equal(reply.inputs_after.args[0], torch.ones(4))


def test_the_judges_own_death_ends_the_child(zygote: Zygote, tmp_path: Path) -> None:
    """When the judge's line to a supervisor breaks, the candidate is killed."""
    child = zygote.fork(tmp_path / "orphan")
    pid = child.hello["pid"]
    child._keeper._control.shutdown(socket.SHUT_RDWR)
    until(lambda: not _alive(pid))
    child.close()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def test_seccomp_holds_without_landlock() -> None:
    """The filter alone denies exec, network sockets and signals to others (older kernels have no Landlock)."""
    from kforge.worker import seccomp

    libc = ctypes.CDLL(None)
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        libc.prctl(38, 1, 0, 0, 0)
        outcome = [seccomp.install("run", False) == "in force"]
        for attempt in (lambda: socket.socket(), lambda: os.kill(parent, 0), lambda: os.execv("/bin/true", ["true"])):
            try:
                attempt()
                outcome.append(False)
            except PermissionError:
                outcome.append(True)
        os.kill(os.getpid(), 0)
        os._exit(0 if all(outcome) else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_candidate_folder_holds_its_files(zygote: Zygote, tmp_path: Path) -> None:
    """load writes the candidate's files where the child can read them and *run* cannot write them."""
    with zygote.fork(tmp_path / "box") as child:
        two = Candidate("op_kforge.py", {"op_kforge.py": DOUBLE, "op_kforge.cu": "// kernel\n"})
        child.load(two, Call(), {})
        assert (tmp_path / "box" / "op_kforge.cu").read_text() == "// kernel\n"

"""Ways in which judge, warm parent or supervisor could wait for ever, or a candidate outlive them: each is bounded."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Child, Limits, Zygote, protocol
from kforge.worker.protocol import Channel
from tests.patience import PATIENCE_S, until
from tests.worker.sources import DOUBLE, body, candidate

HANGS = body("while True: pass", "return x")


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    return until(lambda: not alive(pid))


def busy(zygote: Zygote, box: Path) -> tuple[Child, int]:
    """A child whose candidate spins, without anybody waiting for it; and its process."""
    child = zygote.fork(box, limits=Limits(call_s=PATIENCE_S))
    child.load(HANGS, Call(), {})
    fields = child._fill(child._buffers_for(_packed(), "any"), _packed())
    child._channel.send({"op": "call", "seed": None, "pattern": None, "launch": True, "state": "none", **fields})
    time.sleep(0.1)
    return child, child.hello["pid"]


def _packed() -> object:
    from kforge.worker.tensors import pack

    return pack(((torch.ones(4),), {}))


@pytest.mark.parametrize("answer", ["comes", "never", "ended"])
def test_a_reader_that_stays_awake_gets_what_a_sleeping_one_gets(answer: str) -> None:
    """An answer in the time awake or after it, none within the limit, an end: the same outcomes."""
    a, b = socket.socketpair()
    channel, peer = Channel(a, 1 << 16), Channel(b, 1 << 16)
    if answer == "comes":
        for late in (0.0, 0.05, 0.4):
            thread = threading.Timer(late, peer.send, [{"late": late}])
            thread.start()
            assert channel.receive(PATIENCE_S, awake_s=0.2) == {"late": late}
            thread.join()
    else:
        if answer == "ended":
            peer.close()
        with pytest.raises(ChildFailed) as failure:
            channel.receive(0.1, awake_s=5.0)
        assert failure.value.kind == {"never": "timed_out", "ended": "crashed"}[answer]
    channel.close()
    peer.close()


def test_two_readers_of_one_line_do_not_block_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads see that a channel is readable and one message lies there: one has it, the other is timed out."""
    a, b = socket.socketpair()
    channel, found = Channel(a, 1 << 16), []
    both_saw, readable = threading.Barrier(2), protocol.readable

    def seen(sock: socket.socket, timeout_s: float | None) -> bool:
        ready = readable(sock, timeout_s)
        if ready and not found:
            both_saw.wait(PATIENCE_S)
        return ready

    def read() -> None:
        try:
            found.append(channel.receive(1.0))
        except ChildFailed as failure:
            found.append(failure.kind)

    monkeypatch.setattr(protocol, "readable", seen)
    readers = [threading.Thread(target=read, daemon=True) for _ in range(2)]
    for thread in readers:
        thread.start()
    b.sendall(b'{"pid": 7}\n')
    for thread in readers:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in readers)
    assert {"pid": 7} in found and "timed_out" in found


def test_many_threads_share_one_parent(zygote: Zygote, tmp_path: Path) -> None:
    """Forks asked for by several threads at once each get their own child, with its own supervisor and values."""
    found: dict[int, tuple[float, int]] = {}

    def evaluate(number: int) -> None:
        with zygote.fork(tmp_path / f"box{number}") as child:
            child.load(body(f"return x * {number}"), Call(), {})
            value = float(child.call(Call((torch.ones(1),))).outputs)
            parent = int(Path(f"/proc/{child.hello['pid']}/stat").read_text().rpartition(") ")[2].split()[1])
            found[number] = value, parent - child._keeper._pid

    threads = [threading.Thread(target=evaluate, args=(n,), daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert found == {n: (float(n), 0) for n in range(8)}


def test_a_judge_that_leaves_something_unread_ends_the_candidate(zygote: Zygote, tmp_path: Path) -> None:
    """A reset of the supervisor's line (it was closed over an unread log) is the end like any other."""
    child, pid = busy(zygote, tmp_path / "box")
    control = child._keeper._control
    control.sendall(b'{"op": "log"}\n')
    time.sleep(0.3)  # the log lies in our buffer now
    control.close()
    assert ends(pid)
    child._channel.close()


def test_a_killed_supervisor_takes_the_candidate_along(zygote: Zygote, tmp_path: Path) -> None:
    """Where the supervisor is killed (out of memory, say) nobody watches: the candidate must not go on."""
    child, pid = busy(zygote, tmp_path / "box")
    os.kill(child._keeper._pid, signal.SIGKILL)
    assert ends(pid)
    child.close()


def test_closing_the_parent_ends_forgotten_children(tmp_path: Path) -> None:
    """A child that nobody closed holds nothing up and does not outlive its parent's handle."""
    parent = Zygote().start()
    child, pid = busy(parent, tmp_path / "box")
    parent.close()
    assert ends(pid)
    assert child.end is not None


def test_a_start_that_fails_leaves_nothing(zygote: Zygote, tmp_path: Path) -> None:
    """When the start message cannot be sent, the child that was forked for it is ended."""
    with pytest.raises(TypeError):
        zygote.fork(tmp_path / "box", env={"bad": object()})  # type: ignore[dict-item]
    assert not any(child.end is None for child in list(zygote._children) if child._folder == tmp_path / "box")


@pytest.mark.parametrize(
    "answer", ['{"nonce": nonce, "ok": True}', '{"nonce": nonce, "ok": False, "error": {"kind": 3}}']
)
def test_answers_in_the_servers_name_are_refused(fork: Callable[..., Child], answer: str) -> None:
    """A candidate that finds the nonce and answers with fields missing is a protocol failure or its own error."""
    lines = (
        "import gc",
        "server = next(o for o in gc.get_objects() if type(o).__name__ == 'Server')",
        "nonce = server.nonce",
        f"server.channel.send({answer})",
        "return x",
    )
    with pytest.raises(ChildFailed) as caught:
        fork(body(*lines)).call(Call((torch.ones(4),)))
    assert caught.value.kind in {"protocol", "raised"}


def test_what_a_build_left_does_not_reach_the_run(zygote: Zygote, tmp_path: Path) -> None:
    """Pipes, links and modules under the names that judge or next process will use: gone, and nothing written."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("mine")
    trap = f"""
import os
os.remove("op_kforge.py"), os.mkfifo("op_kforge.py")
os.rmdir("tmp"), os.symlink({str(outside)!r}, "tmp")
os.rename("cache", "old"), os.symlink({str(outside)!r}, "cache")
os.remove("op_kforge.cu"), os.symlink({str(outside / "kept.txt")!r}, "op_kforge.cu")
open("hidden.py", "w").write("answer = 3")
"""
    box = tmp_path / "box"
    with zygote.fork(box, phase="build") as build:
        build.load(Candidate("op_kforge.py", {"op_kforge.py": trap + DOUBLE, "op_kforge.cu": "//"}), Call(), {})
    probe = body(
        "found = []",
        "try: import hidden",
        "except ImportError: found.append('no module')",
        "open(os.environ['TMPDIR'] + '/x', 'w').write('1')",
        f"try: open({str(outside / 'x')!r}, 'w')",
        "except PermissionError: found.append('no way out')",
        "return found",
    )
    with zygote.fork(box, phase="run", limits=Limits(call_s=PATIENCE_S)) as run:
        run.load(Candidate("op_kforge.py", {**probe.files, "op_kforge.cu": "// kernel"}), Call(), {})
        assert run.call(Call((torch.ones(1),))).outputs == ["no module", "no way out"]
    assert {p.name: p.read_text() for p in outside.iterdir()} == {"kept.txt": "mine"}
    assert (box / "op_kforge.cu").read_text() == "// kernel" and not (box / "op_kforge.cu").is_symlink()


def test_a_compiler_without_end_is_ended_with_its_child(zygote: Zygote, tmp_path: Path) -> None:
    """An include of /dev/zero meets the limits of the sandbox; the judge only waits for its request's time."""
    text = '#include "/dev/zero"\nextern "C" __global__ void k(float* x) { x[0] = 1.f; }\n'
    module = 'from kforge.kernel import Kernel\nk = Kernel("k", source="op_kforge.cu")\n'
    limits = Limits(call_s=15, memory_bytes=2 << 30)
    with zygote.fork(tmp_path / "box", phase="build", limits=limits) as child, pytest.raises(ChildFailed) as caught:
        child.resources(Candidate("op_kforge.py", {"op_kforge.py": module, "op_kforge.cu": text}), "sm_90a")
    assert caught.value.kind in {"crashed", "timed_out", "raised"}


def test_a_child_without_descriptors_below_1024_is_no_trouble(fork: Callable[..., Child]) -> None:
    """A judge with more than a thousand descriptors open still waits properly."""
    hold = [os.dup(0) for _ in range(1100)]
    try:
        child = fork(candidate(DOUBLE))
        assert child.call(Call((torch.ones(1),))).outputs.item() == 2.0
        child.close()
    finally:
        for fd in hold:
            os.close(fd)

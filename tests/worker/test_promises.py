"""What a child must not reach: the judge, the warm parent, its own supervisor, other children, their secrets."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Child, Zygote
from tests.worker.sources import DOUBLE, body, candidate

ONE = Call((torch.ones(4),))
ATTEMPT = (
    "found = {}",
    "def attempt(name, f):",
    "    try: f(); found[name] = 'allowed'",
    "    except OSError as e: found[name] = 'denied'",
)


def attempts(fork: Callable[..., Child], *lines: str) -> dict[str, str]:
    """What a child in phase run says of each attempt."""
    return dict(fork(body(*ATTEMPT, *lines, "return found")).call(ONE).outputs)


def test_no_process_around_it_can_be_read(fork: Callable[..., Child], zygote: Zygote) -> None:
    """Memory, environment, mappings and descriptors of judge, parent, supervisor and a sibling are closed."""
    sibling = fork(candidate(DOUBLE)).hello["pid"]
    others = {"judge": os.getpid(), "parent": zygote.hello["pid"], "sibling": sibling}
    lines = [f"others = {others!r}", "others['supervisor'] = os.getppid()"]
    lines += ["for name, pid in others.items():", "    for part in ('mem', 'environ', 'maps', 'auxv'):"]
    lines += ["        attempt(name + ' ' + part, lambda: open(f'/proc/{pid}/{part}', 'rb').read(1))"]
    lines += ["    attempt(name + ' fd', lambda: os.readlink(f'/proc/{pid}/fd/0'))"]
    found = attempts(fork, *lines)
    assert len(found) == 20 and not [name for name, what in found.items() if what == "allowed"]


def test_no_process_around_it_can_be_signalled(fork: Callable[..., Child], zygote: Zygote) -> None:
    """Not even with the signal that does nothing, and not by a descriptor of the process."""
    lines = [f"others = {[os.getpid(), zygote.hello['pid']]!r} + [os.getppid()]", "import signal"]
    lines += ["for pid in others:", "    attempt(f'kill {pid}', lambda: os.kill(pid, 0))"]
    lines += ["    attempt(f'pidfd {pid}', lambda: signal.pidfd_send_signal(os.pidfd_open(pid), 0))"]
    found = attempts(fork, *lines)
    assert len(found) == 6 and set(found.values()) == {"denied"}, found


def test_it_holds_its_line_and_its_log_only(fork: Callable[..., Child]) -> None:
    """Descriptors: standard ones, one socket to the judge; nothing of the parent's, no file of the judge's."""
    lines = ("return [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if int(n) > 2",)
    text = lines[0] + " and os.path.exists(f'/proc/self/fd/{n}')]"
    links = fork(body(text)).call(ONE).outputs
    assert len([link for link in links if link.startswith("socket:")]) == 1
    assert all(link.startswith(("socket:", "/memfd:kforge", "/proc/")) for link in links), links


def test_a_secret_of_the_judge_is_nowhere_in_its_memory(fork: Callable[..., Child]) -> None:
    """Bytes that the judge holds when the child is forked cannot be found in the child's own pages."""
    secret = secrets.token_hex(24)
    held = [secret[:24], secret[24:]]  # sent in two halves, so that the search does not find itself
    lines = (
        f"a, b = {held[0]!r}, {held[1]!r}",
        "needle = (a + b).encode()",
        "hits = 0",
        "memory = open('/proc/self/mem', 'rb', 0)",
        "for line in open('/proc/self/maps'):",
        "    span, rights = line.split()[:2]",
        "    low, high = (int(part, 16) for part in span.split('-'))",
        "    if 'r' in rights and '[v' not in line and high - low < 1 << 28:",
        "        memory.seek(low)",
        "        try: hits += memory.read(high - low).count(needle) > 0",
        "        except OSError: pass",
        "return hits",
    )
    hits = fork(body(*lines)).call(ONE).outputs
    assert secret and hits <= 2  # the needle itself, and the buffer that it was read into


def test_no_socket_of_the_machine_answers(fork: Callable[..., Child], tmp_path: Path) -> None:
    """A unix socket with a path and one without, both listening outside of the sandbox, refuse to be spoken to."""
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as abstract:
        named.bind(str(tmp_path / "named"))
        abstract.bind(f"\0kforge-{os.getpid()}")
        for server in (named, abstract):
            server.listen(1)
        lines = (
            "import socket",
            f"attempt('named', lambda: socket.socket(socket.AF_UNIX).connect({str(tmp_path / 'named')!r}))",
            f"attempt('abstract', lambda: socket.socket(socket.AF_UNIX).connect('\\0kforge-{os.getpid()}'))",
            "attempt('internet', lambda: socket.create_connection(('127.0.0.1', 9)))",
        )
        child = fork(candidate(DOUBLE))
        if not child.in_force()["landlock"].startswith("in force"):
            pytest.skip(f"no Landlock here: {child.in_force()['landlock']}")
        found = attempts(fork, *lines)
    assert found["abstract"] == found["internet"] == "denied", found


def test_a_run_cannot_change_what_the_next_one_loads(fork: Callable[..., Child], tmp_path: Path) -> None:
    """Its own text, its caches, the packages and the interpreter are read-only in phase run."""
    import kforge

    places = {"own text": "op_kforge.py", "package": kforge.__file__, "torch": torch.__file__}
    lines = [f"attempt({name!r}, lambda: open({path!r}, 'a'))" for name, path in places.items()]
    lines += ["attempt('cache', lambda: open(os.environ['KFORGE_CACHE'] + '/x', 'w'))"]
    lines += ["attempt('new file', lambda: open('sitecustomize.py', 'w'))", "attempt('up', lambda: open('../x', 'w'))"]
    found = attempts(fork, *lines)
    assert len(found) == 6 and set(found.values()) == {"denied"}, found


def test_a_build_cannot_leave_a_link_into_the_users_files(zygote: Zygote, tmp_path: Path) -> None:
    """A link that *build* left in place of a folder opens nothing to *run*."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "seed.txt").write_text("42")
    lines = f"import os, shutil\nshutil.rmtree('tmp')\nos.symlink({str(secret)!r}, 'tmp')\n"
    box = tmp_path / "box"
    with zygote.fork(box, phase="build") as child:
        child.load(candidate(lines + DOUBLE), Call(), {})
    look = body(*ATTEMPT, f"attempt('secret', lambda: open({str(secret / 'seed.txt')!r}).read())", "return found")
    with zygote.fork(box) as child:
        child.load(Candidate(look.module, look.files), Call(), {})
        assert child.call(ONE).outputs == {"secret": "denied"}
    assert not (box / "tmp").is_symlink()

"""The promises about the warm parent."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.errors import Interrupted
from kforge.task.call import Call
from kforge.worker import Child, Zygote
from tests.worker.sources import DOUBLE, candidate


def test_one_thread_and_no_driver(zygote: Zygote) -> None:
    """The parent has one thread, no CUDA context, an uninitialised driver and nothing of Inductor's."""
    facts = zygote.facts()
    assert facts["threads"] == 1
    assert facts["cuda_initialised"] is False
    assert facts["driver_initialised"] is False
    assert facts["inductor"] == []


def test_environment_is_allow_listed(monkeypatch: object, tmp_path: Path) -> None:
    """A variable that is not on the list (a key, say) never reaches the parent or its children."""
    os.environ["KFORGE_TEST_SECRET"] = "do not pass"
    try:
        with Zygote() as parent:
            names = parent.facts()["environment"]
            assert "KFORGE_TEST_SECRET" not in names and "PATH" in names
            with parent.fork(tmp_path / "box") as child:
                child.load(candidate(DOUBLE), Call(), {})
                assert torch.equal(child.call(Call((torch.ones(2),))).outputs, torch.full((2,), 2.0))
    finally:
        del os.environ["KFORGE_TEST_SECRET"]


def test_descriptors_are_closed_after_a_fork(zygote: Zygote, fork: Callable[..., Child]) -> None:
    """The parent keeps no descriptor of a child's."""
    before = zygote.facts()["descriptors"]
    fork(candidate(DOUBLE))
    assert zygote.facts()["descriptors"] == before


def test_a_dead_parent_is_started_anew(tmp_path: Path) -> None:
    """When the parent has been killed, the next fork gets a new one and works."""
    with Zygote() as parent:
        first = parent.wait_ready()["pid"]
        os.kill(first, signal.SIGKILL)
        with parent.fork(tmp_path / "box") as child:
            child.load(candidate(DOUBLE), Call(), {})
            assert child.call(Call((torch.ones(1),))).outputs.item() == 2.0
        assert parent.facts()["pid"] != first
        assert parent.restarts == 1


def test_children_have_fresh_seeds(fork: Callable[..., Child]) -> None:
    """Two children of one parent draw different random numbers."""
    source = candidate(DOUBLE.replace("x * 2", "torch.rand(4)"))
    first, second = fork(source), fork(source)
    a, b = first.call(Call((torch.ones(1),))), second.call(Call((torch.ones(1),)))
    assert not torch.equal(a.outputs, b.outputs)
    assert a.rng_advanced


def test_a_seed_makes_a_call_reproducible(fork: Callable[..., Child]) -> None:
    """`seed` fixes torch's generator for one call, in any child."""
    source = candidate(DOUBLE.replace("x * 2", "torch.rand(4)"))
    c, d = (fork(source).call(Call((torch.ones(1),)), seed=7) for _ in range(2))
    assert torch.equal(c.outputs, d.outputs)


def test_python_and_numpy_are_reseeded_too(fork: Callable[..., Child]) -> None:
    """The generators of Python and numpy differ between children as well."""
    source = candidate(DOUBLE.replace("x * 2", "__import__('random').random(), __import__('numpy').random.rand()"))
    c, d = (fork(source).call(Call((torch.ones(1),))).outputs for _ in range(2))
    assert c[0] != d[0] and c[1] != d[1]


def test_a_stop_while_the_parent_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An abort that comes between the look for it and the new process ends that too, and is told as a stop."""
    parent, made = Zygote(), []

    def late(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        parent.abort()
        made.append(popen(*arguments, **options))
        return made[0]

    popen = subprocess.Popen
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", late)
        with pytest.raises(Interrupted):
            parent.start()
    assert made[0].poll() == -signal.SIGKILL
    parent = Zygote().start()
    parent.abort()  # before it could say that it is ready
    for ask in (parent.wait_ready, lambda: parent.fork(tmp_path / "box")):
        with pytest.raises(Interrupted):
            ask()

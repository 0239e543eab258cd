"""Other makers of kernels: questions to compilers are answered from memory in phase run, missing builds are named."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kforge.errors import BuildError, ChildFailed
from kforge.task.call import Call
from kforge.worker import Zygote
from kforge.worker.prebuilt import prepare
from tests.worker.sources import body

ASK = ("import subprocess, sys", "return subprocess.check_output([sys.executable, '--version']).decode()  # triton")


@pytest.fixture
def _restored() -> Iterator[None]:
    """subprocess as it was."""
    before = subprocess.check_output
    yield
    subprocess.check_output = before


def test_an_answer_of_build_is_given_in_run(zygote: Zygote, tmp_path: Path) -> None:
    """A program's version, asked for in build, is known in run, where the program cannot be started."""
    said = []
    for phase in ("build", "run"):
        with zygote.fork(tmp_path / "box", phase=phase) as child:
            child.load(body(*ASK), Call(), {})
            said.append(child.call(Call((torch.ones(1),))).outputs)
    assert said[0] == said[1] and said[0].startswith("Python 3")


def test_a_question_that_build_did_not_ask_is_denied(zygote: Zygote, tmp_path: Path) -> None:
    """Nothing is started in run, whatever it is called."""
    with zygote.fork(tmp_path / "box") as child:
        child.load(body(*ASK), Call(), {})
        with pytest.raises(ChildFailed) as caught:
            child.call(Call((torch.ones(1),)))
    assert caught.value.kind == "raised" and "PermissionError" in caught.value.text


def test_the_platform_is_the_same_in_both_phases(zygote: Zygote, tmp_path: Path) -> None:
    """Python asks `file` what kind of program it is, and Triton names what it compiles after the answer."""
    lines = ("import platform", "return list(platform.architecture())  # triton")
    found = []
    for phase in ("build", "run"):
        with zygote.fork(tmp_path / "box", phase=phase) as child:
            child.load(body(*lines), Call(), {})
            found.append(child.call(Call((torch.ones(1),))).outputs)
    assert found[0] == found[1] == list(platform.architecture())


def test_only_questions_are_remembered(_restored: None, tmp_path: Path) -> None:
    """What a program does when it is not asked for its version is not kept."""
    prepare("build", tmp_path, "import triton")
    subprocess.check_output([sys.executable, "-c", "print(1)"])
    subprocess.check_output([sys.executable, "--version"])
    text = (tmp_path / "questions.json").read_text()
    assert "--version" in text and "print" not in text


def test_an_extension_that_was_not_built_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """load_inline in run takes what is there and says what is not."""
    from torch.utils import cpp_extension

    for name in ("load", "load_inline"):
        monkeypatch.setattr(cpp_extension, name, getattr(cpp_extension, name))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    prepare("run", tmp_path, "from torch.utils.cpp_extension import load_inline")
    with pytest.raises(BuildError, match="the extension 'mine' was not built"):
        cpp_extension.load_inline("mine", "", functions=["f"])

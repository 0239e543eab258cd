"""`kforge` without a file: what is here (doctor), the tasks in this folder, and an example to begin with."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from textual.app import App
from textual.content import Content

from kforge.errors import UsageError
from kforge.ui import themes
from kforge.ui.listing import ListScreen
from kforge.ui.settings import Settings
from kforge.ui.text import one_line, plain

EXAMPLE = '''"""Softmax over the last dimension, written by hand: three passes over memory where one would do."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        shifted = x - x.amax(dim=-1, keepdim=True)
        exponent = torch.exp(shifted)
        return exponent / exponent.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(128, 1024)]


def get_init_inputs():
    return []
'''
_EXAMPLE_KEY, _DOCTOR_KEY = "example", "doctor"
FILES = 30


class DoctorScreen(ListScreen):
    """What `kforge doctor` found."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__("What is on this machine", [("", row) for row in doctor_rows(facts)], "escape: back")


def doctor_rows(facts: Mapping[str, Any]) -> list[Content]:
    """One line for each mode, then one for each tool."""
    rows = [plain(f"{name}: {words}") for name, words in facts["modes"].items()]
    for tool in facts["tools"]:
        found = bool(tool["found"])
        words = f"{tool['version']} {tool['detail']}" if found else f"{tool['detail']}. Without it: {tool['without']}"
        mark = ("found   ", "$text-success") if found else ("missing ", "$text-warning")
        rows.append(Content.assemble(mark, plain(one_line(f"{tool['name']} {words}", 300))))
    if facts.get("settings_problem"):
        rows.append(plain(str(facts["settings_problem"]), "$text-error"))
    return rows


def tasks_in(folder: Path) -> list[Path]:
    """Files in a folder that look like a task: they define a Model or a get_inputs. Nothing is imported."""
    found = []
    for path in sorted(folder.glob("*.py"))[:200]:
        try:
            if not path.is_file():
                continue
            with path.open(errors="replace") as file:
                text = file.read(100_000)
        except OSError:
            continue
        if re.search(r"^(class Model\b|def get_inputs\b)", text, re.MULTILINE) and not path.stem.endswith("_kforge"):
            found.append(path)
    return found[:FILES]


def write_example(folder: Path) -> Path:
    """softmax.py in `folder`; one that is there already is opened as it is. UsageError where it cannot be written."""
    path = folder / "softmax.py"
    if not path.exists():
        try:
            path.write_text(EXAMPLE)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}", "change to a folder of yours") from error
    return path


class Chooser(App[str]):
    """The first screen: doctor's modes, the tasks of this folder, an example. Returns the key that was chosen."""

    TITLE = "kforge"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, settings: Settings, folder: Path, tasks: Sequence[Path]) -> None:
        super().__init__()
        themes.install(self)
        self.theme = themes.theme_name(settings.theme)
        self._folder, self._tasks = folder, list(tasks)

    def on_mount(self) -> None:
        """The choice at once; it does not wait for doctor."""
        rows: list[tuple[str, str]] = [(str(path), f"open {path.name}") for path in self._tasks]
        rows += [(_EXAMPLE_KEY, f"write softmax.py, a small example, into {self._folder}, and open it")]
        rows += [(_DOCTOR_KEY, "see what is on this machine, and what works without (kforge doctor)")]
        note = "A task is a Python file with a Model (or function) and get_inputs(). enter: choose   escape: leave"
        self.push_screen(ListScreen("kforge: a faster CUDA kernel for a PyTorch op", rows, note), self._chosen)

    def _chosen(self, key: str | None) -> None:
        if key == _DOCTOR_KEY:
            self.run_worker(self._doctor())
        else:
            self.exit(key)

    async def _doctor(self) -> None:
        import asyncio
        import json

        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kforge", "doctor", "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            limit=1 << 22,
        )  # fmt: skip
        text, _ = await process.communicate()
        try:
            facts = json.loads(text.decode().strip().splitlines()[-1])
            await self.push_screen_wait(DoctorScreen(facts))
        except (ValueError, IndexError, KeyError):
            await self.push_screen_wait(ListScreen("kforge doctor did not answer", [("", "run it by itself")]))
        self.on_mount()


def choose(settings: Settings, folder: Path | None = None) -> Path | None:
    """The task that the person chose to open, None for none. An example is written where it was asked for."""
    folder = folder or Path.cwd()
    key = Chooser(settings, folder, tasks_in(folder)).run()
    if not key:
        return None
    return write_example(folder) if key == _EXAMPLE_KEY else Path(key)

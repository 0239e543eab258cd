"""Options that several commands share, with their texts, and how their values are read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kforge import config
from kforge.config import Config
from kforge.errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="End stdout with one JSON object, on every exit.")]
Events = Annotated[bool, typer.Option("--events", help="Stream one JSON object per event on stdout, then the result.")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda:N. [default: auto]")]
Arch = Annotated[str | None, typer.Option("--arch", help="Build for this architecture, e.g. sm_90a.")]
Plan = Annotated[str | None, typer.Option("--plan", help="Input plan: quick, standard or full. [default: standard]")]
TaskFile = Annotated[Path, typer.Argument(metavar="OP.PY", help="The task: a reference and its inputs.")]

Tolerance = Annotated[
    str | None,
    typer.Option("--tolerance", help="Widen the acceptance rule in the open, e.g. rms=4,max=8 (factors)."),
]


def settings() -> Config:
    """The settings in force; the cache folder is handed to the processes that build."""
    loaded = config.load()
    os.environ["KFORGE_CACHE"] = str(loaded.cache)
    return loaded


def parse_arch(text: str | None, settings: Config) -> str | None:
    """The architecture to build for, one that a compiler here can build; None: the device's."""
    chosen = text or settings.arch
    if chosen is None:
        return None
    from kforge.kernel.build import check_arch

    return check_arch(chosen)


def parse_tolerance(text: str | None) -> dict[str, float] | None:
    """{"rms": 4.0, "max": 8.0} from "rms=4,max=8"; either may be absent. Factors over the baseline's own error."""
    if text is None:
        return None
    result: dict[str, float] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if key.strip() not in {"rms", "max"} or not 0 < number < float("inf"):
            raise UsageError(f"{text!r} is not a tolerance", "write for example rms=4 or rms=4,max=8")
        result[key.strip()] = number
    return result


def read_candidate_path(path: Path) -> Path:
    """The module file of a candidate given as that file or as its folder. UsageError when there is none."""
    if path.is_dir():
        found = sorted(path.glob("*_kforge.py"))
        if len(found) != 1:
            number = "no" if not found else "more than one"
            raise UsageError(f"{path} holds {number} *_kforge.py", "name the candidate's module file")
        return found[0]
    if not path.is_file():
        raise UsageError(f"no such file: {path}", "give the module, e.g. kforge_out/softmax/softmax_kforge.py")
    return path

"""Options that several commands share, with their texts, and how their values are read."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kforge import config
from kforge.config import REWARDS, SEARCHES, Config
from kforge.errors import TaskError, UsageError

if TYPE_CHECKING:
    from kforge.agent.chat.team import Team

MOST = 10**9  # of what can be counted

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

Model = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="Chat model that goes on from the engine's best.")
]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="The model's OpenAI-compatible endpoint. [default: OpenAI's]"),
]
Search = Annotated[
    str | None,
    typer.Option(
        "--search",
        metavar="NAME",
        help=f"How to search: {', '.join(SEARCHES)}. [default: hybrid with a model]",
    ),
]
Reward = Annotated[
    str | None,
    typer.Option(
        "--reward",
        metavar="NAME",
        help=f"How the search values attempts: {', '.join(REWARDS)}. [default: log, of the speed-up]",
    ),
]
Budget = Annotated[str | None, typer.Option("--budget", help="End the search after this long. [default: 60s]")]
Evaluations = Annotated[
    int | None, typer.Option("--evaluations", metavar="N", min=1, max=MOST, help="End it after this many evaluations.")
]
Tokens = Annotated[
    int | None, typer.Option("--tokens", metavar="N", min=1, max=MOST, help="End it after this many tokens.")
]
Usd = Annotated[float | None, typer.Option("--usd", metavar="USD", help="End it when the model has cost this much.")]
Constraints = Annotated[
    list[str] | None,
    typer.Option("--constraint", metavar="RULE", help="A standing rule, as CONSTRAINTS of op.py has it. Repeatable."),
]
Code = Annotated[
    list[Path] | None,
    typer.Option("--code", metavar="DIR", help="A folder of sources that the model may read. Repeatable."),
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


def parse_usd(text: float | None) -> float | None:
    """A limit of money, more than nothing."""
    if text is not None and not 0 < text < float("inf"):
        raise UsageError(f"--usd {text:g} is no limit", "give an amount above 0, e.g. --usd 2")
    return text


def parse_rules(items: list[str] | None) -> tuple[str, ...]:
    """The rules of --constraint, checked; UsageError lists what exists."""
    from kforge.task.constraints import parse_constraints

    try:
        return tuple(map(str, parse_constraints(items or ())))
    except TaskError as error:
        raise UsageError(f"--constraint: {error.message}", error.hint) from error


def parse_folders(items: list[Path] | None) -> tuple[Path, ...]:
    """The folders of --code, absolute: the task's code may change the working folder."""
    for folder in items or ():
        if not folder.is_dir():
            raise UsageError(f"--code {folder}: no such folder")
    return tuple(folder.absolute() for folder in items or ())


def chosen_model(
    name: str | None, base_url: str | None, settings: Config, usd: float | None = None, expected: str | None = None
) -> Team | None:
    """The chat models that are meant, ready to answer; None: none. UsageError and MissingError before any work.

    expected: the address that a run which goes on had.
    """
    name = name or settings.model
    if name is None:
        if base_url is not None:
            raise UsageError("--base-url names an endpoint, and no model", "add --model NAME")
        return None
    from kforge.agent.chat.team import ready_team

    address = config.parse_base_url(base_url) if base_url is not None else None
    return ready_team(name, settings, base_url=address, usd=usd, expected=None if address else expected)


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


def check_task_path(path: Path) -> None:
    """TaskError where there is no such file, before anything is imported for it: a pipe is not waited for."""
    if not path.is_file():
        what = "not a file" if path.exists() else "no such file"
        raise TaskError(f"{what}: {path}", "give the task's op.py")


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
    if path.suffix != ".py":
        module = path.with_suffix(".py")
        hint = f"it reads its CUDA sources itself: give {module}" if module.is_file() else "it reads its sources itself"
        raise UsageError(f"{path.name} is not the candidate's Python module", hint)
    if path.name.endswith("_settings.py") and b"ModelNew" not in path.read_bytes():
        hint = "import its class Settings where you use the reference; kernels are in *_kforge.py"
        raise UsageError(f"{path.name} holds settings of torch and no kernel", hint)
    return path


def emulator_ahead(device: str, plan: str) -> AbstractContextManager[None]:
    """While the block works, what the emulator lacks is compiled beside it; nothing where a GPU will do the work."""
    from kforge.kernel.build.toolchain import driver_version
    from kforge.kernel.emulator.ahead import compiled_ahead
    from kforge.kernel.emulator.mode import Kind

    if device.startswith("cuda") or (device == "auto" and driver_version() is not None):
        return nullcontext()
    return compiled_ahead([Kind.FAST] if plan == "quick" else list(Kind))

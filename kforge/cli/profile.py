"""`kforge profile`: why a candidate is as fast as it is, in at most three findings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kforge.cli import options, output

if TYPE_CHECKING:
    from kforge.agent.profile import Profiled

_MODES = ("none", "raw", "tools")


@output.command
def profile(
    out: output.Output,
    task: Annotated[Path | None, typer.Argument(metavar="OP.PY", help="The task.")] = None,
    candidate: Annotated[
        Path | None,
        typer.Argument(metavar="[CANDIDATE.PY]", help="Its module, or the folder of it. [default: the engine's guess]"),
    ] = None,
    device: options.Device = None,
    arch: options.Arch = None,
    variant: Annotated[int, typer.Option("--variant", min=0, help="Which of the task's input variants.")] = 0,
    feedback: Annotated[str, typer.Option("--feedback", help="What is told: none, raw (counters) or tools.")] = "tools",
    lines: Annotated[bool, typer.Option("--lines", help="Print the sources with a figure beside each line.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="As --lines, with the instructions of the hottest.")] = False,
    metric: Annotated[str | None, typer.Option("--metric", help="Which figure --lines shows.")] = None,
    ledger: Annotated[
        bool, typer.Option("--ledger", help="Show how each tool's advice fared: expected against achieved gain.")
    ] = False,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the roofline as a picture.")] = None,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="The same as PNG (extra png).")] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", help="Take data sheet and architecture of this GPU, e.g. A100, where none is here."),
    ] = None,
    energy: Annotated[bool, typer.Option("--energy", help="Measure energy a call (3 s more).")] = False,
    counters: Annotated[bool, typer.Option("--counters/--no-counters", help="Whether ncu is used.")] = True,
    json: options.Json = False,
) -> int:
    """Profile a candidate: its class, its room, and what to change first.

    Without a GPU, or where counters are denied, what can be read from the build, the SASS and the emulator's trace is
    told, and what is missing is named.
    """
    from kforge import config
    from kforge.errors import UsageError
    from kforge.store.outputs import check_outputs

    settings = options.settings()
    if ledger:
        return _show_ledger(out, settings.state)
    if task is None:
        raise UsageError("kforge profile needs a task", "kforge profile op.py [candidate.py]")
    options.check_task_path(task)
    if gpu is not None:
        _known(gpu)
    if feedback not in _MODES:
        raise UsageError(f"--feedback {feedback} is unknown", f"choose {', '.join(_MODES)}")
    module = options.read_candidate_path(candidate) if candidate is not None else None

    from kforge.agent.profile import ProfileOptions, summary
    from kforge.agent.profile import profile as run
    from kforge.profiling.annotate.lines import METRICS
    from kforge.profiling.drawing import MISSING_PILLOW, can_write_png
    from kforge.profiling.feedback import Mode

    if metric is not None and metric not in METRICS:
        raise UsageError(f"--metric {metric} is unknown", f"choose {', '.join(METRICS)}")
    chosen = ProfileOptions(
        device=config.parse_device(device) if device else settings.device,
        arch=options.parse_arch(arch, settings),
        variant=variant,
        counters=counters,
        energy=energy,
        gpu=gpu,
        mode=Mode(feedback),
        state=settings.state.absolute(),
    )
    pictures = {kind: path.absolute() for kind, path in (("svg", svg), ("png", png)) if path is not None}
    if "png" in pictures and not can_write_png():
        output.narrate(f"no PNG will be written: {'; '.join(MISSING_PILLOW)}")
        del pictures["png"]
    for path in pictures.values():
        check_outputs(path.parent, ())
    found = run(task, module, chosen, output.narrate)  # the task's code may change the folder
    _show(out, found, lines=lines or sass, sass=sass, metric=metric)
    out.result(summary(task.name, found) | {"svg": None, "png": None} | _write(pictures, found))
    return output.OK if found.candidate is not None else output.FAILED


def _known(gpu: str) -> None:
    """UsageError for a GPU that has no data sheet, before anything is run for it."""
    from kforge.errors import MissingError, UsageError
    from kforge.profiling.ceilings import data_sheet

    try:
        data_sheet(gpu)
    except MissingError as error:
        raise UsageError(f"--gpu {gpu}: {error.message}", error.hint) from error


def _show(out: output.Output, found: Profiled, *, lines: bool, sass: bool, metric: str | None) -> None:
    from kforge.cli import profile_text
    from kforge.profiling.annotate.lines import annotate

    out.text(profile_text.report(found.evidence, found.feedback, columns=out.width, colour=out.colour))
    if not lines or found.candidate is None:
        return
    for name, annotated in sorted(annotate(found.evidence).items()):
        text = found.candidate.files.get(name)
        if text is not None:
            out.text("\n" + profile_text.source(annotated, text, metric, colour=out.colour, sass=sass))


def _write(pictures: Mapping[str, Path], found: Profiled) -> dict[str, str]:
    """The roofline into files; their paths by kind."""
    from kforge.errors import StoreError
    from kforge.profiling import drawing
    from kforge.profiling.pictures import breakdown, roof
    from kforge.profiling.pictures import drawing as drawn

    picture = roof(found.evidence)
    if not pictures:
        return {}
    if picture is None:
        output.narrate("no roofline: nothing is counted, or the task has no arithmetic")
        return {}
    stage = found.evidence.stage
    title = f"{found.evidence.task} on {stage.ceilings if stage else found.evidence.target}"
    whole = drawn(picture, title, breakdown(found.evidence))
    for kind, path in pictures.items():
        data = drawing.png(whole) if kind == "png" else drawing.svg(whole).encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}", "choose another file") from error
    return {kind: str(path) for kind, path in pictures.items()}


def _show_ledger(out: output.Output, state: Path) -> int:
    from dataclasses import asdict

    from kforge.agent.profile import ledger
    from kforge.cli.text import table
    from kforge.profiling.feedback import trust_in

    rows = ledger(state)
    if not rows:
        output.narrate("no advice was followed here yet")
    else:
        cells = [["tool", "followed", "timed", "expected", "achieved", "trust"]]
        for row in rows:
            gains = ["" if g is None else f"{g:.2f}x" for g in (row.expected, row.achieved)]
            cells.append([row.source, str(row.times_followed), str(row.times_timed), *gains, f"{trust_in(row):.2f}"])
        out.text(table(cells, indent="", columns=out.width))
    out.result({"ledger": [asdict(row) | {"trust": trust_in(row)} for row in rows]})
    return output.OK

"""`kforge export`: a verified candidate leaves as a PyTorch extension, a package of cubins, or one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kforge.cli import options, output


@output.command
def export(
    out: output.Output,
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE.PY", help="Its module, or the folder of it.")],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The folder of the exported project.")],
    layout: Annotated[
        str,
        typer.Option("--format", help="extension, aot, hf, kernelbench; triton (Triton candidates).", metavar="FORMAT"),
    ] = "extension",
    task: Annotated[
        Path | None, typer.Option("--task", metavar="OP.PY", help="The task. [default: that of the run]")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The package's name. [default: <op>_kernels]")] = "",
    license: Annotated[str, typer.Option("--license", help="Apache-2.0, MIT or none.")] = "Apache-2.0",
    outside: Annotated[
        str, typer.Option("--outside", help="Calls outside of the verified domain: reference or raise.")
    ] = "reference",
    backward: Annotated[
        str, typer.Option("--backward", help="Gradients: auto, recompute (by the reference) or refuse.")
    ] = "auto",
    arch: Annotated[
        list[str] | None, typer.Option("--arch", help="Build for it, e.g. sm_90a or compute_90 (PTX); repeatable.")
    ] = None,
    plan: Annotated[str, typer.Option("--plan", help="Judge the translated forward: quick to full, or none.")] = "full",
    build: Annotated[bool, typer.Option("--build/--no-build", help="Build and test the package first.")] = True,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace another package that an export wrote into DIR.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Export what is not verified, stamped UNVERIFIED.")] = False,
    device: options.Device = None,
    json: options.Json = False,
) -> int:
    """Export a verified candidate as something to depend on. Refuses what is unverified, hacked or changed since."""
    from kforge import config
    from kforge.cli.text import fill
    from kforge.export.domain import exported_words
    from kforge.export.exporting import SKIP, Request
    from kforge.export.exporting import export as run
    from kforge.export.package import Options

    settings = options.settings()
    request = Request(
        module=options.read_candidate_path(candidate).absolute(),
        to=to.absolute(),
        state=settings.state.absolute(),
        layout=layout,
        task=task,
        options=Options(name, license, outside, backward, tuple(arch or ())),
        force=force,
        replace=replace,
        plan=plan if plan == SKIP else config.parse_plan(plan),
        build=build,
        device=_device(device or settings.device),
    )

    def emit(kind: str, data: Mapping[str, Any]) -> None:
        if kind == "message":
            output.narrate(str(data["text"]))

    done = run(request, emit)
    stamps = ", ".join(done.export.evidence.stamps)
    out.text(f"{done.export.package} {done.version}{f', {stamps}' if stamps else ''}: {len(done.files)} files in {to}")
    for line in exported_words(done.export):
        out.text(fill(line, out.width))
    out.text(done.translation)
    if done.tried:
        out.text(f"built in {done.tried.build_s:.0f} s, {done.tried.passed} tests passed")
    for line in done.not_run:
        out.text(f"not run: {line}")
    out.result(done.as_dict())
    return output.OK


def _device(text: str) -> str:
    from kforge import config
    from kforge.task import resolve_device

    return str(resolve_device(config.parse_device(text)))

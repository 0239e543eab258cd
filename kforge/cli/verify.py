"""`kforge verify`: judge one candidate against its task, keep the evidence, or run kept evidence again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kforge.cli import options, output
from kforge.errors import KforgeError, UsageError

if TYPE_CHECKING:
    from kforge.agent.verify import VerifyOptions
    from kforge.environment.report import Report

_FUNCTION = "package:function or file.py:function"


@output.command
def verify(
    out: output.Output,
    task: Annotated[Path | None, typer.Argument(metavar="OP.PY", help="The task: a reference and its inputs.")] = None,
    candidate: Annotated[
        Path | None, typer.Argument(metavar="CANDIDATE.PY", help="Its module, or the folder of it.")
    ] = None,
    plan: options.Plan = None,
    device: options.Device = None,
    arch: options.Arch = None,
    tolerance: options.Tolerance = None,
    constraint: options.Constraints = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="WHERE:FUNCTION", help="Time your own incumbent too.")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", metavar="SCRIPT.PY:MODEL", help="Time a whole step with and without it.")
    ] = None,
    energy: Annotated[bool, typer.Option("--energy", help="Measure energy per call (seconds more).")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="Judge and time its gradients too.")] = False,
    evidence: Annotated[
        Path | None, typer.Option("--evidence", metavar="DIR", help="Write report, samples, sources, hashes there.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="DIR", help="Run such a folder again, and say what differs.")
    ] = None,
    json: options.Json = False,
    events: options.Events = False,
) -> int:
    """Judge a candidate: build, check and time it. Exit code 0 only when it is verified."""
    from kforge import config

    settings = options.settings()
    chosen_device = config.parse_device(device) if device else settings.device
    state = settings.state.absolute()  # code of the task may change the working directory
    if replay is not None:
        own = (task, candidate, plan, arch, tolerance, constraint, baseline, context, evidence)
        if any(value is not None for value in own) or energy or backward:
            raise UsageError("--replay takes what it judges from the folder", "beside it only --device and --json")
        return _replay(out, replay, chosen_device, state)
    if task is None or candidate is None:
        raise UsageError("verify needs OP.PY and CANDIDATE.PY", "or --replay DIR")
    module = options.read_candidate_path(candidate)

    from kforge.agent.verify import VerifyOptions

    chosen = VerifyOptions(
        plan=config.parse_plan(plan) if plan else settings.plan,
        device=chosen_device,
        arch=options.parse_arch(arch, settings),
        tolerance=options.parse_tolerance(tolerance),
        state=state,
        baseline=_function("--baseline", baseline),
        context=_function("--context", context),
        energy=energy,
        backward=backward,
        constraints=options.parse_rules(constraint),
    )
    bundle = _Bundle(evidence, task, module, chosen) if evidence is not None else None
    report, run_id = _judge(out, task, module, chosen)
    written = bundle.write(report) if bundle else {}
    code = _say(out, report, run_id, [str(module)])
    if bundle:
        out.text(f"evidence {bundle.folder}, digest {written['digest']}")
    out.result(_summary(report, module, run_id) | ({"evidence": written} if written else {}))
    return code


class _Bundle:
    """The evidence of a run: the sources as they are when it begins."""

    def __init__(self, folder: Path, task: Path, module: Path, chosen: VerifyOptions) -> None:
        from kforge.environment.evidence import OPTIONS, check_folder
        from kforge.kernel.candidate import Candidate
        from kforge.worker.parcel import pack_task

        self.folder = folder.absolute()
        check_folder(self.folder)
        self.task, self.candidate = pack_task(task), Candidate.read(module)
        self.options = {name: getattr(chosen, name) for name in OPTIONS}

    def write(self, report: Report) -> dict[str, str]:
        from kforge.environment import evidence

        digest = evidence.write(self.folder, self.task, self.candidate, report, self.options)
        return {"folder": str(self.folder), "digest": digest}


def _judge(out: output.Output, task: Path, module: Path, chosen: VerifyOptions) -> tuple[Report, str]:
    from kforge.agent.verify import verify as run
    from kforge.cli.progress import Progress

    with options.emulator_ahead(chosen.device, chosen.plan), Progress() as progress:

        def emit(kind: str, data: Mapping[str, Any]) -> None:
            progress(kind, data)
            out.event(kind, data)

        return run(task, module, chosen, emit)


def _say(out: output.Output, report: Report, run_id: str, files: list[str]) -> int:
    """The report as text; returns the exit code of its status."""
    from kforge.cli.render import closing, report_text
    from kforge.cli.text import fill
    from kforge.environment.report import Status

    code = output.OK if report.status is Status.VERIFIED else output.FAILED
    out.text(report_text(report, colour=out.colour, columns=out.width))
    out.text("\n" + fill(closing(report, code, run=run_id), out.width))
    return code


def _summary(report: Report, module: Path, run_id: str) -> dict[str, Any]:
    from kforge.environment import summary
    from kforge.kernel.candidate import Candidate

    try:
        names = sorted(Candidate.read(module).files.keys() - {module.name})
    except (KforgeError, OSError):  # gone, or changed, since it was judged
        names = []
    files = [str(module), *(str(module.parent / name) for name in names)]
    return summary(report, files=files, proposer="user") | {"run": run_id}


def _replay(out: output.Output, folder: Path, device: str, state: Path) -> int:
    """Judge a bundle's candidate again with its seeds. Exit code 0 when it gets the same status."""
    from kforge import scratch
    from kforge.agent.verify import VerifyOptions
    from kforge.environment import evidence

    bundle = evidence.read(folder)
    op, module, kept = bundle.unpack(scratch.make("replay"))
    chosen = replace(VerifyOptions(device=device, state=state, seed=bundle.seed), **kept)
    report, run_id = _judge(out, op, module, chosen)
    found = evidence.differences(bundle.report, report)
    same = report.status is bundle.report.status
    out.text(f"replay of {folder}, digest {bundle.digest}")
    out.text(f"then {_words(bundle.report)}; now {_words(report)}")
    for line in found:
        out.text(f"  differs: {line}")
    out.text(f"{'the same status' if same else 'ANOTHER STATUS'}, {len(found)} differences; run {run_id}")
    out.result(
        _summary(report, module, run_id)
        | {
            "files": [f"candidate/{module.name}"],
            "replay": {"folder": str(folder), "digest": bundle.digest, "same_status": same, "differences": found},
        }
    )
    return output.OK if same else output.FAILED


def _words(report: Report) -> str:
    ratio = f", {report.speedup.ratio:.2f}x over {report.speedup.vs}" if report.speedup else ""
    return f"{report.status.value}, {report.verdict.value}{ratio} on {report.target}"


def _function(option: str, text: str | None) -> str | None:
    """ "where:function" as it is; the file in it must exist."""
    if text is None:
        return None
    where, _, name = text.rpartition(":")
    if not where or not name.isidentifier():
        raise UsageError(f"{option} {text}: write {_FUNCTION}")
    if where.endswith(".py") and not Path(where).is_file():
        raise UsageError(f"{option} {text}: no such file: {where}")
    return f"{Path(where).absolute()}:{name}" if where.endswith(".py") else text

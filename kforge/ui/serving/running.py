"""The long commands of the core: a run, a run continued, a candidate judged, all on a workbench that is warm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import UsageError

if TYPE_CHECKING:
    from kforge.agent.chat.team import Team
    from kforge.agent.opening import SuggestOptions
    from kforge.agent.suggest import SuggestResult
    from kforge.kernel.candidate import Candidate
    from kforge.ui.serving.commands import CoreCommands


def run(
    core: CoreCommands, *, model: str | None, search: str | None, budget: float | None, usd: float | None
) -> dict[str, Any]:
    """As `kforge suggest`, with the session's rules and what was said meanwhile. model "": the engine alone."""
    from kforge import config
    from kforge.agent.suggest import check_before, find

    name = core.settings.model if model is None else model
    team = _team(core, name, None, usd)
    options = replace(
        _options(core),
        budget=budget or core.settings.budget,
        usd=usd,
        model=team.name if team else None,
        base_url=team.base_url if team else None,
        search=config.parse_search(search.replace("-", "_")) if search else core.settings.search,
        reward=core.settings.reward,
    )
    check_before(core.op, options)
    with core.working(options) as bench:
        return _told(find(bench, options, team))


def resume(core: CoreCommands, name: str) -> dict[str, Any]:
    """Continue a run of this op.py in its own log."""
    from kforge.agent.resume import find_run, read_past
    from kforge.agent.suggest import check_before, find

    past = read_past(find_run(core.state / "runs", name))
    if (past.options.here / past.task).resolve() != core.op.resolve():
        raise UsageError(f"run {past.folder.name} is about {past.task}", f"open it: kforge {past.task}")
    options = replace(past.options, state=core.state)
    team = _team(core, options.model or "", None, options.usd, options.base_url)
    check_before(core.op, options)
    with core.working(options, past=past) as bench:
        return _told(find(bench, options, team, resumed=True))


def judge(core: CoreCommands, candidate: Candidate, module: Path, plan: str = "") -> dict[str, Any]:
    """One candidate under the session's rules, as a run of `kforge verify`. plan: "" that of the settings."""
    from kforge.environment import summary

    options = _options(core)
    options = replace(options, plan=plan or options.plan)
    with core.working(options, command="verify", more={"candidate": str(module)}) as bench:
        attempt = bench.evaluate(candidate, options.plan, beyond=True)
        report = attempt.report
        code = 0 if attempt.verified else 1
        bench.session.finish(
            status=report.status.value, verdict=report.verdict.value, exit_code=code, best=candidate.digest
        )
        result = summary(report, files=[str(module)], proposer=candidate.proposer)
    return {**result, "run": core.run, "candidate": report.candidate}


def baseline_source(core: CoreCommands) -> str:
    """PyTorch's own kernels for op.py. MissingError without a GPU."""
    from kforge.agent.baseline import inductor_source
    from kforge.environment import prepare
    from kforge.task import resolve_device

    device = str(resolve_device(core.settings.device))
    return inductor_source(prepare(core.task(), device, folder=core.state / "work"))


def _options(core: CoreCommands) -> SuggestOptions:
    from kforge.agent.opening import SuggestOptions

    settings = core.settings
    return SuggestOptions(
        out=core.out,
        plan=settings.plan,
        device=settings.device,
        arch=settings.arch,
        state=core.state,
        here=core.here,
    )


def _team(
    core: CoreCommands, name: str | None, base_url: str | None, usd: float | None, expected: str | None = None
) -> Team | None:
    """expected: the address that a run which goes on had; the log does not decide where a key is sent."""
    if not name:
        return None
    from kforge.agent.chat.team import ready_team

    return ready_team(name, core.settings, base_url=base_url, usd=usd, expected=expected)


def _told(done: SuggestResult) -> dict[str, Any]:
    files = [str(path) for path in done.files]
    return {**done.summary, "exit_code": done.exit_code, "last_line": done.last_line, "files": files}

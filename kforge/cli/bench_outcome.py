"""What `kforge bench` does with each outcome of a fleet: its events, its line on stderr, reports that are none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kforge.cli import output
from kforge.errors import ProtocolError

if TYPE_CHECKING:
    from kforge.worker.fleet import Outcome


def checked(outcome: Outcome) -> Outcome:
    """The outcome, an error in the place of a report that is none: that job's, not the end of the others."""
    from kforge.environment.json import from_json
    from kforge.environment.report import Report
    from kforge.worker import wire

    if outcome.report is None:
        return outcome
    try:
        from_json(Report, outcome.report)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        words = f"worker {outcome.worker} sent a report that cannot be read: {error}"
        lost = ProtocolError(words, "use the same version of kforge on both sides")
        return replace(outcome, message=wire.failure(outcome.job.id, lost))
    return outcome


def emitting(out: output.Output) -> Any:
    def emit(worker: str, job: str, kind: str, data: dict[str, Any]) -> None:
        out.event(kind, {"job": job, "worker": worker, **data})

    return emit


def progress_line(number: int, count: int, name: str, outcome: Outcome) -> str:
    """One line on stderr for one result."""
    from kforge.cli.text import plain

    head = f"{number}/{count} {plain(name)}: "
    if outcome.report is None:
        return head + plain(f"error: {(outcome.error or {}).get('message', '')}")
    report = outcome.report
    words = [str(report["status"])]
    if report["verdict"] != "untimed":
        words.append(str(report["verdict"]))
    if report.get("speedup"):
        words.append(f"x{report['speedup']['ratio']:.2f}")
    return head + ", ".join(words) + f" ({report['seconds']:.1f} s)"

"""What a model is told at the start of an attempt: collected from the workbench, as values for the prompts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kforge.agent.chat.untrusted import clean
from kforge.agent.roles.strategist import strategy
from kforge.agent.tools.toolbox import clip
from kforge.errors import BuildError, ChildFailed, EmulatorError, KforgeError, LaunchError, MissingError

if TYPE_CHECKING:
    from kforge.agent.proposers import Context
    from kforge.agent.search.tree import Node, Tree
    from kforge.agent.workbench import Workbench

LESSONS = 8  # KernelOPT's FIFO
FASTEST, LATEST = 20, 100  # attempts that the table shows; ours
SOURCE = 40_000  # characters of op.py
PROFILE_SECONDS = 20.0  # with less left of the budget nothing is profiled ahead


def briefing(context: Context, profile: Callable[[str], dict[str, Any] | None]) -> dict[str, Any]:
    """Values for executor_task, planner and profiler. profile: of a candidate by its digest, None without."""
    bench, parent = context.bench, context.parent
    files = dict(bench.candidate(parent.candidate).files) if parent.candidate else {}
    profiled = profile(parent.candidate) if parent.candidate and parent.status == "verified" else None
    return {
        "task": bench.task.path.name,
        "source": clip(bench.task.source, SOURCE),
        "target": target(bench),
        "arch": bench.arch,
        "untimed": bench.device == "cpu",
        "gradients": list(bench.task.gradients.names) if bench.task.gradients else [],
        "facts": facts(bench),
        "constraints": [str(rule) for rule in bench.constraints],
        "parent": parent if parent.candidate else None,
        "parent_files": files,
        "parent_failure": failure(bench, parent),
        "findings": findings(profiled),
        "strategy": strategy(profiled),
        "exemplars": [_exemplar(bench, node) for node in context.exemplars if node.candidate],
        "attempts": table(bench.tree),
        "lessons": lessons(bench),
        "direction": line(context.direction),
        "avoid": [line(name) for name in context.avoid],
        "left": left(bench),
    }


def table(tree: Tree) -> str:
    """The fastest and the latest attempts, one a line under a heading; "" where there is none."""
    rows = ["id | parent | status | ms | speed-up | direction | idea | failure"]
    made = [node for node in tree.nodes.values() if node.parent is not None]
    fastest = sorted((node for node in made if node.verified), key=lambda n: (n.ms or math.inf, n.id))[:FASTEST]
    shown = {node.id for node in (*fastest, *made[-LATEST:])}
    for node in made:
        if node.id not in shown:
            continue
        ms = "untimed" if node.ms is None else f"{node.ms:.5g}"
        speedup = "-" if node.speedup is None else f"{node.speedup:.3f}x"
        cells = [node.id, node.parent, node.status or "not judged", ms, speedup, line(node.direction) or "-"]
        cells += [line(node.idea, 120) or "-", line(node.failure, 160) or "-"]
        rows.append(" | ".join(map(str, cells)) + (f" | dead end: {line(node.pruned)}" if node.pruned else ""))
    if len(shown) < len(made):
        rows.append(f"and {len(made) - len(shown)} earlier ones, all slower than the fastest {FASTEST} or not right")
    return "\n".join(rows) if made else ""


def failure(bench: Workbench, node: Node) -> str:
    """What the judge said of an attempt that is not right, in words."""
    from kforge.agent.tools.words import attempt_text

    if not node.failed:
        return ""
    attempt = next((a for a in reversed(bench.attempts) if a.candidate.digest == node.candidate), None)
    return attempt_text(attempt) if attempt is not None else node.failure


def findings(profile: dict[str, Any] | None) -> str:
    """A profile in words: the limit and at most three findings; raw counters make a model's next step worse."""
    if profile is None:
        return ""
    from kforge.agent.tools.profiling import profile_text

    return profile_text(profile)


def profiled(bench: Workbench, digest: str) -> dict[str, Any] | None:
    """A candidate's profile; None, with a message, where it cannot be had or the time for it is short."""
    seconds = bench.left()["seconds"]
    if seconds is not None and seconds < PROFILE_SECONDS:
        return None
    try:
        return bench.profile(bench.candidate(digest))
    except (BuildError, ChildFailed, EmulatorError, LaunchError, MissingError) as error:
        _without(bench, digest, error)
    except KforgeError as error:
        if type(error) is not KforgeError:
            raise
        _without(bench, digest, error)
    return None


def _without(bench: Workbench, digest: str, error: KforgeError) -> None:
    bench.event("message", text=f"no profile of {digest}: {error.message}", level="info")


def lessons(bench: Workbench) -> str:
    """What the memory holds for such tasks, one a line."""
    if bench.memory is None:
        return ""
    return "\n".join(line(str(lesson), 300) for lesson in bench.memory.of(bench.key, LESSONS))


def facts(bench: Workbench) -> str:
    """The baseline's and the hardware's limits in a sentence."""
    floor = bench.prepared.floor()
    if floor is None:
        return "the reference could not be captured, so no roofline is known"
    return f"{floor.bound.value} bound, floor {floor.ms:.4g} ms ({floor.source})"


def target(bench: Workbench) -> str:
    """Where candidates run."""
    from kforge.environment.target import target_name

    name = target_name(bench.device)
    return "a GPU (judged on the host emulator, untimed)" if bench.device == "cpu" else name


def left(bench: Workbench) -> str:
    """What is left of each limit, in words."""
    units = {"seconds": "s", "evaluations": "evaluations", "tokens": "tokens", "usd": "USD"}
    words = [f"{value:.4g} {units[name]}" for name, value in bench.left().items() if value is not None]
    return ", ".join(words) or "no limit"


def line(text: str, most: int = 80) -> str:
    """A foreign text that fits into a line of a prompt: directions and ideas are written by models."""
    return re.sub(r"\s+", " ", clean(text)).replace("|", "/").strip()[:most]


def _exemplar(bench: Workbench, node: Node) -> dict[str, Any]:
    candidate = bench.candidate(node.candidate)
    score = f"{node.speedup:.3f}" if node.speedup is not None else (node.status or "not judged")
    return {"id": node.id, "score": score, "idea": line(node.idea, 300), "files": dict(candidate.files)}

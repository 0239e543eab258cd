"""Search strategies on recorded landscapes: python benchmarks/strategies.py [--seeds 200] [--evaluations 32] [names].

Each table of benchmarks/landscapes is replayed: a proposal is a candidate of the table that was not tried yet, its
verdict the recorded time. kforge's own loop and strategies run, with a proposer of fixed habits (see `Replayer`) in a
model's place. Reported: best time of the table over best time found, after so many evaluations, as the geometric mean
over the tables, with the 95 % bootstrap interval over the seeds. docs/search.md says what that can and cannot claim.
Writes benchmarks/results/strategies.json and docs/search.svg, prints a table. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from kforge.agent.control import Control
from kforge.agent.proposers import Context
from kforge.agent.search import MCTS, SEARCHES, BestOfN, Hybrid, Strategy, Tree, search
from kforge.agent.search.strategy import ENGINE
from kforge.agent.workbench import Attempt
from kforge.environment.report import Gate, Report, Speedup, Status, Verdict
from kforge.kernel.candidate import Candidate

ROOT = Path(__file__).resolve().parents[1]
LANDSCAPES = ROOT / "benchmarks" / "landscapes"
BUDGETS = (1, 2, 4, 8, 16, 32)
WIDENINGS = (1, 2, 4, 10)  # k of MCTS: ours is one of them, the last is MCTS.jl's default
LARGE = 24  # candidates of a table that 32 evaluations do not nearly exhaust
RESAMPLES = 2000
OTHER_FAMILY = 100  # distance; within a family it is the number of constants that differ

Schedule = dict[str, int]


@dataclass(frozen=True)
class Point:
    """One candidate of a table. ms None: it failed."""

    family: str
    schedule: Schedule = field(hash=False)
    ms: float | None

    @property
    def text(self) -> str:
        """Its name."""
        return f"{self.family} " + " ".join(f"{name}={value}" for name, value in sorted(self.schedule.items()))

    def distance(self, other: Point) -> int:
        """How much two candidates differ."""
        if self.family != other.family:
            return OTHER_FAMILY
        names = self.schedule.keys() | other.schedule.keys()
        return sum(self.schedule.get(name) != other.schedule.get(name) for name in names)


@dataclass(frozen=True)
class Landscape:
    """A table of one workload on one GPU, in the order in which it was measured."""

    name: str
    kernels: str  # "engine" or "by hand"
    chip: str
    points: tuple[Point, ...]

    @staticmethod
    def read(path: Path) -> Landscape:
        """From a file of benchmarks/landscapes."""
        data = json.loads(path.read_text())
        points = tuple(Point(p["family"], p["schedule"], p.get("ms")) for p in data["points"])
        return Landscape(f"{data['workload']} ({data['kernels']})", data["kernels"], data["chip"], points)

    @property
    def best(self) -> float:
        """The least time in ms."""
        return min(point.ms for point in self.points if point.ms is not None)

    @property
    def median(self) -> float:
        """The median time: it stands for the baseline, which most tables lack."""
        return statistics.median(point.ms for point in self.points if point.ms is not None)


class Table:
    """A Judge (kforge.agent.search) that looks the verdict up."""

    def __init__(self, landscape: Landscape, evaluations: int) -> None:
        self.landscape, self.evaluations = landscape, evaluations
        self.tree, self.control = Tree(), Control()
        self.points = {candidate(point, "").digest: point for point in landscape.points}
        self.found: list[float] = []  # best time after each evaluation

    def spent(self) -> str:
        """The number of evaluations is the only budget."""
        return "spent" if len(self.found) >= self.evaluations else ""

    def event(self, kind: str, /, **data: Any) -> None:
        """No log is kept."""

    def evaluate(
        self, candidate: Candidate, plan: str = "quick", parent: int | None = None, direction: str = ""
    ) -> Attempt:
        """The recorded result."""
        point = self.points[candidate.digest]
        node = self.tree.add(parent or 0, candidate, direction or point.family)
        report = self._report(candidate, plan, point)
        self.tree.record(node.id, report)
        best = self.tree.best
        self.found.append(best.ms if best is not None and best.ms is not None else math.inf)
        return Attempt(node, candidate, report)

    def _report(self, made: Candidate, plan: str, point: Point) -> Report:
        right = point.ms is not None
        return Report(
            task=self.landscape.name,
            candidate=made.digest,
            status=Status.VERIFIED if right else Status.WRONG,
            verdict=Verdict.UNCLEAR if right else Verdict.UNTIMED,
            plan=plan,
            target=self.landscape.chip,
            gates=() if right else (Gate("replay", False, "failed when it was recorded"),),
            speedup=Speedup("table's median", self.landscape.median / point.ms, (0.0, math.inf), 0.0)
            if point.ms is not None
            else None,
            times_ms={"candidate": point.ms} if point.ms is not None else {},
        )

    def untried(self) -> list[Point]:
        """What was not proposed yet, in the table's order."""
        return [point for digest, point in self.points.items() if self.tree.find(digest) is None]


def candidate(point: Point, proposer: str) -> Candidate:
    """A candidate that is nothing but the name of a point."""
    return Candidate("op_kforge.py", {"op_kforge.py": point.text}, proposer=proposer, idea=point.text)


class Replayer:
    """Stands for a model. From scratch: any family, then any schedule. From a parent: the smallest change of it.

    With two exemplars: near the better one and, of equals, far from the worse. Ties are drawn by the seed.
    """

    name = "replay"

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def propose(self, context: Context) -> Candidate | None:
        """A point that was not tried; None where there is none left."""
        table: Table = context.bench  # type: ignore[assignment]
        left = table.untried()
        if not left:
            return None
        rng = random.Random(f"{self.seed}:{len(table.found)}")
        parent = table.points.get(context.parent.candidate)
        if parent is None:
            family = rng.choice(sorted({point.family for point in left}))
            chosen = rng.choice([point for point in left if point.family == family])
        else:
            worse = [table.points[node.candidate] for node in context.exemplars[1:]]

            def rank(point: Point) -> tuple[int, int]:
                return parent.distance(point), -sum(point.distance(other) for other in worse)

            least = min(map(rank, left))
            chosen = rng.choice([point for point in left if rank(point) == least])
        return candidate(chosen, self.name)


class FirstOfEach:
    """Stands for the engine in the hybrid: the first schedule measured of each family, in the table's order."""

    name = ENGINE

    def propose(self, context: Context) -> Candidate | None:
        """The next family's."""
        table: Table = context.bench  # type: ignore[assignment]
        firsts: dict[str, Point] = {}
        for point in table.landscape.points:
            firsts.setdefault(point.family, point)
        made = [candidate(point, self.name) for point in firsts.values()]
        return next((c for c in made if table.tree.find(c.digest) is None), None)


def strategies(evaluations: int) -> dict[str, Callable[[], Strategy]]:
    """Those of kforge as they are, but best-of-n with n the budget: it is the random search they compare to."""
    made: dict[str, Callable[[], Strategy]] = {**SEARCHES, "best_of_n": lambda: BestOfN(evaluations)}
    made["hybrid"] = lambda: Hybrid(MCTS())
    return made


def run(landscape: Landscape, strategy: Strategy, seed: int, evaluations: int) -> list[float]:
    """Best over best found after 1, 2, ... evaluations; a strategy that stops keeps what it has."""
    table = Table(landscape, min(evaluations, len(landscape.points)))
    proposers: list[Any] = [Replayer(seed)]
    if isinstance(strategy, Hybrid):
        proposers.insert(0, FirstOfEach())
    search(table, strategy, proposers, seed=seed)
    curve = [landscape.best / ms for ms in table.found]
    return curve + [curve[-1]] * (evaluations - len(curve))


def geometric(values: Iterable[float], floor: float = 1e-3) -> float:
    """Geometric mean; nothing found yet counts as `floor`."""
    logs = [math.log(max(value, floor)) for value in values]
    return math.exp(sum(logs) / len(logs))


def interval(values: Sequence[float], rng: random.Random) -> tuple[float, float]:
    """95 % bootstrap interval of the mean."""
    n = len(values)
    means = sorted(sum(rng.choices(values, k=n)) / n for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]


def summarise(curves: dict[str, list[list[float]]], evaluations: int) -> dict[str, Any]:
    """curves: table -> seed -> evaluation -> share. Per budget: mean over seeds of the mean over tables, interval."""
    rng = random.Random(0)
    seeds = len(next(iter(curves.values())))
    out: dict[str, Any] = {}
    for budget in (b for b in BUDGETS if b <= evaluations):
        per_seed = [geometric(curves[name][seed][budget - 1] for name in curves) for seed in range(seeds)]
        low, high = interval(per_seed, rng)
        out[str(budget)] = {"share": round(statistics.fmean(per_seed), 4), "ci95": [round(low, 4), round(high, 4)]}
    return out


def picture(result: dict[str, Any], width: int = 640, height: int = 360) -> str:
    """The curves as SVG: share of the best against evaluations (log scale), interval as a bar."""
    colours = dict(
        zip(result["strategies"], ("#0072b2", "#e69f00", "#000000", "#009e73", "#d55e00", "#cc79a7"), strict=True)
    )
    budgets = sorted({int(b) for rows in result["strategies"].values() for b in rows["all"]})
    low = min(row["ci95"][0] for rows in result["strategies"].values() for row in rows["all"].values())
    low = math.floor(low * 20) / 20
    left, right, top, bottom = 56, 150, 16, 44

    def x(budget: float, shift: float = 0.0) -> float:
        return left + math.log2(budget) / math.log2(budgets[-1]) * (width - left - right) + shift

    def y(share: float) -> float:
        return top + (1 - share) / (1 - low) * (height - top - bottom)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="12" role="img">',
        f"<title>{escape(result['title'])}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    steps = round((1 - low) / 0.05)
    for step in range(steps + 1):
        share = low + step * 0.05
        parts.append(
            f'<path d="M{left} {y(share):.1f}H{width - right}" stroke="#dddddd"/>'
            f'<text x="{left - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.2f}</text>'
        )
    for budget in budgets:
        parts.append(f'<text x="{x(budget):.1f}" y="{height - bottom + 18}" text-anchor="middle">{budget}</text>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 8}" text-anchor="middle">evaluations</text>')
    parts.append(
        f'<text transform="translate(14 {height / 2}) rotate(-90)" text-anchor="middle">best / best found</text>'
    )
    for place, (name, rows) in enumerate(result["strategies"].items()):
        colour, shift = colours[name], (place - 2.5) * 2.5
        points = [(x(int(b), shift), row) for b, row in rows["all"].items()]
        line = " ".join(f"{at:.1f},{y(row['share']):.1f}" for at, row in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for at, row in points:
            one, two = row["ci95"]
            parts.append(f'<path d="M{at:.1f} {y(one):.1f}V{y(two):.1f}" stroke="{colour}" stroke-width="1.5"/>')
        at = top + 16 * (place + 1)
        parts.append(f'<path d="M{width - right + 14} {at - 4}h20" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{width - right + 40}" y="{at}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="landscapes whose file name contains one of these")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--evaluations", type=int, default=BUDGETS[-1])
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "strategies.json")
    parser.add_argument("--svg", type=Path, default=ROOT / "docs" / "search.svg")
    options = parser.parse_args()
    paths = sorted(LANDSCAPES.glob("*.json"))
    if options.names:
        paths = [path for path in paths if any(name in path.name for name in options.names)]
    tables = [Landscape.read(path) for path in paths]
    large = [table for table in tables if len(table.points) >= LARGE]
    groups = {
        "all": tables,
        f"{LARGE} candidates or more": large,
        "engine's tables": [table for table in tables if table.kernels == "engine"],
    }
    rows: dict[str, Any] = {}
    for name, make in strategies(options.evaluations).items():
        curves = {
            table.name: [run(table, make(), seed, options.evaluations) for seed in range(options.seeds)]
            for table in tables
        }
        rows[name] = {
            group: summarise({table.name: curves[table.name] for table in members}, options.evaluations)
            for group, members in groups.items()
            if members
        }
        rows[name]["by table"] = {
            table: [round(geometric(c[b - 1] for c in curves[table]), 4) for b in BUDGETS if b <= options.evaluations]
            for table in curves
        }
        shares = "  ".join(
            f"{r['share']:.3f} [{r['ci95'][0]:.3f}, {r['ci95'][1]:.3f}]" for r in rows[name]["all"].values()
        )
        print(f"{name:12} {shares}", flush=True)
    widening = {}
    for k in WIDENINGS:
        made = {t.name: [run(t, MCTS(k=k), s, options.evaluations) for s in range(options.seeds)] for t in large}
        widening[str(k)] = summarise(made, options.evaluations) if large else {}
    result = {
        "benchmark": "strategies",
        "title": f"best / best found on {len(tables)} recorded tables, {options.seeds} seeds",
        "command": f"python benchmarks/strategies.py --seeds {options.seeds} --evaluations {options.evaluations}",
        "replay": "no kernel ran: times are those recorded in benchmarks/landscapes; interval over seeds alone",
        "chips": sorted({table.chip for table in tables}),
        "groups": {group: [table.name for table in members] for group, members in groups.items()},
        "tables": {t.name: {"candidates": len(t.points), "best_ms": t.best, "median_ms": t.median} for t in tables},
        "budgets": [b for b in BUDGETS if b <= options.evaluations],
        "strategies": rows,
        "widening of mcts": {"group": f"{LARGE} candidates or more", "k": widening},
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    options.svg.write_text(picture(result))


if __name__ == "__main__":
    main()

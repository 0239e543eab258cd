"""The tree of attempts: the reference at its root, one node for each candidate, rebuilt from a run's events.

It owns what is known of each attempt and what each reward was worth to the nodes above it; what to try next is a
strategy's business. No torch here: the terminal interface rebuilds this tree too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.agent.search.rewards import reward_named, reward_of
from kforge.environment.report import Status
from kforge.errors import KforgeError

if TYPE_CHECKING:
    from kforge.environment.report import Report
    from kforge.kernel.candidate import Candidate

VERIFIED, BUILT = Status.VERIFIED.value, Status.BUILT.value
ROOT = 0


@dataclass
class Node:
    """One attempt. Times in ms; speedup over the judge's baseline, None where untimed.

    visits counts the attempts judged at or below this node, value is their mean reward.
    """

    id: int
    parent: int | None  # id 0 is the root: the reference itself, no candidate
    candidate: str = ""  # digest
    proposer: str = ""
    idea: str = ""
    direction: str = ""  # the kind of change, short: "vectorise", "tiling", "engine:row_block"
    expected_gain: float | None = None
    status: str | None = None  # None: not evaluated yet
    verdict: str | None = None
    plan: str | None = None
    ms: float | None = None
    speedup: float | None = None
    failure: str = ""  # first line of what failed
    reward: float | None = None
    visits: int = 0
    value: float = 0.0
    pruned: str = ""  # why nothing more is tried below it
    children: list[int] = field(default_factory=list)
    step: int = 0  # of the search, that led to it

    @property
    def verified(self) -> bool:
        """Judged right."""
        return self.status == VERIFIED

    @property
    def failed(self) -> bool:
        """Judged, and not right. What was built and cannot run here is neither right nor failed."""
        return self.status is not None and self.status not in {VERIFIED, BUILT}

    def state(self) -> dict[str, Any]:
        """Data of the event `node`."""
        return {
            "node": self.id,
            "reward": self.reward,
            "visits": self.visits,
            "value": self.value,
            "pruned": self.pruned,
        }


@dataclass
class Steps:
    """Where a search stands, read from the field `step` of its `node` events: resume goes on from here.

    history: of each step that has ended, the node that was worked on and the proposer; open: the selection of a step
    that has begun and not ended, with its proposer.
    """

    search: str = ""
    seed: int | None = None  # of all random draws
    history: list[dict[str, Any]] = field(default_factory=list)
    open: dict[str, Any] | None = None
    exhausted: list[str] = field(default_factory=list)  # proposers that have nothing more
    ended: str = ""  # why nothing more can be won


class Tree:
    """The attempts of one run. `reward` names how they are valued (kforge.agent.search.rewards)."""

    def __init__(self, reward: str = "log") -> None:
        self._reward = reward_named(reward)
        self.nodes: dict[int, Node] = {ROOT: Node(ROOT, None)}
        self.steps = Steps()
        self._by_digest: dict[str, int] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and (self.nodes, self.steps) == (other.nodes, other.steps)

    def __len__(self) -> int:
        """Attempts, the root not counted."""
        return len(self.nodes) - 1

    @property
    def root(self) -> Node:
        """The reference."""
        return self.nodes[ROOT]

    @property
    def best(self) -> Node | None:
        """The fastest verified attempt, the first of them where none was timed; None without one."""
        verified = [node for node in self.nodes.values() if node.verified]
        return min(verified, key=lambda node: (node.ms if node.ms is not None else math.inf, node.id), default=None)

    def find(self, digest: str) -> Node | None:
        """The attempt with this candidate."""
        return self.nodes.get(self._by_digest[digest]) if digest in self._by_digest else None

    def path(self, node: int) -> list[Node]:
        """From this node up to the root, both included."""
        found = [self.nodes[node]]
        while found[-1].parent is not None:
            found.append(self.nodes[found[-1].parent])
        return found

    def add(self, parent: int, candidate: Candidate, direction: str = "") -> Node:
        """Enter a candidate as a child of `parent`. One that is in the tree already is returned as it stands."""
        return self._add(
            parent,
            candidate.digest,
            proposer=candidate.proposer,
            idea=candidate.idea,
            direction=direction,
            expected_gain=candidate.expected_gain,
        )

    def record(self, node: int, report: Report, baseline_ms: float | None = None) -> Node:
        """Enter what the judge found. A second report of the same candidate (another plan) takes the first's place.

        speedup is the report's, or `baseline_ms` over the candidate's time where it has none.
        """
        ms = report.times_ms.get("candidate")
        speedup = report.speedup.ratio if report.speedup else None
        if speedup is None and ms and baseline_ms:
            speedup = baseline_ms / ms
        return self._record(
            self.nodes[node],
            status=report.status.value,
            verdict=report.verdict.value,
            plan=report.plan,
            ms=ms,
            speedup=speedup,
            failure=first_line(report.failure) if report.status is not Status.VERIFIED else "",
            reward=self._reward(report),
        )

    def prune(self, node: int, why: str) -> Node:
        """Nothing more is tried below this node."""
        self.nodes[node].pruned = why
        return self.nodes[node]

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take over one event of the log; kinds that are no business of the tree change nothing.

        After all events of a run the tree equals the one that wrote them. Logs from before attempts had numbers are
        read too: candidates get theirs in order, under their parent's digest.
        """
        if kind == "proposed":
            self._apply_proposed(data)
        elif kind == "evaluated":
            self._apply_evaluated(data)
        elif kind == "node":
            self._apply_node(data)

    def _apply_proposed(self, data: Mapping[str, Any]) -> None:
        digest, number = data["candidate"], data.get("node")
        parent = data.get("parent_node")
        if parent is None:
            above = self.find(data.get("parent") or "")
            parent = above.id if above else ROOT
        node = self._add(
            parent,
            digest,
            proposer=data.get("proposer") or "",
            idea=data.get("idea") or "",
            direction=data.get("direction") or "",
            expected_gain=data.get("expected_gain"),
        )
        if number is not None and number != node.id:
            raise KforgeError(f"the log numbers candidate {digest} {number}, and it is attempt {node.id}")

    def _apply_evaluated(self, data: Mapping[str, Any]) -> None:
        number = data.get("node")
        node = self.find(data["candidate"]) if number is None else self.nodes.get(number)
        if node is None:
            return
        report = data.get("report") or {}
        verified = data["status"] == VERIFIED
        failure = data.get("failure")
        if failure is None:
            gates = report.get("gates") or ()
            failure = next((gate.get("detail") or "" for gate in gates if gate.get("passed") is False), "")
        reward, speedup = data.get("reward"), data.get("speedup")
        if reward is None:  # a log from before rewards were written
            reward = reward_of(data["status"], speedup)
        self._record(
            node,
            status=data["status"],
            verdict=data.get("verdict"),
            plan=data.get("plan"),
            ms=data.get("ms"),
            speedup=speedup,
            failure="" if verified else first_line(failure),
            reward=reward,
        )

    def _apply_node(self, data: Mapping[str, Any]) -> None:
        node = self.nodes.get(data["node"])
        if node is None:
            return
        for name in ("reward", "visits", "value", "pruned"):
            if name in data:
                setattr(node, name, data[name])
        self.mark(data.get("step") or {})

    def mark(self, step: Mapping[str, Any]) -> None:
        """Take over where the search stands: search and seed, what opens, what is done, exhausted or at its end."""
        steps = self.steps
        steps.search = step.get("search", steps.search)
        steps.seed = step.get("seed", steps.seed)
        steps.open = step.get("open", steps.open)
        if step.get("done") and steps.open is not None:
            steps.history.append({"node": steps.open["node"], "proposer": steps.open["proposer"]})
            steps.open = None
        steps.exhausted = list(step.get("exhausted", steps.exhausted))
        steps.ended = step.get("ended", steps.ended)

    def _add(self, parent: int, digest: str, **fields: Any) -> Node:
        known = self.find(digest)
        if known is not None:
            return known
        if parent not in self.nodes:
            raise KforgeError(f"attempt {parent} is not in the tree", f"it has the attempts 0 to {len(self)}")
        node = Node(len(self.nodes), parent, digest, step=len(self.steps.history), **fields)
        self.nodes[node.id] = node
        self.nodes[parent].children.append(node.id)
        self._by_digest[digest] = node.id
        return node

    def _record(self, node: Node, *, reward: float, **fields: Any) -> Node:
        before, node.reward = node.reward, reward
        for name, value in fields.items():
            setattr(node, name, value)
        for above in self.path(node.id):
            if before is None:
                above.visits += 1
                above.value += (reward - above.value) / above.visits
            else:  # judged again: its reward changes in place
                above.value += (reward - before) / above.visits
        return node


def first_line(text: str) -> str:
    """Without what follows: compilers say much."""
    return text.strip().partition("\n")[0]

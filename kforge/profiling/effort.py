"""How long a timing may take: rounds, batches, budgets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """How long a timing may take.

    rounds: accepted ones wanted, up to `patience` times as many while the verdict is open; every: after how many more
    it is asked. batch_s: seconds of one side's batch; short_s: where replays decide, and only a lie counts. budget_s:
    seconds after which three rounds are enough. graph_s: seconds of one graph of a replay.
    """

    rounds: int = 8
    patience: int = 3
    every: int = 4
    batch_s: float = 0.02
    short_s: float = 0.02
    budget_s: float = 1.5
    graph_s: float = 1.5e-3


QUICK = Effort(rounds=3, patience=3, every=1, batch_s=0.008, short_s=0.004, budget_s=0.25, graph_s=3e-4)
STANDARD = Effort()

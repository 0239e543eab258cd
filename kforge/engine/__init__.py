"""Proposals without a chat model: a graph is rewritten, cut into programs, and written as CUDA by kernel families."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.engine.backward import propose_pair as propose_pair
    from kforge.engine.cost import Policy as Policy
    from kforge.engine.proposing import propose as propose


def __getattr__(name: str) -> Any:
    if name == "propose":
        from kforge.engine.proposing import propose

        return propose
    if name == "propose_pair":
        from kforge.engine.backward import propose_pair

        return propose_pair
    if name == "Policy":
        from kforge.engine.cost import Policy

        return Policy
    raise AttributeError(name)

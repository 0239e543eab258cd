"""Chat models over any OpenAI-compatible endpoint, as proposers. Only this room imports openai, and late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.agent.chat.conversation import Conversation
    from kforge.agent.chat.endpoint import Endpoint
    from kforge.agent.chat.model import Model, resolve_model
    from kforge.agent.chat.proposer import ChatProposer
    from kforge.agent.chat.ready import check_models
    from kforge.agent.chat.team import Team, ready_team

_PLACES = {
    "ChatProposer": "proposer",
    "Conversation": "conversation",
    "Endpoint": "endpoint",
    "Model": "model",
    "Team": "team",
    "check_models": "ready",
    "ready_team": "team",
    "resolve_model": "model",
}
__all__ = [
    "ChatProposer",
    "Conversation",
    "Endpoint",
    "Model",
    "Team",
    "check_models",
    "ready_team",
    "resolve_model",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)

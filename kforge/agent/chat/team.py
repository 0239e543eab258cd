"""Which model plays which role in a run, with the prompts: from settings, checked before any work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kforge.agent.chat.model import Model, Settings, resolve_model
from kforge.agent.chat.ready import check_models
from kforge.agent.roles import EXECUTOR, cast
from kforge.agent.roles.prompts import Prompts
from kforge.errors import UsageError


class TeamSettings(Settings, Protocol):
    """What is read of kforge.config.Config. roles: `[roles]`, a model's name by role; prompts: the user's folder."""

    @property
    def roles(self) -> Mapping[str, str]: ...

    @property
    def prompts(self) -> Path | None: ...


@dataclass(frozen=True)
class Team:
    """models: by role; the executor is the run's own model."""

    models: Mapping[str, Model]
    prompts: Prompts

    @property
    def name(self) -> str:
        """The executor's."""
        return self.models[EXECUTOR].name

    @property
    def base_url(self) -> str:
        """The executor's."""
        return self.models[EXECUTOR].base_url


def ready_team(
    name: str,
    config: TeamSettings,
    *,
    base_url: str | None = None,
    usd: float | None = None,
    expected: str | None = None,
    check: Callable[[], None] = lambda: None,
) -> Team:
    """The models for `--model name`, each known to answer. base_url: the command line's; usd: the budget in money.

    Everything that would end a run later is found here: UsageError for names, prices and prompts, MissingError for keys
    and endpoints. expected: the address that a run which goes on had; another one is refused, and not asked. check:
    raises where the user stopped.
    """
    prompts = Prompts(config.prompts)
    played = cast(name, config.roles).items()
    models: dict[str, Model] = {}
    for role, model in played:
        own = model != name and "base_url" in config.models.get(model, {})
        models[role] = resolve_model(model, config, base_url=None if own else base_url)
    team = Team(models, prompts)
    if expected is not None and team.base_url != expected:
        raise UsageError(
            f"the run asked {name} at {expected}, and now it would be at {team.base_url}",
            f"--base-url {expected} if that address is meant, and trusted with the key",
        )
    check_models(models.values(), usd=usd, check=check)
    return team

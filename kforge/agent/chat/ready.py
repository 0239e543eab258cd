"""The check, before any work, that a model can be used: a price where money is limited; address, key and name right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kforge.agent.chat.caller import price_hint
from kforge.agent.chat.endpoint import Endpoint
from kforge.agent.chat.reader import Patience
from kforge.errors import MissingError, ModelError, UsageError

if TYPE_CHECKING:
    from kforge.agent.chat.model import Model

_PROBE = Patience(attempts=2, first=0.5, silence=60.0, longest=20.0, whole=60.0)


def check_models(
    models: Iterable[Model],
    *,
    usd: float | None = None,
    check: Callable[[], None] = lambda: None,
    patience: Patience = _PROBE,
) -> None:
    """Ask each model, once, for one token. usd: the budget in money, None where there is none.

    UsageError: the price is unknown under a budget in money, or the endpoint has no such model. ModelError: the key is
    refused. MissingError: nobody answers.
    """
    seen: set[tuple[str, str]] = set()
    for model in models:
        if usd is not None and model.prices is None:
            raise UsageError(f"--usd: the price of {model.name} is unknown", price_hint(model))
        if (model.name, model.base_url) in seen:
            continue
        seen.add((model.name, model.base_url))
        try:
            Endpoint(model, patience).probe(check)
        except ModelError as error:
            if type(error) is ModelError and "gave no answer" in error.message:
                raise MissingError(
                    f"model {model.name} cannot be reached at {model.base_url}: {error.message.partition(': ')[2]}",
                    "is the endpoint running? choose another by --base-url, or leave --model out",
                ) from error
            raise

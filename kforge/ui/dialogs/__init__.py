"""Dialogs that stand before something is written: they show the evidence and return what was decided."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.ui.dialogs.accept import AcceptScreen as AcceptScreen
    from kforge.ui.dialogs.export import ExportScreen as ExportScreen

_HOMES = {"AcceptScreen": "accept", "ExportScreen": "export"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""The panes beside the editor: widgets that take the core's events by `on_core_event` and say actions by messages."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.ui.panes.diff import DiffPane as DiffPane
    from kforge.ui.panes.log import LogPane as LogPane
    from kforge.ui.panes.profile import ProfilePane as ProfilePane
    from kforge.ui.panes.timeline import TimelinePane as TimelinePane
    from kforge.ui.panes.tree import TreePane as TreePane

_HOMES = {
    "DiffPane": "diff",
    "LogPane": "log",
    "ProfilePane": "profile",
    "TimelinePane": "timeline",
    "TreePane": "tree",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""Where evidence comes from: one file a source. A source that is absent here raises Unavailable with its reason."""

from __future__ import annotations


class Unavailable(Exception):
    """A source has nothing to say on this machine. reason: why. remedy: what its user or administrator can do."""

    def __init__(self, source: str, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.source, self.reason, self.remedy = source, reason, remedy

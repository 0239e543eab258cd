"""How the direction of an attempt and its idea are said together. Words only: the IDE reads it too."""

from __future__ import annotations


def tried(direction: str, idea: str) -> str:
    """The kind of change and the idea, without saying the same twice: the engine's directions repeat its ideas."""
    bare = direction.partition(":")[2] or direction
    return idea if bare in idea else ": ".join(filter(None, (direction, idea)))

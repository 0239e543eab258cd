"""The standing rules of a run: op.py's, the command's and the steers', added and released meanwhile. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kforge.agent.control import Steer
from kforge.agent.steering import rules
from kforge.errors import UsageError
from kforge.task.constraints import Constraint

TASK = "op.py"


class Standing:
    """tell("constraint", name=..., action="added" | "removed", origin=...) is called for each change."""

    def __init__(self, task: Iterable[Constraint], tell: Callable[..., None]) -> None:
        self._task = tuple(task)
        self._tell = tell
        self._lock = threading.RLock()
        self._added: dict[str, tuple[Constraint, str]] = {}  # by name, with the origin

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """Each name once; of two limits of one name the tighter."""
        with self._lock:
            found: dict[str, Constraint] = {}
            for rule in (*self._task, *(rule for rule, _ in self._added.values())):
                known = found.get(rule.name)
                if known is None or (rule.value is not None and known.value is not None and rule.value < known.value):
                    found[rule.name] = rule
            return tuple(found.values())

    def origin(self, name: str) -> str:
        """Who asked for the rule of this name; "" where none stands."""
        with self._lock:
            if name in self._added:
                return self._added[name][1]
            return TASK if any(rule.name == name for rule in self._task) else ""

    def add(self, rule: Constraint, origin: str) -> None:
        """From now on; a limit takes the place of an earlier one of its name, op.py's excepted."""
        with self._lock:
            if self._added.get(rule.name, (None, ""))[0] == rule:
                return
            self._added[rule.name] = (rule, origin)
        self._tell("constraint", name=str(rule), action="added", origin=origin)

    def constrain(self, rule: str | Constraint, origin: str) -> tuple[Constraint, ...]:
        """Add a rule, or those that free text asks for. UsageError where it asks for none."""
        found = (rule,) if isinstance(rule, Constraint) else rules(rule)
        if not found:
            from kforge.task.constraints import available

            raise UsageError(f"no standing rule is meant by {rule!r}", f"rules: {available()}")
        for item in found:
            self.add(item, origin)
        return found

    def release(self, name: str) -> Constraint:
        """Not checked any more. UsageError for one of op.py's, or one that does not stand."""
        name = name.partition("=")[0].strip()
        with self._lock:
            if name not in self._added:
                if any(rule.name == name for rule in self._task):
                    raise UsageError(f"{name} stands in op.py's CONSTRAINTS", "take it out there")
                standing = ", ".join(self._added) or "none"
                raise UsageError(f"no rule {name!r} stands", f"rules that can be released: {standing}")
            rule, origin = self._added.pop(name)
        self._tell("constraint", name=str(rule), action="removed", origin=origin)
        return rule

    def steered(self, steer: Steer, state: str) -> None:
        """The rules of a steer stand from when it is heard, a queued one's from when it is taken; a changed or dropped
        one's earlier rules are released."""
        origin = f"steer {steer.id}"
        heard = state in ("received", "edited") if steer.when == "now" else state == "taken"
        wanted = rules(steer.text) if heard else ()
        if state in ("edited", "dropped"):
            with self._lock:
                stale = [n for n, (rule, who) in self._added.items() if who == origin and rule not in wanted]
            for name in stale:
                self.release(name)
        for rule in wanted:
            self.add(rule, origin)

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take over one recorded change (resume)."""
        if kind != "constraint":
            return
        from kforge.task.constraints import parse_constraint

        rule = parse_constraint(data["name"])
        with self._lock:
            if data["action"] == "added":
                self._added[rule.name] = (rule, str(data.get("origin") or ""))
            else:
                self._added.pop(rule.name, None)

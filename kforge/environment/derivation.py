"""Derived shapes of a task: which sizes of its inputs may change, and a maker of inputs for each kind of shape."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kforge.environment.expected import Skip
from kforge.environment.shapes import Sizes, derive, find_sizes, resize, tied_sizes
from kforge.errors import TaskError

if TYPE_CHECKING:
    import torch

    from kforge.environment.preparation import Prepared
    from kforge.task import Call, Task

MULTIPLES = (1, 2, 8)  # tried in turn where the reference rejects a derived size
DERIVED = 4.0


class Derivation:
    """Found out once a task. task: the task with a maker for each shape that was asked for. like: one to go on from."""

    def __init__(self, prepared: Prepared, like: Derivation | None = None) -> None:
        self.prepared = prepared
        self.task: Task = like.task if like else prepared.task
        self._sizes: dict[int, Sizes] = dict(like._sizes) if like else {}
        # (variant, kind) -> number of a maker, or why there is none
        self._numbers: dict[tuple[int, str], int | str] = dict(like._numbers) if like else {}

    def number(self, variant: int, kind: str) -> int:
        """The number of the maker of this shape among those of `task`. Skip with the reason where there is none."""
        key = (variant, kind)
        if key not in self._numbers:
            self._numbers[key] = self._derive(*key)
        found = self._numbers[key]
        if isinstance(found, str):
            raise Skip(found)
        return found

    def sizes(self, variant: int) -> Sizes:
        """Which dimensions of a variant's inputs may change, and which of them together."""
        if variant not in self._sizes:
            from kforge.task.state import named_state

            module = self.prepared.reference(0)
            call = self.prepared.task.make_call(variant, self.prepared.seed("sizes", variant), self.prepared.device)
            tied = tied_sizes(list(named_state(module).values()), self.prepared.task.init_call())
            self._sizes[variant] = find_sizes(call, tied, lambda other: self._runs(module, other))
        return self._sizes[variant]

    def leniency(self, variant: int, kind: str) -> float:
        """How much wider the bounds on errors are for this shape.

        Derived sizes look for wrong indices. Precision is asked for where the task is: a sum over 32 rows as good as
        torch's may be worse over 1000, since its error grows with the root of their number and torch's hardly.
        """
        sizes = self.sizes(variant)
        growth = max((n / sizes.given[s] for s, n in (derive(sizes, kind) or {}).items()), default=1.0)
        return DERIVED * math.sqrt(max(1.0, growth))

    def _derive(self, variant: int, kind: str) -> int | str:
        """Adds a maker of this shape; the number that it got, or in words why there is none."""
        sizes = self.sizes(variant)
        new = derive(sizes, kind)
        if new is None:
            return f"no size of the inputs can be {kind}" if sizes.given else "every size is tied to the state"
        number, task = self.task.n_variants, self.prepared.task
        for multiple in MULTIPLES:  # halves, heads and groups need even sizes and more
            rounded = {s: n if n == sizes.given[s] else -(-n // multiple) * multiple for s, n in new.items()}

            def make(to: dict[int, int] = rounded) -> Any:
                call = resize(task.draw(variant), sizes, to)
                return call.kwargs if call.kwargs else list(call.args)

            extended = replace(self.task, makers=(*self.task.makers, make))
            try:
                call = extended.make_call(number, self.prepared.seed("sizes", variant), self.prepared.device)
            except TaskError:  # a maker that changes its sizes, an index into nothing
                continue
            if self._runs(self.prepared.reference(0), call):
                self.task = extended
                return number
        return f"the reference rejects shape {kind}"

    def _runs(self, module: torch.nn.Module, call: Call) -> bool:
        from kforge.task import observe

        try:
            observe(self.prepared.task, copy.deepcopy(module) if self.prepared.stateful else module, call, seed=0)
        except Exception:  # whatever the reference raises at sizes that nobody promised it takes
            return False
        return True

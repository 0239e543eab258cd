"""Does every input and parameter influence the answer as it does the reference's? (knowledge/hacks.md 15)

A term that tolerance hides is made large: an input or a parameter is scaled until the reference's answer changes by
more than any tolerance, and the candidate's must follow. What cannot be made to show is listed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.environment.expected import Expected, Skip
from kforge.environment.inputs import Case
from kforge.environment.preparation import Prepared
from kforge.environment.trees import map_tensors

if TYPE_CHECKING:
    import torch

FACTORS = (1.5, -(2.0**8), 2.0**16, 2.0**32)  # tried in turn until the reference's answer moves
SHOWS = 1e-2  # RMS change of an output, relative to its own RMS, that no tolerance hides
FOLLOWS = 0.5  # of that change, how far the candidate's answer may be from the right one
MOST = 24  # inputs and parameters that are tried


@dataclass(frozen=True)
class Change:
    """One input or parameter scaled. state: what the candidate is loaded with, None where it is an input."""

    name: str
    before: Expected
    after: Expected
    state: dict[str, torch.Tensor] | None


def changes(prepared: Prepared, case: Case) -> Iterator[Change | str]:
    """For each floating input and each parameter a change that shows; its name where none does."""
    from kforge.task import call_leaves
    from kforge.task.call import tensors
    from kforge.task.state import named_state

    before = prepared.expected(case)
    module = prepared.reference(case.state_seed)
    ranges = prepared.task.domain.ranges
    paths = [
        path
        for path, t in tensors(call_leaves(before.call, module.forward))
        if t.dtype.is_floating_point and path not in ranges
    ]
    names = [name for name, t in named_state(module).items() if t.dtype.is_floating_point]
    for name, is_input in [*((p, True) for p in paths), *((n, False) for n in names)][:MOST]:
        found: Change | str = f"input {name}" if is_input else name
        for factor in FACTORS:
            with suppress(Skip):
                change = _scaled_input if is_input else _scaled_state
                made = change(prepared, case, before, name, factor)
                if any(_share(made, i) >= SHOWS for i in range(len(before.exact))):
                    found = made
                    break
        yield found


def follows(change: Change, outputs: list[Any]) -> str:
    """In words, which output does not follow the change; empty for none. outputs: leaves of the candidate's answer."""
    for i, ((path, _), exact) in enumerate(zip(change.after.leaves, change.after.exact, strict=True)):
        if exact is None or _share(change, i) < SHOWS:
            continue
        moved = _rms(exact - _exact(change.before, i))
        got = outputs[i].double() if not outputs[i].dtype.is_complex else exact
        if not _rms(got.nan_to_num(0.0, 0.0, 0.0) - exact.nan_to_num(0.0, 0.0, 0.0)) <= FOLLOWS * moved:
            return f"{path} does not follow {change.name}: scaled, it moves the reference's by {moved:.3g} (RMS)"
    return ""


def _share(change: Change, i: int) -> float:
    before, after = change.before.exact[i], change.after.exact[i]
    if before is None or after is None or not before.numel() or not bool(after.isfinite().all()):
        return 0.0
    return _rms(after - before) / max(_rms(before), 1e-300)


def _exact(expected: Expected, i: int) -> torch.Tensor:
    exact = expected.exact[i]
    assert exact is not None
    return exact


def _rms(x: torch.Tensor) -> float:
    return float(x.square().mean().sqrt())


def _times(x: torch.Tensor, factor: float) -> torch.Tensor:
    """x times a number; torch multiplies no floats of eight bits."""
    return (x.float() * factor).to(x.dtype) if x.element_size() == 1 else x * factor


def _scaled_input(prepared: Prepared, case: Case, before: Expected, path: str, factor: float) -> Change:
    module = prepared.reference(case.state_seed)
    scaled = map_tensors(before.call, lambda name, x: _times(x, factor) if name == path else x, module.forward)
    return Change(f"input {path}", before, prepared.answer(module, case, scaled), None)


def _scaled_state(prepared: Prepared, case: Case, before: Expected, name: str, factor: float) -> Change:
    import torch

    from kforge.task import read_state
    from kforge.task.state import named_state

    module = copy.deepcopy(prepared.reference(case.state_seed))
    with torch.no_grad():
        state = named_state(module)[name]
        state.copy_(_times(state, factor))
    after = prepared.answer(module, case, before.call)
    return Change(name, before, after, read_state(module).tensors)

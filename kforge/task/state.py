"""State of a module: parameters and buffers by name, copied between modules and randomised for the input plan."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kforge.task.call import Call, clone_call

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class State:
    """Tensors by name. persistent: the names that are in the state_dict; the others are non-persistent buffers."""

    tensors: dict[str, torch.Tensor] = field(hash=False)
    persistent: frozenset[str]


@dataclass(frozen=True)
class StateMismatch:
    """What a copy could not match. Empty means that the destination's state is the source's.

    missing: in the source's state_dict, not in the destination's. unexpected: the other way round.
    rejected: torch's message for a shape that differs.
    """

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    rejected: str = ""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.rejected)

    def __str__(self) -> str:
        parts = [f"missing in ModelNew: {', '.join(self.missing)}"] if self.missing else []
        parts += [f"not in the reference: {', '.join(self.unexpected)}"] if self.unexpected else []
        parts += [self.rejected] if self.rejected else []
        return "; ".join(parts)


def named_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every parameter and buffer by name, non-persistent buffers included, tied ones under each name."""
    found: dict[str, torch.Tensor] = dict(module.named_parameters(remove_duplicate=False))
    found.update(module.named_buffers(remove_duplicate=False))
    return found


def read_state(module: torch.nn.Module) -> State:
    """A copy of the module's state that later calls do not change."""
    names = frozenset(module.state_dict())
    return State({name: t.detach().clone() for name, t in named_state(module).items()}, names)


def copy_state(src: torch.nn.Module | State, dst: torch.nn.Module) -> StateMismatch:
    """Load the source's state_dict into `dst`, then non-persistent buffers by name where both have them.

    load_state_dict runs, so that a candidate may repack weights in its hooks. Differences come back as data.
    """
    import torch

    state = src if isinstance(src, State) else read_state(src)
    persistent = {name: t for name, t in state.tensors.items() if name in state.persistent}
    try:
        result = dst.load_state_dict(persistent, strict=False)
    except RuntimeError as error:  # torch reports shapes that differ this way only
        return StateMismatch(rejected=str(error).strip().splitlines()[-1].strip())
    theirs, own = named_state(dst), dst.state_dict()
    with torch.no_grad():
        for name, t in state.tensors.items():
            free = name not in state.persistent and name in theirs and name not in own
            if free and theirs[name].shape == t.shape:
                theirs[name].copy_(t)
    return StateMismatch(tuple(sorted(result.unexpected_keys)), tuple(sorted(result.missing_keys)))


def running_statistics(module: torch.nn.Module, call: Call) -> tuple[str, ...]:
    """Floating buffers that one training call changes, by making it on a copy. Raises what that call raises."""
    import torch

    trial = copy.deepcopy(module).train()
    before = {name: t.detach().clone() for name, t in trial.named_buffers()}
    copied = clone_call(call)
    with torch.no_grad():
        trial(*copied.args, **copied.kwargs)
    return tuple(
        name
        for name, t in trial.named_buffers()
        if t.is_floating_point() and name in before and not torch.equal(t, before[name])
    )


def randomise_state(module: torch.nn.Module, seed: int, running: Iterable[str] | None = None) -> None:
    """Redraw floating parameters and running statistics in place, the same on every device for one seed.

    A parameter keeps its mean and spread (one that is constant gets a spread of 0.5, so that an ignored scale or bias
    shows); running variances are log-normal (sigma 0.5), means normal (0.5). Other buffers keep their values.
    running: names from `running_statistics`; None takes those of torch's own normalisation layers.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    chosen = set(torch_statistics(module) if running is None else running)
    with torch.no_grad():
        for _, parameter in sorted(module.named_parameters()):
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator)
                value = parameter.detach().double().cpu()
                spread = value.std().item() if value.numel() > 1 else 0.0
                parameter.copy_(value.mean().item() + (spread or 0.5) * noise)
        for name, buffer in sorted(module.named_buffers()):
            if name in chosen and buffer.is_floating_point():
                noise = 0.5 * torch.randn(buffer.shape, generator=generator)
                buffer.copy_(noise.exp() if _is_variance(name, buffer) else noise)


def torch_statistics(module: torch.nn.Module) -> tuple[str, ...]:
    """Names of the running means and variances of torch's own normalisation layers."""
    import torch

    return tuple(
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if isinstance(part, torch.nn.modules.batchnorm._NormBase)
        for name in ("running_mean", "running_var")
    )


def _is_variance(name: str, buffer: torch.Tensor) -> bool:
    """By its name, else a statistic that started strictly positive (variances start at one, means at zero)."""
    last = name.rsplit(".", 1)[-1].lower()
    return "var" in last or ("mean" not in last and bool((buffer > 0).all()))

"""The baselines of one task in the judge's process: made once, ranked once (the order is kept on disk, times never)."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kforge.environment.preparation import Prepared
from kforge.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from kforge.task import Call

QUICK = ("eager", "compile_default")
RANKED = 2  # the fastest of the ladder that are timed beside the candidate
_CALLS = 20
_KEPT_BYTES = 1 << 30  # of inputs of one variant that are kept
_BATCH_S = 0.3  # of one baseline while it is ranked
_COMPILING_S = 60.0  # after which no further baseline of the ladder begins to compile

Tell = Callable[[str], None]


def timing_call(prepared: Prepared, variant: int) -> Call:
    """The task's own inputs, never zeros (up to 13 % too fast), never those of the correctness cases.

    Drawn once while they are small beside a GPU's memory, and copied for each use, which may change them.
    """
    from kforge.task import call_leaves, clone_call
    from kforge.task.call import tensors

    if variant in prepared.timed:
        return clone_call(prepared.timed[variant])
    made = prepared.task.make_call(variant, prepared.seed("timing", variant), prepared.device)
    if sum(t.nbytes for _, t in tensors(call_leaves(made))) > _KEPT_BYTES:
        return made
    prepared.timed[variant] = made
    return clone_call(made)


def silent(text: str) -> None:
    """A Tell for nobody."""


def baselines(prepared: Prepared, names: Iterable[str], tell: Tell = silent) -> dict[str, Callable[..., Any]]:
    """Callables by name, compiled once a task. What does not compile is left out and noted in `prepared.notes`, and so
    is what has not begun to after a minute (eager and compile-default always are); the slowest to compile come last.

    tell: is told what compiles.
    """
    import torch

    from kforge.profiling.baselines import make_baseline, with_strides_of
    from kforge.task import matmul_precision

    names = tuple(names)
    started = time.monotonic()
    for name in sorted(names, key=_cost):
        if name in prepared.baselines:
            continue
        if name not in QUICK and time.monotonic() - started > _COMPILING_S:
            prepared.notes.append(f"baseline {name} left out: compiling the others took {_COMPILING_S:.0f} s")
            tell(prepared.notes[-1])
            continue
        if name != "eager":
            tell(f"compiling baseline {name}")
        function = make_baseline(name, copy.deepcopy(prepared.reference(0)))
        call = timing_call(prepared, 0)
        try:
            with torch.no_grad(), matmul_precision(prepared.task.precision):
                outputs = function(*call.args, **call.kwargs)
                if name.endswith("_channels_last"):
                    expected = copy.deepcopy(prepared.reference(0))(*call.args, **call.kwargs)
                    function = with_strides_of(function, expected, outputs)
        except Exception as error:  # a compiler may raise anything; eager is always there
            if name == "eager":
                raise
            prepared.notes.append(f"baseline {name} does not run: {type(error).__name__}")
            prepared.baselines[name] = None
            continue
        prepared.baselines[name] = function
    return {name: fn for name in names if (fn := prepared.baselines.get(name)) is not None}


def _cost(name: str) -> int:
    """Order of compile times; those that must be there come first."""
    return 0 if name in QUICK else 2 if "max_autotune" in name else 1


def user_baseline(prepared: Prepared, spec: str) -> tuple[str, Callable[..., Any]]:
    """The user's own function under its name. UsageError when it is missing, fails, or computes something else."""
    import torch

    from kforge.profiling.agreement import agree
    from kforge.profiling.baselines import find_object
    from kforge.task import matmul_precision

    name = f"user:{spec.rpartition(':')[2]}"
    if prepared.baselines.get(name) is None:
        function = find_object(spec)
        mine, theirs = timing_call(prepared, 0), timing_call(prepared, 0)
        try:
            with torch.no_grad(), matmul_precision(prepared.task.precision):
                found = function(*theirs.args, **theirs.kwargs)
                expected = copy.deepcopy(prepared.reference(0))(*mine.args, **mine.kwargs)
        except Exception as error:  # the user's code may raise anything
            raise UsageError(f"--baseline {spec} fails: {type(error).__name__}: {error}") from error
        if not agree(expected, found):
            raise UsageError(
                f"--baseline {spec} does not compute what the reference does",
                "it is called with the task's inputs and must return the reference's outputs",
            )
        prepared.baselines[name] = function
    chosen = prepared.baselines[name]
    assert chosen is not None
    return name, chosen


def baseline_times(prepared: Prepared) -> dict[str, float]:
    """Median milliseconds of eager and compile-default, measured once; a baseline that does not compile is absent."""
    if not prepared.baseline_ms:
        prepared.baseline_ms.update(_alone(prepared, 0, QUICK, graphs=False))
    return prepared.baseline_ms


def baseline_no_room(prepared: Prepared) -> bool:
    """Whether the faster of eager and compile-default lies within 5 % of the floor; the judge alone measures."""
    from kforge.profiling.roofline import no_room

    floor = prepared.floor(0)
    if floor is None:
        return False
    times = baseline_times(prepared)
    return no_room(times["eager"], times.get("compile_default"), floor)


def ranking(prepared: Prepared, variant: int, tell: Tell = silent) -> tuple[str, ...]:
    """The whole ladder, fastest first (each under its best wrapper); from the cache where this GPU ranked it before.

    An order that lacks a baseline for want of time is not kept.
    """
    path = _path(prepared, variant)
    names = _names(prepared, variant)
    if (kept := _read(path)) is not None and set(kept) <= set(names):
        return kept
    times = _alone(prepared, variant, names, graphs=True, tell=tell)
    order = tuple(sorted(times, key=times.__getitem__))
    if not set(names) <= prepared.baselines.keys():
        return order
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(order))
    fresh.replace(path)
    return order


def rungs(prepared: Prepared, tell: Tell = silent) -> list[tuple[str, str, float]]:
    """(name, wrapper, median milliseconds) of the whole ladder on the first variant, the judge alone on the GPU."""
    import torch

    from kforge.task import matmul_precision
    from kforge.worker import gpu_lock
    from kforge.worker.timer import make_timer

    call = timing_call(prepared, 0)
    timer = make_timer(prepared.device)
    found = []
    with torch.no_grad(), matmul_precision(prepared.task.precision):
        made = baselines(prepared, _names(prepared, 0), tell)
        with gpu_lock(prepared.device):
            for name, function in made.items():
                found += [(name, wrapper, _median_ms(timer, way)) for wrapper, way in _ways(function, call).items()]
    return found


def _names(prepared: Prepared, variant: int) -> tuple[str, ...]:
    from kforge.profiling.baselines import ladder

    return ladder(convolution=_has_convolution(prepared, variant))


def _has_convolution(prepared: Prepared, variant: int) -> bool:
    """A convolution, and an input of four or five dimensions to lay out for it."""
    import torch
    from torch.utils import _pytree as pytree

    call = timing_call(prepared, variant)
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    if not any(isinstance(leaf, torch.Tensor) and leaf.dim() in (4, 5) for leaf in leaves):
        return False
    graph_module = prepared.capture(variant).graph_module
    if graph_module is None:
        kinds = (torch.nn.modules.conv._ConvNd,)
        return any(isinstance(module, kinds) for module in prepared.reference(0).modules())
    return any("convolution" in str(node.target) for node in graph_module.graph.nodes if node.op == "call_function")


def _alone(
    prepared: Prepared, variant: int, names: tuple[str, ...], graphs: bool, tell: Tell = silent
) -> dict[str, float]:
    """Median milliseconds of each, the judge alone on the GPU; the better of plain and graph where `graphs`."""
    import torch

    from kforge.task import matmul_precision
    from kforge.worker import gpu_lock
    from kforge.worker.timer import make_timer

    call = timing_call(prepared, variant)
    timer = make_timer(prepared.device)
    times: dict[str, float] = {}
    with torch.no_grad(), matmul_precision(prepared.task.precision):
        made = baselines(prepared, names, tell)
        with gpu_lock(prepared.device):
            for name, function in made.items():
                try:
                    times[name] = _best_ms(timer, function, call, graphs)
                except Exception as error:  # as in `baselines`: what compiled for one variant may not for another
                    if name == "eager":
                        raise
                    prepared.notes.append(f"baseline {name}, variant {variant}: {type(error).__name__}")
    return times


def _best_ms(timer: Any, function: Callable[..., Any], call: Call, graphs: bool) -> float:
    return min(_median_ms(timer, way) for way in _ways(function, call, graphs).values())


def _ways(function: Callable[..., Any], call: Call, graphs: bool = True) -> dict[str, Callable[[], Any]]:
    """The call by wrapper, warmed up."""
    from kforge.worker.timer import graphed

    def plain() -> Any:
        return function(*call.args, **call.kwargs)

    ways: dict[str, Callable[[], Any]] = {"plain": plain}
    for _ in range(3):
        plain()
    if graphs and not getattr(function, "captures_itself", False):
        with contextlib.suppress(RuntimeError):  # what cannot be captured is ranked by its plain calls
            ways["graph"] = graphed(function, call.args, call.kwargs)
    return ways


def _median_ms(timer: Any, way: Callable[[], Any]) -> float:
    once = timer.batch(way, 1)[0]
    samples = sorted(timer.batch(way, max(3, min(_CALLS, int(_BATCH_S * 1e3 / max(once, 1e-3))))))
    return float(samples[len(samples) // 2])


def _path(prepared: Prepared, variant: int) -> Path:
    import torch

    from kforge.environment.target import target_name
    from kforge.kernel.build.cache import cache_root, content_key

    key = content_key(
        task=prepared.task.digest + ("" if prepared.task.gradients is None else " and gradients"),
        variant=variant,
        gpu=target_name(prepared.device),
        torch=torch.__version__,
        precision=prepared.task.precision.value,
    )
    return cache_root() / "rankings" / f"{key}.json"


def _read(path: Path) -> tuple[str, ...] | None:
    """A kept order; None where there is none or it cannot be read (it is made again)."""
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return tuple(kept) if isinstance(kept, list) and kept and all(isinstance(name, str) for name in kept) else None

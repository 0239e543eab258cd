"""The settings ladder as an answer: memory format, compile mode and CUDA graph under which torch itself is fastest.

No kernel and never called one: where nothing beats the best setting, the user gets that setting as a module of its own
name. What was measured is the baselines' ladder (environment/ladder.py); only settings at the task's own precision are
in it, so that each computes what eager computes within the acceptance rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.engine.emit.kernelcode import render
from kforge.engine.emit.text import fold

if TYPE_CHECKING:
    from kforge.task import Task

CHANNELS_LAST = "_channels_last"
MODES = {
    "compile_default": "",
    "compile_reduce_overhead": "reduce-overhead",
    "compile_max_autotune": "max-autotune-no-cudagraphs",
}


@dataclass(frozen=True)
class Setting:
    """One rung: a baseline's name ("compile_default_channels_last"), plain or in a CUDA graph, and its milliseconds."""

    name: str
    wrapper: str
    ms: float
    eager_ms: float

    @property
    def gain(self) -> float:
        """Eager's time over this one's."""
        return self.eager_ms / self.ms

    @property
    def words(self) -> str:
        """What the user would switch on."""
        base = self.name.removesuffix(CHANNELS_LAST)
        mode = MODES.get(base)
        parts = ["eager" if mode is None else "torch.compile" + (f"({mode})" if mode else "")]
        parts += ["channels-last"] if self.name.endswith(CHANNELS_LAST) else []
        parts += ["CUDA graph"] if self.wrapper == "graph" else []
        return " + ".join(parts)

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"gain": self.gain, "settings": self.words}


def best_setting(times: Iterable[tuple[str, str, float]], noise: float = 0.02) -> Setting | None:
    """The fastest rung of (name, wrapper, milliseconds); None where plain eager is within `noise` of it.

    Names that are no rung (the candidate, the user's own baseline) and other wrappers are left out.
    """
    known = [
        (n, w, ms)
        for n, w, ms in times
        if w in ("plain", "graph") and (n.removesuffix(CHANNELS_LAST) in (*MODES, "eager"))
    ]
    eager = min((ms for n, w, ms in known if (n, w) == ("eager", "plain")), default=None)
    if eager is None:
        return None
    name, wrapper, ms = min(known, key=lambda rung: rung[2])
    return Setting(name, wrapper, ms, eager) if ms < eager * (1 - noise) else None


def settings_module(task: Task, setting: Setting, target: str) -> dict[str, str]:
    """{file name: text} of a module `Settings` that runs the reference of op.py under a setting.

    target: the GPU on which it was measured. The class takes what the reference takes; for the other forms, nothing.
    """
    base = setting.name.removesuffix(CHANNELS_LAST)
    mode = MODES.get(base)
    note = (
        f"Settings alone, no kernel: {setting.words} takes {setting.ms:.4g} ms on {target}, eager "
        f"{setting.eager_ms:.4g} ms ({setting.gain:.2f}x). No kernel that was tried is faster. It holds for this GPU "
        "and this version of torch; other shapes compile and capture anew."
    )
    name = task.path.stem
    text = render(
        "candidate/settings.py.j2",
        title=f"{name}: the library settings under which torch runs the reference of {task.path.name} fastest.",
        notes=_wrapped(note),
        file=task.path.name,
        path=str(Path(task.path).resolve()),
        stem=name,
        name=getattr(task.reference, "__name__", "reference"),
        is_module=task.form.value == "module",
        channels_last=setting.name.endswith(CHANNELS_LAST),
        compiled=None if mode is None else f'mode="{mode}", ' if mode else " ",
        graph=setting.wrapper == "graph",
    )
    lines = [
        part
        for line in text.replace("( dynamic", "(dynamic").replace(",  dynamic", ", dynamic").splitlines()
        for part in fold(line)
    ]
    return {f"{name}_settings.py": "\n".join(lines).rstrip() + "\n"}


def _wrapped(text: str, width: int = 110) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines

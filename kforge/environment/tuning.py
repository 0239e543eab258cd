"""Tuning: the environment searches a candidate's `tune` space and writes the winners into its source (CONTRACTS 2).

Each configuration passes plan `quick` before it is timed. The winner becomes `tuned=[(True, {...})]` in the Kernel(...)
call, which makes a new candidate with a new hash; only that one's evaluation carries a verdict.
"""

from __future__ import annotations

import ast
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kforge.environment.report import Report, Status

if TYPE_CHECKING:
    from kforge.environment.preparation import Prepared
    from kforge.kernel.candidate import Candidate
    from kforge.task import Task
    from kforge.worker import Zygote

Constant = int | float | bool | str
EXHAUSTIVE = 24  # configurations up to which a kernel's whole space is tried; beyond, one constant at a time


@dataclass(frozen=True)
class Space:
    """The tuning space that one Kernel(...) call declares. declared: its constants as written."""

    kernel: str
    declared: Mapping[str, Constant]
    tune: Mapping[str, tuple[Constant, ...]]

    @property
    def size(self) -> int:
        return math.prod(len(values) for values in self.tune.values())


@dataclass(frozen=True)
class Row:
    """One configuration tried. ms: the candidate's median, None where it was not right or not timed."""

    kernel: str
    constants: dict[str, Constant]
    status: str
    ms: float | None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.kernel, self.constants, self.status, self.ms))


def tune(
    task: Task,
    candidate: Candidate,
    prepared: Prepared,
    zygote: Zygote,
    budget: float = 30.0,
    *,
    judge: Callable[[Mapping[str, Mapping[str, Constant]]], Report] | None = None,
) -> tuple[Candidate, list[Row]]:
    """The candidate with its best constants written in, and every configuration tried (declared ones first).

    budget: seconds. Without a GPU, without a `tune` space, or when nothing beats the declared constants, the candidate
    comes back as it is. judge: evaluates one set of overrides (default: `evaluate` on plan quick with timing).
    """
    spaces = tuning_spaces(candidate.files[candidate.module])
    if not spaces or (judge is None and prepared.device == "cpu"):
        return candidate, []
    if judge is None:
        judge = _judge(task, candidate, prepared, zygote)
    end = time.monotonic() + budget
    rows: list[Row] = []
    best: dict[str, dict[str, Constant]] = {}
    for space in spaces:
        found = _search(space, best, judge, rows, end)
        if found:
            best[space.kernel] = found
    if not best:
        return candidate, rows
    text = candidate.files[candidate.module]
    for kernel, constants in best.items():
        text = write_tuned(text, kernel, [(True, constants)])
    tuned = candidate.with_file(candidate.module, text)
    return replace(tuned, idea=f"tuned: {_describe(best)}"), rows


def _judge(
    task: Task, candidate: Candidate, prepared: Prepared, zygote: Zygote
) -> Callable[[Mapping[str, Mapping[str, Constant]]], Report]:
    from kforge.environment.evaluation import evaluate

    def run(overrides: Mapping[str, Mapping[str, Constant]]) -> Report:
        return evaluate(
            task,
            candidate,
            "quick",
            device=prepared.device,
            zygote=zygote,
            reference=prepared,
            overrides=overrides,
            repro=None,
        )

    return run


def _search(
    space: Space,
    others: Mapping[str, Mapping[str, Constant]],
    judge: Callable[[Mapping[str, Mapping[str, Constant]]], Report],
    rows: list[Row],
    end: float,
) -> dict[str, Constant] | None:
    """The fastest right configuration of one kernel, or None where the declared one stays best."""
    seen: dict[tuple[tuple[str, Constant], ...], float] = {}

    def ms(constants: dict[str, Constant]) -> float:
        key = tuple(sorted(constants.items()))
        if key not in seen:
            report = judge({**others, space.kernel: constants})
            right = report.status is Status.VERIFIED
            took = report.times_ms.get("candidate") if right else None
            rows.append(Row(space.kernel, dict(constants), report.status.value, took))
            seen[key] = math.inf if took is None else took
        return seen[key]

    start = {name: space.declared[name] for name in space.tune if name in space.declared}
    best, best_ms = start, ms(start)
    for change in _changes(space):
        if time.monotonic() > end:
            break
        constants = {**best, **change}
        took = ms(constants)
        if took < best_ms:
            best, best_ms = constants, took
    return None if best == start or math.isinf(best_ms) else best


def _changes(space: Space) -> Iterator[dict[str, Constant]]:
    """The whole space where it is small; else each constant in turn around the best so far, twice over."""
    names = list(space.tune)
    if space.size <= EXHAUSTIVE:
        for values in itertools.product(*space.tune.values()):
            yield dict(zip(names, values, strict=True))
        return
    for name in names * 2:
        for value in space.tune[name]:
            yield {name: value}


def tuning_spaces(source: str) -> list[Space]:
    """The spaces that literal `constants=` and `tune=` of Kernel(...) calls declare; fixed kernels are left out."""
    spaces = []
    for name, call in _kernel_calls(source):
        keywords = {k.arg: k.value for k in call.keywords if k.arg}
        try:
            declared = ast.literal_eval(keywords["constants"])
            space = {n: tuple(values) for n, values in ast.literal_eval(keywords["tune"]).items()}
        except (KeyError, ValueError):
            continue
        if math.prod(map(len, space.values())) > 1:
            spaces.append(Space(name, declared, space))
    return spaces


def declared_constants(source: str) -> dict[str, dict[str, Constant]]:
    """The literal `constants=` of each Kernel(...) call that has some, by the kernel's name."""
    declared = {}
    for name, call in _kernel_calls(source):
        value = next((k.value for k in call.keywords if k.arg == "constants"), None)
        try:
            constants = ast.literal_eval(value) if value is not None else {}
        except ValueError:
            continue
        if constants and isinstance(constants, dict):
            declared[name] = constants
    return declared


def write_tuned(source: str, kernel: str, tuned: list[tuple[str | bool, Mapping[str, Constant]]]) -> str:
    """The module's text with `tuned=` of this Kernel(...) call set; nothing else changes. KeyError: no such call."""
    text = "[" + ", ".join(f"({condition!r}, {dict(values)!r})" for condition, values in tuned) + "]"
    return _with_keyword(source, kernel, "tuned", text)


def write_constants(source: str, kernel: str, constants: Mapping[str, Constant]) -> str:
    """The module's text with `constants=` of this Kernel(...) call set and what tuning wrote there gone.

    KeyError: no such call.
    """
    source = _with_keyword(source, kernel, "constants", repr(dict(constants)))
    tuned = any(k.arg == "tuned" for name, call in _kernel_calls(source) if name == kernel for k in call.keywords)
    return _with_keyword(source, kernel, "tuned", "[]") if tuned else source


def _with_keyword(source: str, kernel: str, keyword: str, text: str) -> str:
    """The module's text with one keyword of a Kernel(...) call replaced, or added at its end."""
    call = next((call for name, call in _kernel_calls(source) if name == kernel), None)
    if call is None:
        raise KeyError(kernel)
    data = source.encode()
    old = next((k.value for k in call.keywords if k.arg == keyword), None)
    if old is not None:
        begin, end = _offset(data, old.lineno, old.col_offset), _offset(data, old.end_lineno, old.end_col_offset)
        return (data[:begin] + text.encode() + data[end:]).decode()
    last = [*call.args, *(k.value for k in call.keywords)][-1]
    at = _offset(data, last.end_lineno, last.end_col_offset)
    return (data[:at] + f", {keyword}={text}".encode() + data[at:]).decode()


def _kernel_calls(source: str) -> list[tuple[str, ast.Call]]:
    """Kernel("name", ...) and <module>.kernel("name", ...) calls with a literal name, in order of the text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "name"), None)
        if called in ("Kernel", "kernel") and isinstance(first, ast.Constant) and isinstance(first.value, str):
            found.append((first.value, node))
    return sorted(found, key=lambda item: item[1].lineno)


def _offset(data: bytes, line: int | None, column: int | None) -> int:
    """Byte offset of a position of the syntax tree (columns count bytes)."""
    lines = data.splitlines(keepends=True)
    return sum(map(len, lines[: (line or 1) - 1])) + (column or 0)


def _describe(best: Mapping[str, Mapping[str, Constant]]) -> str:
    return "; ".join(f"{k}: " + ", ".join(f"{n}={v}" for n, v in values.items()) for k, values in best.items())

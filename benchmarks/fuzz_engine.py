"""Random small tasks against the engine's candidates, on the emulator: python benchmarks/fuzz_engine.py --seconds 600

A seed is a task: a function of up to eight statements over a grammar of what the engine covers, its inputs made of a
few named sizes. The engine's first candidates are run on those inputs, in other layouts, at other sizes, with special
values, and compared with the reference: shapes, dtypes, strides, infinities and NaN, values against float64. Where the
reference raises, nothing is asked; a size that a candidate refuses by its own error is no failure, anything else is.

Each seed has a process of its own; what fails is printed and appended to --out as one JSON line with the task's text.
--out is also where a run goes on: seeds that it names are not tried again. `--seed N --count 1 --show` repeats one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

try:
    from benchmarks.fuzz_grammar import GROUPS, Value, statements
except ImportError:  # beside a script
    from fuzz_grammar import GROUPS, Value, statements  # type: ignore[no-redef]

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 40, 64, 65, 96, 130)
LIMIT = 20_000  # elements of a value, at most
CASTS = {".half()": torch.float16, ".bfloat16()": torch.bfloat16, ".to(": torch.float16, ".type_as(": torch.float16}
SPECIALS = ("none", "nan", "inf", "zeros", "large", "ties")


@dataclass
class Program:
    """A task: inputs as (name, kind, names of sizes), statements, what is returned; sizes as captured."""

    sizes: dict[str, int]
    inputs: list[tuple[str, str, tuple[str, ...]]]
    lines: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def maker(self, name: str, sizes: dict[str, int]) -> str:
        """The expression that makes an input where sizes are these."""
        kind, shape = next((k, s) for n, k, s in self.inputs if n == name)
        numbers = [sizes[s] for s in shape]
        if kind == "index":
            return f"torch.randint({max(1, numbers[0])}, {tuple(numbers[1:])})"
        if kind == "mask":
            return f"(torch.rand({tuple(numbers)}) > 0.5)"
        return f"torch.randn({tuple(numbers)}, dtype=torch.{kind})"

    @property
    def text(self) -> str:
        names = ", ".join(name for name, _, _ in self.inputs)
        made = ", ".join(self.maker(name, self.sizes) for name, _, _ in self.inputs)
        body = "\n".join(f"    {line}" for line in [*self.lines, f"return {', '.join(self.returned)}"])
        head = "import torch\nimport torch.nn.functional as F\n\n\n"
        return f"{head}def reference({names}):\n{body}\n\n\ndef get_inputs():\n    return [{made}]\n"

    def call(self, sizes: dict[str, int], seed: int) -> list[torch.Tensor]:
        """Inputs at these sizes."""
        torch.manual_seed(seed)
        return [eval(self.maker(name, sizes), {"torch": torch}) for name, _, _ in self.inputs]


def program(seed: int) -> Program:
    """The task of a seed."""
    rng = random.Random(seed)
    rank = rng.choice((1, 2, 2, 3, 3, 4, 4))
    pool = [n for n in SIZES if n <= (12 if rank == 4 else 40 if rank == 3 else 130)]
    sizes = {name: rng.choice(pool) for name in "abcd"[:rank]}
    main = tuple(sizes)
    dtype = rng.choices(("float32", "bfloat16", "float16"), (8, 1, 1))[0]
    inputs: list[tuple[str, str, tuple[str, ...]]] = [("x", dtype, main)]
    others = [main, main[-1:], main[1:], (*main[:-2], *main[-2:][::-1])]
    for name in ("y", "z")[: rng.choice((0, 1, 1, 2))]:
        inputs.append((name, dtype, rng.choice(others)))
    if rng.random() < 0.3:
        sizes["n"] = rng.choice(pool[:10])
        inputs.append(("index", "index", (rng.choice(main), *rng.choice((("n",), (*main[:-1], "n"), main)))))
    if rng.random() < 0.35:
        inputs.append(("mask", "mask", rng.choice(others)))
    made = Program(sizes, inputs)
    values = [Value(name, t, True) for (name, _, _), t in zip(inputs, made.call(sizes, seed), strict=True)]
    group = rng.choice(GROUPS)
    length = rng.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 8))
    for _ in range(40):
        if len(made.lines) == length:
            break
        line, exact = statements(rng, values, group)
        found = _evaluated(line, values)
        if found is None or found.numel() > LIMIT or (not found.numel() and rng.random() < 0.8):
            continue
        if found.is_floating_point() and not bool(found.isfinite().all()):
            continue
        name = f"v{len(made.lines)}"
        made.lines.append(f"{name} = {line}")
        values.append(Value(name, found, exact))
    fresh = [v.name for v in values[len(inputs) :]] or ["x * 2"]
    made.returned = [fresh[-1], *([rng.choice(fresh[:-1])] if len(fresh) > 1 and rng.random() < 0.25 else [])]
    made.returned = list(dict.fromkeys(made.returned))
    return made


def _evaluated(line: str, values: Sequence[Value]) -> torch.Tensor | None:
    """What a statement gives; None where torch does not take it."""
    names = {"torch": torch, "F": torch.nn.functional, **{v.name: v.tensor.clone() for v in values}}
    try:
        found = eval(line, names)
    except (
        RuntimeError,
        IndexError,
        ValueError,
        TypeError,
        NameError,
        AttributeError,
        NotImplementedError,
        ZeroDivisionError,
    ):
        return None
    return found if isinstance(found, torch.Tensor) else None


def layouts(call: list[torch.Tensor], rng: random.Random) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """The same inputs as they are and in three other layouts, all of them or one."""
    from kforge.environment.layouts import LAYOUTS

    yield "contiguous", call
    for name in rng.sample(sorted(set(LAYOUTS) - {"contiguous"}), 3):
        only = rng.choice((None, *range(len(call))))
        yield f"{name} {only}", [LAYOUTS[name](t) if only in (None, k) else t for k, t in enumerate(call)]


def special(call: list[torch.Tensor], kind: str, rng: random.Random) -> list[torch.Tensor]:
    """Inputs with values of a kind."""
    changed = []
    for t in call:
        t = t.clone()
        if t.is_floating_point() and t.numel():
            flat = t.view(-1)
            some = [rng.randrange(t.numel()) for _ in range(max(1, t.numel() // 50))]
            if kind in ("nan", "inf"):
                flat[some] = float(kind) * rng.choice((1, -1))
            elif kind == "zeros":
                flat[some] = rng.choice((0.0, -0.0))
            elif kind == "large":
                flat.mul_(1e3)
            elif kind == "ties":
                flat.copy_(flat.round())
        changed.append(t)
    return changed


def different(want: torch.Tensor, have: torch.Tensor, truth: torch.Tensor | None, coarse: float = 0.0) -> str:
    """In words, what differs; empty where nothing does that a rounding does not explain.

    coarse: the unit of a type that the task casts to on the way, which kernels need not round to.
    """
    if (want.shape, want.dtype) != (have.shape, have.dtype):
        return f"{tuple(have.shape)} {have.dtype}, the reference {tuple(want.shape)} {want.dtype}"
    if want.numel() and _steps(want) != _steps(have):
        return f"strides {have.stride()} of {tuple(have.shape)}, the reference {want.stride()}"
    if not want.is_floating_point():
        sure = torch.ones_like(want, dtype=torch.bool) if truth is None else truth == want
        count = int(((want != have) & sure).sum())
        return f"{count} of {want.numel()} integers differ" if count else ""
    w, h = want.double(), have.double()
    t = w if truth is None else truth.to(want.dtype).double()  # what is too large for the result's type is infinite
    sure = (w.isnan() == t.isnan()) & (w.isinf() == t.isinf())  # else a sum overflows in single precision, or nearly
    sure &= w.isfinite() | (coarse == 0)  # or a type on the way
    for what, a, b in (("NaN", w.isnan(), h.isnan()), ("infinities", w.isinf() * w.sign(), h.isinf() * h.sign())):
        if bool(((a != b) & sure).any()):
            return f"{what} in {int(((a != b) & sure).sum())} other places of {want.numel()}"
    finite = w.isfinite() & h.isfinite() & t.isfinite()
    if not bool(finite.any()):
        return ""
    base, mine, size = (w - t).abs()[finite], (h - t).abs()[finite], float(t[finite].abs().max())
    allowed = 16 * float(base.max()) + 32 * max(coarse, torch.finfo(want.dtype).eps) * size + 1e-30
    worst = float(mine.max())
    return f"off by {worst:.3g} of {size:.3g}, the reference by {float(base.max()):.3g}" if worst > allowed else ""


def _steps(t: torch.Tensor) -> list[int]:
    """Strides, of dimensions that have one to take."""
    return [step for step, size in zip(t.stride(), t.shape, strict=True) if size > 1]


def check(seed: int, show: bool, number: int) -> dict[str, Any]:
    """One seed, judged: kind is right, refused (NoCandidate) or a failure's."""
    from kforge.engine import propose
    from kforge.errors import KforgeError, NoCandidate
    from kforge.task import capture, inspect_task, load_task

    rng, made = random.Random(-seed - 1), program(seed)
    found: dict[str, Any] = {"seed": seed, "kind": "right", "text": made.text}
    if show:
        print(made.text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "op.py")
        path.write_text(made.text)
        task = load_task(path)
        try:
            facts = inspect_task(task, "cpu")
        except KforgeError as error:
            return {**found, "kind": "refused", "why": error.message}
        offered = propose(task, capture(task), arch="sm_90a", device="cpu", facts=facts)
        reference = task.make_reference()
        for k in range(number):
            try:
                candidate = next(offered, None)
            except NoCandidate as refused:
                return {**found, "kind": "refused", "why": refused.operator}
            if candidate is None:
                break
            if show:
                print("\n".join(f"===== {name}\n{text}" for name, text in candidate.files.items()))
            model = _loaded(candidate, Path(folder, f"candidate_{k}"))
            for where, call in _calls(made, seed, rng):
                coarse = max((torch.finfo(t).eps for name, t in CASTS.items() if name in made.text), default=0.0)
                problem = _compared(reference, model, call, coarse)
                if problem:
                    kind = problem.partition(":")[0]
                    return {**found, "kind": kind, "where": f"candidate {k}, {where}", "why": problem}
    return found


def _calls(made: Program, seed: int, rng: random.Random) -> Iterator[tuple[str, list[torch.Tensor]]]:
    for where, call in layouts(made.call(made.sizes, seed), rng):
        yield where, call
    for kind in SPECIALS[1:]:
        yield kind, special(made.call(made.sizes, seed + 1), kind, rng)
    for _ in range(4):
        sizes = {name: rng.choice((n, n + 1, max(1, n - 1), 1, 2 * n, 67, 0)) for name, n in made.sizes.items()}
        if all(eval(f"{made.maker(name, sizes)}.numel()", {"torch": torch}) <= LIMIT for name, _, _ in made.inputs):
            where, call = rng.choice(list(layouts(made.call(sizes, seed), rng)))
            yield f"sizes {sizes}, {where}", call


def _compared(reference: Any, model: Any, call: list[torch.Tensor], coarse: float = 0.0) -> str:
    copies = [t.clone() if t.is_contiguous() else t for t in call]
    try:
        want = _leaves(reference(*copies))
    except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
        return ""  # torch does not take it: nothing is promised
    try:
        truth: list[Any] = _leaves(reference(*[t.double() if t.is_floating_point() else t for t in call]))
    except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
        truth = [None] * len(want)  # a literal of another dtype
    try:
        have = _leaves(model(*call))
    except (ValueError, TypeError) as error:
        return "" if "these kernels need" in str(error) else f"raised: {type(error).__name__}: {error}"
    for k, (w, h, t) in enumerate(zip(want, have, truth, strict=True)):
        problem = different(w, h, t, coarse)
        if problem.startswith("off") and not _decided(reference, call, k, w, h):
            problem = ""
        if problem:
            return f"{'strides' if problem.startswith('strides') else 'wrong'}: {problem}"
    return ""


def _decided(reference: Any, call: list[torch.Tensor], number: int, want: torch.Tensor, have: torch.Tensor) -> bool:
    """Whether a result differs by more than the last bits of the inputs move it: they decide where numbers cancel."""
    gap = (want.double() - have.double()).abs()
    finite, moved = gap.isfinite(), torch.zeros_like(gap)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        near = [
            t * (1 + torch.finfo(t.dtype).eps * torch.randint(-1, 2, t.shape, generator=generator).to(t.dtype))
            if t.is_floating_point()
            else t
            for t in call
        ]
        other = _leaves(reference(*near))[number]
        moved = torch.maximum(moved, (other.double() - want.double()).abs().nan_to_num(0.0, 0.0))
    return float(gap[finite].max()) > 16 * float(moved[finite].max())


def _leaves(tree: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def _loaded(candidate: Any, folder: Path) -> Any:
    import importlib.util

    candidate.write(folder)
    spec = importlib.util.spec_from_file_location(folder.name, folder / candidate.module)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew()


def apart(task: Callable[[], dict[str, Any]], seconds: int) -> dict[str, Any]:
    """What a function gives, in a process of its own: {"kind": "crashed"} or "slow" where it does not come back."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(seconds)
        try:
            found = task()
        except Exception as error:  # whatever the engine raises is what is looked for
            last = [f for f in traceback.extract_tb(error.__traceback__) if "kforge" in f.filename][-1:]
            where = ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in last)
            found = {"kind": "error", "why": f"{type(error).__name__}: {str(error)[:2000]}", "where": where}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if data:
        return dict(json.loads(data))
    number = os.WTERMSIG(status)
    return {"kind": "slow" if number == signal.SIGALRM else "crashed", "why": f"signal {number}"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no further seed after this long")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=10**9, help="how many seeds")
    parser.add_argument("--candidates", type=int, default=2, help="of each task, at most")
    parser.add_argument("--out", type=Path, help="JSON lines, one a seed; appended to, and where a run goes on")
    parser.add_argument("--show", action="store_true", help="print tasks and candidates")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # what torch says of single elements and odd broadcasts
    done = set()
    if options.out is not None and options.out.exists():
        done = {json.loads(line)["seed"] for line in options.out.read_text().splitlines()}
    check(0, False, 0)  # what all processes import, once
    begin, kinds = time.perf_counter(), Counter[str]()
    for seed in range(options.seed, options.seed + options.count):
        if time.perf_counter() - begin > options.seconds:
            break
        if seed in done:
            continue
        found = {"seed": seed, **apart(lambda: check(seed, options.show, options.candidates), 240)}  # noqa: B023
        found.setdefault("text", program(seed).text)
        kinds[found["kind"]] += 1
        if found["kind"] not in ("right", "refused"):
            print(f"seed {seed}: {found.get('where', '')}: {found['why']}\n{_body(found['text'])}", flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(found) + "\n")
    print(", ".join(f"{kind} {n}" for kind, n in kinds.most_common()))
    return 0 if set(kinds) <= {"right", "refused"} else 1


def _body(text: str) -> str:
    """A task's statements and inputs, without its imports."""
    return re.sub(r"\n\n+", "\n", text.partition("\n\n\n")[2])


if __name__ == "__main__":
    sys.exit(main())

"""The launches that an export works out, in C++ and in Python, are those of the Kernel declaration."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import unverified

from kforge.errors import LaunchError
from kforge.export.ahead import kernel_rows
from kforge.export.configurations import Configuration, configurations
from kforge.export.cuda import Kernel, launch_files
from kforge.export.evidence import Evidence
from kforge.export.package import Options, prepare_export
from kforge.export.templates import render_template
from kforge.kernel.candidate import Candidate
from kforge.kernel.definition import define
from kforge.kernel.plan import geometry_of
from kforge.kernel.signature import parse_signature
from kforge.task import load_task

GOLDEN = Path(__file__).resolve().parents[1] / "engine" / "golden"


@pytest.fixture(scope="module")
def softmax() -> tuple[Kernel, ...]:
    """The three kernels of the engine's softmax, as an export has them."""
    files = {f"softmax_kforge.{e}": (GOLDEN / f"softmax_kforge.{e}.txt").read_text() for e in ("py", "cu")}
    task = GOLDEN.parents[2] / "examples" / "softmax.py"
    evidence = Evidence(Candidate("softmax_kforge.py", files), task, None, problem="never verified")
    return prepare_export(load_task(task), evidence, Options()).kernels


def calls(kernel: Kernel, number: int, seed: int) -> Iterator[dict[str, Any]]:
    """Arguments by name: sizes of every magnitude, addresses of every alignment that float32 tensors have."""
    draw = random.Random(seed)
    for _ in range(number):
        size = draw.choice(
            [draw.randint(0, 70), draw.randint(0, 5000), draw.randint(0, 200_000), 2 ** draw.randint(0, 17)]
        )
        values: dict[str, Any] = {"rows": draw.randint(0, 3000), "cols": size, "n": size, "scale": 1.5}
        address = {
            p.name: 4096 + draw.choice([0, 4, 8, 12, 16]) for p in kernel.definition.arguments if p.kind == "pointer"
        }
        yield {p.name: {**values, **address}[p.name] for p in kernel.definition.arguments}


def expected(kernel: Kernel, call: dict[str, Any]) -> tuple[Any, ...] | None:
    """(constants, grid, block, shared) by kforge itself; None where it refuses the call."""
    env = {**call, "sizeof T": 4}
    try:
        constants = kernel.definition.resolve(env, {})
        geometry = geometry_of(kernel.definition, {**env, **constants})
    except LaunchError:
        return None
    return constants, geometry.grid, geometry.block, geometry.shared


def test_every_resolved_call_was_built(softmax: tuple[Kernel, ...], tmp_path: Path) -> None:
    """No call of the right types resolves to constants that the export did not build."""
    for kernel in (*softmax, *unverified(tmp_path).kernels):
        for call in calls(kernel, 3000, seed=1):
            found = expected(kernel, call)
            if found is not None:
                assert Configuration(kernel.types[0], tuple(found[0].items())) in kernel.builds, call


def test_only_reachable_constants_are_built(tmp_path: Path) -> None:
    """BLOCK follows n, VEC follows alignment and width: six builds, and none for the value that no call reaches."""
    (kernel,) = unverified(tmp_path).kernels
    assert {tuple(dict(b.constants).values()) for b in kernel.builds} == {(b, v) for b in (64, 128) for v in (4, 2, 1)}
    assert configurations(kernel.definition, kernel.calls) == kernel.builds


def test_a_window_of_five_sizes_is_looked_at_in_seconds() -> None:
    """Five sizes decide four constants: what they can resolve to is found without every value of each by all others."""
    signature = parse_signature(
        "(const T* x, T* y, long long planes, int h, int w, int out_h, int out_w)", "pool<T, VEC>", {"T": "x"}
    )
    definition = define(
        "pool<T, VEC>",
        signature,
        grid="planes",
        block="BLOCK",
        constants={"BLOCK": 256, "COLS": 2, "VEC": 4, "ALIGNED": 1, "WIDE": 0},
        types={"T": "x"},
        tune={"BLOCK": [256, 128, 64], "COLS": [4, 2, 1], "VEC": [4, 2, 1], "ALIGNED": [1, 0], "WIDE": [0, 1]},
        require={
            "COLS": "COLS == 1 or VEC > 1",
            "VEC": "VEC == 1 or aligned(x, VEC * sizeof(T)) and h * w % VEC == 0 and w % VEC == 0",
            "ALIGNED": "ALIGNED == 0 or out_w % COLS == 0",
            "WIDE": "WIDE == 1 or planes * ceil_div(out_h, 8) * ceil_div(out_w, 32 * COLS) + BLOCK <= 4294967295",
        },
        tuned=(),
        cluster=None,
        cooperative=False,
        shared=0,
        workspace=None,
        zeroed=False,
        writes=(),
        strided=(),
    )
    x = torch.empty(0)
    found = configurations(definition, [(x, x, 32, 32, 32, 16, 16)])
    names = ("COLS", "VEC", "ALIGNED", "WIDE")
    assert {tuple(dict(c.constants)[n] for n in names) for c in found} == {
        (cols, vec, aligned, wide) for cols, vec in ((2, 4), (2, 2), (1, 1)) for aligned in (0, 1) for wide in (0, 1)
    }


def test_python_plans(softmax: tuple[Kernel, ...], tmp_path: Path) -> None:
    """The plan functions of format aot give the declaration's constants, grid, block and shared memory."""
    for kernel in (*softmax, *unverified(tmp_path).kernels):
        places = {(kernel.name, b): (f"{i}.cubin", repr(dict(b.constants))) for i, b in enumerate(kernel.builds)}
        rows = kernel_rows([kernel], places)
        facts = {"namespace": "test_plans", "archs": ["sm_90a"], "kernels": rows}
        text = render_template("package/kernels_aot.py.j2", facts)
        text = re.sub(r"^_library.*$|^kernels = .*$", "", text, flags=re.M)
        namespace: dict[str, Any] = {"__file__": __file__}
        exec(compile(text, "kernels_aot.py", "exec"), namespace)
        plan = namespace[f"_plan_{kernel.name}"]
        names = rows[0]["plan_parameters"].split(", ")[1:]
        for call in calls(kernel, 400, seed=2):
            want = expected(kernel, call)
            given = [call[n] % 1024 if call[n] and n in ("x", "y", "bias") else call[n] for n in names]
            if want is None:
                with pytest.raises(RuntimeError):
                    plan(0, *given)
                continue
            (_, constants), grid, block, cluster, shared, cooperative, workspace = plan(0, *given)
            assert (eval(constants), grid, block, shared) == want
            assert (cluster, cooperative, workspace) == ((1, 1, 1), False, 0)


def test_shared_memory_opt_in_is_never_lowered(tmp_path: Path) -> None:
    """Plans of one function share its attribute: the largest request stands, and is made once."""
    text = render_template("package/kernels_aot.py.j2", {"namespace": "opt_in", "archs": ["sm_90a"], "kernels": []})
    namespace: dict[str, Any] = {"__file__": __file__}
    exec(compile(re.sub(r"^_library.*$", "", text, flags=re.M), "kernels_aot.py", "exec"), namespace)
    asked = []

    class Driver:
        def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
            return asked.append((attribute, value)) or 0

    namespace |= {"_driver": Driver, "_function": lambda device, file, symbol: symbol}
    for shared in (32 << 10, 100 << 10, 60 << 10, 100 << 10, 200 << 10):
        plan = (("a.cubin", "k"), (4, 1, 1), (64, 1, 1), (1, 1, 1), shared, False, 0)
        function, grid, _, held, _, count, _ = namespace["_made_ready"](plan, 0)
        assert (function, grid.x, held, count) == ("k", 4, shared, 0)
    assert asked == [(8, 100 << 10), (8, 200 << 10)]


HARNESS = """
#include <cstdio>
int main() {{
    long long v[8];
    while (true) {{
        for (int k = 0; k < {count}; ++k) if (scanf("%lld", &v[k]) != 1) return 0;
        space::Plan plan;
        const char* refused = space::plan_{name}({arguments}, plan);
        if (refused) {{ puts("refused"); continue; }}
        printf("%u %u %u %u %u %u %lld\\n", plan.grid[0], plan.grid[1], plan.grid[2], plan.block[0], plan.block[1],
               plan.block[2], (long long)plan.shared);
        puts(plan.kernel ? static_cast<const char*>(plan.kernel) : "empty");
    }}
}}
"""


def test_cpp_plans(softmax: tuple[Kernel, ...], tmp_path: Path) -> None:
    """The plan functions of format extension, compiled for the host, agree with the declaration too."""
    for kernel in (softmax[1], *unverified(tmp_path).kernels):
        text = launch_files([kernel], "space", "test")["launch.cu"]
        header = launch_files([kernel], "space", "test")["launch.h"]
        plans = text[text.index("namespace launch {") : text.index("const char* launch(const Plan&")] + "}\n"
        plans = re.sub(r"^namespace \w+_\d+ \{\n(?:.*\n)*?\}  // namespace \w+_\d+\n", "", plans, flags=re.M)
        # In place of each kernel's address: its instance's name.
        plans = re.sub(r"reinterpret_cast<const void\*>\(&(.*?)\)\}", r'"\1"}', plans)
        arguments = ["0"]
        for k, p in enumerate(kernel.definition.arguments):
            arguments.append(f"(const void*)v[{k}]" if p.kind == "pointer" else f"v[{k}]")
        includes = "#include <algorithm>\n#include <cmath>\n#include <initializer_list>\n"
        count = len(arguments) - 1
        main = HARNESS.format(count=count, name=kernel.name, arguments=", ".join(arguments))
        (tmp_path / "plans.cpp").write_text(header + includes + plans + main)
        subprocess.run(["g++", "-std=c++17", "-o", tmp_path / "plans", tmp_path / "plans.cpp"], check=True)
        wanted = list(calls(kernel, 500, seed=3))
        lines = "\n".join(" ".join(str(int(v)) for v in call.values()) for call in wanted)
        done = subprocess.run([tmp_path / "plans"], input=lines, capture_output=True, text=True, check=True)
        out = iter(done.stdout.splitlines())
        for call in wanted:
            want = expected(kernel, call)
            first = next(out)
            if want is None:
                assert first == "refused"
                continue
            instance = next(out)
            numbers = list(map(int, first.split()))
            assert (tuple(numbers[:3]), tuple(numbers[3:6]), numbers[6]) == want[1:]
            constants = ", ".join(str(want[0][n]) for n in want[0] if n in kernel.definition.in_expression)
            assert instance == "empty" if 0 in want[1] else instance.endswith(f"<float, {constants}>"), call

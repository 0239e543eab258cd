"""For each tool a task, and two candidates of it: one with the fault, one without. Sizes for a GPU and the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

from kforge.kernel.candidate import Candidate

FOLDER = Path(__file__).parent
FAULT, GOOD = "fault", "good"
# of a GPU's sizes: drawing a gigabyte of normal numbers takes seconds, repeating a megabyte of them does not
NORMAL = """def normal(*shape):
    count = torch.Size(shape).numel()
    drawn = torch.randn(min(count, 1 << 20))
    return drawn.repeat(-(-count // drawn.numel()))[:count].view(shape)


"""
BLOCKS = "(ceil_div(n, 256), 1, 1)"


@dataclass(frozen=True)
class Case:
    """inputs, reference: expressions of op.py, in which N is the size. fault, good: (grid, block) of the kernels.

    body, body_good: of the candidate's forward, with `kernel` for the twin. gpu, cpu: N there (cpu 0: GPU only).
    """

    inputs: str
    reference: str
    fault: tuple[str, str]
    good: tuple[str, str]
    body: str
    gpu: int
    cpu: int = 0
    body_good: str = ""
    parameters: str = "x"


_COPY = "y = torch.empty_like(x)\n"
_FLAT = "n = x.numel()\n" + _COPY
_ROUNDS = _FLAT + "kernel(x, y, n, {rounds})\nreturn y"

CASES: dict[str, Case] = {
    "uncoalesced": Case(
        "torch.randn(N, N)", "x + 1.0", ("(n, n // 256, 1)", "256"), ("(n, n // 256, 1)", "256"),
        _COPY + "kernel(x, y, x.shape[0])\nreturn y", 8192, 256,
    ),
    "vector_width": Case(
        "torch.randint(0, 255, (1 << 16,), dtype=torch.uint8).repeat(N >> 16)", "torch.bitwise_xor(x, 1)",
        (BLOCKS, "256"), ("(ceil_div(n, 4096), 1, 1)", "256"), _FLAT + "kernel(x, y, n)\nreturn y", 1 << 28, 1 << 16,
    ),
    "register_spill": Case(
        "torch.randn(N)", "x * 0.5", (BLOCKS.replace("256", "1024"), "1024"), (BLOCKS.replace("256", "128"), "128"),
        _ROUNDS.format(rounds=64), 1 << 20, 2048,
    ),
    "register_pressure": Case(
        "torch.randn(N)", "x * 0.5", (BLOCKS, "256"), (BLOCKS, "256"), _ROUNDS.format(rounds=64), 1 << 20, 2048,
    ),
    "occupancy": Case(
        "torch.randn(N)", "x * 1.0", (BLOCKS.replace("256", "64"), "64"), (BLOCKS, "256"),
        _FLAT + "kernel(x, y, n)\nreturn y", 1 << 18, 2048,
    ),
    "wave_quantisation": Case(
        "torch.randn(N)", "x + 1.0", ("(8, 1, 1)", "256"), (BLOCKS, "256"),
        _FLAT + "kernel(x, y, n)\nreturn y", 1 << 24, 1 << 18,
    ),
    "warp_stall": Case(
        "torch.randn(N)", "x + 1.0", (BLOCKS, "256"), (BLOCKS, "256"), _ROUNDS.format(rounds=256), 1 << 20,
    ),
    "barrier_stall": Case(
        "torch.randn(N, 1024)", "x.sum(1)", ("(n, 1, 1)", "1024"), ("(n, 1, 1)", "1024"),
        "y = torch.empty(x.shape[0], device=x.device)\nkernel(x, y, x.shape[0], 16)\nreturn y", 2112, 4,
    ),
    "bank_conflicts": Case(
        "torch.randn(N, N)", "x.t() * 1.0", ("(n // 32, n // 32, 1)", "(32, 8, 1)"),
        ("(n // 32, n // 32, 1)", "(32, 8, 1)"), _COPY + "kernel(x, y, x.shape[0])\nreturn y", 8192, 128,
    ),
    "tiling": Case(
        "torch.randn(N, N), torch.randn(N, N)", "x @ b", ("(n // 32, n // 32, 1)", "(32, 32, 1)"),
        ("(n // 32, n // 32, 1)", "(32, 32, 1)"), _COPY + "kernel(x, b, y, x.shape[0])\nreturn y", 1024, 64,
        parameters="x, b",
    ),
    "l2_reuse": Case(
        "torch.randn(N)", "x.sum()", ("(528, 1, 1)", "512"), ("(528, 1, 1)", "512"),
        "y = torch.empty(528 * 512, device=x.device)\nkernel(x, y, x.numel() // 4)\nreturn y.sum()", 1 << 27,
    ),
    "dram_ceiling": Case(
        "torch.randn(N)", "x + 1.0", (BLOCKS, "256"), ("(132, 1, 1)", "32"),
        _COPY + "kernel(x, y, x.numel() // 4)\nreturn y", 1 << 27,
    ),
    "tensor_cores": Case(
        "torch.randn(N, N).half(), torch.randn(N, N).half()", "x @ b", ("(n // 32, n // 32, 1)", "(32, 32, 1)"),
        ("(n // 64, n // 16, 1)", "(32, 4, 1)"), _COPY + "kernel(x, b, y, x.shape[0])\nreturn y", 2048, 64,
        parameters="x, b",
    ),
    "launch_overhead": Case(
        "torch.randn(N)", "x + 1.0", ("(ceil_div(count, 256), 1, 1)", "256"), (BLOCKS, "256"),
        _COPY + "part = x.numel() // 256\nfor i in range(256):\n    kernel(x, y, i * part, part)\nreturn y", 1 << 26,
        body_good=_FLAT + "kernel(x, y, n)\nreturn y",
    ),
    "divergence": Case(
        "torch.randn(N)", "x * 0.5", (BLOCKS, "256"), (BLOCKS, "256"), _ROUNDS.format(rounds=512), 1 << 22,
    ),
    "atomics": Case(
        "torch.randn(N)", "x.sum()", (BLOCKS, "256"), (BLOCKS, "256"),
        "y = torch.zeros(2, device=x.device)\nkernel(x, y, x.numel())\nreturn y.sum()", 1 << 24, 1 << 13,
    ),
    "memory_parallelism": Case(
        "torch.randn(N)", "x.sum()", ("(264, 1, 1)", "128"), ("(1056, 1, 1)", "256"),
        "y = torch.empty(1056 * 256, device=x.device)\nkernel(x, y, x.numel())\nreturn y.sum()", 1 << 27, 1 << 18,
    ),
    "special_functions": Case(
        "torch.randn(N)", "torch.exp(x)", (BLOCKS, "256"), (BLOCKS, "256"), _ROUNDS.format(rounds=256), 1 << 22, 2048,
    ),
    "integer_index": Case(
        "torch.randn(N, 8, 64, 64)", "x.transpose(1, 2).contiguous()", ("(1056, 1, 1)", "256"),
        ("(c, b, a)", "64"),
        "a, b, c, d = x.shape\ny = torch.empty(a, c, b, d, device=x.device)\nkernel(x, y, a, b, c, d)\nreturn y",
        1024, 2,
    ),
    "library_bound": Case(
        "torch.randn(N, N)", "x @ x + 1.0", (BLOCKS, "256"), (BLOCKS, "256"),
        "z = x @ x\n" + _FLAT + "kernel(z, y, n)\nreturn y", 2048, body_good=_FLAT + "kernel(x, y, n)\nreturn y",
    ),
    "redundant_traffic": Case(
        "torch.randn(N)", "(x + 1) * 2 - 3", (BLOCKS, "256"), (BLOCKS, "256"),
        "n = x.numel() // 4\na, b, y = (torch.empty_like(x) for _ in range(3))\n"
        "kernel(x, a, n, 1.0, 1.0)\nkernel(a, b, n, 2.0, 0.0)\nkernel(b, y, n, 1.0, -3.0)\nreturn y",
        1 << 27, 1 << 14, body_good=_COPY + "kernel(x, y, x.numel() // 4)\nreturn y",
    ),
    "precision_headroom": Case(
        "torch.randn(N)", "x * 0.1 + 0.7 * x * x", (BLOCKS, "256"), (BLOCKS, "256"),
        _FLAT + "kernel(x, y, n)\nreturn y", 1 << 26, 4096,
    ),
    "energy": Case(
        "torch.randn(N)", "x + 1.0", (BLOCKS, "256"), (BLOCKS, "256"),
        _COPY + "kernel(x, y, x.numel() // 4)\nreturn y", 1 << 27,
    ),
}  # fmt: skip


def write_task(name: str, folder: Path, on_gpu: bool) -> Path:
    """The case's op.py."""
    case = CASES[name]
    size = case.gpu if on_gpu else case.cpu
    inputs = case.inputs.replace("torch.randn(", "normal(") if on_gpu else case.inputs
    text = (
        "import torch\nimport torch.nn as nn\n\n"
        f"N = {size}\n\n\n{NORMAL if on_gpu else ''}"
        f"class Model(nn.Module):\n    def forward(self, {case.parameters}):\n"
        f"        return {case.reference}\n\n\ndef get_inputs():\n    return [{inputs}]\n"
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(text)
    return path


def candidate(name: str, twin: str) -> Candidate:
    """The candidate that launches one of the two kernels."""
    case = CASES[name]
    grid, block = getattr(case, twin)
    body = case.body_good if twin == GOOD and case.body_good else case.body
    source = (FOLDER / f"{name}.cu").read_text()
    text = (
        "import torch\n\nfrom kforge.kernel import Kernel\n\n"
        f'kernel = Kernel("{twin}", "{name}.cu", grid="{grid}", block="{block}")\n\n\n'
        f"class ModelNew(torch.nn.Module):\n    def forward(self, {case.parameters}):\n{indent(body, ' ' * 8)}\n"
    )
    return Candidate(f"{name}_kforge.py", {f"{name}_kforge.py": text, f"{name}.cu": source})

"""The tool that tells what the target can do: multiprocessors, memory, registers, ceilings and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import Toolbox
from kforge.errors import KforgeError

if TYPE_CHECKING:
    from kforge.agent.workbench import Workbench
    from kforge.profiling.ceilings import Ceilings


@tool
def device_facts(box: Toolbox) -> str:
    """What the target can do: multiprocessors, shared memory, registers, L2, the ceilings of memory and arithmetic and
    where these figures come from, and the floor of this task."""
    return f"{facts(box.bench.device, box.bench.arch)}\n{floor_line(box.bench)}"


def facts(device: str, arch: str) -> str:
    """The target in words. Without a GPU the figures are those of the data sheet that stands for `arch`."""
    from kforge.environment.target import target_name
    from kforge.profiling import ceilings

    if device == "cpu":
        lines = [f"target: emulator on the CPU; kernels are built for {arch}. Speed is untimed."]
        try:
            known = ceilings.sheet_for_arch(arch)
        except KforgeError as error:
            return "\n".join([*lines, *_limits(arch), f"ceilings: {error.message}"])
        return "\n".join([*lines, *_limits(arch), *_ceilings(known)])
    lines = [f"target: {target_name(device)}, {arch}"]
    return "\n".join([*lines, *_measured(device), *_limits(arch), *_ceilings(ceilings.for_device(device))])


def _measured(device: str) -> list[str]:
    import torch

    p = torch.cuda.get_device_properties(device)
    return [f"{p.multi_processor_count} multiprocessors, {p.total_memory / 1e9:.0f} GB, L2 {p.L2_cache_size >> 20} MiB"]


def _limits(arch: str) -> list[str]:
    from kforge.kernel.occupancy import LIMITS, REGISTERS, capability

    limits = LIMITS.get(capability(arch))
    if limits is None:
        return [f"limits of a multiprocessor: unknown for {arch}"]
    most = limits.shared - limits.reserved
    return [
        f"a multiprocessor: {REGISTERS} registers of 32 bits (at most 255 a thread), {limits.shared >> 10} KiB of"
        f" shared memory, {limits.warps} warps, {limits.blocks} blocks",
        f"a block: at most 1024 threads and {most} bytes of shared memory; above 49152 it is dynamic memory"
        " (CUDA C++ Programming Guide)",
    ]


def _ceilings(known: Ceilings) -> list[str]:
    memory = ", ".join(f"{kind} {rate / 1e12:.3g}" for kind, rate in known.bandwidth.items())
    rates = ", ".join(f"{kind} {rate / 1e12:.4g}" for kind, rate in known.rates.items())
    lines = [
        f"ceilings of {known.gpu} ({known.source}): DRAM in TB/s: {memory}; operations in 10^12/s: {rates}",
        f"L2 {known.l2_bytes >> 20} MiB, one launch {known.launch_s * 1e6:.2g} us, {known.processors} multiprocessors",
    ]
    if known.l2:
        lines.append(f"L2 reads {known.l2 / 1e12:.3g} TB/s")
    if known.shared:
        lines.append(f"shared memory reads {known.shared / 1e12:.3g} TB/s over all multiprocessors")
    return lines


def floor_line(bench: Workbench) -> str:
    """The physical floor of a task on its target."""
    from kforge.profiling import ceilings, roofline

    cost = bench.prepared.cost()
    if cost is None:
        return "floor of this task: unknown, its graph cannot be captured"
    if bench.device == "cpu":
        try:
            floor = roofline.floor(cost, ceilings.sheet_for_arch(bench.arch))
        except KforgeError as error:
            return f"floor of this task: unknown: {error.message}"
    else:
        measured = bench.prepared.floor()
        assert measured is not None
        floor = measured
    moved = f"{cost.read_bytes} bytes read, {cost.write_bytes} written, at least"
    return f"floor of this task: {floor.ms:.4g} ms, {floor.bound.value} bound ({moved}; first variant)"

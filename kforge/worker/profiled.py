"""What a profile asks of a child: the emulator's trace of its launches, or its launches on a GPU as data.

A GPU's launches are written down (cubin, geometry, arguments, the memory behind them) so that replay.py can make them
again in a process that runs nothing else of the candidate's.
"""

from __future__ import annotations

import ctypes
import json
import struct
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError
from kforge.kernel.emulator.recording import Recording
from kforge.worker.sandbox import SCRATCH

if TYPE_CHECKING:
    from kforge.kernel.kernel import Kernel
    from kforge.kernel.plan import Plan
    from kforge.worker.child import Server

SLOWER = 12.0  # one traced order than the plain run, by a wide margin
MOST_LAUNCHES = 64
# Bytes kept of what lies behind pointers, of all launches; beyond, a piece stands for the buffer and is repeated.
KEPT_BYTES = {"float": 64 << 20, "other": 1 << 30}  # values of floats decide little, indices decide what is read
PIECE = 16 << 20
FOLDER = "launches"  # in the scratch folder


def trace(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """The launches that `record` kept, once more in the emulator's traced mode, in a process of its own.

    launches: kernel, geometry, lines (Access as objects), read and written bytes; skipped: why there are none.
    """
    from kforge.kernel.emulator.traced import run_traced

    kept: Recording | None = server.kept
    if kept is None:
        raise KforgeError("trace comes after record")
    begin, budget_s = time.perf_counter(), request["budget_s"]
    needed = kept.seconds * SLOWER
    if needed > budget_s:
        return {"launches": [], "skipped": f"the trace would take about {needed:.0f} s on these inputs"}
    try:
        found = run_traced(kept.launches, kept.buffers, orders=(0,), timeout=2 * budget_s + 5)
    except KforgeError as error:
        return {"launches": [], "skipped": " ".join(filter(None, (error.message, error.hint)))}
    rows = []
    for launch, lines, totals in zip(kept.launches, found.profile, found.totals, strict=False):
        rows.append(
            {
                "kernel": launch.kernel,
                "grid": launch.grid,
                "block": launch.block,
                "shared": launch.shared,
                "lines": [asdict(line) for line in lines],
                "read": totals.read_bytes,
                "written": totals.written_bytes,
            }
        )
    return {"launches": rows, "skipped": "", "seconds": time.perf_counter() - begin}


def write_launches(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """One call whose launches are written into the scratch folder; their description is the answer as well."""
    from kforge.kernel import hooks

    folder = server.folder / SCRATCH / FOLDER
    folder.mkdir(exist_ok=True)
    args, kwargs, _ = server.inputs(request)
    book, before = _Book(folder), dict(hooks.launches())
    with server.around(), hooks.recording(book.add):
        server.model(*args, **kwargs)
    for row in book.launches:
        same = sum(other["kernel"] == row["kernel"] for other in book.launches)
        row["count"] = max(1, (hooks.launches()[row["kernel"]] - before.get(row["kernel"], 0)) // same)
    book.save()
    return {"launches": [{k: v for k, v in row.items() if k != "args"} for row in book.launches], "folder": str(folder)}


class _Book:
    """Launches with the memory that they saw, each configuration and geometry once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launches: list[dict[str, Any]] = []
        self.buffers: list[dict[str, Any]] = []
        self._seen: set[tuple[Any, ...]] = set()
        self._left = dict(KEPT_BYTES)

    def add(self, kernel: Kernel, plan: Plan, args: tuple[Any, ...], values: list[Any]) -> None:
        """Called by a Kernel right before it launches."""
        from kforge.kernel.build import target_arch
        from kforge.kernel.ctypes_table import scalar

        if plan.device < 0:
            return
        geometry = plan.geometry
        key = (kernel.name, tuple(plan.constants.items()), tuple(plan.types.items()), geometry)
        if key in self._seen or len(self.launches) >= MOST_LAUNCHES:
            return
        self._seen.add(key)
        arch = target_arch(f"cuda:{plan.device}")
        built, symbol = kernel.module.build(kernel.definition, dict(plan.constants), dict(plan.types), arch)
        tensors = {t.data_ptr(): t for t in args if hasattr(t, "data_ptr") and t.numel()}
        packed: list[dict[str, Any]] = []
        for parameter, value in zip(kernel.definition.signature.params, values, strict=True):
            if parameter.kind == "pointer":
                packed.append({"buffer": self._buffer(tensors.get(value), value, plan)})
            else:
                slot = scalar(plan.types.get(parameter.ctype, parameter.ctype))
                if slot is None:
                    raise KforgeError(f"{kernel.name}: the type of '{parameter.name}' cannot be written down")
                packed.append({"data": struct.pack("<" + slot.slot, value).hex()})
        figures = built.resources.get(kernel.module.instance(kernel.definition, plan.constants, plan.types))
        row = {
            "kernel": kernel.name,
            "symbol": symbol,
            "file": kernel.module.filename,
            "cubin": str(built.path),
            "grid": geometry.grid,
            "block": geometry.block,
            "shared": geometry.shared,
            "cluster": geometry.cluster,
            "cooperative": geometry.cooperative,
            "count": 1,
            "registers": figures.registers if figures else 0,
            "static_shared": figures.shared if figures else 0,
            "stack": figures.stack if figures else 0,
            "spill_bytes": figures.spill_bytes if figures else 0,
            "args": packed,
        }
        self.launches.append(row)

    def _buffer(self, tensor: Any, address: int, plan: Plan) -> int | None:
        """The number of a buffer that holds what lies behind a pointer; None for a null pointer."""
        import torch

        if not address:
            return None
        number = len(self.buffers)
        if tensor is None:  # the workspace: its values come from the kernel, or are zeros
            size = plan.workspace().numel() if plan.workspace is not None else 1
            self.buffers.append({"nbytes": size, "kept": 0, "offset": address % 512})
            return number
        size = (
            sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        ) * tensor.element_size()
        storage = tensor.untyped_storage()
        flat = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
        start = tensor.data_ptr() - storage.data_ptr()
        kind = "float" if tensor.is_floating_point() else "other"
        kept = size if size <= self._left[kind] else min(size, PIECE)
        self._left[kind] = max(0, self._left[kind] - kept)
        copy = flat[start : start + kept].cpu().clone()
        (self.folder / f"{number}.bin").write_bytes(ctypes.string_at(copy.data_ptr(), kept))
        self.buffers.append({"nbytes": size, "kept": kept, "offset": address % 512})
        return number

    def save(self) -> None:
        text = json.dumps({"launches": self.launches, "buffers": self.buffers})
        (self.folder / "launches.json").write_text(text)

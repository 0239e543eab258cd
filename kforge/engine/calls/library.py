"""A partition's steps that a library computes: where their operands come from, and who writes over their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.engine.calls.vendor import LIBRARY, CallStep, Operand, VendorCall, as_view
from kforge.engine.coalescing import substitute
from kforge.engine.emit.cgen import C_TYPES
from kforge.engine.graph.ir import Buffer, Builder, Expr
from kforge.engine.graph.state import replaces
from kforge.engine.graph.tensors import Cut, Tensor
from kforge.errors import NoCandidate

if TYPE_CHECKING:
    from kforge.engine.partition import Partition, Stage


class LibraryCalls:
    """The part of a Partitioner that makes CallSteps."""

    builder: Builder
    calls: list[CallStep]
    home: dict[Tensor, Stage | CallStep]
    materialised: dict[Tensor, Buffer]

    def place(self, tensor: Tensor, buffer: Buffer) -> Stage:
        raise NotImplementedError

    def _temporary(self, wish: str) -> str:
        raise NotImplementedError

    def _call(self, tensor: Tensor) -> None:
        """A library's step, after those that its operands need."""
        assert tensor.vendor is not None
        dense = (tensor.vendor.last and not tensor.vendor.scheme) or "dense" in tensor.vendor.facts
        along, parts = tensor.vendor.along, _takes_parts(tensor.vendor)
        operands = tuple(self._operand(operand, dense, along, parts) for operand in tensor.vendor.operands)
        level = max(
            (self.home[t].level + 1 for t, b in self.materialised.items() if b in _buffers(operands)), default=0
        )
        for step in self.calls:
            if (step.operands, _how(step.call)) == (operands, _how(tensor.vendor)):  # written twice, computed once
                for t, buffer in zip(tensor.vendor.results, step.results, strict=True):
                    self.materialised[t], self.home[t] = buffer, step
                return
        number = len(self.calls) + 1
        kind = "convolved" if tensor.vendor.operator.startswith("conv") else "product"
        kind = "attended" if tensor.vendor.operator.endswith("attention") else kind
        name = kind if number == 1 else f"{kind}_{number}"
        results = tensor.vendor.results
        names = [name, *(f"{name}_{label}" for label in tensor.vendor.labels)]
        buffers = [Buffer(n, t.dtype, t.shape, LIBRARY) for n, t in zip(names, results, strict=True)]
        step = CallStep(tensor.vendor, operands, buffers[0], tuple(buffers[1:]), level)
        self.calls.append(step)
        for t, buffer in zip(results, buffers, strict=True):
            self.materialised[t], self.home[t] = buffer, step

    def _operand(self, tensor: Tensor, dense: bool = False, along: bool = False, parts: bool = False) -> Operand:
        """A view of something in memory; what there is none of, a kernel writes first.

        dense: in its own order; along: its last dimension innermost, be it a part of something. parts: as a product
        takes it, be it a part of something.
        """
        written = False
        while True:
            try:
                found = as_view(self.builder, tensor, self.materialised, strided=along or parts)
            except Cut as cut:
                if cut.tensor.vendor is not None:
                    self._call(cut.tensor)
                    continue
                found = None
            if found is not None and found.strides and parts and not found.of_lines:
                found = None
            moved = found is not None and (found.order != tuple(sorted(found.order)) or bool(found.expanded))
            if found is not None and not (dense and moved) and not (along and not found.along):
                return found
            if written:
                why = "has no elements" if any(s.hint() == 0 for s in tensor.shape) else "has no form that it reads"
                raise NoCandidate(f"a product's operand {tensor.name} {why}", operator=tensor.name)
            if not dense and (inner := self._moved(tensor, along)) is not None:
                self._operand(inner)  # written as it is: what moves it is a view
                if as_view(self.builder, tensor, self.materialised, strided=along) is not None:
                    continue
            if tensor.dtype not in C_TYPES:
                raise NoCandidate(f"no kernel holds elements of dtype {tensor.dtype}", operator=f"dtype {tensor.dtype}")
            buffer = Buffer(self._temporary(tensor.name or "operand"), tensor.dtype, tensor.shape, LIBRARY)
            stage = self.place(tensor, buffer)
            self.materialised[tensor], self.home[tensor] = buffer, stage
            written = True

    def _moved(self, tensor: Tensor, along: bool) -> Tensor | None:
        """What a computed tensor is a view of, where that is computed, too; of its type, and no larger."""
        if len(tensor.inputs) != 1 or tensor.reduction is not None:
            return None
        inner = tensor.inputs[0]
        if inner.buffer is not None or inner.vendor is not None or inner.dtype != tensor.dtype:
            return None
        stand_in = Buffer(f"inner_{id(inner)}", inner.dtype, inner.shape, LIBRARY)
        try:
            view = as_view(self.builder, tensor, {**self.materialised, inner: stand_in})
        except Cut:
            return None
        return inner if view is not None and view.buffer is stand_in and (view.along or not along) else None

    def view_of_result(self, tensor: Tensor) -> Operand | None:
        """An output that is a library's result as it is, or a view of it."""
        while True:
            try:
                found = as_view(self.builder, tensor, self.materialised)
            except Cut as cut:
                if cut.tensor.vendor is None or not _only_moved(tensor, cut.tensor):
                    return None
                self._call(cut.tensor)
                continue
            return found if found is not None and found.buffer.kind == LIBRARY else None


def _takes_parts(call: VendorCall) -> bool:
    """Whether a call multiplies matrices whose lines may be any distance apart."""
    return call.operator in ("mm", "addmm", "bmm") and not call.scheme and not call.facts


def _how(call: VendorCall) -> tuple[object, ...]:
    return call.operator, tuple(call.keywords.items()), call.scheme, call.last


def _buffers(operands: tuple[Operand, ...]) -> set[Buffer]:
    return {o.buffer for o in operands}


def _only_moved(tensor: Tensor, result: Tensor) -> bool:
    """Whether `tensor` depends on nothing but one library result."""
    while tensor is not result:
        if len(tensor.inputs) != 1 or tensor.reduction is not None:
            return False
        tensor = tensor.inputs[0]
    return True


def _passes_on(value: Expr, old: Buffer) -> bool:
    """Whether a value is a library's own but for some elements: a kernel that writes it in place shows nowhere else."""
    arms = value.args[1:] if value.op == "where" else ()
    return any(arm.buffer == old for arm in arms) and all(arm.op == "load" for arm in arms)


def reuse_results(builder: Builder, parts: Partition) -> None:
    """An output that replaces a library's result element by element is written over it, under its own name."""
    for step in parts.calls:
        old = step.result
        kept = {b for call in parts.calls for b in call.read} | {v.buffer for v in parts.views.values()}
        for new in parts.outputs if old not in kept else ():
            stored = any(s.buffer == new for p in parts.programs for s in p.stores)
            same = (new.dtype, new.shape) == (old.dtype, old.shape) and new.name not in parts.orders
            through = any(_passes_on(s.value, old) for p in parts.programs for s in p.stores if s.buffer == new)
            if stored and same and not through and replaces(parts.programs, old, new):
                one = Buffer(new.name, old.dtype, old.shape, LIBRARY)
                parts.programs = [substitute(builder, p, {}, {old: one, new: one}) for p in parts.programs]
                step.result = one
                parts.views[new.name] = Operand(one, one.shape)
                break

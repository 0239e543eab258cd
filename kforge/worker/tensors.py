"""Memory that judge and child share: owned by the judge, one allocation per storage, handed over as a descriptor.

CPU: memfds sealed against shrinking. GPU: dedicated allocations rounded up to 2 MiB (an IPC handle exposes the whole
segment, so never torch's pool), opened by CUDA IPC; where IPC is missing, staged through host memory ("staged").
The judge reads a buffer only by copying it into private memory.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kforge.errors import ChildFailed
from kforge.worker import driver
from kforge.worker.protocol import ATTRIBUTES, TensorMeta, dtype_of, encode

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
SEGMENT = 2 << 20  # granularity of a dedicated device allocation


@dataclass
class Buffer:
    """One shared storage. `bytes`: uint8 tensor over it, on the device where views are built.

    kind: memfd | ipc | staged (device memory private to each side, `host` is what they share). lead: bytes of the
    allocation before the storage, so that addresses are none that only a judge's memory has.
    """

    id: int
    nbytes: int
    kind: str
    bytes: Any
    host: Any = None
    handle: str = ""
    fd: int = -1
    pointer: int = 0
    lead: int = 0
    release: Callable[[], None] = field(default=lambda: None)

    @property
    def side(self) -> str:
        """Where views over it live: "cpu" or "cuda"."""
        return str(self.bytes.device.type)

    def describe(self) -> dict[str, Any]:
        return {
            "id": self.id, "nbytes": self.nbytes, "kind": self.kind, "handle": self.handle, "lead": self.lead
        }  # fmt: skip

    def publish(self) -> None:
        """Make this side's writes visible to the other (only staging has to do something)."""
        if self.host is not None:
            self.host.copy_(self.bytes)

    def refresh(self) -> None:
        """See the other side's writes."""
        if self.host is not None:
            self.bytes.copy_(self.host)


def make_memfd(buffer_id: int, nbytes: int, lead: int = 0) -> Buffer:
    """A host buffer of fixed size, `lead` bytes behind the beginning of a page. The caller sends `fd` and closes it."""
    fd = os.memfd_create("kforge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, lead + max(nbytes, 1))
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    try:
        return Buffer(buffer_id, nbytes, "memfd", map_memfd(fd, nbytes, lead), fd=fd, lead=lead)
    except OSError:  # a mapping takes a descriptor of its own
        os.close(fd)
        raise


def map_memfd(fd: int, nbytes: int, lead: int = 0) -> Any:
    import torch

    size = max(nbytes, 1)
    return torch.frombuffer(mmap.mmap(fd, lead + size), dtype=torch.uint8, count=size, offset=lead)


class DeviceMemory:
    """The judge's dedicated allocations on one GPU, kept for re-use between children (up to 4 GiB idle)."""

    def __init__(self, device: str, keep_bytes: int = 4 << 30) -> None:
        import torch

        self.device, self.keep_bytes = device, keep_bytes
        torch.zeros(1, device=device)  # the primary context must be current before the driver is asked
        self.ipc = True
        self.reason = ""
        self._idle: dict[int, list[tuple[int, str]]] = {}

    def make(self, buffer_id: int, nbytes: int, lead: int = 0) -> Buffer:
        """A device buffer; kind "staged" once IPC has been found missing (`reason` says why)."""
        import torch

        if self.ipc:
            size = -(-(lead + max(nbytes, 1)) // SEGMENT) * SEGMENT
            idle = self._idle.get(size)
            pointer, handle = idle.pop() if idle else self._allocate(size)
            if handle:
                view = driver.view_bytes(pointer + lead, max(nbytes, 1), self.device)
                return Buffer(
                    buffer_id,
                    nbytes,
                    "ipc",
                    view,
                    handle=handle,
                    pointer=pointer,
                    lead=lead,
                    release=lambda: self._release(size, pointer, handle),
                )
        staged = make_memfd(buffer_id, nbytes)
        device_bytes = torch.zeros(max(nbytes, 1), dtype=torch.uint8, device=self.device)
        return Buffer(buffer_id, nbytes, "staged", device_bytes, host=staged.bytes, fd=staged.fd)

    def _allocate(self, size: int) -> tuple[int, str]:
        import torch

        with torch.cuda.device(self.device):
            torch.cuda.synchronize()  # makes the primary context current in this thread, whichever it is
            pointer = driver.allocate(size)
        handle, problem = driver.ipc_handle(pointer)
        if not handle:
            driver.free(pointer)
            self.ipc, self.reason = False, problem
            return 0, ""
        return pointer, handle

    def _release(self, size: int, pointer: int, handle: str) -> None:
        if size + sum(s * len(entries) for s, entries in self._idle.items()) > self.keep_bytes:
            driver.free(pointer)
        else:
            self._idle.setdefault(size, []).append((pointer, handle))

    def close(self) -> None:
        with suppress(RuntimeError):  # of a context that a fault has ended: its memory went with it
            for entries in self._idle.values():
                for pointer, _ in entries:
                    driver.free(pointer)
        self._idle = {}


def attach(description: Mapping[str, Any], take_fd: Callable[[], int], device: str) -> Buffer:
    """The child's side of a buffer. RuntimeError with the driver's words where an IPC handle cannot be opened."""
    import torch

    number, nbytes, kind = description["id"], description["nbytes"], description["kind"]
    lead = description["lead"]
    if kind == "ipc":
        pointer = driver.open_ipc_handle(description["handle"])
        return Buffer(
            number,
            nbytes,
            kind,
            driver.view_bytes(pointer + lead, max(nbytes, 1), device),
            pointer=pointer,
            release=lambda: driver.close_ipc_handle(pointer),
        )
    fd = take_fd()
    host = map_memfd(fd, nbytes, lead)
    os.close(fd)
    if kind == "memfd":
        return Buffer(number, nbytes, kind, host)
    return Buffer(number, nbytes, kind, torch.empty(max(nbytes, 1), dtype=torch.uint8, device=device), host=host)


def view(buffer: Buffer, meta: TensorMeta) -> Any:
    """The tensor that `meta` describes, over `buffer`; same address within the storage, same strides."""
    import torch
    from torch.autograd.grad_mode import _unsafe_preserve_version_counter

    tensor = torch.empty(0, dtype=dtype_of(meta.dtype), device=buffer.bytes.device)
    with _unsafe_preserve_version_counter(tensor):  # a tensor that nobody has written, as users give
        tensor.set_(buffer.bytes.untyped_storage(), meta.offset, meta.shape, meta.strides)
    return tensor.requires_grad_() if meta.requires_grad else tensor


def describe(tensor: Any, storage: int) -> TensorMeta:
    """The description of a strided tensor; ChildFailed(raised) for sparse or quantised ones."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ChildFailed("raised", f"a tensor of layout {tensor.layout} cannot cross between processes")
    kind = "Tensor" if type(tensor) is torch.Tensor else type(tensor).__name__
    if own := sorted(map(str, vars(tensor))):
        kind += f"{ATTRIBUTES}{', '.join(own)}"
    return TensorMeta(
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        offset=tensor.storage_offset(),
        storage=storage,
        storage_bytes=tensor.untyped_storage().nbytes(),
        device=tensor.device.type,
        type=kind,
        requires_grad=bool(tensor.requires_grad and tensor.is_leaf),
    )


@dataclass(frozen=True)
class Packed:
    """A tree taken apart: JSON with numbered leaves, one description per leaf, one source storage per number."""

    tree: Any
    metas: tuple[TensorMeta, ...]
    storages: tuple[Any, ...]  # uint8 tensors over the sources' storages


def pack(tree: object) -> Packed:
    """Take a tree of tensors apart; leaves that share a storage share its number. UsageError for foreign objects."""
    import torch

    numbers: dict[tuple[str, int], int] = {}
    storages: list[Any] = []
    metas: list[TensorMeta] = []

    def leaf(tensor: Any) -> int:
        plain = tensor.detach().resolve_conj().resolve_neg()
        storage = plain.untyped_storage()
        key = (str(plain.device), storage.data_ptr())
        if key not in numbers or storage.data_ptr() == 0:
            numbers[key] = len(storages)
            storages.append(torch.empty(0, dtype=torch.uint8, device=plain.device).set_(storage))
        meta = describe(plain, numbers[key])
        grad = bool(tensor.requires_grad and tensor.is_leaf)
        metas.append(TensorMeta(**{**meta.as_json(), "type": "Tensor", "requires_grad": grad}))
        return len(metas) - 1

    return Packed(encode(tree, leaf), tuple(metas), tuple(storages))


def tensor_leaves(tree: object) -> list[Any]:
    """The tensors of a tree in the order in which `pack` numbers them."""
    found: list[Any] = []

    def leaf(tensor: Any) -> int:
        found.append(tensor)
        return len(found) - 1

    encode(tree, leaf)
    return found


def fill(buffers: Sequence[Buffer], packed: Packed) -> None:
    """Copy the sources' bytes into the buffers (judge's side)."""
    for buffer, source in zip(buffers, packed.storages, strict=True):
        if source.numel():
            buffer.bytes[: source.numel()].copy_(source)
        buffer.publish()


def private_copy(buffer: Buffer) -> Buffer:
    """The judge's own copy of a buffer: the one read of memory that a child can still write."""
    buffer.refresh()
    return Buffer(buffer.id, buffer.nbytes, "private", buffer.bytes.clone())


def dense(meta: TensorMeta) -> bool:
    """True when the strides cover each element exactly once without holes (a permuted contiguous layout)."""
    expected = 1
    for stride, size in sorted(zip(meta.strides, meta.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def received(buffer: Buffer, meta: TensorMeta) -> Any:
    """An output from its dense buffer as a private tensor: values from the child, and its strides where dense."""
    import torch

    flat = buffer.bytes[: meta.numel * dtype_of(meta.dtype).itemsize].clone()
    values = flat.view(dtype_of(meta.dtype)).view(meta.shape)
    if meta.numel and dense(meta) and values.stride() != meta.strides:
        values = torch.empty_strided(meta.shape, meta.strides, dtype=values.dtype, device=values.device).copy_(values)
    return values


def nbytes_of(meta: TensorMeta) -> int:
    """Bytes of the elements, without the storage's rest."""
    return int(meta.numel * dtype_of(meta.dtype).itemsize)

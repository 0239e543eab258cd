"""What crosses between judge and child: JSON lines over a private socket pair, and the encoding of argument trees.

Length-limited, a nonce on every answer, descriptors beside the lines; never pickle. The reader of a child's line
assumes that the candidate wrote it.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kforge.errors import ChildFailed, UsageError

_MAX_FDS = 64  # a message's share of SCM_RIGHTS (the kernel allows 253)
MAX_DIMS = 64
MAX_DEPTH = 64  # of a tree


def readable(sock: socket.socket, timeout_s: float | None) -> bool:
    """Whether something can be read, an end of file too, within so many seconds. poll: descriptors may exceed 1,023."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1e3))


def _receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """What lies there, and the descriptors with it; BlockingIOError for nothing. socket.recv_fds drops its flags."""
    flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
    data, ancillary, _, _ = sock.recvmsg(1 << 16, socket.CMSG_LEN(_MAX_FDS * 4), flags)
    fds = array.array("i")
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    return data, list(fds)


class Channel:
    """One end of the pair. `limit`: the longest line it will read, in bytes."""

    def __init__(self, sock: socket.socket, limit: int) -> None:
        self.sock, self.limit = sock, limit
        self._buffer = b""
        self.fds: list[int] = []  # received and not yet taken, in order

    def send(self, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
        """Write one line; `fds` (at most 64) travel with its first byte. ChildFailed(crashed) if the peer is gone."""
        data = json.dumps(message).encode() + b"\n"
        try:
            sent = socket.send_fds(self.sock, [data], list(fds)) if fds else 0
            self.sock.sendall(data[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ChildFailed("crashed", "the process ended before it could be asked") from error
        except TimeoutError as error:
            raise ChildFailed("timed_out", "the process does not read what it is asked") from error

    def receive(self, timeout_s: float | None = None, awake_s: float = 0.0) -> dict[str, Any]:
        """Read one line. ChildFailed: crashed (end of file), timed_out, protocol (too long, not a JSON object).

        awake_s: so long it is asked for without sleep. Who slept for 10 ms wakes up 0.2 ms late, which is in what this
        side's clock says of the answer.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if awake_s > 0:
            until = time.monotonic() + (awake_s if timeout_s is None else min(awake_s, timeout_s))
            while not readable(self.sock, 0.0) and time.monotonic() < until:
                pass
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > self.limit:
                raise ChildFailed("protocol", f"an answer of over {self.limit} bytes was refused")
            self._fill(deadline)
        line, self._buffer = self._buffer[:end], self._buffer[end + 1 :]
        if len(line) > self.limit:
            raise ChildFailed("protocol", f"an answer of over {self.limit} bytes was refused")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ChildFailed("protocol", f"an answer that is not JSON: {line[:80]!r}") from error
        if not isinstance(message, dict):
            raise ChildFailed("protocol", f"an answer that is not an object: {line[:80]!r}")
        return message

    def _fill(self, deadline: float | None) -> None:
        if not readable(self.sock, None if deadline is None else max(0.0, deadline - time.monotonic())):
            raise ChildFailed("timed_out", "no answer within the time limit")
        try:
            data, fds = _receive(self.sock)
        except (BlockingIOError, TimeoutError):  # another thread was quicker: the deadline is looked at again
            return
        except ConnectionResetError:
            data, fds = b"", []
        self.fds += fds
        if not data:
            raise ChildFailed("crashed", "the process ended without an answer")
        self._buffer += data

    def take_fds(self, count: int) -> list[int]:
        """The next `count` descriptors received; ChildFailed(protocol) when fewer came."""
        if len(self.fds) < count:
            raise ChildFailed("protocol", f"{count} descriptors announced, {len(self.fds)} received")
        taken, self.fds = self.fds[:count], self.fds[count:]
        return taken

    def drop_fds(self) -> None:
        """Close descriptors that nobody asked for (a hostile peer may send some)."""
        for fd in self.fds:
            os.close(fd)
        self.fds = []

    def close(self) -> None:
        self.drop_fds()
        self.sock.close()


ATTRIBUTES = " with attributes "  # in the type of a tensor on which some were set


@dataclass(frozen=True)
class TensorMeta:
    """How a tensor lies in memory: all that the other side needs to rebuild the view, no values.

    dtype: torch's name ("bfloat16"); shape and strides in elements; offset in elements from the storage's start;
    storage: which storage (equal numbers share memory; on a child's answer, numbers below 0 are its own memory, others
    the judge's buffers); storage_bytes: its size; device: "cpu" or "cuda"; type: "Tensor" or the subclass's name, and
    what Python attributes were set on it ("Tensor with attributes origin").
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: int
    storage_bytes: int
    device: str
    type: str = "Tensor"
    requires_grad: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def parse(data: object) -> TensorMeta:
        """From JSON, every field checked. ChildFailed(protocol) otherwise."""
        if not isinstance(data, dict) or set(data) != set(TensorMeta.__dataclass_fields__):
            raise ChildFailed("protocol", "a malformed tensor description")
        sizes = (*_ints(data["shape"]), *_ints(data["strides"]), *_ints([data["offset"], data["storage_bytes"]]))
        if any(not 0 <= n < 1 << 48 for n in sizes) or len(data["shape"]) != len(data["strides"]):
            raise ChildFailed("protocol", "a tensor description with impossible sizes")
        if len(data["shape"]) > MAX_DIMS or not all(isinstance(data[k], str) for k in ("dtype", "device", "type")):
            raise ChildFailed("protocol", "a malformed tensor description")
        _ints([data["storage"]])
        return TensorMeta(
            dtype=data["dtype"],
            shape=tuple(data["shape"]),
            strides=tuple(data["strides"]),
            offset=data["offset"],
            storage=data["storage"],
            storage_bytes=data["storage_bytes"],
            device=data["device"],
            type=data["type"][:200],
            requires_grad=bool(data["requires_grad"]),
        )

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


def _ints(values: object) -> list[int]:
    if not isinstance(values, list) or not all(type(v) is int for v in values):
        raise ChildFailed("protocol", "a malformed tensor description")
    return values


@dataclass(frozen=True)
class Opaque:
    """An object that is no tensor, number, string or container: only its type's name crossed."""

    type: str


def encode(tree: object, tensor: Callable[[Any], int], strict: bool = True) -> Any:
    """A tree as JSON; `tensor(t)` gives each tensor leaf its number, called in order of appearance.

    strict: an object of another type raises UsageError; otherwise it crosses as its type's name.
    """
    import torch

    def walk(node: object) -> Any:
        if node is None or isinstance(node, (bool, str)) or type(node) is int:
            return node
        if isinstance(node, float):
            return {"float": float(node).hex()}
        if isinstance(node, complex):
            return {"complex": [node.real.hex(), node.imag.hex()]}
        if isinstance(node, torch.Tensor):
            return {"tensor": tensor(node)}
        if isinstance(node, torch.Size):
            return {"size": list(node)}
        if isinstance(node, tuple):
            named = {"name": type(node).__name__} if type(node) is not tuple else {}
            return {"tuple": [walk(item) for item in node], **named}
        if isinstance(node, list):
            return {"list": [walk(item) for item in node]}
        if isinstance(node, Mapping):
            named = {"name": type(node).__name__} if type(node) is not dict else {}
            return {"dict": [[walk(key), walk(value)] for key, value in node.items()], **named}
        if isinstance(node, (torch.dtype, torch.device)):
            return {type(node).__name__: str(node).removeprefix("torch.")}
        if isinstance(node, int):  # IntEnum and the like
            return int(node)
        if strict:
            raise UsageError(
                f"a value of type {type(node).__name__} cannot be handed to a candidate",
                "inputs are trees of tensors, numbers, strings, None, lists, tuples and dicts",
            )
        return {"other": f"{type(node).__module__}.{type(node).__qualname__}"[:200]}

    return walk(tree)


def decode(data: Any, tensor: Callable[[int], Any]) -> Any:
    """The tree back from JSON; `tensor(number)` gives each leaf. ChildFailed(protocol) for anything unknown.

    Named tuples and subclasses of dict come back as plain tuple and dict.
    """
    import torch

    def walk(node: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise ChildFailed("protocol", f"a tree of over {MAX_DEPTH} levels")
        if node is None or isinstance(node, (bool, str)) or type(node) is int:
            return node
        if not isinstance(node, dict):
            raise ChildFailed("protocol", "a malformed tree")
        kind = next(iter(node), "")
        value = node.get(kind)
        if kind == "tensor" and type(value) is int:
            return tensor(value)
        if kind == "float" and isinstance(value, str):
            return float.fromhex(value)
        if kind == "other" and isinstance(value, str):
            return Opaque(value)
        if kind in ("dtype", "device") and isinstance(value, str):
            return torch.device(value) if kind == "device" else dtype_of(value)
        if isinstance(value, list):
            if kind == "tuple":
                return tuple(walk(item, depth + 1) for item in value)
            if kind == "list":
                return [walk(item, depth + 1) for item in value]
            if kind == "size":
                return torch.Size(_ints(value))
            if kind == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
                return {_hashable(walk(key, depth + 1)): walk(item, depth + 1) for key, item in value}
            if kind == "complex" and len(value) == 2:
                return complex(float.fromhex(value[0]), float.fromhex(value[1]))
        raise ChildFailed("protocol", f"a malformed tree at {str(node)[:80]}")

    try:
        return walk(data)
    except (ValueError, TypeError, RuntimeError, OverflowError, RecursionError) as error:
        raise ChildFailed("protocol", f"a malformed tree: {error}") from error


def _hashable(key: Any) -> Any:
    if isinstance(key, (str, int, float, tuple)) or key is None:
        return key
    raise ChildFailed("protocol", "a malformed tree: a key that is no key")


def dtype_of(name: str) -> Any:
    """torch's dtype by name ("bfloat16"). ChildFailed(protocol) for an unknown name."""
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ChildFailed("protocol", f"unknown dtype {name[:40]!r}")
    return found

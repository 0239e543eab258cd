"""Where tensors live: moving calls and modules to the target device, and op.py's "cuda" on a machine without a GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import MissingError
from kforge.task.call import Call, copy_tree

if TYPE_CHECKING:
    import torch


def resolve_device(name: str) -> str:
    """ "cpu" or "cuda:N" for auto, cpu, cuda or cuda:N; auto is the first GPU that torch can use, else the CPU.

    MissingError (exit code 3) for a GPU that is asked for and absent.
    """
    if name == "cpu":
        return name
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda:0" if count else "cpu"
    index = int(name.partition(":")[2] or 0)
    if index >= count:
        found = f"{count} found" if count else "no GPU that torch can use"
        raise MissingError(f"{name} is absent: {found}", "use --device cpu for the emulator; `kforge doctor` says more")
    return f"cuda:{index}"


def move_tree(tree: Any, device: torch.device | str) -> Any:
    """Tensors of a pytree on `device`, 0-dim tensors excepted; the tree itself where nothing has to move."""
    import torch
    from torch.utils import _pytree as pytree

    target = torch.device(device)
    leaves = [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]
    if all(t.dim() == 0 or _on(t, target) for t in leaves):
        return tree
    return copy_tree(tree, target)


def move_call(call: Call, device: torch.device | str) -> Call:
    """As move_tree, for one set of inputs."""
    args, kwargs = move_tree((call.args, call.kwargs), device)
    return Call(args, kwargs)


def move_module(module: torch.nn.Module, device: torch.device | str) -> torch.nn.Module:
    """`module.to(device)`, and with it tensors that are plain attributes (0-dim ones excepted)."""
    import torch

    target = torch.device(device)
    for part in module.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor) and value.dim() > 0 and not _on(value, target):
                setattr(part, name, value.to(target))
    return module.to(target)


def _on(t: torch.Tensor, target: torch.device) -> bool:
    return t.device.type == target.type and target.index in (None, t.device.index)


@contextmanager
def redirect_cuda(device: torch.device | str, log: list[str] | None = None) -> Iterator[None]:
    """While the target is the CPU, send `device="cuda"`, `.cuda()` and `.to("cuda")` there too.

    Each place is added once to `log` as `op.py:12: Tensor.cuda cuda -> cpu`. On a GPU target nothing happens.
    """
    if str(device).split(":")[0] != "cpu":
        yield
        return
    with _mode()(log if log is not None else []):
        yield


def _mode() -> Any:
    """The mode's class; made on first use because its base is torch's."""
    global _MODE
    if _MODE is None:
        _MODE = _make_mode()
    return _MODE


_MODE: Any = None


def _make_mode() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode, resolve_name

    cpu = torch.device("cpu")
    takes_text = {torch.Tensor.to, torch.Tensor.type}
    library = str(Path(torch.__file__).parent)

    def is_cuda(value: Any) -> bool:
        return isinstance(value, torch.device) and value.type == "cuda"

    def is_cuda_text(value: Any) -> bool:
        return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))

    class Redirect(TorchFunctionMode):
        def __init__(self, log: list[str]) -> None:
            super().__init__()
            self.log = log

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if func is torch.Tensor.cuda:
                self.note(func)
                return args[0]
            hit = False
            if is_cuda(kwargs.get("device")) or is_cuda_text(kwargs.get("device")):
                kwargs["device"], hit = cpu, True
            elif func is torch.Tensor.to and any(is_cuda(a) or is_cuda_text(a) for a in args[1:]):
                args, hit = (args[0], *(cpu if is_cuda(a) or is_cuda_text(a) else a for a in args[1:])), True
            elif func not in takes_text and any(is_cuda(a) for a in args):
                args, hit = tuple(cpu if is_cuda(a) else a for a in args), True
            if hit:
                self.note(func)
            return func(*args, **kwargs)

        def note(self, func: Any) -> None:
            frame = sys._getframe(2)
            while frame.f_back is not None and frame.f_code.co_filename.startswith(library):
                frame = frame.f_back
            name = (resolve_name(func) or getattr(func, "__name__", str(func))).removeprefix("torch.")
            line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}: {name} cuda -> cpu"
            if line not in self.log:
                self.log.append(line)

    return Redirect

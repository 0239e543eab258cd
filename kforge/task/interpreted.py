"""Triton and Helion references on a machine without a GPU: their interpreter, in a child process of its own.

The interpreter is switched on by an environment variable read at import, and an access out of bounds in it kills the
process: hence an exec'd child (interpreter_child.py). Calls and results cross as files in a private temporary folder,
read with weights_only=True. bfloat16 is refused by name: Triton's interpreter computes it wrongly without a word.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge import scratch
from kforge.errors import MissingError, TaskError
from kforge.task.alias import alias_map, same_bits
from kforge.task.call import Call, call_leaves, tensors, tree_leaves
from kforge.task.files import pack, unpack
from kforge.task.form import Form

if TYPE_CHECKING:
    import torch

    from kforge.task.task import Task

TIMEOUT = 300.0  # seconds for one call; interpreted kernels are slow
PACKAGES = {Form.TRITON: "triton", Form.HELION: "helion"}
BF16_HINT = "use float16 or float32 inputs here, or a machine with a GPU"


class Interpreted:
    """The reference function of a Triton or Helion task, run by its interpreter. Called like the function itself.

    One child serves all calls; it starts with the first (importing torch and Triton takes seconds) and ends with this
    object. Inputs that the reference changes in place are written back.
    """

    def __init__(self, task: Task) -> None:
        package = PACKAGES[task.form]
        if importlib.util.find_spec(package) is None:
            raise MissingError(
                f"{package} is not installed", f"install the extra: pip install 'kforge-cuda[{package}]'"
            )
        if "tl.bfloat16" in task.source:
            raise MissingError(
                f"{task.path.name}: the kernel uses tl.bfloat16, which Triton's interpreter computes wrongly", BF16_HINT
            )
        self.task = task
        self.child: _Child | None = None
        functools.update_wrapper(self, _function_of(task.reference), updated=())

    def __deepcopy__(self, memo: dict[int, Any]) -> Interpreted:
        return self  # the child holds no state of a call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = Call(args, kwargs)
        self._refuse_bfloat16("input", call_leaves(call, self))
        if self.child is None:
            self.child = _Child(self.task)
        outputs, after = self.child.call(call)
        self._refuse_bfloat16("output", tree_leaves(outputs))
        sources = tensors(call_leaves(after))
        given = dict(tensors(call_leaves(call)))
        for path, theirs in sources:
            if not same_bits(given[path], theirs):
                given[path].copy_(theirs)
        return _share(outputs, sources, given)

    def _refuse_bfloat16(self, what: str, leaves: list[tuple[str, Any]]) -> None:
        import torch

        for path, leaf in tensors(leaves):
            if leaf.dtype == torch.bfloat16:
                raise MissingError(
                    f"{self.task.path.name}: {what} {path} is bfloat16, which Triton's interpreter computes wrongly",
                    BF16_HINT,
                )


def _share(outputs: Any, sources: list[tuple[str, torch.Tensor]], given: dict[str, torch.Tensor]) -> Any:
    """Outputs that are views of the child's copies of inputs, as views of the caller's own inputs."""
    import torch
    from torch.utils import _pytree as pytree

    shared = {alias.output: alias for alias in alias_map(outputs, sources) if alias.source in given}
    paths = iter(path for path, _ in tree_leaves(outputs))

    def own(leaf: Any) -> Any:
        alias = shared.get(next(paths))
        if alias is None or not isinstance(leaf, torch.Tensor):
            return leaf
        source = given[alias.source]
        return source.as_strided(alias.shape, alias.strides, source.storage_offset() + alias.offset)

    return pytree.tree_map(own, outputs)


def _function_of(reference: Any) -> Any:
    """The plain function inside a kernel object, for name, docstring and signature."""
    while not hasattr(reference, "__code__") and hasattr(reference, "fn"):
        reference = reference.fn
    return reference


class _Child:
    """The process: one request and one reply line at a time, tensors in numbered files of its folder."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.folder = scratch.make("interpreter")
        self.count = 0
        package_root = str(Path(__file__).resolve().parents[2])
        paths = [package_root, os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "TRITON_INTERPRET": "1",
            "HELION_AUTOTUNE_EFFORT": "none",
            "PYTHONPATH": os.pathsep.join(p for p in paths if p),
            "TRITON_CACHE_DIR": str(self.folder / "cache"),
        }
        environment.pop("HELION_INTERPRET", None)  # Helion refuses both
        self.errors = (self.folder / "stderr").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kforge.task.interpreter_child", str(task.path), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=self.folder,
            env=environment,
        )
        self.close = weakref.finalize(self, _end, self.process, self.folder)

    def call(self, call: Call) -> tuple[Any, Call]:
        """Outputs, and the inputs after the call. Raises TaskError: what the kernel raised, or how the child died."""
        self.count += 1
        request, reply = self.folder / f"{self.count}.in", self.folder / f"{self.count}.out"
        pack((call.args, call.kwargs), request)
        answer = self._exchange({"request": str(request), "reply": str(reply)})
        request.unlink()
        if "error" in answer:
            raise TaskError(str(answer["error"]))
        outputs, args, kwargs = unpack(reply)
        reply.unlink()
        return outputs, Call(tuple(args), kwargs)

    def _exchange(self, message: dict[str, str]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT)
        if not ready:
            self.close()
            raise TaskError(f"{self.task.path.name}: the interpreter did not finish within {TIMEOUT:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _died(self) -> TaskError:
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().splitlines()[-1:]
        name = self.task.path.name
        if code < 0:
            return TaskError(
                f"{name}: the interpreter died of {signal.Signals(-code).name}:"
                " a kernel read or wrote outside its tensors",
                "check the masks of loads and stores",
            )
        return TaskError(f"{name}: the interpreter ended with exit code {code}: {' '.join(last)}")


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # a dead child's pipe may still hold a request
                pipe.close()
    shutil.rmtree(folder, ignore_errors=True)

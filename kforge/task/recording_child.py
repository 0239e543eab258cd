"""The child of recording.py: runs the user's program as a script and records calls of one module.

`python -m kforge.task.recording_child script.py target result calls [arguments]`. Writes `result`, or one line about
what went wrong to `result.error`.
"""

from __future__ import annotations

import difflib
import json
import sys
import types
from pathlib import Path
from typing import Any

from kforge.errors import KforgeError, TaskError
from kforge.task.call import Call, call_leaves, copy_tree, describe_leaf, positional_names
from kforge.task.files import pack
from kforge.task.opfile import encode
from kforge.task.state import read_state
from kforge.task.usercode import PassesThrough, user_code

NEAR = 5  # names that are offered for a target that was not found


class Recorded(PassesThrough):
    """Ends the user's program once enough calls are recorded; no `except Exception` of theirs can stop it."""


class Recorder:
    """Sees every construction and call of a module, and keeps the calls of the target."""

    def __init__(self, target: str, script: Path, namespace: dict[str, Any], wanted: int) -> None:
        self.target, self.script, self.namespace, self.wanted = target, script, namespace, wanted
        self.init: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}
        self.module: Any = None
        self.calls: list[dict[str, Any]] = []
        self.shapes: set[str] = set()
        self.before: dict[str, Any] = {}

    def install(self) -> None:
        """Patch nn.Module for the rest of this process."""
        import torch

        recorder, original = self, torch.nn.Module.__call__

        def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
            module = object.__new__(cls)
            recorder.init[id(module)] = (module, args, kwargs)  # holding it keeps the id unique
            return module

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if recorder.module is not module and not (recorder.module is None and recorder.matches(module)):
                return original(module, *args, **kwargs)
            return recorder.record(module, original, args, kwargs)

        torch.nn.Module.__new__ = staticmethod(new)  # type: ignore[assignment,method-assign]
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]

    def matches(self, module: Any) -> bool:
        """The target is this module's class (with or without its module's name), or the path leads to this instance."""
        kind = type(module)
        if self.target in (kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}"):
            return True
        root, *rest = self.target.split(".")
        return any(_walk(scope[root], rest) is module for scope in self.scopes() if root in scope)

    def scopes(self) -> list[dict[str, Any]]:
        """The script's globals, and the locals of its functions that are running."""
        found = [self.namespace]
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == str(self.script):
                found.append(frame.f_locals)
            frame = frame.f_back
        return found

    def record(self, module: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        import torch

        shapes = "; ".join(describe_leaf(leaf) for _, leaf in call_leaves(Call(args, kwargs)))
        if shapes in self.shapes:
            return original(module, *args, **kwargs)
        if self.module is None:
            self.module, state = module, read_state(module)
            self.before = {
                "state": {name: t for name, t in state.tensors.items() if name in state.persistent},
                "buffers": {name: t for name, t in state.tensors.items() if name not in state.persistent},
                "training": module.training,
            }
        self.shapes.add(shapes)
        given = copy_tree((args, kwargs), "cpu")
        outputs = original(module, *args, **kwargs)
        leaves = copy_tree(outputs, "cpu")
        leaves = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.detach(), leaves)
        self.calls.append({"args": list(given[0]), "kwargs": given[1], "outputs": leaves})
        if len(self.calls) == self.wanted:
            raise Recorded
        return outputs

    def run(self, script: Path, namespace: dict[str, Any]) -> None:
        """Run the script until enough is recorded. Raises TaskError if it fails or never makes the call."""
        try:
            with user_code(script, "the program failed:"):
                exec(compile(script.read_bytes(), str(script), "exec", dont_inherit=True), namespace)
        except Recorded:
            return
        except TaskError as error:
            ended = isinstance(error.__cause__, SystemExit)
            if self.module is None and not (ended and not error.__cause__.code):  # type: ignore[union-attr]
                raise
        if self.module is None:
            raise TaskError(f"{script.name} ran, but {self.target} was never called", self.near())

    def near(self) -> str:
        """The modules of the program whose paths or classes are most like the target, in words."""
        import torch

        names: dict[str, None] = {}
        for name, value in self.namespace.items():
            if isinstance(value, torch.nn.Module):
                names |= {f"{name}.{path}" if path else name: None for path, _ in value.named_modules()}
        names |= {type(module).__qualname__: None for module, _, _ in self.init.values()}
        if not names:
            return "it constructs no torch.nn.Module"
        wanted = self.target.rsplit(".", 1)[-1].lower()
        ends = [name for name in names if name.rsplit(".", 1)[-1].lower() == wanted]
        close = difflib.get_close_matches(self.target, names, NEAR, 0.5)
        found = list(dict.fromkeys([*ends, *close]))[:NEAR]
        return f"did you mean {' or '.join(found)}?" if found else f"its modules: {', '.join(list(names)[:NEAR])}"

    def result(self) -> dict[str, Any]:
        """What the parent needs, as plain values and tensors."""
        kind = type(self.module)
        _, args, kwargs = self.init.get(id(self.module), (None, (), {}))
        return {
            "class": [kind.__module__, kind.__qualname__],
            "parameters": positional_names(self.module.forward),
            "init": [[encode(a) for a in args], {name: encode(a) for name, a in kwargs.items()}],
            "calls": self.calls,
            **self.before,
        }


def _walk(value: Any, path: list[str]) -> Any:
    for name in path:
        if name.lstrip("-").isdigit() and hasattr(value, "__getitem__"):
            try:
                value = value[int(name)]
                continue
            except (IndexError, KeyError, TypeError):
                return None
        value = getattr(value, name, None)
    return value


def main() -> None:
    script, target, result, wanted = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    main_module = types.ModuleType("__main__")
    main_module.__file__ = str(script)
    sys.argv = [str(script), *sys.argv[5:]]
    sys.path[0] = str(script.parent)
    sys.modules["__main__"] = main_module
    recorder = Recorder(target, script, main_module.__dict__, wanted)
    recorder.install()
    try:
        recorder.run(script, main_module.__dict__)
        pack(recorder.result(), result)
    except KforgeError as error:
        result.with_suffix(".error").write_text(json.dumps([error.message, error.hint]))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()

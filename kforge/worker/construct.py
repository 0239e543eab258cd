"""From a candidate's file to its model in the child: the import, and the copying of state by name."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from kforge.errors import KforgeError


def import_module(path: Path) -> ModuleType:
    """The candidate's module under its file's name, its folder first on sys.path."""
    sys.dont_write_bytecode = True
    if sys.path[0] != str(path.parent):
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise KforgeError(f"{path.name} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def copy_state(model: Any, state: dict[str, Any], nonpersistent: set[str]) -> dict[str, Any]:
    """Copy by name where both sides have it; report keys of the state dict that only one side has.

    Non-persistent buffers are copied where the candidate has them and are otherwise nobody's concern.
    """
    own = model.state_dict(keep_vars=True)
    free = {k: v for k, v in model.named_buffers(remove_duplicate=False) if k not in own}
    given = {name: value for name, value in state.items() if name not in nonpersistent}
    mismatched = [
        f"{name}: {tuple(own[name].shape)} instead of {tuple(value.shape)}"
        for name, value in given.items()
        if name in own and own[name].shape != value.shape
    ]
    answer = {
        "missing": sorted(set(own) - set(given)),
        "unexpected": sorted(set(given) - set(own)),
        "mismatched": mismatched,
    }
    if not mismatched:
        model.load_state_dict({name: value for name, value in given.items() if name in own}, strict=False)
        for name in nonpersistent & set(free):
            if name in state and free[name].shape == state[name].shape:
                free[name].copy_(state[name])
    return answer

"""Other makers of kernels in the two phases: what *build* compiled, *run* loads, where nothing may be executed.

Triton and CuPy keep their results on disk and ask compilers for no more than their version: these answers are
remembered. load_inline starts ninja even with a warm cache, and PyCUDA may start nvcc: their results are loaded by
name, and what is missing is an error that says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kforge.errors import BuildError

_QUESTIONS = ("--version", "-p", "-V")  # nvcc's and ptxas's version, ldconfig's list
_KIND_OF_FILE = ["file", "-b"]  # asked by platform.architecture, which is in the key of what Triton compiles
_HINT = "the warm step must build every specialisation before the run"


def prepare(phase: str, cache: Path, text: str) -> None:
    """Set up this process for a candidate with this text. cache: its folder of builds, read-only in *run*."""
    if "triton" in text or "helion" in text:
        _remember_questions(phase, cache / "questions.json")
    if "cpp_extension" in text and phase == "run":
        _load_extensions()
    if "pycuda" in text:
        _keep_pycuda(phase, cache / "pycuda")


def _remember_questions(phase: str, path: Path) -> None:
    """What programs answered to questions in *build* is what they answer in *run*."""
    ask: Callable[..., Any] = subprocess.check_output
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}

    def answer(command: Any, *args: Any, **kwargs: Any) -> Any:
        asked = isinstance(command, list) and (command[-1] in _QUESTIONS or command[:2] == _KIND_OF_FILE)
        key = json.dumps(command) if asked else ""
        if phase == "run" and key in known:
            return known[key].encode()
        said = ask(command, *args, **kwargs)
        if phase == "build" and key and isinstance(said, bytes):
            known[key] = said.decode(errors="replace")
            path.write_text(json.dumps(known))
        return said

    subprocess.check_output = answer  # type: ignore[assignment]


def _load_extensions() -> None:
    """torch.utils.cpp_extension.load and load_inline give the library that is there under this name."""
    from torch.utils import cpp_extension

    def load(name: str, *args: Any, is_python_module: bool = True, **kwargs: Any) -> Any:
        folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / name
        if not (folder / f"{name}.so").is_file():
            raise BuildError(f"the extension {name!r} was not built", _HINT)
        return cpp_extension._import_module_from_library(name, str(folder), is_python_module)

    cpp_extension.load = cpp_extension.load_inline = load


def _keep_pycuda(phase: str, folder: Path) -> None:
    """pycuda.compiler.compile, which SourceModule calls, keeps its cubins by the hash of all it is given."""
    try:
        from pycuda import compiler
    except ImportError:  # the candidate's own import says so
        return
    build: Callable[..., bytes] = compiler.compile

    def compile(source: str, *args: Any, **kwargs: Any) -> bytes:
        key = hashlib.sha256(repr((source, args, sorted(kwargs.items()))).encode()).hexdigest()
        path = folder / f"{key}.cubin"
        if path.is_file():
            return path.read_bytes()
        if phase == "run":
            raise BuildError(f"PyCUDA has not built this source: {source.strip().splitlines()[0]!r} ...", _HINT)
        cubin = build(source, *args, **kwargs)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cubin)
        return cubin

    compiler.compile = compile

"""A CUDA source shared by several kernels: where it is, what it includes, and its builds for GPU and emulator."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import BuildError, UsageError
from kforge.kernel.build import Build, BuildRequest, build, content_key
from kforge.kernel.build.toolchain import HEADERS
from kforge.kernel.definition import Definition
from kforge.kernel.packages import find_package
from kforge.kernel.prepare import Constant, prepare, substitute
from kforge.kernel.sources import read_source

if TYPE_CHECKING:
    from kforge.kernel.kernel import Kernel

_LOCAL_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)


class Module:
    """Several kernels of one source. Kernels that resolve to the same constants and types share one cubin.

    source: a path (relative to the file that constructs the Module) or the text itself. include: names of header
    packages (see kforge.kernel.packages). compiler: "auto", "nvrtc" or "nvcc".

        module = Module("norm.cu", include=("cutlass",))
        norm = module.kernel("norm_rows", grid="(rows, 1, 1)", block=256)
    """

    def __init__(self, source: str | Path, include: tuple[str, ...] = (), compiler: str = "auto") -> None:
        path, self.text = _read_source(source, _caller_folder())
        self.path = path
        self.filename = path.name if path else ""
        self.compiler = compiler
        self.packages = tuple(find_package(name) for name in include)
        self.definitions: list[Definition] = []
        # What this process has loaded, by launcher (or emulator mode) and specialisation.
        self.functions: dict[tuple, Any] = {}
        self.static_shared: dict[tuple, int] = {}  # bytes, by specialisation on a GPU

    def kernel(self, name: str, **declaration: Any) -> Kernel:
        """A Kernel of this source; the keywords are Kernel's own."""
        from kforge.kernel.kernel import Kernel

        return Kernel(name, self, **declaration)

    def add(self, definition: Definition) -> None:
        """Make a kernel a member: its constants are defined and its instance is built with the others."""
        self.definitions.append(definition)
        self.filename = self.filename or f"{definition.name}.cu"

    def request(
        self, definition: Definition, constants: Mapping[str, Constant], types: Mapping[str, str], arch: str
    ) -> BuildRequest:
        """What to compile for one resolved call of a member, the other members' instances included where possible."""
        text, names = self.prepared(constants, types)
        folders, hashes = self._local_includes()
        values = ", ".join(f"{k}={v}" for k, v in {**types, **constants}.items())
        return BuildRequest(
            text=text,
            filename=self.filename,
            kernels=tuple(dict.fromkeys(names.values())),
            arch=arch,
            includes=(*folders, *(folder for p in self.packages for folder in p.folders)),
            include_keys=(*hashes, *(p.key for p in self.packages)),
            compiler=self.compiler,
            what=f"{definition.name}({values}) for {arch}",
        )

    def prepared(self, constants: Mapping[str, Constant], types: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """The text with constants and types written in, and name expression -> substituted one, per member.

        A member whose name expression needs a type or constant that this call does not bind is left out.
        """
        defined: dict[str, Constant] = {}
        substituted_only: set[str] = set()
        for member in self.definitions:
            defined.update({k: v for k, v in member.constants.items() if k not in defined})
            substituted_only |= member.in_expression
        defined.update(constants)
        names = {}
        for member in self.definitions:
            if member.in_expression <= defined.keys() | types.keys() and set(member.types) <= set(types):
                names[member.expression] = substitute(member.expression, member.signature.name, defined, types)
        text = prepare(self.text, self.filename, defined, types, substituted_only)
        return text, names

    def build(
        self, definition: Definition, constants: Mapping[str, Constant], types: Mapping[str, str], arch: str
    ) -> tuple[Build, str]:
        """The cubin for one resolved call of a member, and the member's symbol in it. BuildError has the log."""
        request = self.request(definition, constants, types, arch)
        built = build(request)
        return built, built.names[self.instance(definition, constants, types)]

    def instance(self, definition: Definition, constants: Mapping[str, Constant], types: Mapping[str, str]) -> str:
        """A member's name expression with the constants and types of a call put in."""
        return substitute(definition.expression, definition.signature.name, constants, types)

    def program(
        self, definition: Definition, constants: Mapping[str, Constant], types: Mapping[str, str]
    ) -> tuple[Any, str]:
        """The emulator's program for one resolved call of a member, and the member's name in it."""
        from kforge.kernel import emulator

        instance = self.instance(definition, constants, types)
        loaded = ("emulator", emulator.current_mode(), instance, tuple(constants.items()), tuple(types.items()))
        if loaded not in self.functions:
            text, _ = self.prepared(constants, types)
            folders, _ = self._local_includes()
            includes = [HEADERS, *folders, *(folder for p in self.packages for folder in p.folders)]
            self.functions[loaded] = emulator.load(text, self.filename, [instance], includes=includes)
        return self.functions[loaded], instance

    def _local_includes(self) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """The source's folder and a hash of the files beside it that it includes, directly or not."""
        if self.path is None:
            return (), ()
        found: dict[Path, str] = {}
        pending = [(self.path.parent, self.text)]
        while pending:
            folder, text = pending.pop()
            for name in _LOCAL_INCLUDE.findall(text):
                path = (folder / name).resolve()
                if path.is_file() and path not in found:
                    found[path] = path.read_text(errors="replace")
                    pending.append((path.parent, found[path]))
        if not found:
            return (), ()
        return (self.path.parent,), tuple(content_key(name=p.name, text=t) for p, t in sorted(found.items()))


def _caller_folder() -> Path:
    """The folder of the first file outside this package on the call stack: sources are named relative to it."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("kforge.kernel."):
        frame = frame.f_back
    file = frame.f_globals.get("__file__") if frame is not None else None
    return Path(file).resolve().parent if file else Path.cwd()


def _read_source(source: str | Path, folder: Path) -> tuple[Path | None, str]:
    if isinstance(source, str) and ("\n" in source or "__global__" in source):
        return None, source
    path = folder / source
    if not path.is_file():
        words = f"no source file '{path.name}' in {path.parent}"
        raise BuildError(words, "name a file beside the module, or give the text")
    try:
        return path, read_source(path)
    except UsageError as error:
        raise BuildError(error.message, error.hint) from error

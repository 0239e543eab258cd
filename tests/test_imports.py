"""The house: who may import whom (read from the sources), and what a light command must not load (in a process)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

PACKAGE = Path(__file__).resolve().parent.parent / "kforge"

# From the ground up: a room may import itself and the rooms before it.
ROOMS = (
    ("errors", "resources", "scratch"),
    ("config",),
    ("task",),
    ("kernel",),
    ("store",),
    ("worker",),
    ("profiling",),
    ("environment",),
    ("engine",),
    ("inductor",),
    ("agent",),
    ("training",),
    ("export",),
    ("ui",),
    ("cli",),
)
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}

# (importer, imported): allowed by the order, and still wrong.
FORBIDDEN = {("engine", "worker"): "the engine proposes and never runs candidates: the environment does"}

# Packages that only one room (and those above it) may use.
OWNED = {"textual": "ui", "typer": "cli", "openai": "agent"}

# Modules that stay importable without these: they are loaded inside functions, by the command that needs them.
HEAVY = ("torch", "cupy", "cuda", "tree_sitter", "jinja2", "triton", "helion", "numpy")


def _room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import in a file; `from kforge import x` counts as kforge.x."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports with their full name"
            base = node.module or ""
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def _sources() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "_resources" not in path.parts)


def test_rooms_import_downwards_only() -> None:
    """No room imports one above it, and every room has its place in the order."""
    faults = []
    for path in _sources():
        room = _room(path)
        if room in {"__init__", "__main__"}:
            continue
        assert room in LEVEL, f"{path}: room {room!r} has no place in the order"
        for line, name in _imports(path):
            parts = name.split(".")
            if parts[0] != "kforge" or len(parts) < 2 or parts[1] not in LEVEL:
                continue
            target = parts[1]
            where = f"{path.relative_to(PACKAGE)}:{line}: {room} imports {target}"
            if LEVEL[target] > LEVEL[room]:
                faults.append(where)
            if (room, target) in FORBIDDEN:
                faults.append(f"{where}: {FORBIDDEN[room, target]}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("package", OWNED)
def test_packages_stay_in_their_room(package: str) -> None:
    """textual is imported in ui only, typer in cli only, openai not below agent."""
    owner = OWNED[package]
    faults = []
    for path in _sources():
        for line, name in _imports(path):
            room = _room(path)
            below = LEVEL.get(room, 0) < LEVEL[owner] or (package != "openai" and room != owner)
            if name.split(".")[0] == package and below:
                faults.append(f"{path.relative_to(PACKAGE)}:{line}: {room} imports {package}")
    assert not faults, "\n".join(faults)


def test_openai_only_in_the_chat_proposer() -> None:
    """Within agent, openai is imported by agent/chat alone: every other proposer works without the package."""
    faults = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in _sources()
        for line, name in _imports(path)
        if name.split(".")[0] == "openai" and not str(path.relative_to(PACKAGE)).startswith("agent/chat")
    ]
    assert not faults, "\n".join(faults)


def test_every_module_says_what_it_owns() -> None:
    """Each module with code in it begins with a docstring."""
    faults = []
    for path in _sources():
        tree = ast.parse(path.read_text())
        if tree.body and not ast.get_docstring(tree):
            faults.append(str(path.relative_to(PACKAGE)))
    assert not faults, "\n".join(faults)


def _loaded(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after running `code`."""
    program = f"import sys\n{code}\nprint(*sorted({{name.split('.')[0] for name in sys.modules}}), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return set(done.stderr.split())


def test_help_loads_nothing_heavy() -> None:
    """`kforge --help` imports no torch, no compiler, no parser, no rich: it answers in a tenth of a second."""
    code = (
        "sys.argv = ['kforge', '--help']\nfrom kforge.cli.main import main\ntry:\n    main()\nexcept SystemExit: pass"
    )
    assert _loaded(code).isdisjoint({*HEAVY, "rich", "textual", "openai", "pygments", "sqlite3"})


def test_room_packages_load_nothing_heavy() -> None:
    """Importing the package of any room loads neither torch nor any other heavy package."""
    rooms = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py") if path.parent.name != "_resources")
    code = "\n".join(f"import kforge.{room}" for room in rooms)
    assert _loaded(code).isdisjoint(HEAVY)

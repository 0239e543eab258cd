"""Where the package's data lies: templates/ and skills/, the same from a checkout and from an installed wheel.

In a checkout they are folders beside the package, in a wheel they lie inside it (`kforge/_resources`). Files that
belong to one module (the emulator's headers, the include shim, migrations) stay beside that module in both.
"""

from __future__ import annotations

from pathlib import Path

from kforge.errors import MissingError

_PACKAGE = Path(__file__).resolve().parent


def _find(name: str) -> Path:
    for root in (_PACKAGE / "_resources", _PACKAGE.parent):
        if (root / name).is_dir():
            return root / name
    raise MissingError(
        f"the folder {name}/ of kforge is absent from {_PACKAGE / '_resources'} and from {_PACKAGE.parent}",
        "install the package again, or run from a complete checkout",
    )


def templates_dir() -> Path:
    """The folder of Jinja2 templates (cuda/, candidate/). MissingError when the installation is incomplete."""
    return _find("templates")


def skills_dir() -> Path:
    """The folder of skills, one SKILL.md folder each. MissingError when the installation is incomplete."""
    return _find("skills")

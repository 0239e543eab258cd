"""Languages of the editor: Python as the widget knows it, CUDA with a query of our own, colours of the app's theme."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.widgets import TextArea

HIGHLIGHTED_LINES = 3000  # each edit queries the whole file: 4 ms at 500 lines, 42 ms at 5,000
_CUDA = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")
_QUERY = Path(__file__).with_name("cuda.scm")


def language_of(path: Path) -> str | None:
    """The editor's language for a file, None for plain text."""
    if path.suffix == ".py":
        return "python"
    return "cuda" if path.suffix in _CUDA else None


def set_language(area: TextArea, path: Path) -> None:
    """Highlight `area` as the file's language; huge files stay plain."""
    language = language_of(path)
    if language is None or area.document.line_count > HIGHLIGHTED_LINES:
        if area.language is not None:  # setting it makes the document anew
            area.language = None
        return
    if language == "cuda" and "cuda" not in area.available_languages:
        import tree_sitter_cuda
        from tree_sitter import Language

        area.register_language("cuda", Language(tree_sitter_cuda.language()), _QUERY.read_text())
    area.language = language


def follow_theme(area: TextArea) -> None:
    """Colour `area` as the app's theme in force asks for."""
    from kforge.ui.themes import syntax

    name = f"kforge-{area.app.theme}"
    area.register_theme(syntax(area.app.theme_variables, name))
    area.theme = name

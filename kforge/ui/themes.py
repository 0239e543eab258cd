"""The app's themes (dark, light, high contrast) and the editor's colours, which are made of the theme in force."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme
from textual.widgets.text_area import TextAreaTheme

THEMES = {
    "dark": Theme(
        name="kforge-dark",
        primary="#76b900",
        secondary="#5aa9e6",
        accent="#9ad32f",
        warning="#e5b567",
        error="#e06c75",
        success="#98c379",
        foreground="#d8dee4",
        background="#14171a",
        surface="#1a1e22",
        panel="#262c32",
        dark=True,
    ),
    "light": Theme(
        name="kforge-light",
        primary="#3f6b00",
        secondary="#0b5cad",
        accent="#4f7f00",
        warning="#8a5a00",
        error="#b3261e",
        success="#2e6b2e",
        foreground="#1b1f23",
        background="#ffffff",
        surface="#f6f8fa",
        panel="#e4e8ec",
        dark=False,
    ),
    "contrast": Theme(
        name="kforge-contrast",
        primary="#ffff00",
        secondary="#00ffff",
        accent="#ffff00",
        warning="#ffd700",
        error="#ff6060",
        success="#40ff40",
        foreground="#ffffff",
        background="#000000",
        surface="#000000",
        panel="#303030",
        dark=True,
        variables={"border": "#ffffff", "text-muted": "#ffffff", "text-disabled": "#d0d0d0"},
    ),
}

# Captures of the highlight queries (ours for CUDA, the editor's own for Python): which variable of the theme, how.
_STYLES: dict[str, tuple[str, str]] = {
    "comment": ("text-muted", "italic"),
    "string": ("text-success", ""),
    "string.documentation": ("text-success", "italic"),
    "number": ("text-warning", ""),
    "float": ("text-warning", ""),
    "constant": ("text-warning", ""),
    "constant.builtin": ("text-warning", ""),
    "boolean": ("text-warning", ""),
    "type": ("text-secondary", ""),
    "type.builtin": ("text-secondary", ""),
    "type.class": ("text-secondary", "bold"),
    "class": ("text-secondary", "bold"),
    "keyword": ("text-accent", "bold"),
    "keyword.function": ("text-accent", "bold"),
    "keyword.return": ("text-accent", "bold"),
    "keyword.operator": ("text-accent", "bold"),
    "conditional": ("text-accent", "bold"),
    "repeat": ("text-accent", "bold"),
    "exception": ("text-accent", "bold"),
    "include": ("text-accent", ""),
    "preprocessor": ("text-accent", ""),
    "attribute": ("text-error", ""),
    "function": ("text-primary", "bold"),
    "function.call": ("text-primary", ""),
    "method": ("text-primary", "bold"),
    "method.call": ("text-primary", ""),
    "call": ("text-primary", ""),
    "constructor": ("text-primary", ""),
    "builtin": ("text-error", "italic"),
    "function.builtin": ("text-primary", "italic"),
    "variable.builtin": ("text-error", "italic"),
}


def install(app: App[Any]) -> None:
    """Make the themes known to the app."""
    for theme in THEMES.values():
        app.register_theme(theme)


def theme_name(name: str) -> str:
    """Textual's name of a theme of the settings; other names are Textual's own."""
    return THEMES[name].name if name in THEMES else name


def colour(variables: Mapping[str, str], name: str, fallback: str = "#808080") -> str:
    """A theme variable as "#rrggbb"; what is relative ("auto 60%") is taken between background and foreground."""
    value = variables.get(name, "")
    share = re.fullmatch(r"auto (\d+)%", value)
    try:
        if share:
            back, fore = Color.parse(variables["background"]), Color.parse(variables["foreground"])
            return back.blend(fore, max(0.6, int(share[1]) / 100)).hex6
        return Color.parse(value).hex6 if value else fallback
    except (ColorParseError, KeyError):  # a theme of ANSI names
        return fallback


def syntax(variables: Mapping[str, str], name: str) -> TextAreaTheme:
    """The editor's colours for the theme that these variables describe; everything else follows the app's CSS."""
    styles = {
        capture: Style.parse(f"{how} {colour(variables, variable)}".strip())
        for capture, (variable, how) in _STYLES.items()
    }
    return TextAreaTheme(name=name, syntax_styles=styles)

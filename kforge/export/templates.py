"""Renders the templates of an exported package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from kforge.resources import templates_dir


@cache
def _environment() -> Any:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir() / "export"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )


def render_template(name: str, context: Mapping[str, Any]) -> str:
    """A template of templates/export, filled."""
    return str(_environment().get_template(name).render(**context))


def plain_file(name: str) -> str:
    """A file of templates/export that is copied as it is."""
    return (templates_dir() / "export" / name).read_text()

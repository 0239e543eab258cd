"""Values and words of the user's as Python text in a package: what `repr` and quotes alone would spoil."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from kforge.errors import ExportError

_FLOAT = re.compile(r"float\((?P<text>'[^']*')\)")  # as ast.unparse writes it


def literal(value: Any) -> str:
    """A plain value; infinity and NaN too, which `repr` writes as names that nobody defines."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if type(value) in (tuple, list):
        inner = ", ".join(map(literal, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    return repr(value)


def default(node: ast.expr, where: str) -> Any:
    """The value of a parameter's default: a literal, or `float("-inf")`. ExportError for another expression."""
    text = ast.unparse(node)
    try:
        number = _FLOAT.fullmatch(text)
        return float(ast.literal_eval(number["text"])) if number else ast.literal_eval(node)
    except (ValueError, TypeError) as error:
        raise ExportError(f"{where}: the default {text} of forward is no literal", "write its value") from error


def docstring(text: str) -> str:
    """Words that stand between three double quotes, whatever backslashes and quotes they hold."""
    text = text.replace("\\", "\\\\")
    return text.replace('"', '\\"') if '"""' in text or text.endswith('"') else text

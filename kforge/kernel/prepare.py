"""Prepares a kernel's source for a compiler: constants and types written into the text, name expressions substituted.

Constants become `#define` and types `using` lines after the last top-level #include, followed by `#line`, so that
neither NVIDIA's headers see short names nor line numbers move. Names that occur in a kernel's name expression are
substituted there and defined nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kforge.errors import BuildError
from kforge.kernel.ctypes_table import HEADERS
from kforge.kernel.signature import last_top_level_include, split_expression

Constant = int | float | bool | str
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def expression_names(expression: str) -> frozenset[str]:
    """The identifiers in a name expression's template arguments."""
    return frozenset(name for argument in split_expression(expression)[1] for name in _IDENTIFIER.findall(argument))


def substitute(expression: str, name: str, constants: Mapping[str, Constant], types: Mapping[str, str]) -> str:
    """The name expression for the compiler: `name` qualified, constants and types put in."""
    values = {**types, **{k: literal(v) for k, v in constants.items()}}
    arguments = [_IDENTIFIER.sub(lambda m: values.get(m[0], m[0]), a) for a in split_expression(expression)[1]]
    return f"{name}<{', '.join(arguments)}>" if arguments else name


def literal(value: Constant) -> str:
    """A constant as C++; BuildError for what has no literal (nan, inf)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise BuildError(f"a constant cannot be {value}")
    text = str(value) if not isinstance(value, float) else repr(value)
    if isinstance(value, int | float) and value < 0:
        return f"({text})"
    return text


def prepare(
    source: str,
    filename: str,
    constants: Mapping[str, Constant],
    types: Mapping[str, str],
    in_expressions: Iterable[str] = (),
) -> str:
    """The text to compile. `in_expressions`: names that are substituted in a name expression, hence not defined."""
    skip = set(in_expressions)
    data = source.encode()
    at = last_top_level_include(source)
    lines = [f"#include <{header}>" for header in dict.fromkeys(HEADERS[t] for n, t in types.items() if t in HEADERS)]
    lines += [f"#define {name} {literal(value)}" for name, value in constants.items() if name not in skip]
    lines += [f"using {name} = {ctype};" for name, ctype in types.items() if name not in skip]
    head, tail = data[:at], data[at:]
    if head and not head.endswith(b"\n"):
        head += b"\n"
    number = head.count(b"\n") + 1
    first = f'#line 1 "{filename}"\n'.encode()
    inserted = "".join(f"{line}\n" for line in lines) + f'#line {number} "{filename}"\n'
    return (first + head + inserted.encode() + tail).decode()

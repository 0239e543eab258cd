"""The headers that an exported source includes: those of the candidate, and kforge's own that go along with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.export.package import Export

_OWN = re.compile(r'#[ \t]*include[ \t]*[<"](kforge/[\w./]+)[>"]')
_LOCAL = re.compile(r'#[ \t]*include[ \t]*"([^"]+)"')


def headers(export: Export) -> dict[str, str]:
    """Name below csrc/ -> text."""
    from kforge.kernel.build.toolchain import HEADERS

    candidate = export.evidence.candidate.files
    found: dict[str, str] = {}
    pending = [k.use.source.text for k in export.kernels]
    while pending:
        text = pending.pop()
        names = {n for n in _LOCAL.findall(text) if n in candidate}
        own = {n for n in _OWN.findall(text) if (Path(HEADERS) / n).is_file()}
        for name in (names | own) - found.keys():
            found[name] = candidate[name] if name in candidate else (Path(HEADERS) / name).read_text()
            pending.append(found[name])
    return found

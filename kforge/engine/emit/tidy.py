"""The last pass over generated CUDA, on its text: nothing is left that nothing uses, lines are laid out alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

WIDTH = 120
BINDING = {"? ": 1, ": ": 1, "||": 2, "&&": 3, "+ ": 4, "- ": 4, "* ": 5, "/ ": 5}
_LOCAL = re.compile(r"^\s+(?:const|constexpr) [\w:<>, ]*?[\w>][ *&]+(\w+) = ([^;]*);(?:\s*//.*)?$")
_CALLED = re.compile(r"(\w+)(?:<[^<>()]*>)?\(")
_HARMLESS = {"static_cast", "float", "double", "int", "min", "max", "load", "if", "T"}


def tidy(source: str) -> str:
    """The same program: helpers and constants that nothing uses left out, pragmas indented, long lines folded."""
    parts = _without_unused(_parts(source))
    text = "\n\n".join(_of_one("\n".join(_without_unused_locals(p))) for p in parts)
    text = re.sub(r"^#if.*\n\s*#endif.*\n+", "", text, flags=re.MULTILINE)
    text = re.sub(r"^(#if.*\n)\n+", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r"\[0 \+ | \+ 0(?=\])", lambda found: found[0].replace("0 + ", "").replace(" + 0", ""), text)
    text = re.sub(r"\n+(\n#endif)", r"\1", text)
    return "\n".join(_laid_out(text.split("\n"))).rstrip() + "\n"


def _parts(source: str) -> list[list[str]]:
    """Groups of lines between blank lines outside of all braces."""
    parts: list[list[str]] = [[]]
    depth = 0
    for line in source.split("\n"):
        if not line and depth == 0:
            parts.append([])
            continue
        parts[-1].append(line)
        code = _code(line)
        depth += code.count("{") - code.count("}")
    return [p for p in parts if p]


def _code(line: str) -> str:
    return line.split("//", 1)[0]


def _declares(part: list[str]) -> set[str]:
    """Names that a part declares outside of all braces; none for a kernel, or what is no declaration."""
    found: set[str] = set()
    depth = 0
    for line in part:
        code = _code(line)
        if "__global__" in code:
            return set()
        if depth == 0:
            head = code.split("{", 1)[0]
            if (function := re.search(r"\b__device__\b.*?\b(\w+)\(", head)) and "struct" not in head:
                found.add(function.group(1))
            found |= set(re.findall(r"\b(?:struct|using)\s+(?:alignas\(.*\)\s+)?(\w+)", head))
        depth += code.count("{") - code.count("}")
    return found


def _without_unused(parts: list[list[str]]) -> list[list[str]]:
    """What no kernel needs, directly or through other helpers, goes; preprocessor lines stay."""
    declared = [_declares(p) for p in parts]
    mentioned = [set(re.findall(r"\w+", "\n".join(map(_code, p)))) for p in parts]
    needed = {k for k, names in enumerate(declared) if not names}
    while True:
        wanted = set().union(*(mentioned[k] for k in needed))
        more = {k for k, names in enumerate(declared) if k not in needed and names & wanted}
        if not more:
            break
        needed |= more
    kept = [
        p if k in needed else [line for line in p if line.startswith("#") and "pragma" not in line]
        for k, p in enumerate(parts)
    ]
    return [p for p in kept if p]


def _without_unused_locals(part: list[str]) -> list[str]:
    """Constants of a kernel that nothing reads go."""
    if not any("__global__" in line for line in part):
        return part
    while True:
        words = re.findall(r"\w+", "\n".join(map(_code, part)))
        unused = [
            k for k, line in enumerate(part) if (m := _LOCAL.match(line)) and _harmless(m[2]) and words.count(m[1]) == 1
        ]
        if not unused:
            return part
        part = [line for k, line in enumerate(part) if k not in unused]


def _of_one(part: str) -> str:
    """Names are numbered where there are several of a kind."""
    for name in ("partials", "scratch"):
        if f"{name}_1" in part and f"{name}_2" not in part and not re.search(rf"\b{name}\b", part):
            part = part.replace(f"{name}_1", name)
    terms = set(re.findall(r"\w+_terms\b", part))
    if len(terms) == 1 and not re.search(r"\bterms\b", part):
        part = part.replace(terms.pop(), "terms")
    return re.sub(r"(\n    __shared__ .*)(\n    //)", r"\1\n\2", part)


def _harmless(value: str) -> bool:
    several = re.search(r",\s*\w+ = ", value) is not None  # declared in one statement
    return not several and "++" not in value and "--" not in value and set(_CALLED.findall(value)) <= _HARMLESS


def _laid_out(lines: list[str]) -> Iterator[str]:
    for k, line in enumerate(lines):
        if line.strip() == "#pragma unroll":
            following = lines[k + 1]
            yield following[: len(following) - len(following.lstrip())] + line.strip()
        elif len(line) > WIDTH and not re.search(r'//|"|^\s*#|^template', line):
            yield from _folded(line)
        else:
            yield line


def _folded(line: str) -> Iterator[str]:
    """A statement over several lines, broken where its brackets are the fewest, at what binds the least."""
    pad = " " * (len(line) - len(line.lstrip()) + 4)
    while len(line) > WIDTH:
        places = [(depth, rank, -at) for at, depth, rank in _breaks(line) if len(pad) + 8 < at <= WIDTH]
        if not places:
            break
        at = -min(places)[2]
        yield line[:at].rstrip()
        line = pad + line[at:].lstrip()
    yield line


def _breaks(line: str) -> Iterator[tuple[int, int, int]]:
    """Where a line may be broken: the place, the brackets around it, and how tightly it is bound there."""
    depth = angles = 0
    for k, c in enumerate(line):
        if c in "([{":
            depth += 1
            yield k + 1, depth, 9
        elif c in ")]}":
            depth -= 1
        elif c == "<" and line[k - 1].isalnum():
            angles += 1
        elif c == ">" and angles:
            angles -= 1
        elif c in ",;" and not angles:
            yield k + 1, depth, 0
        elif c == " " and not angles:
            following = line[k + 1 : k + 3]
            if following in BINDING:
                yield k, depth, BINDING[following]
            elif line[k - 2 : k] == " =":
                yield k, depth, 6

"""Turns CUDA text into what g++ can compile: shared variables, inline PTX, entry points. Line numbers stay.

Works on a masked copy (comments, strings and preprocessor lines blanked, same length), so offsets are those of the
text. Shared declarations inside macros are not seen here; the header's `__shared__` macro catches them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kforge.kernel.emulator import ptx, unset

# What makes the result depend on the order of blocks, or needs one block after the other.
_SEQUENTIAL = re.compile(
    r"\b(atomic\w*|volatile|__threadfence\w*|__nanosleep|clock\w*|printf|assert|asm|cooperative_groups|cuda)\b"
)
_DEVICE_GLOBAL = re.compile(r"\b__device__\b(?![^;{}()=]*\b(?:const|constexpr)\b)[^;{}()=]*(?:=[^;]*)?;")
# Device-side features that no host code stands in for. Some of these headers compile on the host and would wait for
# ever (cuda::barrier), others do not compile.
GPU_ONLY_HEADERS = re.compile(
    r"""^\s*\#\s*include\s*[<"]((?:cuda/(?:barrier|pipeline|ptx|latch|semaphore)|cute/|cutlass/|cuda_awbarrier|cudaTypedefs|
        cub/|thrust/|cccl/|nvshmem|mathdx|cublasdx|curand)[^>"]*)[>"]""",
    re.M | re.X,
)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.M)
_TOKENS = re.compile(
    r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)|(?P<raw>\bR"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)")"""
    r"""|(?P<string>"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)""",
    re.S | re.M,
)


def mask(text: str, directives: bool = True) -> str:
    """`text` with comments, literals and (if asked) preprocessor lines blanked; newlines kept."""

    def blank(match: re.Match[str]) -> str:
        if match["directive"] and not directives:
            return re.sub(r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", lambda m: " " * len(m.group()), match.group())
        return re.sub(r"[^\n]", " ", match.group())

    return _TOKENS.sub(blank, text)


@dataclass(frozen=True)
class Translation:
    """text: for g++. sequential: blocks must run in order.  clusters: `__cluster_dims__` by kernel name.

    headers: user headers that were translated too, by the name the text includes them under.
    """

    text: str
    sequential: bool
    clusters: dict[str, tuple[int, int, int]]
    headers: dict[str, str] = field(default_factory=dict)


def translate(
    text: str, filename: str, kernels: Sequence[str], includes: Sequence[Path] = (), near: Path | None = None
) -> Translation:
    """The translation unit for `kernels` (name expressions). near: the folder that quoted includes start from."""
    headers: dict[str, str] = {}
    seen: dict[Path, str] = {}
    parts: list[str] = [text]

    def take_in(body: str, folder: Path | None) -> str:
        def replace(match: re.Match[str]) -> str:
            quote, name = match.groups()
            places = [*([folder] if folder and quote == '"' else []), *includes]
            path = next((p / name for p in places if (p / name).is_file()), None)
            if path is None:
                return match.group()
            path = path.resolve()
            if path not in seen:
                seen[path] = f"user_{len(seen)}_{path.name}"
                content = path.read_text(errors="replace")
                parts.append(content)
                headers[seen[path]] = f'#line 1 "{path}"\n' + _rewrite(take_in(content, path.parent), str(path))
            return f'#include "{seen[path]}"'

        return _INCLUDE.sub(replace, body)

    body = _rewrite(take_in(text, near), filename)
    masked = "\n".join(mask(p) for p in parts)
    trailer = ['#line 1 "kernel table"', *(f"KFORGE_ENTRY({i}, {k})" for i, k in enumerate(kernels))]
    trailer += [
        "KFORGE_TABLE_BEGIN",
        *(f"KFORGE_TABLE_ROW({i}, {k})" for i, k in enumerate(kernels)),
        "KFORGE_TABLE_END",
    ]
    return Translation(
        text=f'#line 1 "{filename}"\n{body}\n' + "\n".join(trailer) + "\n",
        sequential=bool(_SEQUENTIAL.search(masked) or _DEVICE_GLOBAL.search(masked)),
        clusters=_cluster_dims(masked),
        headers=headers,
    )


def insert_constants(text: str, filename: str, lines: Sequence[str]) -> str:
    """`lines` after the last #include that stands outside every condition and brace, then a #line directive."""
    if not lines:
        return text
    place, depth, position = 0, 0, 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        position += len(line)
        if re.match(r"\s*#\s*if", line):
            depth += 1
        elif re.match(r"\s*#\s*endif", line):
            depth -= 1
        elif depth == 0 and _INCLUDE.match(line):
            place, after = position, number
    head = text[:place]
    next_line = after + 1 if place else 1
    return head + "\n".join(lines) + f'\n#line {next_line} "{filename}"\n' + text[place:]


def _cluster_dims(masked: str) -> dict[str, tuple[int, int, int]]:
    found = {}
    numbers = r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?(?:,\s*(\d+)\s*)?\)"
    pattern = rf"__cluster_dims__\s*{numbers}\s*(?:__\w+__\s*\([^)]*\)\s*|void\s+)*(\w+)\s*\("
    for m in re.finditer(pattern, masked):
        found[m[4]] = (int(m[1]), int(m[2] or 1), int(m[3] or 1))
    return found


def _rewrite(text: str, filename: str) -> str:
    """Shared declarations, inline PTX and locals without initial values of one file."""
    masked = mask(text)
    edits: list[tuple[int, int, str]] = []
    for number, match in enumerate(re.finditer(r"\b__shared__\b", masked)):
        edit = _shared_declaration(masked, text, match, f"kforge_shared_{number}", filename)
        if edit and (not edits or edit[0] >= edits[-1][1]):
            edits.append(edit)
    # g++'s own headers spell an attribute like this, so it cannot be a macro.
    edits += [
        (m.start(), m.end(), "__attribute__((noinline))")
        for m in re.finditer(r"(?<!\(\()\b__noinline__\b", mask(text, directives=False))
    ]
    edits += ptx.edits(mask(text, directives=False), text)
    edits += unset.edits(masked)
    for start, end, new in sorted(edits, reverse=True):
        lines = text.count("\n", start, end) - (0 if "#define" in new else new.count("\n"))
        newline = "\\\n" if "\\\n" in text[start:end] else "\n"  # inside a #define
        text = text[:start] + new + newline * max(0, lines) + text[end:]
    return text


# ---- __shared__ declarations ---------------------------------------------------------------------------------------

_CLOSING = {"(": ")", "[": "]", "{": "}"}


def _balanced(text: str, start: int) -> int:
    """The index after the bracket that closes the one at `start`."""
    stack = []
    for i in range(start, len(text)):
        if text[i] in _CLOSING:
            stack.append(_CLOSING[text[i]])
        elif stack and text[i] == stack[-1]:
            stack.pop()
            if not stack:
                return i + 1
    return len(text)


def _angles(text: str, start: int) -> int:
    depth = 0
    i = start
    while i < len(text):
        if text[i] in "([{":
            i = _balanced(text, i)
            continue
        depth += (text[i] == "<") - (text[i] == ">")
        i += 1
        if depth == 0:
            return i
    return len(text)


def _at_file_scope(masked: str, text: str, position: int) -> bool:
    stack: list[bool] = []  # True: a namespace or extern "C"
    for m in re.finditer(r"[{}]", masked[:position]):
        if m.group() == "}":
            if stack:
                stack.pop()
        else:
            before = text[max(masked.rfind(c, 0, m.start()) for c in ";{}") + 1 : m.start()]
            stack.append(bool(re.search(r'\bnamespace\b[^()]*$|\bextern\s*"C(\+\+)?"\s*$', before)))
    return all(stack)


def _shared_declaration(
    masked: str, text: str, match: re.Match[str], tag: str, filename: str
) -> tuple[int, int, str] | None:
    start = max(masked.rfind(c, 0, match.start()) for c in ";{}") + 1
    while masked[start].isspace():
        start += 1
    end = match.end()
    while end < len(masked) and masked[end] != ";":
        end = _balanced(masked, end) if masked[end] in _CLOSING else end + 1
    declaration = masked[start:end]
    if re.search(r"[)(]\s*$", masked[start : match.start()].split("__align__")[0]):
        return None  # after a condition: no place for a declaration
    alignments: list[str] = []
    while m := re.search(r"\b(__align__|alignas|__attribute__)\s*\(", declaration):
        close = _balanced(declaration, m.end() - 1)
        inside = declaration[m.end() : close - 1]
        if m[1] == "__attribute__":
            found = re.search(r"aligned(?:__)?\s*\((.*)\)\s*\)\s*$", inside, re.S)
            inside = found[1] if found else "1"
        alignments.append(" ".join(inside.split()))
        declaration = declaration[: m.start()] + " " + declaration[close:]
    words = re.findall(r"\b(?:extern|static)\b", declaration[: declaration.index("__shared__")])
    external = "extern" in words
    declaration = re.sub(r"\b(?:extern|static|__shared__)\b", " ", declaration)
    parsed = _declarators(declaration)
    if parsed is None:
        return None
    kind, names = parsed
    file_scope = _at_file_scope(masked, text, start)
    out: list[str] = []
    for i, (stars, name, dims) in enumerate(names):
        if external:
            rest = dims[dims.index("]") + 1 :] if "[" in dims else ""
            type_name = f"{kind} {stars}(*){rest}" if rest else f"{kind} {stars}*"
            value = "::kforge_emulator::DynamicShared{}"
            variable = f"{kind} {stars}(*{name}){rest} = {value};" if rest else f"{kind} {stars}* {name} = {value};"
        else:
            aligned = "".join(f"alignas({a}) " for a in alignments)
            out.append(
                f"struct {tag}_{i} {{ struct {aligned}Aligned {{}}; "
                f'static const char* name() {{ return "{name}"; }} '
                f"static constexpr unsigned long alignment() {{ return alignof(Aligned); }} }};"
            )
            value = f"::kforge_emulator::Shared<{tag}_{i}>{{}}"
            type_name = f"{kind} {stars}(&){dims}"
            variable = f"{kind} {stars}(&{name}){dims} = {value};"
        if file_scope:
            out.append(f"\n#define {name} (static_cast<{type_name}>({value}))\n")
        else:
            out.append(variable)
    new = " ".join(" ".join(o.split(" ")) if o.startswith("\n") else " ".join(o.split()) for o in out)
    if file_scope:
        line = text.count("\n", 0, end) + 1
        return start, end + 1, _keep_lines(text, new, line, filename)
    return start, end + 1, new


def _keep_lines(text: str, new: str, line: int, filename: str) -> str:
    # A #line in the text itself (constants put in front) shifts what g++ calls this line.
    directives = list(re.finditer(r'^#line (\d+) "([^"]*)"', text, re.M))
    before = [d for d in directives if text.count("\n", 0, d.start()) + 1 < line]
    if before:
        last = before[-1]
        line = int(last[1]) + line - (text.count("\n", 0, last.start()) + 1) - 1
        filename = last[2]
    return f'{new}\n#line {line} "{filename}"\n'


def _declarators(declaration: str) -> tuple[str, list[tuple[str, str, str]]] | None:
    """`float4 *a[2], b` -> ("float4", [("*", "a", "[2]"), ("", "b", "")]); None: not that simple."""
    position, name_at = 0, None
    while position < len(declaration):
        c = declaration[position]
        if c in _CLOSING:
            position = _balanced(declaration, position)
        elif c == "<":
            position = _angles(declaration, position)
        elif m := re.compile(r"[A-Za-z_]\w*").match(declaration, position):
            following = declaration[m.end() :].lstrip()
            if following[:1] in ("", "[", ","):
                name_at = m.start()
                break
            position = m.end()
        else:
            position += 1
    if name_at is None:
        return None
    kind = declaration[:name_at].rstrip()
    stars = re.search(r"[*\s]*$", kind)
    assert stars is not None
    rest = stars.group() + declaration[name_at:]
    kind = kind[: stars.start()].strip()
    pieces, depth, last = [], 0, 0
    for i, c in enumerate(rest):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            pieces.append(rest[last:i])
            last = i + 1
    pieces.append(rest[last:])
    names = []
    for piece in pieces:
        m = re.fullmatch(r"\s*([*\s]*)([A-Za-z_]\w*)\s*((?:\[.*\])?)\s*", piece, re.S)
        if not m:
            return None
        names.append((m[1].strip(), m[2], m[3]))
    return (kind, names) if kind else None

"""Inline PTX: rewrites the instructions the emulator knows into C++, the rest into a GPU-only error at run time.

An asm statement becomes `do { ... } while (0)`: one C++ statement per instruction. Registers and predicates that the
text declares are C++ variables; labels are not known, so such text is GPU-only, too. What instructions become is said
in ptx_rules.py and ptx_hopper.py: a pattern over the opcode and a function from operands to C++.
"""

from __future__ import annotations

import re

from kforge.kernel.emulator import ptx_hopper, ptx_rules  # noqa: F401  (they register their rules)
from kforge.kernel.emulator.instruction import NS, RULES, Instruction, Unknown

_STRING = r'"(?:\\.|[^"\\])*"'


def edits(masked: str, text: str) -> list[tuple[int, int, str]]:
    """(start, end, replacement) for each asm statement of `text`; `masked` is source.mask(text)."""
    found = []
    for match in re.finditer(r"\b(?:asm|__asm__|__asm)\b(?:\s*(?:volatile|__volatile__))?\s*\(", masked):
        depth, end = 1, match.end()
        while end < len(masked) and depth:
            depth += (masked[end] == "(") - (masked[end] == ")")
            end += 1
        found.append((match.start(), end, translate(text[match.end() : end - 1])))
    return found


def translate(body: str) -> str:
    """C++ for the inside of asm(...)."""
    body = body.replace("\\\n", " ")
    body = re.sub(rf"({_STRING})|//[^\n]*|/\*.*?\*/", lambda m: m[1] or " ", body, flags=re.S)
    sections = _split(body, ":")
    literals = re.fullmatch(rf"\s*((?:{_STRING}\s*)+)", sections[0])
    if not literals:
        return _gpu_only("asm")
    code = "".join(re.findall(_STRING, literals[1])).replace('""', "").strip('"')
    code = code.replace("\\n", "\n").replace("\\t", " ").replace("\\r", "")
    expressions = []
    for section in sections[1:3]:
        for operand in _split(section, ","):
            if not operand.strip():
                continue
            m = re.fullmatch(r'\s*(?:\[\w+\]\s*)?"([^"]*)"\s*\((.*)\)\s*', operand, re.S)
            if not m:
                return _gpu_only("asm")
            expressions.append(f"({' '.join(m[2].split())})")
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.S).strip()
    if code.startswith("{") and code.endswith("}"):
        code = code[1:-1]
    statements = []
    names: dict[str, str] = {}  # registers that the text declares
    for line in filter(None, (" ".join(s.split()) for s in _without_loop(code).split(";"))):
        opcode = line.split(" ")[0]
        try:
            statements.append(_declaration(line, names) or _guarded(line, expressions, names))
        except (Unknown, IndexError):
            return _gpu_only(opcode)
    return "do { " + " ".join(statements) + " } while (0)"


def _gpu_only(what: str) -> str:
    return f'{NS}gpu_only("{what}")'


def _split(text: str, separator: str) -> list[str]:
    """Splits at separators outside brackets and strings."""
    out, depth, last = [], 0, 0
    for m in re.finditer(rf"{_STRING}|::|[][(){{}}]|{re.escape(separator)}", text):
        token = m.group()
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        elif token == separator and depth == 0:
            out.append(text[last : m.start()])
            last = m.end()
        elif token == "::" and separator == ":" and depth == 0:  # empty section of an asm statement
            out += [text[last : m.start()], ""]
            last = m.end()
    return [*out, text[last:]]


def _without_loop(code: str) -> str:
    """Text without the loop around mbarrier.try_wait, which waits as long as it takes here."""
    if "mbarrier.try_wait" not in code:
        return code
    code = re.sub(r"(?:@!?\S+\s+)?\bbra(?:\.uni)?\s+[^;]+;", "", code)
    return re.sub(r"(?<=[;{}\n])\s*[\w$%]+:(?!:)", " ", "\n" + code)


_REGISTERS = {"pred": "bool", "b16": "unsigned short", "u16": "unsigned short", "b32": "unsigned", "u32": "unsigned",
              "s32": "int", "f32": "float",
              "b64": "unsigned long long", "u64": "unsigned long long", "s64": "long long"}  # fmt: skip


def _declaration(line: str, names: dict[str, str]) -> str:
    """C++ for `.reg .pred p, q`, whose names are known from here on; empty for any other line."""
    m = re.fullmatch(r"\.reg \.(\w+) ([^<>]+)", line)
    if not m:
        return ""
    if m[1] not in _REGISTERS:
        raise Unknown
    found = {name.strip(): "r_" + re.sub(r"\W", "", name) for name in m[2].split(",")}
    names.update(found)
    return " ".join(f"{_REGISTERS[m[1]]} {name} = 0;" for name in found.values())


def _guarded(line: str, expressions: list[str], names: dict[str, str]) -> str:
    m = re.fullmatch(r"@(!?)(\S+) (.+)", line)
    if not m:
        return _statement(line, expressions, names)
    if m[2] not in names:
        raise Unknown
    return f"if ({m[1]}{names[m[2]]}) {{ {_statement(m[3], expressions, names)} }}"


def _statement(line: str, expressions: list[str], names: dict[str, str]) -> str:
    opcode, _, rest = line.partition(" ")

    def operand(text: str) -> str | list[str] | tuple[str, str]:
        text = text.strip()
        if text in names:
            return names[text]
        if text == "_":
            return text
        if "|" in text:  # two results
            return [str(operand(t)) for t in text.split("|")]
        if text.startswith("{") and text.endswith("}"):
            return [str(operand(t)) for t in _split(text[1:-1], ",")]
        if text.startswith("[") and len(coordinates := _split(text[1:-1], ",")) > 1:  # a tensor map and coordinates
            found = [operand(t) for t in coordinates]
            return [str(t) for part in found for t in (part if isinstance(part, list) else [part])]
        if text.startswith("[") and text.endswith("]"):
            base, plus, offset = text[1:-1].partition("+")
            inner = str(operand(base))
            return ("address", f"{inner} + {offset.strip()}" if plus else inner)
        if m := re.fullmatch(r"%(\d+)", text):
            return expressions[int(m[1])]
        if text.startswith("%%"):
            return text
        if m := re.fullmatch(r"0f([0-9a-fA-F]{8})", text):
            return f"{NS}bits<float>(0x{m[1]}u)"
        if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+U?", text):
            return text
        raise Unknown

    instruction = Instruction(opcode, tuple(operand(t) for t in _split(rest, ",")) if rest.strip() else ())
    for pattern, function in RULES:
        if pattern.fullmatch(opcode):
            return function(instruction)
    raise Unknown

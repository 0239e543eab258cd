"""Inline PTX: rewrites the instructions the emulator knows into C++, the rest into a GPU-only error at run time.

An asm statement becomes `do { ... } while (0)`: one C++ statement per PTX instruction. Registers, predicates and
labels inside the text are not known, so such text is GPU-only too. The registry is `_RULES`: a pattern over the
opcode and a function from operands to C++.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_NS = "::kforge_emulator::"
_PTX = _NS + "ptx::"
_STRING = r'"(?:\\.|[^"\\])*"'


@dataclass(frozen=True)
class Instruction:
    """opcode: `ld.global.v4.f32`. operands: C++ text; a {vector} is a list; an [address] is ("address", text)."""

    opcode: str
    operands: tuple[str | list[str] | tuple[str, str], ...]

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")

    def text(self, i: int) -> str:
        value = self.operands[i]
        if not isinstance(value, str):
            raise _Unknown
        return value

    def vector(self, i: int) -> list[str]:
        value = self.operands[i]
        return value if isinstance(value, list) else [self.text(i)]

    def address(self, i: int) -> str:
        value = self.operands[i]
        if not isinstance(value, tuple):
            raise _Unknown
        space = "shared" if any(p.startswith("shared") for p in self.parts) else "global"
        return f"{_PTX}{space}({value[1]})"


class _Unknown(Exception):
    """This instruction is not in the whitelist."""


Rule = Callable[[Instruction], str]
_RULES: list[tuple[re.Pattern[str], Rule]] = []


def rule(pattern: str) -> Callable[[Rule], Rule]:
    """Registers the C++ of opcodes that match `pattern` whole."""

    def add(function: Rule) -> Rule:
        _RULES.append((re.compile(pattern), function))
        return function

    return add


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
        except (_Unknown, IndexError):
            return _gpu_only(opcode)
    return "do { " + " ".join(statements) + " } while (0)"


def _gpu_only(what: str) -> str:
    return f'{_NS}gpu_only("{what}")'


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
        raise _Unknown
    found = {name.strip(): "r_" + re.sub(r"\W", "", name) for name in m[2].split(",")}
    names.update(found)
    return " ".join(f"{_REGISTERS[m[1]]} {name} = 0;" for name in found.values())


def _guarded(line: str, expressions: list[str], names: dict[str, str]) -> str:
    m = re.fullmatch(r"@(!?)(\S+) (.+)", line)
    if not m:
        return _statement(line, expressions, names)
    if m[2] not in names:
        raise _Unknown
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
            return f"{_NS}bits<float>(0x{m[1]}u)"
        if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+U?", text):
            return text
        raise _Unknown

    instruction = Instruction(opcode, tuple(operand(t) for t in _split(rest, ",")) if rest.strip() else ())
    for pattern, function in _RULES:
        if pattern.fullmatch(opcode):
            return function(instruction)
    raise _Unknown


def _site(i: Instruction) -> str:
    return f'{_NS}Site{{"{i.parts[0]}", __FILE__, __LINE__}}'


# ---- scalar instructions -------------------------------------------------------------------------------------------

_TYPES = {
    "f32": "float", "f64": "double", "u8": "unsigned char", "s8": "signed char", "b8": "unsigned char",
    "u16": "unsigned short", "s16": "short", "b16": "unsigned short", "u32": "unsigned", "s32": "int",
    "b32": "unsigned", "u64": "unsigned long long", "s64": "long long", "b64": "unsigned long long",
}  # fmt: skip
_SPECIAL = {
    "laneid": f"{_NS}lane_id()",
    "warpid": f"({_NS}current->rank / 32)",
    "lanemask_eq": f"(1u << {_NS}lane_id())",
    "lanemask_lt": f"((1u << {_NS}lane_id()) - 1)",
    "lanemask_le": f"((2u << {_NS}lane_id()) - 1)",
    "lanemask_gt": f"~((2u << {_NS}lane_id()) - 1)",
    "lanemask_ge": f"~((1u << {_NS}lane_id()) - 1)",
    "cluster_ctarank": f"{_NS}current->block->rank_in_cluster",
    "cluster_nctarank": f"{_NS}current->block->cluster->size",
    "clock": "(unsigned)clock64()",
    "clock64": "clock64()",
    "globaltimer": "clock64()",
    "smid": "0u",
    "nsmid": "1u",
    **{f"{name}.{axis}": f"{variable}.{axis}" for axis in "xyz" for name, variable in (
        ("tid", "threadIdx"), ("ntid", "blockDim"), ("ctaid", "blockIdx"), ("nctaid", "gridDim"))},
}  # fmt: skip
_UNARY = {
    "ex2": "exp2f", "lg2": "log2f", "rcp": "1.0f /", "rsqrt": "rsqrtf", "sqrt": "sqrtf", "sin": "sinf", "cos": "cosf",
    "tanh": "tanhf", "abs": "fabsf", "neg": "-",
}  # fmt: skip
_BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


@rule(r"mov\.(u|s|b|f)(16|32|64)")
def _mov(i: Instruction) -> str:
    source = i.text(1)
    if source.startswith("%%"):
        if source[2:] not in _SPECIAL:
            raise _Unknown
        source = _SPECIAL[source[2:]]
    return f"{_PTX}assign({i.text(0)}, {source});"


@rule(rf"({'|'.join(_UNARY)})(\.approx|\.rn|\.full)?(\.ftz)?\.f32")
def _unary(i: Instruction) -> str:
    return f"{_PTX}assign({i.text(0)}, {_UNARY[i.parts[0]]} ({_PTX}as_float({i.text(1)})));"


@rule(r"(add|sub|mul|div|min|max)(\.approx|\.rn|\.full)?(\.ftz)?\.f32")
def _binary(i: Instruction) -> str:
    a, b = (f"{_PTX}as_float({i.text(k)})" for k in (1, 2))
    value = f"{a} {_BINARY[i.parts[0]]} {b}" if i.parts[0] in _BINARY else f"f{i.parts[0]}f({a}, {b})"
    return f"{_PTX}assign({i.text(0)}, {value});"


@rule(r"(min|max)\.NaN\.f32")
def _extreme(i: Instruction) -> str:
    """NaN on either side is the result, where min and max alone take the number."""
    a, b = (f"{_PTX}as_float({i.text(k)})" for k in (1, 2))
    return f"{_PTX}assign({i.text(0)}, isunordered({a}, {b}) ? NAN : f{i.parts[0]}f({a}, {b}));"


@rule(r"fma\.rn(\.ftz)?\.f32")
def _fma(i: Instruction) -> str:
    return f"{_PTX}assign({i.text(0)}, fmaf({', '.join(f'{_PTX}as_float({i.text(k)})' for k in (1, 2, 3))}));"


@rule(r"cvt\.rn(\.satfinite)?\.(f16x2|bf16x2)\.f32")
def _pack(i: Instruction) -> str:
    function = "pack_half" if i.parts[-2] == "f16x2" else "pack_bfloat16"
    return f"{_PTX}assign({i.text(0)}, {_PTX}{function}({i.text(1)}, {i.text(2)}));"


@rule(r"cvt\.rna\.tf32\.f32")
def _tf32(i: Instruction) -> str:
    return f"{_PTX}assign({i.text(0)}, {_PTX}round_tf32({_PTX}word({i.text(1)})));"


# ---- memory --------------------------------------------------------------------------------------------------------


@rule(r"ld(\.(global|shared(::cta|::cluster)?|nc|volatile|relaxed|acquire|weak|gpu|sys|cta|cluster|ca|cg|cs|cv|lu|L\d::\w+))*"
      r"(\.v[24])?\.[usbf](8|16|32|64)")  # fmt: skip
def _load(i: Instruction) -> str:
    kind = _TYPES[i.parts[-1]]
    hint = f"{_NS}spin_hint({_site(i)}); " if {"volatile", "acquire", "relaxed"} & set(i.parts) else ""
    moves = " ".join(f"{_PTX}assign<{kind}>({d}, p_[{k}]);" for k, d in enumerate(i.vector(0)))
    fence = f" {_NS}acquire_fence();" if "acquire" in i.parts else ""
    return f"{{ {hint}auto* p_ = (const {'volatile ' if hint else ''}{kind}*){i.address(1)}; {moves}{fence} }}"


@rule(r"st(\.(global|shared(::cta|::cluster)?|volatile|relaxed|release|weak|gpu|sys|cta|cluster|wb|wt|cg|cs|L\d::\w+))*"
      r"(\.v[24])?\.[usbf](8|16|32|64)")  # fmt: skip
def _store(i: Instruction) -> str:
    kind = _TYPES[i.parts[-1]]
    fence = f"{_NS}memory_fence(true, {_site(i)}); " if "release" in i.parts else ""
    flag = "volatile " if {"volatile", "release", "relaxed"} & set(i.parts) else ""
    moves = " ".join(f"{_PTX}store<{kind}>(p_[{k}], {s});" for k, s in enumerate(i.vector(1)))
    return f"{{ {fence}auto* p_ = ({flag}{kind}*){i.address(0)}; {moves} }}"


@rule(r"red(\.(global|relaxed|release|gpu|sys|cta|shared(::cta|::cluster)?))*\.add(\.noftz)?\.(f32|f64|u32|s32|u64)")
def _reduce(i: Instruction) -> str:
    fence = f"{_NS}memory_fence(true, {_site(i)}); " if "release" in i.parts else ""
    return f"{fence}atomicAdd(({_TYPES[i.parts[-1]]}*){i.address(0)}, {i.text(1)});"


@rule(r"cp\.async\.(ca|cg)\.shared(::cta|::cluster)?\.global(\.L2::(cache_hint|\d+B))*")
def _copy(i: Instruction) -> str:
    if "cache_hint" in i.opcode:
        raise _Unknown
    source, to = i.operands[1], i.operands[0]
    if not isinstance(source, tuple) or not isinstance(to, tuple):
        raise _Unknown
    size = i.text(2)
    count = i.text(3) if len(i.operands) > 3 else size
    return f"{_NS}copy_async({_PTX}shared({to[1]}), {_PTX}global({source[1]}), {size}, {count}, {_site(i)});"


@rule(r"cp\.async\.(commit_group|wait_group|wait_all)")
def _copy_group(i: Instruction) -> str:
    what = i.parts[-1]
    if what == "wait_group":
        return f"{_NS}copy_wait({i.text(0)});"
    return f"{_NS}copy_commit();" if what == "commit_group" else f"{_NS}copy_wait_all();"


@rule(r"prefetch\w*(\.\S+)?|discard(\.\S+)?|applypriority(\.\S+)?|griddepcontrol\.\S+|setmaxnreg\.\S+")
def _hint(i: Instruction) -> str:
    return "(void)0;"


@rule(r"mapa(\.shared::cluster)?\.(u32|u64)")
def _mapa(i: Instruction) -> str:
    if i.parts[-1] != "u32":
        raise _Unknown
    return f"{_PTX}assign({i.text(0)}, {_PTX}map_rank({i.text(1)}, {i.text(2)}));"


# ---- barriers ------------------------------------------------------------------------------------------------------


@rule(r"(membar|fence)\.(?!proxy|mbarrier)\S+")
def _fence(i: Instruction) -> str:
    scope = "false" if "cta" in i.parts else "true"
    return f"{_NS}memory_fence({scope}, {_site(i)});"


@rule(r"(bar|barrier)(\.cta)?\.(sync|arrive)(\.aligned)?")
def _barrier(i: Instruction) -> str:
    waits = "true" if "sync" in i.parts else "false"
    count = i.text(1) if len(i.operands) > 1 else f"{_NS}current->block->size"
    return f"{_NS}named_barrier({i.text(0)}, {count}, {waits}, {_site(i)});"


@rule(r"bar\.warp\.sync")
def _warp(i: Instruction) -> str:
    return f"__syncwarp({i.text(0)}, {_site(i)});"


@rule(r"barrier\.cluster\.(arrive|wait)(\.\w+)*")
def _cluster(i: Instruction) -> str:
    return f"{_PTX}cluster_{i.parts[2]}({_site(i)});"


@rule(r"nanosleep\.u32")
def _sleep(i: Instruction) -> str:
    return f"{_NS}yield({_site(i)});"


@rule(r"trap")
def _trap(i: Instruction) -> str:
    return f"__trap({_site(i)});"


# ---- matrices ------------------------------------------------------------------------------------------------------


@rule(r"ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(::cta)?\.b16")
def _load_matrix(i: Instruction) -> str:
    registers = i.vector(0)
    moves = " ".join(f"{_PTX}assign({d}, r_[{k}]);" for k, d in enumerate(registers))
    transposed = "true" if "trans" in i.parts else "false"
    call = f"{_PTX}load_matrix(r_, {len(registers)}, {transposed}, {i.address(1)}, {_site(i)});"
    return f"{{ unsigned r_[4]; {call} {moves} }}"


@rule(r"mma\.sync\.aligned\.m16n8k(4|8|16|32)\.row\.col(\.satfinite)?\.(f32|f16|s32)\.(\w+)\.(\w+)\.(f32|f16|s32)")
def _mma(i: Instruction) -> str:
    parts = [p for p in i.parts if p != "satfinite"]
    k, d, a, b, c = int(parts[3][6:]), *parts[-4:]
    allowed = {
        "f16": (8, 16),
        "bf16": (8, 16),
        "tf32": (4, 8),
        "s8": (16, 32),
        "u8": (16, 32),
        "e4m3": (32,),
        "e5m2": (32,),
    }
    if k not in allowed.get(a, ()) or b not in allowed or d != c or "satfinite" in i.parts:
        raise _Unknown
    names = ("a_", "b_", "c_")
    arrays = " ".join(
        f"unsigned {n}[] = {{{', '.join(f'{_PTX}word({x})' for x in i.vector(v))}}};"
        for n, v in zip(names, (1, 2, 3), strict=True)
    )
    half = "true" if d == "f16" else "false"
    call = f"{_PTX}multiply<{_PTX}{a}, {_PTX}{b}, {k}, {half}>(c_, a_, b_, {_site(i)});"
    moves = " ".join(f"{_PTX}assign({x}, c_[{n}]);" for n, x in enumerate(i.vector(0)))
    return f"{{ {arrays} {call} {moves} }}"


from kforge.kernel.emulator import ptx_hopper as ptx_hopper  # noqa: E402  (registers its rules)

"""Hopper's asynchronous PTX for the emulator: mbarrier, bulk tensor copies, wgmma, elect; and predicates in asm blocks.

What the rules call is in kforge_emulator/hopper.h.
"""

from __future__ import annotations

import re

from kforge.kernel.emulator.instruction import NS, PTX, Instruction, Unknown, rule, site_of

_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _shared(i: Instruction, k: int) -> str:
    """An address in shared memory, by window address or (without `.shared`) by pointer."""
    value = i.operands[k]
    if not isinstance(value, tuple):
        raise Unknown
    space = "shared" if any(p.startswith("shared") for p in i.parts) else "global"
    return f"{PTX}{space}({value[1]})"


# ---- predicates ----------------------------------------------------------------------------------------------------


@rule(r"setp\.(eq|ne|lt|le|gt|ge)\.[busf](16|32|64)")
def _compare(i: Instruction) -> str:
    return f"{i.text(0)} = ({i.text(1)}) {_COMPARISONS[i.parts[1]]} ({i.text(2)});"


@rule(r"selp\.[busf](16|32|64)")
def _select(i: Instruction) -> str:
    return f"{PTX}assign({i.text(0)}, ({i.text(3)}) ? ({i.text(1)}) : ({i.text(2)}));"


@rule(r"elect\.sync")
def _elect(i: Instruction) -> str:
    lane, chosen = i.vector(0)
    moves = "" if lane == "_" else f" {PTX}assign({lane}, e_);"
    return f"{{ unsigned e_ = {PTX}elect({i.text(1)}, {site_of(i)});{moves} {chosen} = e_ == {NS}lane_id(); }}"


# ---- mbarrier ------------------------------------------------------------------------------------------------------

_SCOPE = r"(\.(release|relaxed|acquire))?(\.(cta|cluster))?(\.shared(::cta|::cluster)?)?\.b64"


@rule(r"mbarrier\.init(\.shared(::cta)?)?\.b64")
def _init(i: Instruction) -> str:
    return f"{NS}mbarrier_init({_shared(i, 0)}, {i.text(1)}, {site_of(i)});"


@rule(r"mbarrier\.inval(\.shared(::cta)?)?\.b64")
def _invalidate(i: Instruction) -> str:
    return f"{NS}mbarrier_invalidate({_shared(i, 0)}, {site_of(i)});"


@rule(r"mbarrier\.expect_tx" + _SCOPE)
def _expect(i: Instruction) -> str:
    return f"{NS}mbarrier_arrive({_shared(i, 0)}, 0, {i.text(1)}, {site_of(i)});"


@rule(r"mbarrier\.arrive(\.expect_tx)?" + _SCOPE)
def _arrive(i: Instruction) -> str:
    more = i.text(2) if len(i.operands) > 2 else "1"
    counts = f"1, {more}" if "expect_tx" in i.parts else f"{more}, 0"
    call = f"{NS}mbarrier_arrive({_shared(i, 1)}, {counts}, {site_of(i)})"
    return f"{call};" if i.text(0) == "_" else f"{PTX}assign({i.text(0)}, {call});"


@rule(r"mbarrier\.(try|test)_wait(\.parity)?" + _SCOPE)
def _wait(i: Instruction) -> str:
    parity = i.text(2) if "parity" in i.parts else f"{PTX}parity_of({i.text(2)})"
    blocks = "true" if i.parts[1] == "try_wait" else "false"
    return f"{i.text(0)} = {NS}mbarrier_wait({_shared(i, 1)}, {parity}, {blocks}, {site_of(i)});"


@rule(r"fence\.(mbarrier_init\.release\.cluster|proxy\.async(\.(global|shared(::(cta|cluster))?))?)")
def _proxy_fence(i: Instruction) -> str:
    return f"{NS}proxy_fence();"


# ---- tensor copies -------------------------------------------------------------------------------------------------


def _box(i: Instruction, k: int) -> tuple[str, str, str]:
    """The map, a declaration of the coordinates, their number."""
    value = i.operands[k]
    rank = int(i.parts[4][0])
    if not isinstance(value, list) or len(value) != 1 + rank:
        raise Unknown
    return (
        f"(const void*){PTX}global({value[0]})",
        f"int x_[] = {{{', '.join(f'int({v})' for v in value[1:])}}};",
        f"{rank}",
    )


@rule(
    r"cp\.async\.bulk\.tensor\.[1-5]d\.shared::(cluster|cta)\.global(\.tile)?\.mbarrier::complete_tx::bytes"
    r"(\.multicast::cluster)?(\.L2::cache_hint)?"
)
def _tensor_load(i: Instruction) -> str:
    source, coordinates, rank = _box(i, 1)
    mask = i.text(3) if "multicast::cluster" in i.parts else "0"
    call = f"{NS}tensor_load({source}, {_shared(i, 0)}, x_, {rank}, {_shared(i, 2)}, {mask}, {site_of(i)});"
    return f"{{ {coordinates} {call} }}"


@rule(r"cp\.async\.bulk\.tensor\.[1-5]d\.global\.shared::cta(\.tile)?\.bulk_group(\.L2::cache_hint)?")
def _tensor_store(i: Instruction) -> str:
    target, coordinates, rank = _box(i, 0)
    return f"{{ {coordinates} {NS}tensor_store({target}, {_shared(i, 1)}, x_, {rank}, {site_of(i)}); }}"


@rule(r"cp\.async\.bulk\.commit_group")
def _bulk_commit(i: Instruction) -> str:
    return f"{NS}bulk_commit();"


@rule(r"cp\.async\.bulk\.wait_group(\.read)?")
def _bulk_wait(i: Instruction) -> str:
    return f"{NS}bulk_wait({i.text(0)});"


# ---- registers -----------------------------------------------------------------------------------------------------


@rule(r"setmaxnreg\.(inc|dec)\.sync\.aligned\.u32")
def _registers(i: Instruction) -> str:
    return f"{NS}set_registers({i.text(0)}, {site_of(i)});"


# ---- wgmma ---------------------------------------------------------------------------------------------------------


@rule(r"wgmma\.(fence|commit_group|wait_group)\.sync\.aligned")
def _matrix_order(i: Instruction) -> str:
    what = {"fence": "fence", "commit_group": "commit", "wait_group": "wait"}[i.parts[1]]
    keep = f"{i.text(0)}, " if what == "wait" else ""
    return f"{NS}matrix_{what}({keep}{site_of(i)});"


@rule(r"wgmma\.mma_async\.sync\.aligned\.m64n\d+k(8|16)\.f32\.(f16\.f16|bf16\.bf16|tf32\.tf32)")
def _matrix(i: Instruction) -> str:
    """D, A (a descriptor or four registers), B, scale-d, scale-a, scale-b and for 16 bits the two transpositions."""
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", i.parts[4])
    assert shape is not None
    n, k, kind = int(shape[1]), int(shape[2]), i.parts[-1]
    registers = i.vector(0)
    wide = kind == "tf32"
    if n % 8 or not 8 <= n <= 256 or (k == 8) != wide or len(registers) != n // 2:
        raise Unknown
    in_registers = isinstance(i.operands[1], list)
    a = i.vector(1) if in_registers else []
    if in_registers and len(a) != 4:
        raise Unknown
    rest = [i.text(j) for j in range(3, len(i.operands))]
    transposed = [] if wide else rest[3:] if not in_registers else ["0", *rest[3:]]
    if len(rest) != 3 + (0 if wide else 1 if in_registers else 2):
        raise Unknown
    words = ", ".join(f"{PTX}word({x})" for x in a) or "0"
    fields = (
        *("d_", str(n), f"{NS}MatrixProduct::{kind.upper()}", "true" if in_registers else "false", f"{{{words}}}"),
        *("0" if in_registers else i.text(1), i.text(2), f"bool({rest[0]})", f"int({rest[1]})", f"int({rest[2]})"),
        *(f"bool({t})" for t in (transposed or ["0", "0"])),
    )
    pointers = ", ".join(f"&{r}" for r in registers)
    return f"{{ float* d_[] = {{{pointers}}}; {NS}matrix_issue({{{', '.join(fields)}}}, {site_of(i)}); }}"

"""PTX that is no architecture's own, for the emulator: scalars, memory, barriers, products of a warp."""

from __future__ import annotations

from kforge.kernel.emulator.instruction import NS, PTX, Instruction, Unknown, rule, site_of

# ---- scalar instructions -------------------------------------------------------------------------------------------

_TYPES = {
    "f32": "float", "f64": "double", "u8": "unsigned char", "s8": "signed char", "b8": "unsigned char",
    "u16": "unsigned short", "s16": "short", "b16": "unsigned short", "u32": "unsigned", "s32": "int",
    "b32": "unsigned", "u64": "unsigned long long", "s64": "long long", "b64": "unsigned long long",
}  # fmt: skip
_SPECIAL = {
    "laneid": f"{NS}lane_id()",
    "warpid": f"({NS}current->rank / 32)",
    "lanemask_eq": f"(1u << {NS}lane_id())",
    "lanemask_lt": f"((1u << {NS}lane_id()) - 1)",
    "lanemask_le": f"((2u << {NS}lane_id()) - 1)",
    "lanemask_gt": f"~((2u << {NS}lane_id()) - 1)",
    "lanemask_ge": f"~((1u << {NS}lane_id()) - 1)",
    "cluster_ctarank": f"{NS}current->block->rank_in_cluster",
    "cluster_nctarank": f"{NS}current->block->cluster->size",
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
            raise Unknown
        source = _SPECIAL[source[2:]]
    return f"{PTX}assign({i.text(0)}, {source});"


@rule(rf"({'|'.join(_UNARY)})(\.approx|\.rn|\.full)?(\.ftz)?\.f32")
def _unary(i: Instruction) -> str:
    return f"{PTX}assign({i.text(0)}, {_UNARY[i.parts[0]]} ({PTX}as_float({i.text(1)})));"


@rule(r"(add|sub|mul|div|min|max)(\.approx|\.rn|\.full)?(\.ftz)?\.f32")
def _binary(i: Instruction) -> str:
    a, b = (f"{PTX}as_float({i.text(k)})" for k in (1, 2))
    value = f"{a} {_BINARY[i.parts[0]]} {b}" if i.parts[0] in _BINARY else f"f{i.parts[0]}f({a}, {b})"
    return f"{PTX}assign({i.text(0)}, {value});"


@rule(r"(min|max)\.NaN\.f32")
def _extreme(i: Instruction) -> str:
    """NaN on either side is the result, where min and max alone take the number."""
    a, b = (f"{PTX}as_float({i.text(k)})" for k in (1, 2))
    return f"{PTX}assign({i.text(0)}, isunordered({a}, {b}) ? NAN : f{i.parts[0]}f({a}, {b}));"


@rule(r"fma\.rn(\.ftz)?\.f32")
def _fma(i: Instruction) -> str:
    return f"{PTX}assign({i.text(0)}, fmaf({', '.join(f'{PTX}as_float({i.text(k)})' for k in (1, 2, 3))}));"


@rule(r"cvt\.rn(\.satfinite)?\.(f16x2|bf16x2)\.f32")
def _pack(i: Instruction) -> str:
    function = "pack_half" if i.parts[-2] == "f16x2" else "pack_bfloat16"
    return f"{PTX}assign({i.text(0)}, {PTX}{function}({i.text(1)}, {i.text(2)}));"


@rule(r"cvt\.rna\.tf32\.f32")
def _tf32(i: Instruction) -> str:
    return f"{PTX}assign({i.text(0)}, {PTX}round_tf32({PTX}word({i.text(1)})));"


# ---- memory --------------------------------------------------------------------------------------------------------


@rule(r"ld(\.(global|shared(::cta|::cluster)?|nc|volatile|relaxed|acquire|weak|gpu|sys|cta|cluster|ca|cg|cs|cv|lu|L\d::\w+))*"
      r"(\.v[24])?\.[usbf](8|16|32|64)")  # fmt: skip
def _load(i: Instruction) -> str:
    kind = _TYPES[i.parts[-1]]
    hint = f"{NS}spin_hint({site_of(i)}); " if {"volatile", "acquire", "relaxed"} & set(i.parts) else ""
    moves = " ".join(f"{PTX}assign<{kind}>({d}, p_[{k}]);" for k, d in enumerate(i.vector(0)))
    fence = f" {NS}acquire_fence();" if "acquire" in i.parts else ""
    return f"{{ {hint}auto* p_ = (const {'volatile ' if hint else ''}{kind}*){i.address(1)}; {moves}{fence} }}"


@rule(r"st(\.(global|shared(::cta|::cluster)?|volatile|relaxed|release|weak|gpu|sys|cta|cluster|wb|wt|cg|cs|L\d::\w+))*"
      r"(\.v[24])?\.[usbf](8|16|32|64)")  # fmt: skip
def _store(i: Instruction) -> str:
    kind = _TYPES[i.parts[-1]]
    fence = f"{NS}memory_fence(true, {site_of(i)}); " if "release" in i.parts else ""
    flag = "volatile " if {"volatile", "release", "relaxed"} & set(i.parts) else ""
    moves = " ".join(f"{PTX}store<{kind}>(p_[{k}], {s});" for k, s in enumerate(i.vector(1)))
    return f"{{ {fence}auto* p_ = ({flag}{kind}*){i.address(0)}; {moves} }}"


@rule(r"red(\.(global|relaxed|release|gpu|sys|cta|shared(::cta|::cluster)?))*\.add(\.noftz)?\.(f32|f64|u32|s32|u64)")
def _reduce(i: Instruction) -> str:
    fence = f"{NS}memory_fence(true, {site_of(i)}); " if "release" in i.parts else ""
    return f"{fence}atomicAdd(({_TYPES[i.parts[-1]]}*){i.address(0)}, {i.text(1)});"


@rule(r"cp\.async\.(ca|cg)\.shared(::cta|::cluster)?\.global(\.L2::(cache_hint|\d+B))*")
def _copy(i: Instruction) -> str:
    if "cache_hint" in i.opcode:
        raise Unknown
    source, to = i.operands[1], i.operands[0]
    if not isinstance(source, tuple) or not isinstance(to, tuple):
        raise Unknown
    size = i.text(2)
    count = i.text(3) if len(i.operands) > 3 else size
    return f"{NS}copy_async({PTX}shared({to[1]}), {PTX}global({source[1]}), {size}, {count}, {site_of(i)});"


@rule(r"cp\.async\.(commit_group|wait_group|wait_all)")
def _copy_group(i: Instruction) -> str:
    what = i.parts[-1]
    if what == "wait_group":
        return f"{NS}copy_wait({i.text(0)});"
    return f"{NS}copy_commit();" if what == "commit_group" else f"{NS}copy_wait_all();"


@rule(r"prefetch\w*(\.\S+)?|discard(\.\S+)?|applypriority(\.\S+)?|griddepcontrol\.\S+")
def _hint(i: Instruction) -> str:
    return "(void)0;"


@rule(r"mapa(\.shared::cluster)?\.(u32|u64)")
def _mapa(i: Instruction) -> str:
    if i.parts[-1] != "u32":
        raise Unknown
    return f"{PTX}assign({i.text(0)}, {PTX}map_rank({i.text(1)}, {i.text(2)}));"


# ---- barriers ------------------------------------------------------------------------------------------------------


@rule(r"(membar|fence)\.(?!proxy|mbarrier)\S+")
def _fence(i: Instruction) -> str:
    scope = "false" if "cta" in i.parts else "true"
    return f"{NS}memory_fence({scope}, {site_of(i)});"


@rule(r"(bar|barrier)(\.cta)?\.(sync|arrive)(\.aligned)?")
def _barrier(i: Instruction) -> str:
    waits = "true" if "sync" in i.parts else "false"
    count = i.text(1) if len(i.operands) > 1 else f"{NS}current->block->size"
    return f"{NS}named_barrier({i.text(0)}, {count}, {waits}, {site_of(i)});"


@rule(r"bar\.warp\.sync")
def _warp(i: Instruction) -> str:
    return f"__syncwarp({i.text(0)}, {site_of(i)});"


@rule(r"barrier\.cluster\.(arrive|wait)(\.\w+)*")
def _cluster(i: Instruction) -> str:
    return f"{PTX}cluster_{i.parts[2]}({site_of(i)});"


@rule(r"nanosleep\.u32")
def _sleep(i: Instruction) -> str:
    return f"{NS}yield({site_of(i)});"


@rule(r"trap")
def _trap(i: Instruction) -> str:
    return f"__trap({site_of(i)});"


# ---- matrices ------------------------------------------------------------------------------------------------------


@rule(r"ldmatrix\.sync\.aligned\.m8n8\.x[124](\.trans)?\.shared(::cta)?\.b16")
def _load_matrix(i: Instruction) -> str:
    registers = i.vector(0)
    moves = " ".join(f"{PTX}assign({d}, r_[{k}]);" for k, d in enumerate(registers))
    transposed = "true" if "trans" in i.parts else "false"
    call = f"{PTX}load_matrix(r_, {len(registers)}, {transposed}, {i.address(1)}, {site_of(i)});"
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
        raise Unknown
    names = ("a_", "b_", "c_")
    arrays = " ".join(
        f"unsigned {n}[] = {{{', '.join(f'{PTX}word({x})' for x in i.vector(v))}}};"
        for n, v in zip(names, (1, 2, 3), strict=True)
    )
    half = "true" if d == "f16" else "false"
    call = f"{PTX}multiply<{PTX}{a}, {PTX}{b}, {k}, {half}>(c_, a_, b_, {site_of(i)});"
    moves = " ".join(f"{PTX}assign({x}, c_[{n}]);" for n, x in enumerate(i.vector(0)))
    return f"{{ {arrays} {call} {moves} }}"

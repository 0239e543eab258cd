"""SASS: a recorded listing read by hand-checked values, and real builds through the disassembler."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.kernel.build import BuildRequest, build
from kforge.profiling.sources import Unavailable, sass
from kforge.profiling.sources.opcodes import CLASS_OF, classify, width

LISTING = """
//--------------------- .text.k                   --------------------------
.text.k:
\t//## File "/tmp/s.cu", line 5
        /*0000*/                   LDC R1, c[0x0][0x28] ;   /* 0x00000a00ff017b82 */
                                                            /* 0x000fe20000000800 */
.L_x_1:
\t//## File "/usr/include/cuda_fp16.hpp", line 100 inlined at "/tmp/s.cu", line 6
\t//## File "/tmp/s.cu", line 6
        /*0010*/                   LDG.E.128 R4, desc[UR6][R4.64] ;   /* 0x0000000604037981 */
                                                            /* 0x0000a2000c1e1900 */
        /*0020*/              @!P0 LDG.E R3, desc[UR6][R8.64] ;   /* 0x0000000604037981 */
                                                            /* 0x0000e2000c1e1900 */
\t//## File "/tmp/s.cu", line 7
        /*0030*/                   FFMA R3, R3, R4, R5 ;    /* 0x0000000603037223 */
                                                            /* 0x004fe20000000000 */
        /*0040*/               @P1 BRA `(.L_x_1) ;          /* 0xfffffffc00fc7947 */
                                                            /* 0x000fea000383ffff */
        /*0050*/                   EXIT ;                   /* 0x000000000000794d */
                                                            /* 0x000fea0003800000 */
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);           /* 0xfffffffc00fc7947 */
                                                            /* 0x000fc0000383ffff */
"""

SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) k(const float* x, float* y, int n) {
    float a[96];
#pragma unroll
    for (int i = 0; i < 96; ++i) a[i] = x[threadIdx.x + i * 1024];
#pragma unroll 1
    for (int r = 0; r < n; ++r) {
#pragma unroll
        for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i + 7) % 96] + 0.5f;
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 96; ++i) sum += a[i];
    y[threadIdx.x] = sum;
}
"""
WIDE = """
__device__ __forceinline__ float4 twice(float4 v) { return make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w); }
extern "C" __global__ void k(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = twice(x[i]);
}
"""


def test_lines_predicates_and_loops_of_a_listing() -> None:
    """Inlined code belongs to the user's line; a branch back makes a loop; the padding after EXIT is none."""
    (found,) = sass.parse(LISTING, ["s.cu"]).values()
    assert [(i.opcode, i.file, i.line, i.depth) for i in found] == [
        ("LDC", "s.cu", 5, 0),
        ("LDG.E.128", "s.cu", 6, 1),
        ("LDG.E", "s.cu", 6, 1),
        ("FFMA", "s.cu", 7, 1),
        ("BRA", "s.cu", 7, 1),
        ("EXIT", "s.cu", 7, 0),
        ("BRA", "s.cu", 7, 0),
    ]
    assert found[2].predicate == "!P0" and found[2].text.startswith("@!P0 LDG.E R3")


def test_control_codes() -> None:
    """The first load sets scoreboard 2, the second 3, and the multiply-add waits for 2 alone."""
    (found,) = sass.parse(LISTING, ["s.cu"]).values()
    assert found[1].sets[0] == 2 and found[2].sets[0] == 3
    assert found[3].waits == 0b100
    assert [i.stall for i in found][:2] == [1, 1]


def test_loads_in_flight_are_counted_until_one_is_awaited() -> None:
    """16 and 4 bytes are under way when the multiply-add waits."""
    (found,) = sass.parse(LISTING, ["s.cu"]).values()
    assert sass.loads_in_flight(found) == (20, ("s.cu", 6))
    summary = sass.summarise(found)
    assert summary.loads_in_flight == 20 and summary.load_widths == {"4": 10, "16": 10} and summary.loop
    assert summary.weighted["fp32"] == 10 and summary.mix["fp32"] == 1


@pytest.mark.parametrize(
    ("opcode", "kind", "size"),
    [
        ("LDG.E.128.CONSTANT", "global load", 16),
        ("STG.E.U16", "global store", 2),
        ("LDG.E.64", "global load", 8),
        ("IMAD.MOV.U32", "move", 4),
        ("IMAD.WIDE", "integer", 4),
        ("HFMA2.MMA", "half", 4),
        ("HGMMA.64x128x16.F32", "matrix", 4),
        ("MUFU.EX2", "special", 4),
        ("RED.E.ADD.F32", "atomic", 4),
        ("NEWOPCODE", "other", 4),
    ],
)
def test_classes_and_widths(opcode: str, kind: str, size: int) -> None:
    """By base opcode and modifiers; what the table lacks is named so."""
    assert classify(opcode) == kind and width(opcode) == size


def test_no_opcode_has_two_classes() -> None:
    """A later class would silently take an opcode from an earlier one."""
    assert CLASS_OF["ATOMS"] == "shared atomic" and CLASS_OF["WARPSYNC"] in ("barrier", "control")


def _summary(source: str) -> sass.KernelSass:
    try:
        sass.nvdisasm()
    except Unavailable as error:
        pytest.skip(error.reason)
    built = build(BuildRequest(text=source, filename="k.cu", kernels=("k",), arch="sm_90a", what="k"))
    return sass.summarise(sass.disassemble(built.path, ["k.cu"])["k"])


def test_spills_of_a_real_build_are_seen_with_their_lines() -> None:
    """Local loads stand in the line of the loop, which weighs more for it."""
    found = _summary(SPILLS)
    assert found.mix["local load"] > 10 and found.mix["local store"] > 10
    lines = {line.line: line for line in found.lines}
    assert lines[9].mix["local load"] > 10 and lines[9].weight > 100


def test_a_wide_copy_of_a_real_build() -> None:
    """One load and one store of sixteen bytes, nothing narrower, in lines of the source."""
    found = _summary(WIDE)
    assert found.load_widths == {"16": 1} and found.store_widths == {"16": 1}
    assert {line.line for line in found.lines} <= {2, 3, 4, 5, 6}


def test_what_is_no_cubin_is_refused_in_words(tmp_path: Path) -> None:
    """A broken file is a source that has nothing to say."""
    try:
        sass.nvdisasm()
    except Unavailable as error:
        pytest.skip(error.reason)
    (tmp_path / "k.cubin").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(Unavailable, match="nvdisasm"):
        sass.disassemble(tmp_path / "k.cubin")

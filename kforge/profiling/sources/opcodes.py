"""What kind of work a SASS instruction is: classes of opcodes from Volta (sm_70) on."""

from __future__ import annotations

# class -> base opcodes (CUDA Binary Utilities, "Instruction Set Reference")
_CLASSES = {
    "global load": "LDG LD LDGSTS UBLKCP UTMALDG UTMAPF LDGMC",
    "global store": "STG ST UTMASTG",
    "shared load": "LDS LDSM",
    "shared store": "STS STSM STAS",
    "local load": "LDL",
    "local store": "STL",
    "constant": "LDC ULDC LDCU",
    "atomic": "ATOMG ATOM RED REDG REDAS UTMAREDG",
    "shared atomic": "ATOMS CAS",
    "matrix": "HMMA IMMA DMMA BMMA QMMA OMMA HGMMA QGMMA IGMMA BGMMA UTCHMMA UTCQMMA UTCIMMA UTCOMMA",
    "fp32": "FADD FMUL FFMA FFMA2 FADD2 FMUL2 FMNMX FMNMX3 FSET FSETP FSEL FCHK FSWZADD",
    "fp64": "DADD DMUL DFMA DSETP DMNMX",
    "half": "HADD2 HMUL2 HFMA2 HMNMX2 HSET2 HSETP2",
    "special": "MUFU",
    "conversion": "F2F I2F F2I I2I F2FP I2FP F2IP I2IP FRND",
    "integer": """IMAD IADD3 IADD IADD64 IMNMX VIMNMX VIADD VIADDMNMX VIMNMX3 IABS IMUL IDP IDP4A LEA LOP3 LOP PLOP3 SHF
        SHL SHR ISETP ISET ISCADD BMSK BREV FLO POPC SGXT LOP32I IMAD32I UIMAD UIADD3 ULEA ULOP3 USHF UISETP UPLOP3
        UBMSK UFLO UPOPC USGXT UBREV UIADD3X UIMNMX UVIADD""",
    "move": "MOV UMOV SEL USEL PRMT UPRMT S2R S2UR CS2R CS2UR R2UR R2P P2R MOV32I UP2UR UR2UP MOVM",
    "shuffle": "SHFL VOTE VOTEU REDUX UREDUX MATCH CREDUX",
    "barrier": "BAR DEPBAR SYNCS WARPSYNC WARPGROUP WARPGROUPSET UCGABAR_ARV UCGABAR_WAIT ACQBULK MEMBAR FENCE",
    "control": """BRA BRX JMP JMX CALL RET EXIT BSSY BSYNC BREAK BMOV KILL NANOSLEEP YIELD BPT ERRBAR CCTL
        RPCMOV WARPSYNC NOP ELECT LEPC ACQSHMINIT""",
    "texture": "TEX TLD TLD4 TMML TXD TXQ SULD SUST SUATOM SURED",
}
CLASS_OF = {name: kind for kind, names in _CLASSES.items() for name in names.split()}
MEMORY = ("global load", "global store")
_MOVES = (".MOV", ".SHL")  # IMAD.MOV copies a register on the multiplier's pipe


def classify(opcode: str) -> str:
    """The class of an opcode with its modifiers ("LDG.E.128.CONSTANT"); "other" for what the table lacks."""
    base, _, modifiers = opcode.partition(".")
    if base in ("IMAD", "HFMA2", "FFMA", "IADD3") and f".{modifiers}".startswith(_MOVES):
        return "move"
    return CLASS_OF.get(base, "other")


def width(opcode: str) -> int:
    """Bytes that one thread moves with a memory instruction."""
    modifiers = opcode.split(".")
    for name, size in (("256", 32), ("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
        if name in modifiers:
            return size
    return 4

"""ncu's metrics by short names of ours: candidates in order, since names differ between chips and versions."""

from __future__ import annotations

from collections.abc import Iterable

STALLS = (
    "long_scoreboard", "short_scoreboard", "barrier", "mio_throttle", "lg_throttle", "math_pipe_throttle", "wait",
    "no_instruction", "drain", "membar", "branch_resolving", "imc_miss", "tex_throttle", "dispatch_stall", "sleeping",
    "misc", "gmma", "selected", "not_selected",
)  # fmt: skip
READY = ("stall_selected", "stall_not_selected")  # of warps that issue, or could: they wait for nothing
_PEAK = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"

# short name -> candidates; the first that the installed version has for this chip is collected
METRICS: dict[str, tuple[str, ...]] = {
    "duration_ns": ("gpu__time_duration.sum",),
    "sm_percent": (f"sm__throughput{_PEAK}",),
    "memory_percent": (f"gpu__compute_memory_throughput{_PEAK}",),
    "dram_percent": (f"gpu__dram_throughput{_PEAK}", f"dram__throughput{_PEAK}"),
    "dram_read_bytes": ("dram__bytes_read.sum",),
    "dram_write_bytes": ("dram__bytes_write.sum",),
    "l2_hit_percent": ("lts__t_sector_hit_rate.pct",),
    "l1_hit_percent": ("l1tex__t_sector_hit_rate.pct",),
    "l2_percent": (f"lts__t_sectors{_PEAK}",),
    "global_load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "global_load_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",),
    "global_store_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",),
    "global_store_requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",),
    "global_load_efficiency": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",),
    "shared_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "shared_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "local_load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",),
    "local_store_sectors": ("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",),
    "atomic_sectors": ("lts__t_sectors_op_atom.sum",),
    "reduction_sectors": ("lts__t_sectors_op_red.sum",),
    "warps_active_percent": (f"sm__warps_active{_ACTIVE}",),
    "issue_percent": (f"smsp__issue_active{_ACTIVE}", f"sm__inst_issued{_ACTIVE}"),
    "instructions": ("smsp__inst_executed.sum",),
    "threads_per_instruction": ("smsp__thread_inst_executed_per_inst_executed.ratio",),
    "tensor_percent": (
        f"sm__pipe_tensor_cycles_active{_ACTIVE}",
        f"sm__inst_executed_pipe_tensor{_ACTIVE}",
        f"sm__pipe_tensor_op_hmma_cycles_active{_ACTIVE}",
    ),
    "special_percent": (f"sm__inst_executed_pipe_xu{_ACTIVE}",),
    "alu_percent": (f"sm__inst_executed_pipe_alu{_ACTIVE}", f"sm__pipe_alu_cycles_active{_ACTIVE}"),
    "fma_percent": (f"sm__pipe_fma_cycles_active{_ACTIVE}", f"sm__inst_executed_pipe_fma{_ACTIVE}"),
    "registers": ("launch__registers_per_thread",),
    **{f"stall_{reason}": (f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio",) for reason in STALLS},
}
LAUNCH = "launch__"  # these are always there and not listed by a query


def choose(available: Iterable[str]) -> dict[str, str]:
    """short name -> full name of what can be collected. available: base names (without what follows a dot)."""
    bases = set(available)
    chosen: dict[str, str] = {}
    for short, candidates in METRICS.items():
        for name in candidates:
            if name.startswith(LAUNCH) or name.split(".")[0] in bases:
                chosen[short] = name
                break
    return chosen


def named(values: dict[str, float]) -> dict[str, float]:
    """Values by full name as counters by short name, with the sum of all stalls: of warps that could not issue."""
    found: dict[str, float] = {}
    for short, candidates in METRICS.items():
        for name in candidates:
            if name in values:
                found[short] = values[name]
                break
    stalls = [v for k, v in found.items() if k.startswith("stall_") and k not in READY]
    if stalls:
        found["stall_total"] = sum(stalls)
    return found

"""Everything the environment found out about a candidate, as frozen dataclasses that round-trip through JSON.

Data only: rendering lives in the CLI and the UI, judging in the modules beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """Is it right? (CONTRACTS 6)"""

    VERIFIED = "verified"
    BUILT = "built"  # compiled, but cannot run here
    REJECTED = "rejected"  # static gate
    BUILD_FAILED = "build_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    WRONG = "wrong"
    HACKED = "hacked"
    NO_CANDIDATE = "no_candidate"


class Verdict(StrEnum):
    """Is it fast? (CONTRACTS 6)"""

    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNCLEAR = "unclear"
    MIXED = "mixed"
    UNTIMED = "untimed"


@dataclass(frozen=True)
class Gate:
    """One gate's outcome. passed None: not run, and `detail` says why."""

    name: str  # static | build | correctness | honesty | memory | model | performance
    passed: bool | None
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Detector:
    """One detector of knowledge/hacks.md: it ran; did it fire?"""

    name: str
    fired: bool
    detail: str = ""


@dataclass(frozen=True)
class KernelBuild:
    """Resources of one built kernel. shared and spills in bytes; occupancy as a share of resident warps."""

    name: str
    arch: str
    registers: int
    shared: int
    spill_bytes: int
    stack: int
    constants: dict[str, int] = field(default_factory=dict)
    occupancy: float | None = None
    launches: int | None = None  # in the correctness gate; 0: never judged, None: not counted


@dataclass(frozen=True)
class CaseResult:
    """One case of the input plan: which inputs, and how far from fp64. Errors are RMS and maximum, absolute."""

    label: str  # e.g. "variant 0, seed 3, x0.01, strided"
    passed: bool
    output: str = ""  # pytree path of the worst output
    candidate_rms: float | None = None
    baseline_rms: float | None = None
    candidate_max: float | None = None
    baseline_max: float | None = None
    detail: str = ""  # in words, for a person and for a model


@dataclass(frozen=True)
class Error:
    """Error against fp64, of the cases that come nearest to their bound.

    ratio: candidate_rms over baseline_rms (None: baseline exact); allowed: its bound, wider on derived shapes; where:
    the distribution and shape of these cases.
    For half outputs, in units in the last place: largest_ulp, and mean_ulp with its sign (a biased rounding shows).
    """

    candidate_rms: float
    baseline_rms: float
    ratio: float | None
    largest_ulp: float | None = None
    mean_ulp: float | None = None
    allowed: float | None = None
    where: str = ""


@dataclass(frozen=True)
class Samples:
    """Raw timing samples in milliseconds of one side, and what was timed."""

    name: str  # candidate | eager | compile_default | ...
    wrapper: str  # plain | graph | replay | warm
    ms: tuple[float, ...]

    @property
    def median(self) -> float:
        ordered = sorted(self.ms)
        n = len(ordered)
        return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2


@dataclass(frozen=True)
class Speedup:
    """Baseline time over candidate time, against the baseline named; ci95 by bootstrap; noise from an A/A run."""

    vs: str
    ratio: float
    ci95: tuple[float, float]
    noise: float


@dataclass(frozen=True)
class Roofline:
    """Which limit binds, the floor in ms (CONTRACTS 5), and the share of it that the candidate achieves."""

    bound: str  # memory | compute | latency | mixed
    floor_ms: float
    achieved: float | None
    source: str = "calibrated"  # or "data sheet"


@dataclass(frozen=True)
class VariantResult:
    """Verdict and times of one input variant. basis: what the verdict rests on: events or graph replay."""

    label: str
    verdict: Verdict
    speedup: Speedup | None
    samples: tuple[Samples, ...] = ()
    basis: str = ""


@dataclass(frozen=True)
class Costs:
    """What stands beside the time of a call, on the first variant.

    build_s: of all kernels; first_call_s: the first call of a fresh process, which loads them. By side: call_us, host
    time until a call returns; warm_ms, with L2 as the call before left it; energy_mj, of one call in a steady run.
    amortised_ms: of a candidate with derived weights, a call that finds them there; the verdict's calls derive them.
    """

    build_s: float = 0.0
    first_call_s: float = 0.0
    call_us: dict[str, float] = field(default_factory=dict)
    warm_ms: dict[str, float] = field(default_factory=dict)
    energy_mj: dict[str, float] = field(default_factory=dict)
    amortised_ms: float | None = None


@dataclass(frozen=True)
class Backward:
    """Of a forward/backward pair: names of the gradients that were compared, kinds of upstream gradient that passed."""

    gradients: tuple[str, ...]
    judged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """The whole result of one evaluation."""

    task: str
    candidate: str  # digest
    status: Status
    verdict: Verdict
    plan: str  # quick | standard | full
    target: str  # "NVIDIA H200" or "emulator"
    precision_class: str = ""  # e.g. "fp32 (matmul precision highest)"; printed beside every speed-up
    rules: tuple[str, ...] = ()  # standing rules that were checked: "keep_nan", "max_shared=49152"
    gates: tuple[Gate, ...] = ()
    detectors: tuple[Detector, ...] = ()
    builds: tuple[KernelBuild, ...] = ()
    cases: tuple[CaseResult, ...] = ()
    dropped: int = 0  # cases of the plan for which no time was left, to build or to run
    asked: int = 0  # cases of the plan on this task, without those that it cannot have; 0: an older report
    sizes: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # (least, most) that passed, by input
    error: Error | None = None
    variants: tuple[VariantResult, ...] = ()
    speedup: Speedup | None = None
    confirmed: bool = False  # the verdict stood in a second process against the ladder's fastest; else provisional
    context: Speedup | None = None  # of the user's whole step, with the reference's module over with the candidate's
    costs: Costs | None = None
    times_ms: dict[str, float] = field(default_factory=dict)
    memory_ratio: float | None = None
    roofline: Roofline | None = None
    vendor_calls: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_tested: tuple[str, ...] = ()
    degenerate: bool = False
    no_room: bool = False
    backward: Backward | None = None  # of a pair: its gradients were judged too, and the times are of both
    repro: str | None = None  # path of repro.py when wrong
    environment: dict[str, str] = field(default_factory=dict)  # GPU, driver, clocks, versions, hashes, sandbox in force
    seconds: float = 0.0
    # Seconds of the performance gate by what they went into; "build: ...": of the build gate; "wait: ...": until
    # processes were there or gone; "context: ...": that a process took to be there, beside everything else.
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def effort(self) -> str:
        """How much of the plan was tried, in words."""
        failing = any(not case.passed for case in self.cases)
        verified = self.status is Status.VERIFIED
        return effort_text(self.plan, len(self.cases), self.planned, self.dropped, failing, verified)

    @property
    def planned(self) -> int:
        """Cases that the plan asks for: those run, dropped, refused, and those after a failure."""
        return max(self.asked, len(self.cases) + self.dropped)

    @property
    def failure(self) -> str:
        """The first failed gate's detail in words, or the empty string."""
        return next((g.detail for g in self.gates if g.passed is False), "")


def effort_text(
    plan: str, run: int, planned: int, dropped: int = 0, failing: bool = False, verified: bool = False
) -> str:
    """`plan standard (18 of 20 cases)`. dropped: of those planned, for want of time. failing: the last one did.

    What a verified candidate neither ran nor had no time for, it refused by an error of its own.
    """
    if not run and not planned:
        return f"plan {plan}"
    if failing:
        return f"plan {plan} (stopped at case {run} of {max(run, planned)})"
    refused = planned - run - dropped if verified else 0
    words = f"; no time for {dropped}" if dropped else ""
    words += f"; it refuses {refused}" if refused > 0 else ""
    return f"plan {plan} ({run} of {planned} cases{words})"

"""Foreign text is never interpreted: not by the terminal, not as markup; tables and units read well."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from kforge.cli.progress import Progress, describe, milliseconds, size
from kforge.cli.render import candidate_text, closing, headline, highlight, report_text, unified_diff
from kforge.cli.text import fill, plain, style, table
from kforge.environment.report import (
    CaseResult,
    Detector,
    Error,
    Gate,
    KernelBuild,
    Report,
    Roofline,
    Speedup,
    Status,
    Verdict,
)

HOSTILE = "tile[threadIdx.x] = v[/] [red]\x1b[31m\x1b]0;title\x07 \u202e back\r\n"


def test_hostile_text_keeps_its_brackets_and_loses_its_escapes() -> None:
    """Square brackets stay, escape sequences and direction marks become visible, newlines stay."""
    text = plain(HOSTILE)
    assert text.startswith("tile[threadIdx.x] = v[/] [red]\ufffd[31m")
    assert not any(c in text for c in "\x1b\x07\r\u202e")
    assert text.endswith("\n")


def test_ordinary_text_is_unchanged() -> None:
    """Letters of any script, signs and tabs pass."""
    text = "µs → größer\tx\n漢字"
    assert plain(text) == text


def test_highlighting_cannot_be_used_to_inject_escapes() -> None:
    """With colours on, the only escapes in highlighted source are the highlighter's own colour codes."""
    import re

    text = highlight(f"__global__ void k() {{ /* {HOSTILE} */ }}", "k.cu", colour=True)
    assert "\x1b[" in text
    assert not re.sub(r"\x1b\[[0-9;]*m", "", text).count("\x1b")
    assert "\x07" not in text


def test_no_colour_means_no_escape() -> None:
    """Without colours the text has no escape sequence at all."""
    assert "\x1b" not in highlight("x = 1", "a.py", colour=False) + style("x", "red", False)


def test_table_aligns_and_keeps_each_row_on_one_line() -> None:
    """Columns begin below each other; a newline in a cell does not break the row."""
    assert table([["a", "b\nc"], ["long", "d"]], indent="") == "a     b c\nlong  d"


@pytest.mark.parametrize(
    ("ms", "text"), [(1500, "1.50 s"), (4.76, "4.76 ms"), (47.6, "47.6 ms"), (0.0123, "12.3 us"), (0.00085, "850 ns")]
)
def test_times_have_three_digits_and_a_unit(ms: float, text: str) -> None:
    """A time is shown in the unit in which it is at least one."""
    assert milliseconds(ms) == text


def test_sizes_are_decimal() -> None:
    """16 777 216 bytes are 16.8 MB, as bandwidths are counted."""
    assert [size(n) for n in (16_777_216, 999, 2.5e9)] == ["16.8 MB", "999 B", "2.50 GB"]


REPORT = Report(
    task="softmax.py",
    candidate="ab12cd34",
    status=Status.VERIFIED,
    verdict=Verdict.FASTER,
    plan="standard",
    target="NVIDIA H200",
    precision_class="fp32",
    gates=(Gate("static", True, seconds=0.01), Gate("model", None, "not a whole model")),
    detectors=(Detector("side_stream", False), Detector("clock", True, "too fast")),
    builds=(KernelBuild("softmax_rows", "sm_90a", 32, 1024, 0, 0, occupancy=1.0),),
    error=Error(1.1e-7, 1.0e-7, 1.1),
    speedup=Speedup("compile_default", 1.53, (1.51, 1.55), 0.004),
    times_ms={"eager": 6.2, "candidate": 3.1},
    memory_ratio=1.0,
    roofline=Roofline("memory", 3.0, 0.97),
    not_tested=("inputs beyond 2 GB", "detector guard_bands: needs a GPU", "detector decoy: needs a GPU"),
)


def test_headline_names_baseline_interval_noise_and_precision() -> None:
    """The one line that people quote says against what, how sure, where, by which plan and in which class."""
    assert headline(REPORT) == (
        "VERIFIED, FASTER: 1.53x over compile_default (95 % interval 1.51 to 1.55, noise 0.4 %, provisional)"
        " on NVIDIA H200, plan standard, fp32"
    )


def test_report_shows_gates_error_times_floor_and_what_was_not_tested() -> None:
    """Every fact of the report that a reader must know is in the table; a detector that did not fire is not, nor are
    those that did not run where the candidate failed."""
    text = report_text(REPORT)
    for part in (
        "gate static", "not run", "not a whole model", "1.1e-07", "ratio 1.1", "6.20 ms", "3.10 ms", "97 %",
        "32 registers", "1.02 kB shared", "occupancy 100 %", "detector clock fired: too fast",
        "not tested: inputs beyond 2 GB", "detectors that did not run (needs a GPU): guard_bands, decoy",
    ):  # fmt: skip
        assert part in " ".join(text.split()), part
    assert "side_stream" not in text
    failed = report_text(replace(REPORT, status=Status.BUILD_FAILED))
    assert "inputs beyond 2 GB" in failed and "detectors that did not run" not in failed


def test_a_traceback_is_told_by_its_last_line() -> None:
    """Where a gate ends with a traceback, table and progress show the exception, and the frames stand below."""
    frames = 'called on contiguous inputs: File "module.py", line 7, in forward\n    self.run(x)\nTypeError: no x'
    report = replace(REPORT, gates=(Gate("build", False, frames),), status=Status.CRASHED)
    lines = report_text(report, columns=120).splitlines()
    start = lines.index("  gate build  FAILED    called on contiguous inputs: TypeError: no x")
    assert lines[start + 1 : start + 4] == [
        "  gate build said:",
        '    called on contiguous inputs: File "module.py", line 7, in forward',
        "        self.run(x)",
    ]
    event = {"name": "build", "passed": False, "detail": frames}
    assert describe("gate", event) == "gate build failed: called on contiguous inputs: TypeError: no x"


def test_cases_that_were_not_tested_are_counted_under_their_reason() -> None:
    """Several cases under one reason are a number, one case is named; what has a line of its own is not said twice."""
    report = replace(
        REPORT,
        builds=(replace(REPORT.builds[0], launches=0),),
        not_tested=(
            "variant 0, shape deep, seed 1, x1, offset first; variant 1, seed 2, sliced and 14 more: no size is deep",
            "no time left in plan standard: variant 0, seed 1, x1, sliced; variant 0, seed 2, x1, with nan",
            "variant 0, shape empty, seed 4, heavy, offset: no input can be offset",
            "variant 2: 128 MiB of inputs is too large for the emulator",
            "never launched: softmax_rows",
        ),
    )
    lines = [line.strip() for line in report_text(report, columns=120).splitlines()]
    assert [line for line in lines if line.startswith("not tested")] == [
        "not tested: 16 cases: no size is deep",
        "not tested: no time left in plan standard: 2 cases",
        "not tested: variant 0, shape empty, seed 4, heavy, offset: no input can be offset",
        "not tested: variant 2: 128 MiB of inputs is too large for the emulator",
    ]
    assert [line for line in lines if "launched" in line and not line.startswith("kernel")] == [
        "never launched in any case, so not judged: softmax_rows"
    ]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_text_keeps_to_the_terminals_width(columns: int) -> None:
    """No line of a report is longer than the terminal is wide, and every word is there."""
    long = " ".join(f"word{n}" for n in range(60))
    gates = (Gate("build", None, long), Gate("correctness", True))
    report = replace(REPORT, gates=gates, not_tested=(long, f"detector decoy: {long}"), warnings=(long,))
    text = report_text(report, columns=columns)
    assert max(map(len, text.splitlines())) <= columns
    assert all(text.count(f"word{n}") == 4 for n in (0, 59))
    assert max(map(len, fill(closing(report, 0, ["a/b.py"], "r1"), columns).splitlines())) <= columns


def test_cases_that_were_dropped_count_in_the_headline() -> None:
    """A plan that ended early says so in the line that people quote, and in the last one."""
    report = replace(REPORT, cases=(CaseResult("a", True), CaseResult("b", True)), dropped=3)
    assert "plan standard (2 of 5 cases; no time for 3), fp32" in headline(report)
    assert closing(report, 0, ["x.py"], "r1") == (
        "verified, faster, plan standard (2 of 5 cases; no time for 3); wrote x.py; run r1; exit code 0"
    )


def test_cases_that_a_candidate_refuses_are_said() -> None:
    """Verified on a part of the plan because its own checks raised on the rest."""
    report = replace(REPORT, cases=(CaseResult("a", True), CaseResult("b", True)), dropped=3, asked=9)
    assert "plan standard (2 of 9 cases; no time for 3; it refuses 4), fp32" in headline(report)


def test_a_failure_is_no_share_of_the_cases() -> None:
    """A gate that ended at its first wrong answer says where, not how many of how many."""
    cases = (CaseResult("a", True), CaseResult("b", False))
    report = replace(REPORT, status=Status.WRONG, cases=cases, asked=300)
    assert "plan standard (stopped at case 2 of 300), fp32" in headline(report)


def test_kernels_that_never_ran_are_named() -> None:
    """A kernel without a launch is marked where it is listed, and named among what was not judged."""
    builds = tuple(
        KernelBuild(n, "sm_90a", 32, 0, 0, 0, launches=c) for n, c in (("ran", 4), ("idle", 0), ("odd", None))
    )
    text = report_text(replace(REPORT, builds=builds))
    assert "never launched in any case, so not judged: idle\n" in text
    (line,) = [line for line in text.splitlines() if line.startswith("  kernel idle")]
    assert "never launched" in line and text.count("never launched") == 2


def test_compiler_errors_keep_their_lines() -> None:
    """The table has a log's first line; the log stands below it as the compiler wrote it."""
    log = "k.cu:3: error: x\n   float y = x;\n             ^\n1 error"
    text = report_text(replace(REPORT, status=Status.BUILD_FAILED, gates=(Gate("build", False, log),)))
    assert "gate build  FAILED    k.cu:3: error: x\n" in text
    assert "    " + "\n    ".join(log.splitlines()[1:]) + "\n" in text
    assert describe("gate", {"name": "build", "passed": False, "detail": log}) == "gate build failed: k.cu:3: error: x"


def test_wrong_report_shows_the_failing_case() -> None:
    """A wrong candidate's report says which case failed and how, three at most."""
    cases = tuple(CaseResult(f"seed {n}", False, output="out[0]", detail="error 3x the baseline's") for n in range(5))
    text = report_text(Report("t.py", "ab", Status.WRONG, Verdict.UNTIMED, "quick", "emulator", cases=cases))
    assert text.startswith("WRONG on emulator")
    assert text.count("wrong: seed") == 3 and "error 3x the baseline's" in text


def test_diff_and_sources_of_a_candidate() -> None:
    """The module is shown as a diff from op.py, every other source in full under its name."""
    files = {"a_kforge.py": "import torch\nclass ModelNew: ...\n", "a_kforge.cu": "__global__ void k() {}\n"}
    text = candidate_text("import torch\nclass Model: ...\n", "a.py", "a_kforge.py", files)
    assert "--- a.py\n+++ a_kforge.py" in text
    assert "-class Model: ...\n+class ModelNew: ..." in text
    assert text.endswith("--- a_kforge.cu ---\n__global__ void k() {}")
    assert unified_diff("x\n", "x\n", "a", "b") == ""


def _run(progress: Progress) -> None:
    progress("run_started", {"task": "softmax.py"})
    progress("proposed", {"candidate": "ab12cd34ef", "idea": "one block per row"})
    progress("gate", {"name": "build", "passed": True})
    progress("case", {"label": "variant 0, seed 3, x0.01, strided", "passed": True})
    progress("gate", {"name": "correctness", "passed": False, "detail": "error  \x1b[31m 3x\nmore"})
    progress(
        "evaluated", {"candidate": "ab12cd34ef", "status": "verified", "verdict": "faster", "speedup": 1.5, "ms": 3.1}
    )
    progress("best", {"candidate": "ab12cd34ef", "speedup": 1.5, "ms": 3.1})
    progress("floor", {"floor_ms": 3.0, "bound": "memory", "source": "calibrated"})
    progress("written", {"files": ["x"]})
    progress.close()


def test_progress_without_a_terminal_is_plain_lines() -> None:
    """Each stage is one line with its time; gates that pass are silent; no escape reaches the stream."""
    stream = io.StringIO()
    _run(Progress(stream))
    lines = [line.split("s  ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == [
        "task softmax.py",
        "candidate ab12cd34: one block per row",
        "gate correctness failed: error \ufffd[31m 3x",
        "ab12cd34 verified, faster, x1.50, 3.10 ms",
        "best ab12cd34 x1.50 3.10 ms",
        "floor 3.00 ms, memory bound (calibrated)",
    ]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_rewrites_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal there is one live line with the best so far, removed at the end; NO_COLOR leaves it uncoloured."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    stream = _Terminal()
    _run(Progress(stream))
    text = stream.getvalue()
    assert "\n" not in text and text.endswith("\r\x1b[K")
    assert "\x1b[2m" not in text
    last = text.split("\r\x1b[K")[-2]
    assert "candidate 1" in last and last.endswith("best ab12cd34 x1.50 3.10 ms")


def test_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """TERM=dumb has no cursor: lines as without a terminal."""
    monkeypatch.setenv("TERM", "dumb")
    stream = _Terminal()
    _run(Progress(stream))
    assert "\x1b" not in stream.getvalue() and stream.getvalue().count("\n") == 6


def test_every_event_kind_is_said_or_left_to_the_command() -> None:
    """Kinds of the schema are described, said at the command's end, or the state of a view (the tree, a meter)."""
    from kforge.cli.progress import _LINES
    from kforge.store.schema import PAYLOADS

    views = {"node", "model_text", "conversation", "meter", "lesson"}
    assert set(PAYLOADS) - set(_LINES) == {"written", "error", "run_finished"} | views
    assert describe("lesson", {"text": "wider loads: 1.4 x"}) is None  # it says what the attempt's own line said
    assert describe("run_finished", {}) is None


def test_what_the_inputs_cannot_have_is_one_line() -> None:
    """Shapes and layouts without a case are named together, with their number; other reasons stand alone."""
    texts = (
        "variant 0, shape hollow, seed 1, x1, offset; variant 0, shape hollow, seed 2, x3, sliced: the reference"
        " rejects shape hollow",
        "variant 0, seed 2, x1, transposed; variant 1, seed 2, sliced and 3 more: no input can be transposed",
        "variant 0, shape deep, seed 2, x1: no size of the inputs can be deep",
        "variant 2: 128 MiB of inputs is too large for the emulator",
    )
    lines = [line.strip() for line in report_text(replace(REPORT, not_tested=texts), columns=140).splitlines()]
    assert [line for line in lines if line.startswith("not tested")] == [
        "not tested: 8 cases of shapes or layouts that these inputs cannot have: hollow, transposed, deep",
        "not tested: variant 2: 128 MiB of inputs is too large for the emulator",
    ]

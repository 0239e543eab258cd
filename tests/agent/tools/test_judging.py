"""Tools that judge, on the emulator with a real workbench: what they say is what the environment found."""

from __future__ import annotations

import re

import pytest

from kforge.agent.budget import Budget
from kforge.agent.tools import Toolbox, call
from tests.agent.tools.conftest import Use
from tests.agent.tools.sources import MODULE

pytestmark = pytest.mark.usefixtures("softmax")


def test_a_right_candidate_is_told_so(box: Toolbox, use: Use) -> None:
    """Status, gates, the error beside the baseline's, registers; untimed without a GPU; the same files are free."""
    result = use("evaluate", idea="one block a row", direction="row_block", expected_gain=1.5)
    first, gates, *rest = result.text.splitlines()
    assert ": verified, untimed [plan quick, emulator]" in first and not result.is_error
    assert gates.startswith("gates: static ok, build ok, correctness ok, honesty ok")
    assert any(line.startswith("error: RMS ") and "ratio " in line for line in rest)
    assert "times: untimed; only a GPU can tell speed" in rest
    assert any(line.startswith("kernel softmax_rows: ") and "[BLOCK=64]" in line for line in rest)
    node = box.bench.tree.find(box.candidate().digest)
    assert node is not None and (node.parent, node.proposer) == (0, "model")
    used = box.bench.meter.evaluations
    assert use("evaluate").text == result.text and box.bench.meter.evaluations == used


def test_a_wrong_candidate_is_told_with_its_input(use: Use) -> None:
    """The first failing gate in full: which input, which element, both errors."""
    use("edit_file", name="softmax_kforge.cu", old="/ sum;", new="/ sum * 1.01f;")
    result = use("evaluate")
    assert "wrong [plan quick, emulator]" in result.text and "correctness FAILED" in result.text
    assert re.search(r"^gate correctness: variant 0, .*: out: element \[\d, \d+\] is ", result.text, re.MULTILINE)
    pattern = r"^failing input: variant 0, .*; output out; RMS error (\S+) \(baseline (\S+)\); largest"
    case = re.search(pattern, result.text, re.MULTILINE)
    assert case is not None and float(case[1]) > 1000 * float(case[2])


def test_a_broken_source_is_told_with_the_compilers_lines(use: Use) -> None:
    """A build failure names file and line, and no later gate is spoken of."""
    use("edit_file", name="softmax_kforge.cu", old="float sum = 0.0f;", new="float sum = 0.0f")
    text = use("evaluate").text
    assert "build FAILED" in text and "softmax_kforge.cu(23): error" in text and "correctness" not in text


@pytest.mark.parametrize(
    "text",
    ["x = " + "-" * 50_000 + "1", "x = a" + ".b" * 50_000, "if a: pass\n" + "elif a: pass\n" * 15_000, "x = (" * 150],
)
def test_a_source_that_no_parser_bears_is_rejected(use: Use, text: str) -> None:
    """Nesting without end is a rejection with a reason, for the judge and for what reads the source besides."""
    use("write_file", name="softmax_kforge.py", text=text)
    told = use("evaluate").text
    assert "rejected [plan quick" in told and ("nested too deeply" in told or "syntax error" in told)
    for result in (use("sweep"), use("time_variants", constants=[{"BLOCK": 32}]), use("profile")):
        assert result.is_error


def test_no_module_is_a_text(use: Use, box: Toolbox) -> None:
    """Without the module there is nothing to judge, and its name is told."""
    (box.folder / "softmax_kforge.py").unlink()
    result = use("evaluate")
    assert result.is_error and "there is no file softmax_kforge.py" in result.text
    assert "is no Python module" in use("evaluate", module="softmax_kforge.cu").text


def test_variants_stand_side_by_side(box: Toolbox, use: Use) -> None:
    """Modules and settings of constants are judged each as a candidate of its own, one row each."""
    use("write_file", name="softmax_b.py", text=MODULE.replace('{"BLOCK": 64}', '{"BLOCK": 128}'))
    rows = use("time_variants", modules=["softmax_kforge.py", "softmax_b.py"]).text.splitlines()
    assert rows[0].split()[:4] == ["variant", "attempt", "status", "ms"]
    assert rows[1].startswith("softmax_kforge.py ") and rows[2].startswith("softmax_b.py ")
    assert all("verified untimed" in row for row in rows[1:3]) and rows[3].startswith("untimed")
    again = use("time_variants", constants=[{"BLOCK": 64}, {"BLOCK": 32}]).text.splitlines()
    assert again[1].split()[1] == rows[1].split()[1]  # the declared setting is the same attempt
    assert again[2].startswith("BLOCK=32 ") and again[2].rstrip().endswith("128")  # bytes of shared memory


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give modules or constants"),
        ({"modules": ["softmax_kforge.py"], "constants": [{"BLOCK": 1}]}, "one of the two"),
        ({"constants": [{"VEC": 4}]}, "softmax_rows has no constant VEC"),
        ({"constants": [{}]}, "was given no constants"),
        ({"constants": [{"BLOCK": 32}], "kernel": "other"}, "there is no kernel 'other'"),
        ({"modules": [f"f{n}.py" for n in range(20)]}, "20 variants at once"),
        ({"modules": ["absent.py"]}, "there is no file absent.py"),
    ],
)
def test_wrong_variants_are_refused(use: Use, arguments: dict[str, object], said: str) -> None:
    """What cannot be compared is told before anything is judged."""
    result = use("time_variants", **arguments)
    assert result.is_error and said in result.text


def test_a_sweep_without_a_gpu_says_untimed(use: Use) -> None:
    """The space is read and its size told; nothing is tried, because nothing could be timed."""
    result = use("sweep")
    assert result.text.startswith("untimed: there is no GPU here")
    assert "softmax_rows: 3 settings of BLOCK" in result.text
    use("edit_file", name="softmax_kforge.py", old='    tune={"BLOCK": [32, 64, 128]},\n', new="")
    assert "no Kernel declares a space" in use("sweep").text
    assert "seconds lie above 0" in use("sweep", seconds=1e9).text
    use("write_file", name="softmax_kforge.py", text="def broken(:")
    assert "is no Python" in use("sweep").text


def test_compare_shows_the_change_and_both_results(box: Toolbox, use: Use) -> None:
    """A diff of the files and a row for each; names that mean nothing are told with those that do."""
    use("evaluate")
    digest = box.candidate().digest
    number = box.bench.tree.find(digest).id  # type: ignore[union-attr]
    use("edit_file", name="softmax_kforge.cu", old="/ sum;", new="/ sum * 1.02f;")
    text = use("compare", a=str(number)).text
    assert f"--- {number}/softmax_kforge.cu" in text and "+++ current/softmax_kforge.cu" in text
    assert "\n-    for (int i" in text and "* 1.02f;\n" in text and "verified untimed" in text
    assert "not evaluated in this run" in text
    assert "their files are the same" in use("compare", a=digest, b=f"#{number}").text
    for name, said in [
        ("parent", "is the reference itself"), ("9999", "there is no attempt 9999"), ("../x", "names no candidate"),
        ("0123456789abcdef", ""), ("0", "is the reference itself"),
    ]:  # fmt: skip
        result = use("compare", a=name)
        assert result.is_error and said in result.text


def test_submit_takes_only_what_is_verified(box: Toolbox, use: Use) -> None:
    """A wrong candidate is refused with its report; a right one ends the conversation and is handed over."""
    use("edit_file", name="softmax_kforge.cu", old="/ sum;", new="/ sum * 1.03f;")
    refused = use("submit", idea="a scale")
    assert refused.is_error and not refused.ends and refused.candidate is None
    assert refused.text.startswith("refused: only a verified candidate") and "correctness FAILED" in refused.text
    use("edit_file", name="softmax_kforge.cu", old="* 1.03f", new="* 1.0f")
    assert "idea is empty" in use("submit", idea=" ").text
    taken = use("submit", idea="a scale of one", expected_gain=1.1)
    assert taken.ends == "submit" and not taken.is_error and taken.text.startswith("taken: attempt ")
    assert taken.candidate is not None and taken.candidate.digest == box.candidate().digest
    assert (taken.candidate.idea, taken.candidate.expected_gain) == ("a scale of one", 1.1)


def test_submit_heeds_the_rules_in_force(box: Toolbox, use: Use) -> None:
    """A candidate that was verified is judged again when the developer adds a rule, and refused if it breaks it."""
    assert "verified" in use("evaluate").text
    box.bench.constrain("max_shared=64", "test")
    try:
        refused = use("submit", idea="as before")
        assert refused.is_error and "64" in refused.text and not refused.ends
    finally:
        box.bench.release("max_shared")


def test_give_up_needs_a_reason(use: Use) -> None:
    """The conversation ends with the reason, never without one."""
    assert use("give_up", reason="").is_error
    result = use("give_up", reason="the baseline runs at the floor")
    assert result.ends == "give_up" and "the baseline runs at the floor" in result.text


def test_a_spent_budget_is_no_answer(box: Toolbox, use: Use) -> None:
    """With no evaluation left the tool ends the conversation; what is known is still told."""
    from kforge.agent.budget import BudgetSpent

    known = use("evaluate").text
    before, box.bench.budget = box.bench.budget, Budget(evaluations=0)
    try:
        assert call("evaluate", {}, box).text == known
        use("edit_file", name="softmax_kforge.cu", old="/ sum;", new="/ sum * 1.04f;")
        with pytest.raises(BudgetSpent):
            call("evaluate", {}, box)
    finally:
        box.bench.budget = before


def test_a_profile_is_short(use: Use) -> None:
    """Which limit binds, the kernel's figures, at most three findings, and what could not be had."""
    text = use("profile").text
    assert "roofline: latency bound" in text and "kernel softmax_rows" in text and "missing: ncu" in text
    assert sum(line[:3] in ("1. ", "2. ", "3. ", "4. ") for line in text.splitlines()) <= 3


def test_device_facts_name_their_source(use: Use) -> None:
    """Without a GPU the emulator is the target and the figures are a data sheet's; a block's limits are sm_90's."""
    text = use("device_facts").text
    assert text.startswith("target: emulator on the CPU; kernels are built for sm_90a")
    assert "(data sheet)" in text and "132 multiprocessors" in text and "65536 registers" in text
    assert "1024 threads and 232448 bytes of shared memory" in text and "1680 bytes read, 1680 written" in text


def test_the_baselines_source_or_why_not(use: Use) -> None:
    """On the CPU there is no Triton code, and the answer says so."""
    result = use("baseline_source")
    assert result.is_error and "GPU" in result.text


def test_a_note_is_kept(box: Toolbox, use: Use) -> None:
    """A remark is found again under the task's family and chip; an empty or a long one is refused."""
    assert box.bench.memory is not None
    result = use("note", text="rows of 70 fit\na warp", direction="warp_row")
    assert result.text.startswith("kept for softmax (") and "on emulator" in result.text
    key = box.bench.key
    lessons = box.bench.memory.lessons(key.family, key.shape_class, key.chip)
    kept = [lesson for lesson in lessons if lesson.outcome == "note"]
    assert [(lesson.text, lesson.direction) for lesson in kept] == [("rows of 70 fit a warp", "warp_row")]
    assert use("note", text=" ").is_error and use("note", text="x" * 700).is_error

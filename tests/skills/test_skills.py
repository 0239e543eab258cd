"""Skills: well-formed pages whose claims hold. Kernels are verified, pitfalls caught, files and figures are there."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from kforge.environment import Report
from kforge.kernel import Kernel
from kforge.kernel.candidate import Candidate
from kforge.kernel.emulator.checked import run_checked
from kforge.kernel.emulator.recording import recording
from kforge.kernel.emulator.traced import run_traced
from kforge.profiling.analysis import MODULES
from tests.skills.kernels import NAMES, SKILLS, load_module, record

ROOT = SKILLS.parent
ASKED = {
    "reduction", "softmax", "norm", "pointwise", "transpose", "atomics-histogram", "launch-and-graphs",
    "alignment-and-layouts", "memory-hierarchy", "precision", "reading-a-profile", "debugging-a-wrong-kernel", "scan",
    "pooling",
}  # fmt: skip
SECTIONS = (
    "When", "The kernel", "Measured", "What to try, in this order", "Pitfalls", "Findings that point here"
)  # fmt: skip
Judge = Callable[..., Report]


def page(name: str) -> str:
    """The text of a skill's page."""
    return (SKILLS / name / "SKILL.md").read_text()


def front_matter(name: str) -> dict[str, str]:
    """The `key: value` lines between the two lines of dashes that a page starts with."""
    head = page(name).split("---\n")[1]
    return dict(line.split(": ", 1) for line in head.splitlines())


def pages() -> list[Path]:
    """Every page and every reference page in Markdown."""
    return sorted(SKILLS.glob("*/SKILL.md")) + sorted(SKILLS.glob("*/references/*.md"))


def pitfalls() -> Iterator[tuple[str, dict[str, object]]]:
    """Each planted mistake with the skill it belongs to."""
    for file in sorted(SKILLS.glob("*/pitfalls.toml")):
        for pitfall in tomllib.loads(file.read_text())["pitfall"]:
            yield file.parent.name, pitfall


def candidate(folder: Path) -> Candidate:
    """The one candidate of a folder."""
    (module,) = folder.glob("*_kforge.py")
    return Candidate.read(module)


# ---- pages


def test_the_skills_that_were_asked_for_are_there() -> None:
    """Op families, techniques and chips: one folder each."""
    assert set(NAMES) >= ASKED


@pytest.mark.parametrize("name", NAMES)
def test_front_matter_is_that_of_the_open_format(name: str) -> None:
    """A name, the folder's, of at most 64 characters, and a description of what it is and when to use it."""
    found = front_matter(name)
    assert list(found) == ["name", "description"]
    assert found["name"] == name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) and len(name) <= 64
    assert 40 < len(found["description"]) <= 1024 and "Use " in found["description"]


@pytest.mark.parametrize("name", NAMES)
def test_pages_have_the_same_sections_and_stay_short(name: str) -> None:
    """When, kernel, figures, order of steps, pitfalls, findings; at most 150 lines."""
    text = page(name)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [h for h in headings if h in SECTIONS] == list(SECTIONS)
    assert len(text.splitlines()) <= 150


@pytest.mark.parametrize("name", NAMES)
def test_code_shown_is_the_files_own(name: str) -> None:
    """Every block that names a file stands in that file, line for line; each page shows its kernel."""
    blocks = re.findall(r"^```(\w+) (\S+)\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    assert any(language == "cuda" for language, _, _ in blocks)
    for _, file, text in blocks:
        assert text.rstrip("\n") in (SKILLS / name / file).read_text(), f"{name}: not in {file}:\n{text}"


def test_everything_named_exists() -> None:
    """Files and folders of the skill and of the repository that a page names, and other skills."""
    for path in pages():
        text = path.read_text()
        folder = SKILLS / path.relative_to(SKILLS).parts[0]
        for named in re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:cu|py|md|toml|txt))`", text):
            if named not in ("op.py", "repro.py"):
                assert (folder / named).is_file(), f"{path}: {named}"
        for named in re.findall(r"(?:\.\./)+[\w/.-]+\.md", text):
            assert (path.parent / named).is_file(), f"{path}: {named}"
        for named in re.findall(r"\b(?:benchmarks|docs|tests|skills)/[\w/.-]*\w", text):
            assert (ROOT / named).exists() or (folder / named).exists(), f"{path}: {named}"
        for named in re.findall(r"\bskill ([a-z-]+)\b", text):
            assert named in NAMES, f"{path}: skill {named}"


def test_figures_name_their_results() -> None:
    """A page either says that its kernel is not measured yet or names a folder or file of results."""
    for name in NAMES:
        measured = page(name).split("## Measured\n")[1].split("\n## ")[0]
        assert "ot measured yet" in measured or "benchmarks/results/" in measured, name


@pytest.mark.parametrize("name", NAMES)
def test_findings_are_tools_of_the_profiler(name: str) -> None:
    """What points to a skill are names in kforge/profiling/analysis (or a class); each tool points to some skill."""
    section = page(name).split("## Findings that point here\n")[1]
    named = set(re.findall(r"`([a-z_]+)`", section))
    assert named <= {*MODULES, "latency"}


def test_every_tool_points_to_a_skill() -> None:
    """No finding is left without advice to read."""
    named = {tool for name in NAMES for tool in re.findall(r"`([a-z_0-9]+)`", page(name))}
    assert set(MODULES) <= named


def test_no_page_is_tied_to_a_machine() -> None:
    """Sources and outputs hold no absolute path."""
    for path in SKILLS.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert not re.search(r"(?<![\w.])/(?:work|home|tmp|root|usr)/", path.read_text()), path


@pytest.mark.parametrize("name", sorted({name for name, _ in pitfalls()}))
def test_pitfalls_are_told_on_the_page(name: str) -> None:
    """Each planted mistake stands among the page's pitfalls in the same words, and changes one place of the kernel."""
    section = " ".join(page(name).split("## Pitfalls\n")[1].split("\n## ")[0].split())
    files = candidate(SKILLS / name).files
    for skill, pitfall in pitfalls():
        if skill == name:
            assert str(pitfall["name"]) in section
            assert files[str(pitfall["file"])].count(str(pitfall["old"])) == 1, pitfall["name"]


# ---- kernels


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """judge("softmax", candidate, plan="quick") -> Report, on the emulator, untimed; a task is prepared once."""
    from kforge.environment import Prepared, evaluate, prepare
    from kforge.task import load_task
    from kforge.worker import Zygote

    made: dict[str, Prepared] = {}
    with Zygote() as warm:

        def run(name: str, candidate: Candidate, plan: str = "quick") -> Report:
            if name not in made:
                task = load_task(SKILLS / name / "task.py")
                made[name] = prepare(task, "cpu", folder=tmp_path_factory.mktemp(name))
            ready = made[name]
            return evaluate(ready.task, candidate, plan, zygote=warm, reference=ready, repro=None, timing=False)

        yield run


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_is_verified(judge: Judge, name: str) -> None:
    """The judge finds the worked kernel right; no detector fires and nothing is warned of."""
    report = judge(name, candidate(SKILLS / name))
    assert report.status == "verified", report.failure
    assert not [d.name for d in report.detectors if d.fired] and not report.warnings


@pytest.mark.parametrize("name", NAMES)
def test_every_path_is_right_in_bounds_and_free_of_races(name: str) -> None:
    """All small inputs of the task, so each kernel of the source: values, bounds, alignment, races; two orders."""
    module = load_module(SKILLS / name)
    kept = record(name, module)
    assert not run_traced(kept.launches, kept.buffers).findings
    assert not run_checked(kept.launches, kept.buffers, orders=(0, 2)).findings
    launched = {launch.kernel.split("<")[0] for launch in kept.launches}
    assert launched == {k.name for k in vars(module).values() if isinstance(k, Kernel)}


def test_the_profile_example_counts_what_its_page_says() -> None:
    """Eight times the ideal sectors before, the ideal after; the bytes of three passes before, of two after."""
    name = "reading-a-profile"
    excess, moved = [], []
    for folder in (SKILLS / name / "before", SKILLS / name):
        kept = record(name, load_module(folder))
        report = run_traced(kept.launches[:1], kept.buffers, orders=(0,))
        units, ideal = (sum(getattr(a, key) for a in report.profile[0]) for key in ("units", "ideal"))
        excess.append(units / ideal)
        moved.append(report.totals[0].read_bytes + report.totals[0].written_bytes)
    assert excess == [pytest.approx(8), pytest.approx(1)]
    assert moved[0] == pytest.approx(1.5 * moved[1])


def test_padding_keeps_the_banks_of_a_transposition_apart() -> None:
    """The column read of the tile takes one pass a request with the extra word, 32 without it."""
    source = (SKILLS / "transpose" / "transpose_kforge.cu").read_text()
    plain = source.replace("SIDE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1)", "SIDE")
    assert plain != source
    passes = []
    for text in (source, plain):
        kernel = Kernel("transpose<T, 1>", source=text, grid=4, block=256, types={"T": "x"})
        x, y = torch.arange(4096, dtype=torch.int32), torch.empty(4096, dtype=torch.int32)
        with recording() as kept:
            kernel(x, y, 1, 64, 64)
        report = run_traced(kept.launches, kept.buffers, orders=(0,))
        passes.append(max(access.excess for access in report.profile[0] if access.space == "shared"))
    assert passes == [pytest.approx(1), pytest.approx(32)]


@pytest.mark.parametrize(("name", "pitfall"), [pytest.param(n, p, id=f"{n}: {p['name']}") for n, p in pitfalls()])
def test_a_pitfall_is_caught(judge: Judge, monkeypatch: pytest.MonkeyPatch, name: str, pitfall: dict[str, str]) -> None:
    """The mistake that a page warns of is one: planted in the kernel, the judge calls it wrong, in the words noted."""
    right = candidate(SKILLS / name)
    text = right.files[pitfall["file"]].replace(pitfall["old"], pitfall["new"])
    if pitfall.get("checked"):
        monkeypatch.setenv("KFORGE_EMULATOR", "checked")
    report = judge(name, right.with_file(pitfall["file"], text), pitfall["plan"])
    assert report.status == "wrong", f"{report.status}: {report.failure}"
    assert pitfall["says"] in report.failure
    fired = {d.name for d in report.detectors if d.fired}
    assert pitfall.get("fires") is None or pitfall["fires"] in fired


def test_the_three_faults_are_those_of_the_debugging_skill() -> None:
    """wrong/ is the right kernel with its pitfalls planted, and nothing else."""
    folder = SKILLS / "debugging-a-wrong-kernel"
    text = (folder / "peak_kforge.cu").read_text()
    for name, pitfall in pitfalls():
        if name == folder.name:
            text = text.replace(str(pitfall["old"]), str(pitfall["new"]))
    wrong = (folder / "wrong" / "peak_kforge.cu").read_text()
    assert text.splitlines()[1:] == wrong.splitlines()[1:]  # the first is a comment on each
    assert (folder / "wrong" / "peak_kforge.py").read_text() == (folder / "peak_kforge.py").read_text()


def test_quick_alone_misses_what_the_debugging_skill_says(judge: Judge) -> None:
    """With its tail repaired the wrong kernel passes plan quick: two faults are left, and the page says so."""
    wrong = candidate(SKILLS / "debugging-a-wrong-kernel" / "wrong")
    assert judge("debugging-a-wrong-kernel", wrong).status == "wrong"
    text = wrong.files["peak_kforge.cu"].replace("cols / 4 * 4", "cols")
    repaired = judge("debugging-a-wrong-kernel", wrong.with_file("peak_kforge.cu", text))
    assert repaired.status == "verified"

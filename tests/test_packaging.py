"""What is shipped: data found alike from a checkout and from an install, pins that fit the ranges, docs that hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from kforge import __version__, resources
from kforge.errors import MissingError
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _pins() -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return {_canonical(name): version for name, _, version in (line.partition("==") for line in lines if line)}


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_data_of_a_checkout_is_beside_the_package() -> None:
    """templates/ and skills/ are those at the root of the checkout."""
    assert resources.templates_dir() == ROOT / "templates"
    assert resources.skills_dir() == ROOT / "skills"


def test_data_of_an_install_is_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an installed package the folders are found under _resources, and an incomplete install is named."""
    package = tmp_path / "site-packages" / "kforge"
    (package / "_resources" / "templates").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", package)
    assert resources.templates_dir() == package / "_resources" / "templates"
    with pytest.raises(MissingError, match="skills/"):
        resources.skills_dir()


def test_wheel_holds_every_file_that_is_needed(tmp_path: Path) -> None:
    """The wheel has each source and data file of the package, templates/ and skills/, and nothing of the tests."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    (wheel,) = tmp_path.glob("kforge_cuda-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {str(p.relative_to(ROOT)) for p in (ROOT / "kforge").rglob("*") if p.is_file() and _is_source(p)}
    for folder in ("templates", "skills"):
        wanted |= {
            f"kforge/_resources/{p.relative_to(ROOT)}"
            for p in (ROOT / folder).rglob("*")
            if p.is_file() and _is_source(p)
        }
    assert wanted <= names, sorted(wanted - names)
    assert all(name.startswith(("kforge/", "kforge_cuda-")) for name in names)


def _is_source(path: Path) -> bool:
    return "__pycache__" not in path.parts and not path.name.startswith(".")


def test_git_ignores_no_source() -> None:
    """No pattern of .gitignore hides a file of the package (a bare `build/` would hide kforge/kernel/build)."""
    files = [str(p.relative_to(ROOT)) for p in (ROOT / "kforge").rglob("*") if p.is_file() and _is_source(p)]
    command = ["git", "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(command, cwd=ROOT, input="\n".join(files), capture_output=True, text=True, check=False)
    if done.returncode > 1:
        pytest.skip("not a git checkout")
    assert done.stdout == ""


def test_name_licence_and_entry_point() -> None:
    """The distribution is kforge-cuda, Apache-2.0, and installs the command kforge."""
    project = PROJECT["project"]
    assert (project["name"], project["license"]) == ("kforge-cuda", "Apache-2.0")
    assert project["scripts"] == {"kforge": "kforge.cli.main:main"}
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:400]
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_is_pinned_within_its_range() -> None:
    """Each requirement of the default set-up has a pin, and the pin lies in the requirement's range."""
    packaging = pytest.importorskip("packaging.requirements", reason="packaging comes with the extra test")
    project, pins = PROJECT["project"], _pins()
    wanted = [*project["dependencies"]]
    for extra in ("cu13", "test", "dev", "triton", "helion"):
        wanted += project["optional-dependencies"][extra]
    for text in wanted:
        requirement = packaging.Requirement(text)
        assert _canonical(requirement.name) in pins, f"{text} has no pin"
        assert requirement.specifier.contains(pins[_canonical(requirement.name)]), text


def test_bootstrap_uses_the_standard_library_only() -> None:
    """bootstrap.py imports nothing that a bare Python lacks, and knows torch's range as pyproject.toml has it."""
    tree = ast.parse((ROOT / "bootstrap.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names
    (bounds,) = (
        ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "TORCH"
    )  # type: ignore[attr-defined]
    low, high = (".".join(map(str, bound)) for bound in bounds)
    assert f"torch>={low},<{high}" in PROJECT["project"]["dependencies"]


def test_bootstrap_without_a_command_says_how() -> None:
    """`python3 bootstrap.py` prints both commands and exits with 2, installing nothing."""
    done = subprocess.run(
        [sys.executable, ROOT / "bootstrap.py"], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 2
    assert "bootstrap.py suggest examples/softmax.py" in done.stdout and "bootstrap.py test" in done.stdout


README = (ROOT / "README.md").read_text()


def test_readme_shows_the_two_commands() -> None:
    """The README begins with the command that suggests and the one that tests."""
    assert "python3 bootstrap.py suggest examples/softmax.py" in README
    assert "python3 bootstrap.py test" in README
    assert "python3 bootstrap.py test" in (ROOT / ".ci" / "run").read_text()


def test_readme_help_texts_are_those_of_the_commands() -> None:
    """Each help text between markers in the README is what the command prints, word for word."""
    blocks = re.findall(r"<!-- help: (kforge[^>]*?) -->\n```text\n(.*?)```", README, re.DOTALL)
    assert {command for command, _ in blocks} >= {"kforge --help", "kforge suggest --help", "kforge verify --help"}
    for command, text in blocks:
        program = [sys.executable, "-m", "kforge", *command.split()[1:]]
        env = {"PATH": "/usr/bin:/bin", "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=env)
        assert text == done.stdout, f"README: the text of `{command}` has changed"


def test_readme_names_only_commands_that_exist() -> None:
    """Every `kforge <word>` in the README's code is a command of this version or a path to a task."""
    from kforge.cli.main import app

    known = {info.name for info in app.registered_commands} | {group.name for group in app.registered_groups}
    used = set(
        re.findall(
            r"(?:^|[`$ ])kforge ([a-z]+)\b(?![./])", "\n".join(re.findall(r"```.*?```|`[^`\n]+`", README, re.S)), re.M
        )
    )
    assert used and used <= known, used - known

"""The files of an exported project: names, versions, stamps, domain, and the folder they are put into."""

from __future__ import annotations

import ast
import json
import shlex
import tomllib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from support import MODULE, SOURCE, TASK, candidate, unverified, write_project

from kforge.errors import ExportError, UsageError
from kforge.export.domain import exported_domain, exported_words
from kforge.export.evidence import Evidence
from kforge.export.exporting import Exported, Request, export
from kforge.export.formats import FORMATS, find_format
from kforge.export.judged import judged_sizes, unjudged_kernels
from kforge.export.package import Options, domain, prepare_export
from kforge.export.placing import FRESH, place, read_hashes, sealed, write
from kforge.task import load_task

Judged = tuple[Path, Path, Path]
STANDARD = {
    "__future__",
    "ast",
    "collections",
    "ctypes",
    "functools",
    "json",
    "math",
    "pathlib",
    "typing",
    "warnings",
    "weakref",
}


def _export(judged: Judged, to: Path, **changes: object) -> Exported:
    _, module, state = judged
    request = Request(module, to, state, **{"plan": "none", "build": False, **changes})  # type: ignore[arg-type]
    return export(request, lambda kind, data: None)


def _imports(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[0] for a in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).split(".")[0])
    return found


@pytest.mark.parametrize("layout", ["extension", "hf"])
def test_project_of_a_verified_candidate(judged: Judged, tmp_path: Path, layout: str) -> None:
    """The first line of the README has the stamps; what is installed imports torch and the standard library alone."""
    done = _export(judged, tmp_path / "to", layout=layout)
    assert (tmp_path / "to" / "README.md").read_text().splitlines()[0] == "**EMULATOR ONLY, UNTIMED**"
    verification = (tmp_path / "to" / "VERIFICATION.md").read_text()
    assert "status **verified**, verdict **untimed**" in verification
    assert "the translated forward was not judged" in verification
    assert "NOT RUN: " in verification
    manifest = json.loads((tmp_path / "to" / "manifest.json").read_text())
    assert manifest["version"] == "0.1.0"
    assert manifest["namespace"] == done.export.namespace
    assert manifest["status"] == "verified"
    package = [p for p in done.files if p.suffix == ".py" and done.export.package in p.parts]
    assert len(package) >= 8
    for path in package:
        assert _imports(path.read_text()) <= STANDARD | {"torch"}, path


def test_unverified_is_stamped_everywhere(tmp_path: Path) -> None:
    """--force writes UNVERIFIED into README, VERIFICATION, manifest and the package itself."""
    task, module = write_project(tmp_path)
    request = Request(module, tmp_path / "to", tmp_path / "state", task=task, force=True, plan="none", build=False)
    done = export(request, lambda kind, data: None)
    assert done.export.evidence.stamps == ("UNVERIFIED",)
    for name in ("README.md", "VERIFICATION.md", "manifest.json", "src/shift_kernels/__init__.py"):
        assert "UNVERIFIED" in (tmp_path / "to" / name).read_text(), name
    assert (tmp_path / "to" / "README.md").read_text().startswith("**UNVERIFIED**")


def test_domain_is_what_was_judged(judged: Judged, tmp_path: Path) -> None:
    """Sizes, dtypes, state and constants of the domain are those of the judged cases, not of untried variants."""
    facts = domain(_export(judged, tmp_path / "to").export)
    assert facts["inputs"]["x"]["sizes"] == [[5, 6], [24, 24]]  # of both variants: plan quick tries nothing else
    assert facts["dtypes"] == [["float32"]]
    assert facts["state"] == {"bias": {"dtype": "float32", "sizes": [[24, 24]]}}
    assert facts["attributes"] == {"scale": 1.5}
    assert facts["autocast"] is True
    exported = _export(judged, tmp_path / "to")
    told = exported.as_dict()["domain"]
    assert (told["sizes"], told["dtypes"]) == ({"x": [[5, 6], [24, 24]]}, [["float32"]])
    assert told["left_out"] == ["more than one case of input variant 1 (plan quick)"]
    first = exported_words(exported.export)[0]
    assert first == "judged on sizes x 5..6 x 24: other calls are computed by the reference"
    readme = " ".join((tmp_path / "to" / "README.md").read_text().split())
    assert "- x: 5..6 x 24 - not judged: more than one case of input variant 1 (plan quick)" in readme
    assert "`get_input_variants()` of `shift.py`" in readme and "--plan full" in readme


@pytest.mark.parametrize(
    ("names", "sizes", "expected"),
    [
        (["x"], {"x": [[1, 7], [24, 24]]}, {"x": ((1, 7), (24, 24))}),
        (["y", "z"], {"a": [[2, 3]], "b": [[4, 5]]}, {"y": ((2, 3),), "z": ((4, 5),)}),
        (["x"], {"x": [[2, 3]], "up": [[4, 5]]}, {"x": ((2, 3),)}),
        (["y"], {"a": [[2, 3]], "b": [[4, 5]]}, {}),
        (["x"], None, {}),
    ],
)
def test_sizes_of_a_report_are_told_by_name_or_order(
    names: list[str], sizes: dict[str, list[list[int]]] | None, expected: dict[str, object]
) -> None:
    """Inputs of the candidate's own names take the reference's order; a report that does not fit says nothing."""
    assert judged_sizes({"sizes": sizes}, names) == expected


def test_namespaces_follow_content(tmp_path: Path) -> None:
    """Two candidates, two names or two licences give two namespaces; the same content gives the same one."""
    names = [
        unverified(tmp_path / "a").namespace,
        unverified(tmp_path / "b", source=SOURCE.replace("const long long i", "const  long long i")).namespace,
        unverified(tmp_path / "c", options=Options(name="shift_two")).namespace,
        unverified(tmp_path / "d", options=Options(backward="refuse")).namespace,
    ]
    assert len(set(names)) == 4
    assert unverified(tmp_path / "e").namespace == names[0]


@pytest.mark.parametrize(
    ("stem", "package", "op"),
    [("größe", "gro_e_kernels", "gro_e"), ("名", "op_kernels", "op"), ("class", "op_class_kernels", "op_class")],
)
def test_any_file_name_has_a_package(tmp_path: Path, stem: str, package: str, op: str) -> None:
    """Letters that C++ and package indexes have not are left out of the names; a keyword is no name."""
    path = tmp_path / f"{stem}.py"
    path.write_text(TASK)
    export = prepare_export(load_task(path), Evidence(candidate(), path, None), Options())
    assert (export.package, export.op) == (package, op)
    assert shlex.quote(path.name) in exported_domain(export)["widen"]


def test_version_rises_with_a_change_only(judged: Judged, tmp_path: Path) -> None:
    """Exported again unchanged the version stays; with another option it rises, and stale files go."""
    to = tmp_path / "to"
    assert _export(judged, to).version == "0.1.0"
    assert _export(judged, to).version == "0.1.0"
    assert _export(judged, to, options=Options(outside="raise")).version == "0.1.1"
    assert (to / "setup.py").exists()
    assert _export(judged, to, options=Options(outside="raise"), layout="kernelbench", replace=True).version == "0.1.1"
    assert sorted(p.name for p in to.iterdir() if p.is_file()) == ["manifest.json", "shift_kernelbench.py"]


def test_nothing_of_the_user_is_overwritten(judged: Judged, tmp_path: Path) -> None:
    """A folder with other files, an edited file, or a file in the way: each is named, and nothing is written."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds files that no export wrote"):
        _export(judged, foreign)
    to = tmp_path / "to"
    _export(judged, to)
    (to / "README.md").write_text("mine")
    with pytest.raises(UsageError, match=r"README\.md was edited since it was exported"):
        _export(judged, to)
    assert (to / "README.md").read_text() == "mine"
    other = tmp_path / "other"
    place(other, sealed({"manifest.json": "{}", "a.txt": "a"}))
    (other / "b.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"b\.txt was not written by an export"):
        place(other, sealed({"manifest.json": "{}", "b.txt": "b"}))
    assert (other / "a.txt").read_text() == "a"


@pytest.mark.parametrize("changes", [{"options": Options(name="another")}, {"layout": "kernelbench"}])
def test_another_package_is_kept(judged: Judged, tmp_path: Path, changes: dict[str, object]) -> None:
    """What an export wrote is not rewritten as another package or in another format, unless that is asked for."""
    to = tmp_path / "to"
    _export(judged, to)
    before = {p: p.read_bytes() for p in to.rglob("*") if p.is_file()}
    with pytest.raises(UsageError, match="holds another package, shift_kernels") as refused:
        _export(judged, to, **changes)
    assert "--replace" in str(refused.value.hint)
    assert {p: p.read_bytes() for p in to.rglob("*") if p.is_file()} == before
    _export(judged, to, replace=True, **changes)
    assert set(read_hashes(to)) | {"manifest.json"} == {str(p.relative_to(to)) for p in to.rglob("*") if p.is_file()}


@pytest.mark.parametrize("written", range(6))
def test_an_export_that_was_cut_off_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Killed after any number of its files, over an earlier one or into a new folder, it is no folder of the user's."""
    first = sealed({"manifest.json": '{"package": "p"}', "a.txt": "a", "old.txt": "old"})
    second = sealed({"manifest.json": '{"package": "p"}', "a.txt": "new", "src/b.txt": "b", "c.txt": "c"})
    for to, before in ((tmp_path / "again", first), (tmp_path / "fresh", None)):
        if before is not None:
            place(to, before)
        left = written

        def dying(path: Path, data: bytes) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                path.parent.mkdir(parents=True, exist_ok=True)
                (path.parent / f"{FRESH}abc").write_bytes(data[:1])
                raise KeyboardInterrupt
            write(path, data)

        with monkeypatch.context() as patched:
            patched.setattr("kforge.export.placing.write", dying)
            with suppress(KeyboardInterrupt):
                place(to, second)
        place(to, second)
        assert {str(p.relative_to(to)): p.read_bytes() for p in to.rglob("*") if p.is_file()} == second


def test_an_edit_after_a_cut_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is neither the old nor the new text is the user's, also in an export that was cut off."""
    files = sealed({"manifest.json": "{}", "a.txt": "a", "b.txt": "b"})

    def dying(path: Path, data: bytes) -> None:
        if path.name == "b.txt":
            raise KeyboardInterrupt
        write(path, data)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr("kforge.export.placing.write", dying)
        place(tmp_path, files)
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"a\.txt was edited"):
        place(tmp_path, files)


def test_what_lies_outside_of_the_folder_is_kept(tmp_path: Path) -> None:
    """A manifest may be anyone's, and a folder may have become a link: nothing elsewhere is written or removed."""
    victim, folder = tmp_path / "precious", tmp_path / "export"
    victim.mkdir()
    files = sealed({"manifest.json": "{}", "a": "1", "sub/b": "1"})
    place(folder, files)
    (folder / "sub" / "b").rename(victim / "b")
    (folder / "sub").rmdir()
    (folder / "sub").symlink_to(victim)
    with pytest.raises(UsageError, match="outside"):
        place(folder, files)
    (folder / "sub").unlink()
    one = json.loads(files["manifest.json"])["files"]["a"]
    (folder / "manifest.json").write_text(json.dumps({"files": {"a": one, "../precious/b": one}}))
    with pytest.raises(UsageError, match="outside"):
        place(folder, files)
    assert (victim / "b").read_bytes() == b"1"


def test_a_file_in_the_way_is_found_before_the_trial(judged: Judged, tmp_path: Path) -> None:
    """A file that the export would write over and did not write ends it before anything is built."""
    to = tmp_path / "to"
    _export(judged, to)
    known = json.loads((to / "manifest.json").read_text())
    del known["files"]["README.md"]
    (to / "manifest.json").write_text(json.dumps(known))
    said: list[str] = []
    _, module, state = judged
    with pytest.raises(UsageError, match=r"README\.md was not written by an export"):
        export(Request(module, to, state, plan="none"), lambda kind, data: said.append(str(data.get("text"))))
    assert not any("building" in line for line in said)


def test_formats_are_listed() -> None:
    """Each format of the registry has a writer; an unknown one is answered with those that exist."""
    assert all(callable(find_format(name)) for name in FORMATS)
    with pytest.raises(UsageError, match="format wheel is unknown") as caught:
        find_format("wheel")
    assert all(name in caught.value.hint for name in FORMATS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(name="Shift-1"), "Shift-1 cannot be a package's name"),
        (Options(license="GPL"), "license GPL is unknown"),
        (Options(backward="kernel"), "backward kernel is unknown"),
        (Options(outside="ignore"), "outside ignore is unknown"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: Options, message: str) -> None:
    """An option with another value is a usage error that lists the values."""
    with pytest.raises(UsageError) as caught:
        unverified(tmp_path, options=options)
    assert message in caught.value.message


def test_hf_layout(tmp_path: Path) -> None:
    """build.toml names every source; layers are pure modules that say whether they have a backward."""
    files = find_format("hf")(unverified(tmp_path), "0.1.0")
    build = tomllib.loads(str(files["build.toml"]))
    assert build["general"]["edition"] == 5
    assert build["general"]["license"] == "Apache-2.0"
    (kernel,) = build["kernel"].values()
    assert set(kernel["src"]) == {name for name in files if name.startswith("csrc/")}
    assert kernel["cuda-capabilities"] == ["9.0"]
    assert all(name in files for name in build["torch"]["src"])
    binding = str(files["torch-ext/torch_binding.cpp"])
    assert "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops)" in binding
    assert "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)" in binding
    layers = ast.parse(str(files["torch-ext/shift_kernels/layers.py"]))
    (layer,) = [n for n in layers.body if isinstance(n, ast.ClassDef)]
    assert {n.targets[0].id for n in layer.body if isinstance(n, ast.Assign)} == {"has_backward", "can_torch_compile"}  # type: ignore[attr-defined]
    assert [n.name for n in layer.body if isinstance(n, ast.FunctionDef)] == ["forward"]


def test_kernelbench_is_one_file(tmp_path: Path) -> None:
    """ModelNew, load_inline and all of the CUDA text in one module that imports no kforge."""
    files = find_format("kernelbench")(unverified(tmp_path), "0.1.0")
    assert set(files) == {"shift_kernelbench.py", "manifest.json"}
    text = str(files["shift_kernelbench.py"])
    assert "kforge" not in _imports(text)
    tree = ast.parse(text)
    assert [n.name for n in tree.body if isinstance(n, ast.ClassDef)] == ["kernels", "ModelNew"]
    assert "load_inline(" in text
    assert '#include "' not in text
    assert "template <typename T, int VEC>\n__global__ void shift" in text


def test_random_operators_have_no_backward(tmp_path: Path) -> None:
    """What draws random numbers cannot be differentiated by running the reference again: it is refused, and said."""
    module = MODULE.replace("import Kernel", "import Kernel, philox").replace(
        "        y = torch.empty_like(x)\n", "        y = torch.empty_like(x)\n        seed = philox(1, x.device)\n"
    )
    found = unverified(tmp_path, module)
    assert found.translated.runtime == {"philox"}
    assert "random" in found.backward
    files = find_format("extension")(found, "0.1.0")
    assert "_recompute" not in str(files["src/shift_kernels/_operator.py"])
    assert "refused" in str(files["VERIFICATION.md"])


def test_kernels_that_no_case_launched_stay(tmp_path: Path) -> None:
    """Their builds do not leave; where forward would launch one, the reference computes the call and says why."""
    builds = [{"name": "seen", "launches": 3}, {"name": "unseen", "launches": 0}]
    assert unjudged_kernels(("seen", "unseen", "unbuilt"), {"builds": builds}) == ("unseen", "unbuilt")
    assert unjudged_kernels(("seen",), {"builds": [{"name": "seen", "launches": None}]}) == ()
    found = replace(unverified(tmp_path), unjudged=("shift",), kernels=())
    files = find_format("extension")(found, "0.1.0")
    forward = str(files["src/shift_kernels/_forward.py"])
    assert "raise Unjudged('shift was never launched when the candidate was judged')" in forward
    assert "kernels.shift" not in forward
    assert "except Unjudged" in str(files["src/shift_kernels/_operator.py"])
    assert "left out, since no case launched them: shift" in str(files["VERIFICATION.md"])


def test_files_beside_the_task_are_refused(tmp_path: Path) -> None:
    """A reference that imports a file beside it would not be whole in the package."""
    task, _ = write_project(tmp_path)
    (tmp_path / "shared_part.py").write_text("")
    task.write_text("import shared_part\n" + task.read_text())
    with pytest.raises(ExportError, match="imports files beside it"):
        prepare_export(load_task(task), Evidence(candidate(), task, None, problem="never"), Options())

"""Tools on files: they write what was asked into the working folder, and nothing makes them leave it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kforge.agent.tools import Toolbox
from tests.agent.tools.conftest import Use

OUTSIDE = [
    "../evil.py", "/etc/passwd", "/tmp/evil.cu", "sub/evil.cu", "..", ".", "", ".hidden.py", "a.cu\0.txt", "evil.so",
    "a.py/../../evil.cu", "~/evil.py", "evil.cu\n", "C:\\evil.cu", "\ud800.cu", "e\u202evil.cu", "ü" * 99 + ".cu",
    "a" * 300 + ".cu", "-rf.py", "a.CU", "a.txt",
]  # fmt: skip


def test_write_read_edit_list(box: Toolbox, use: Use) -> None:
    """What is written is read back with numbers, one passage is replaced, and the list tells what is missing."""
    assert box.module in use("list_files").text
    assert use("write_file", name="a.cu", text="one\ntwo\nthree\n").text == "wrote a.cu: 4 lines"
    assert use("write_file", name="a.cu", text="one\ntwo\nthree").text == "wrote over a.cu: 3 lines"
    assert use("read_file", name="a.cu", first_line=2, lines=1).text == (
        "a.cu, lines 2 to 2 of 3\n    2  two\n[1 more lines: begin at 3]"
    )
    edited = use("edit_file", name="a.cu", old="two\nth", new="2\n")
    assert not edited.is_error and "    2  2" in edited.text
    assert (box.folder / "a.cu").read_text() == "one\n2\nree"
    listed = use("list_files").text
    assert "a.cu: 3 lines, 9 characters" in listed and f"missing: {box.module}" in listed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("four", "4", "does not occur in a.cu"),
        ("  two", "2", "its first line occurs in line 2"),
        ("o", "0", "occurs 2 times in a.cu (lines 1, 2)"),
        ("", "x", "old is empty"),
        ("one", "one", "nothing was changed"),
    ],
)
def test_an_edit_that_is_not_exact_changes_nothing(box: Toolbox, use: Use, old: str, new: str, said: str) -> None:
    """A passage that is absent, ambiguous or empty is refused in words, and the file stays as it is."""
    use("write_file", name="a.cu", text="one\ntwo\nthree\n")
    result = use("edit_file", name="a.cu", old=old, new=new)
    assert result.is_error and said in result.text
    assert (box.folder / "a.cu").read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_leads_out(box: Toolbox, use: Use, tmp_path: Path, name: str) -> None:
    """Paths, absolute names, hidden names and other endings are refused by every tool, and nothing appears outside."""
    before = sorted(path for path in tmp_path.rglob("*") if path != box.folder)
    for result in (
        use("write_file", name=name, text="x"),
        use("read_file", name=name),
        use("edit_file", name=name, old="root", new="evil"),
    ):
        assert result.is_error and any(
            w in result.text for w in ("is no name of a file here", "name is no Unicode text")
        )
    assert not name or use("evaluate", module=name).is_error
    assert sorted(path for path in tmp_path.rglob("*") if path != box.folder) == before


def test_a_task_of_any_name_has_its_files(box: Toolbox, use: Use) -> None:
    """What a task's own name brings into a file's name is allowed: dashes, dots, blanks, other letters."""
    names = ["layer-norm_kforge.py", "my op_kforge.cu", "v1.2_kforge.cuh", "größe_kforge.h"]
    for name in names:
        assert not use("write_file", name=name, text="x").is_error
    assert box.files.names() == sorted(names) and use("read_file", name="my op_kforge.cu").text.endswith("    1  x")


def test_links_are_not_followed(box: Toolbox, use: Use, tmp_path: Path) -> None:
    """A link in the folder, to a file, a folder or nothing, is neither read nor written through."""
    secret = tmp_path / "secret"
    secret.write_text("top")
    box.folder.mkdir()
    (box.folder / "a.cu").symlink_to(secret)
    (box.folder / "b.cu").symlink_to(tmp_path / "nothing")
    for name in ("a.cu", "b.cu"):
        for result in (use("read_file", name=name), use("write_file", name=name, text="x")):
            assert result.is_error and "is a link" in result.text
    assert "a.cu" not in use("list_files").text
    assert secret.read_text() == "top" and not (tmp_path / "nothing").exists()


def test_what_is_no_file_is_said_and_not_waited_for(box: Toolbox, use: Use) -> None:
    """A pipe and a folder under a file's name do not hang or crash a tool."""
    box.folder.mkdir()
    os.mkfifo(box.folder / "pipe.cu")
    (box.folder / "inner.cu").mkdir()
    assert "there is no file pipe.cu" in use("read_file", name="pipe.cu").text
    assert use("write_file", name="pipe.cu", text="x").text == "wrote pipe.cu: 1 lines"
    assert "inner.cu is a folder" in use("write_file", name="inner.cu", text="x").text
    assert sorted(os.listdir(box.folder)) == ["inner.cu", "pipe.cu"]


def test_sizes_are_limited(box: Toolbox, use: Use) -> None:
    """A file that is too large, too many files, null characters and half a surrogate pair are refused in words."""
    most = box.limits.file_bytes
    assert f"the limit is {most}" in use("write_file", name="a.cu", text="x" * (most + 1)).text
    assert "null character" in use("write_file", name="a.cu", text="a\0b").text
    assert "no Unicode text" in use("write_file", name="a.cu", text="\ud800").text
    assert not box.folder.exists()
    for number in range(box.limits.files):
        assert not use("write_file", name=f"f{number}.cu", text="").is_error
    refused = use("write_file", name="one_more.cu", text="")
    assert refused.is_error and f"there are {box.limits.files} files already" in refused.text
    assert not use("write_file", name="f0.cu", text="again").is_error


def test_a_long_file_is_paged(use: Use) -> None:
    """Reading stops at the page's size and says where to go on; long lines are cut."""
    use("write_file", name="a.cu", text="\n".join(["y" * 3000, *["x" * 100] * 400]))
    page = use("read_file", name="a.cu").text
    assert len(page) < 17_000 and "[... line cut]" in page
    last = page.splitlines()[-1]
    assert last.endswith("]") and "more lines: begin at" in last
    number = int(last.split("begin at ")[1].rstrip("]"))
    assert use("read_file", name="a.cu", first_line=number).text.splitlines()[1].startswith(f"{number:>5}  x")
    assert "has 401 lines" in use("read_file", name="a.cu", first_line=500).text


def test_a_candidate_has_the_sources_that_it_names(box: Toolbox, use: Use) -> None:
    """A variant becomes a candidate under the task's name, with the sources that it names or that these include."""
    use("write_file", name="softmax_b.py", text='k = Kernel("k", source="b.cu")')
    use("write_file", name="b.cu", text='#include "common.cuh"')
    use("write_file", name="common.cuh", text="// shared")
    use("write_file", name="other.cu", text="// of another variant")
    candidate = box.candidate("softmax_b.py", idea="b", expected_gain=1.5)
    assert candidate.module == "softmax_kforge.py"
    assert sorted(candidate.files) == ["b.cu", "common.cuh", "softmax_kforge.py"]
    assert (candidate.idea, candidate.expected_gain, candidate.parent) == ("b", 1.5, None)
    use("write_file", name="softmax_kforge.py", text="# names none")
    use("write_file", name="softmax_kforge.cu", text="// its own")
    assert sorted(box.candidate().files) == ["softmax_kforge.cu", "softmax_kforge.py"]

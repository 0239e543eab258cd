"""What travels to a worker: op.py with its local imports, a candidate with its sources; and versions compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.errors import TaskError, UsageError
from kforge.worker.manifest import differences, manifest
from kforge.worker.parcel import Parcel, candidate_as_json, pack_task, parse_candidate, read_candidate


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_local_imports_travel(tmp_path: Path) -> None:
    """Modules and packages beside op.py that it imports, directly or not, are packed; nothing else of the folder is."""
    _write(
        tmp_path,
        {
            "op.py": "import torch\nfrom helper import scale\n\ndef late():\n    import layers.norm\n",
            "helper.py": "from tables import T as scale",
            "tables.py": "T = 1",
            "layers/__init__.py": "",
            "layers/norm.py": "from . import eps\nfrom .deep.inner import x",
            "layers/eps.py": "",
            "layers/deep/inner.py": "x = 1",
            "layers/unused.py": "",
            "unrelated.py": "",
            "torch_notes.txt": "",
        },
    )
    parcel = pack_task(tmp_path / "op.py")
    assert set(parcel.files) == {
        "op.py",
        "helper.py",
        "tables.py",
        "layers/__init__.py",
        "layers/norm.py",
        "layers/eps.py",
        "layers/deep/inner.py",
    }
    again = Parcel.parse(parcel.as_json())
    assert again == parcel and again.digest == parcel.digest
    path = again.write(tmp_path / "there")
    assert path.name == "op.py" and (tmp_path / "there/layers/deep/inner.py").read_text() == "x = 1"
    (tmp_path / "tables.py").write_text("T = 2")
    assert pack_task(tmp_path / "op.py").digest != parcel.digest


def test_what_cannot_be_packed(tmp_path: Path) -> None:
    """A missing op.py and one with a syntax error are task errors that name the place."""
    with pytest.raises(TaskError, match="no such file"):
        pack_task(tmp_path / "op.py")
    (tmp_path / "op.py").write_text("x = 1\ndef broken(:\n")
    with pytest.raises(TaskError, match=r"op\.py:2: syntax error"):
        pack_task(tmp_path / "op.py")


@pytest.mark.parametrize("name", ["../op.py", "/etc/op.py", "a/../op.py", "./op.py", "", "a//b.py"])
def test_names_that_leave_the_folder_are_refused(name: str) -> None:
    """A parcel whose names would be written elsewhere is refused, for tasks and for candidates."""
    with pytest.raises(UsageError):
        Parcel.parse({"entry": name, "files": {name: ""}})
    with pytest.raises(UsageError):
        parse_candidate({"module": name, "files": {name: ""}})


def test_a_candidate_takes_its_own_sources(tmp_path: Path) -> None:
    """Of a folder's sources a module gets those that it names, and those that these include; without a name all."""
    _write(
        tmp_path,
        {
            "a_kforge.py": 'Kernel("a", source="a_kforge.cu")',
            "a_kforge.cu": '#include "shared.cuh"',
            "shared.cuh": "",
            "b_kforge.cu": "",
            "c_kforge.py": "Kernel('c', source='''__global__ ...''')",
        },
    )
    candidate = read_candidate(tmp_path / "a_kforge.py")
    assert set(candidate.files) == {"a_kforge.py", "a_kforge.cu", "shared.cuh"}
    assert parse_candidate(candidate_as_json(candidate)) == candidate
    assert set(read_candidate(tmp_path / "c_kforge.py").files) >= {"c_kforge.py", "b_kforge.cu"}


def test_versions_compared() -> None:
    """Same release is same whatever its local tag, CUDA counts where both have one, and every difference is named."""
    here = {"kforge": "0.1.0", "torch": "2.11.0+cu130", "python": "3.12.3", "cuda": "13.0"}
    assert differences(here, {"kforge": "0.1.0", "torch": "2.11.0+cpu", "python": "3.12.9", "cuda": None}) == []
    found = differences(here, {"kforge": "0.2.0", "torch": "2.13.0", "python": "3.11.7", "cuda": "12.8"})
    assert found == [
        "kforge 0.1.0 here, 0.2.0 asked for",
        "torch 2.11.0+cu130 here, 2.13.0 asked for",
        "python 3.12.3 here, 3.11.7 asked for",
        "cuda 13.0 here, 12.8 asked for",
    ]


def test_the_manifest_is_that_of_torch() -> None:
    """Versions read without importing torch are those that torch gives of itself."""
    import torch

    found = manifest()
    assert found["torch"] == torch.__version__ and found["cuda"] == torch.version.cuda

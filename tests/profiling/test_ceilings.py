"""Ceilings as data: the data sheets, the cache file, and what happens without a GPU. Measuring is tested on a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kforge.errors import MissingError
from kforge.profiling import ceilings
from kforge.profiling.ceilings import DATA_SHEETS, Ceilings, arch_of, data_sheet, sheet_for_arch


@pytest.mark.parametrize(
    ("name", "terabytes", "half"),
    [
        ("NVIDIA A100-SXM4-80GB", 2.039, 312),
        ("NVIDIA H100 80GB HBM3", 3.35, 989.4),
        ("NVIDIA H200", 4.8, 989.4),
        ("NVIDIA L40S", 0.864, 362.05),
        ("NVIDIA GeForce RTX 4090", 1.008, 330.3),
        ("NVIDIA B200", 8.0, 2250),
    ],
)
def test_data_sheet_by_the_name_the_driver_gives(name: str, terabytes: float, half: float) -> None:
    """Each GPU of the table is found by its full name and is marked as not measured."""
    sheet = data_sheet(name)
    assert sheet.read == sheet.write == sheet.copy == terabytes * 1e12
    assert sheet.rate("tensor") == half * 1e12
    assert sheet.source == "data sheet"


@pytest.mark.parametrize("name", ["NVIDIA GB200", "NVIDIA H2000", "NVIDIA L40", "Tesla T4", ""])
def test_other_gpus_have_no_sheet(name: str) -> None:
    """A name that merely resembles one of the table gets no figures; the error lists what is known."""
    with pytest.raises(MissingError, match="no data sheet") as error:
        data_sheet(name)
    assert "H200" in error.value.hint


def test_every_gpu_of_the_table_has_its_architecture() -> None:
    """By the name that the driver gives; the sheet that stands for an architecture is of a GPU that has it."""
    found = {name: arch_of(f"NVIDIA {name}") for name in DATA_SHEETS}
    assert found["A100"] == "sm_80" and found["H200"] == "sm_90a" and found["RTX 4090"] == "sm_89"
    for arch in found.values():
        stands = sheet_for_arch(arch)
        assert found[next(name for name, sheet in DATA_SHEETS.items() if sheet is stands)] == arch


def test_mixed_rate_of_a_sheet_does_not_depend_on_the_mix() -> None:
    """A data sheet has one bandwidth: every mixture has it."""
    assert DATA_SHEETS["H200"].mixed(0.2) == pytest.approx(4.8e12)


def test_round_trip_through_json() -> None:
    """What is cached is what was measured."""
    sheet = DATA_SHEETS["A100"]
    assert Ceilings.from_dict(json.loads(json.dumps(sheet.as_dict()))) == sheet


def test_cache_file_of_another_schema_or_torn_is_measured_again(tmp_path: Path) -> None:
    """An unreadable cache counts as absent; a whole one is used."""
    path = tmp_path / "c.json"
    assert ceilings._read(path) is None
    ceilings._write(path, DATA_SHEETS["H200"])
    assert ceilings._read(path) == DATA_SHEETS["H200"]
    path.write_text(path.read_text()[:-20])
    assert ceilings._read(path) is None
    path.write_text(json.dumps(DATA_SHEETS["H200"].as_dict() | {"schema": 0}))
    assert ceilings._read(path) is None


def test_measuring_needs_a_gpu(tmp_path: Path) -> None:
    """Without a GPU the error has exit code 3 and nothing is cached."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(MissingError) as error:
        ceilings.for_device("cuda:0", tmp_path)
    assert error.value.exit_code == 3
    assert list(tmp_path.iterdir()) == []

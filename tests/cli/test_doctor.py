"""What `kforge doctor` concludes from the tools it finds: the launcher that is used, the extras that are missing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kforge.cli.probes import Modes, Tool, probe_all
from kforge.kernel import launchers
from tests.conftest import ROOT


def _tools() -> dict[str, Tool]:
    return {tool.name: tool for tool in probe_all()}


def _launching(name: str, usable: bool, reason: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, clusters=True, tensor_maps=True, is_available=lambda: (usable, reason))


def test_the_launcher_is_the_one_that_kernels_are_launched_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first usable of the registry runs kernels where there is a GPU, whatever packages are missing."""
    made = {"driver": _launching("driver", True, "driver for CUDA 13.0"), "cupy": _launching("cupy", True, "CuPy 14")}
    monkeypatch.setattr(launchers, "LAUNCHERS", made)
    monkeypatch.delenv("KFORGE_LAUNCHER", raising=False)
    tools = _tools()
    assert tools["launcher"].found and tools["launcher"].detail == "driver (driver for CUDA 13.0)"
    without = [replace(t, found=t.name == "GPU" or (t.found and t.name != "cuda-core")) for t in tools.values()]
    assert Modes.of(without).run == "on the GPU through driver (driver for CUDA 13.0): verified and timed"
    monkeypatch.setenv("KFORGE_LAUNCHER", "cupy")
    assert _tools()["launcher"].detail == "cupy (CuPy 14)"


def test_without_a_launcher_the_reasons_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launcher says why it cannot be used; one that is insisted on and unknown is told as missing, not raised."""
    monkeypatch.setattr(launchers, "LAUNCHERS", {"driver": _launching("driver", False, "no CUDA driver")})
    monkeypatch.delenv("KFORGE_LAUNCHER", raising=False)
    tools = _tools()
    assert (tools["launcher"].found, tools["launcher"].detail) == (
        False,
        "no launcher can be used here: driver: no CUDA driver",
    )
    with_gpu = [replace(t, found=t.found or t.name in ("GPU", "g++")) for t in tools.values()]
    assert Modes.of(with_gpu).run == "on the host emulator: verified, speed 'untimed' (a launcher is missing)"
    monkeypatch.setenv("KFORGE_LAUNCHER", "warp")
    assert _tools()["launcher"].detail == "unknown launcher 'warp'; there are driver"


def test_every_extra_is_named_by_the_tool_that_it_brings() -> None:
    """Extras that a user installs for a feature stand in doctor's words, so that a missing one can be installed."""
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    said = " ".join(f"{tool.name} {tool.why}" for tool in probe_all())
    assert [extra for extra in extras if extra not in ("test", "dev") and extra not in said] == []

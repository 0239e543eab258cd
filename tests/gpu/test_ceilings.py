"""Ceilings measured on a real GPU lie where the hardware allows, and are measured once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.errors import MissingError

pytestmark = [pytest.mark.gpu, pytest.mark.alone]


def test_measured_rates_lie_under_the_data_sheet_and_near_it(tmp_path: Path) -> None:
    """Bandwidth is 60 to 101 % of the sheet's, matrix rates at most 105 %; the second call reads the cache."""
    import torch

    from kforge.profiling.ceilings import data_sheet, for_device

    measured = for_device("cuda:0", tmp_path)
    assert for_device("cuda:0", tmp_path) == measured
    assert measured.source == "calibrated" and measured.gpu == torch.cuda.get_device_name(0)
    assert 5e-7 < measured.launch_s < 2e-5
    assert measured.read >= measured.copy * 0.98
    try:
        sheet = data_sheet(measured.gpu)
    except MissingError:
        pytest.skip(f"no data sheet for {measured.gpu}: plausibility cannot be checked")
    for name, rate in measured.bandwidth.items():
        assert 0.6 * sheet.bandwidth[name] < rate < 1.01 * sheet.bandwidth[name], name
    for kind, rate in measured.rates.items():
        assert 0.3 * sheet.rates[kind] < rate < 1.05 * sheet.rates[kind], kind

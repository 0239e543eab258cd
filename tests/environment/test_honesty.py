"""Shares of device time: what counts as an own kernel, and when a share says that it is a decoy."""

from __future__ import annotations

from kforge.environment.detectors import Watch
from kforge.environment.honesty import share
from kforge.worker.replies import KernelTime

OWN = KernelTime("void scaled<__half, 3>(__half const*, __half*, int)", 90.0, 1)
SCRAP = KernelTime("decoy", 0.4, 1)
TORCH = KernelTime("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>", 99.0, 1)
CUBLAS = KernelTime("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", 99.0, 1)
COPY = KernelTime("Memcpy DtoD (Device -> Device)", 10.0, 1)


def test_an_own_kernel_that_does_the_work_is_fine() -> None:
    """Nothing fires, nothing is said; the name counts, whatever the template arguments."""
    watch = Watch()
    assert share([OWN, COPY], {"scaled": 1}, (), watch) == ("", "")
    assert [(d.name, d.fired) for d in watch.detectors] == [("kernel_share", False)]


def test_a_kernel_beside_the_work_is_a_decoy() -> None:
    """Under one percent of the time while torch's kernels do the rest, and no library call is declared: hacked."""
    watch = Watch()
    words, warning = share([SCRAP, TORCH], {"decoy": 1}, (), watch)
    assert words.startswith("own kernels take 0.4% of the device's time") and not warning
    assert [(d.name, d.fired) for d in watch.detectors] == [("kernel_share", True)]


def test_library_calls_may_take_the_time_and_it_is_said() -> None:
    """A small epilogue of a product is honest; the report says what the product takes."""
    watch = Watch()
    words, warning = share([SCRAP, CUBLAS], {"decoy": 1}, ("aten.mm.default",), watch)
    assert not words and "library calls: aten.mm.default" in warning and not watch.hacked


def test_without_counted_launches_own_is_what_no_library_brings() -> None:
    """Triton and CuPy kernels have any name: theirs count as own, torch's and cuBLAS's do not."""
    assert share([KernelTime("gelu2", 50.0, 1), TORCH], {}, (), Watch()) == ("", "")
    assert share([TORCH, CUBLAS], {}, (), Watch())[0].startswith("own kernels take 0.0%")


def test_nothing_seen_is_no_accusation() -> None:
    """A profiler without events says so and fires nothing."""
    watch = Watch()
    assert share([], {"scaled": 1}, (), watch) == ("", "the profiler saw no work on the device")
    assert watch.detectors == ()

"""Who did the work: threads, hidden operators, answers without kernels; what a share of device time says."""

from __future__ import annotations

from typing import Any

from kforge.environment.detectors import Watch
from kforge.environment.findings import Result
from kforge.environment.honesty import judge, share
from kforge.environment.report import Status
from kforge.kernel.candidate import Candidate
from kforge.worker.replies import KernelTime

OWN = KernelTime("void scaled<__half, 3>(__half const*, __half*, int)", 90.0, 1)
SCRAP = KernelTime("decoy", 0.4, 1)
TORCH = KernelTime("void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>", 99.0, 1)
CUBLAS = KernelTime("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", 99.0, 1)
FILL = KernelTime("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", 90.0, 1)
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


def test_work_that_no_seen_operator_explains_is_hidden() -> None:
    """Some percent of own kernels do not excuse torch's: nothing that was seen launches them, but copies and fills."""
    watch = Watch()
    own, cast = KernelTime("gelu2", 2.0, 1), KernelTime("void at::native::direct_copy_kernel_cuda", 40.0, 1)
    words, _ = share([own, TORCH, cast], {"gelu2": 1}, (), watch)
    assert "GeluCUDAKernelImpl> 70%" in words and watch.hacked
    assert share([own, cast, FILL, COPY], {"gelu2": 1}, (), Watch()) == ("", "")


def test_a_name_is_a_whole_word_outside_of_the_libraries_namespaces() -> None:
    """A kernel called `vectorized_elementwise_kernel`, or `at`, does not take torch's for its own."""
    for name in ("vectorized_elementwise_kernel", "at", "kernel", "scale"):
        own = KernelTime(name, 2.0, 1)
        assert share([own, TORCH], {name: 1}, (), Watch())[0].startswith("own kernels take 2.0%")
    assert share([OWN], {"scaled<T, VEC>": 1}, (), Watch()) == ("", "")
    assert share([OWN], {"scale": 1}, (), Watch())[0].startswith("own kernels take 0.0%")


def test_library_calls_may_take_the_time_and_it_is_said() -> None:
    """A small epilogue of a product is honest; the report says what the product takes."""
    watch = Watch()
    words, warning = share([SCRAP, CUBLAS], {"decoy": 1}, ("aten.mm.default",), watch)
    assert not words and "library calls: aten.mm.default" in warning and not watch.hacked


def test_without_counted_launches_own_is_what_no_library_brings() -> None:
    """Triton and CuPy kernels have any name: theirs count as own, torch's and cuBLAS's do not."""
    assert share([KernelTime("gelu2", 50.0, 1), FILL], {}, (), Watch()) == ("", "")
    assert share([KernelTime("gelu2", 50.0, 1), TORCH], {}, (), Watch())[0].startswith("own kernels take 33.6%")
    assert share([TORCH, CUBLAS], {}, (), Watch())[0].startswith("own kernels take 0.0%")


def test_nothing_seen_is_no_accusation() -> None:
    """A profiler without events says so and fires nothing."""
    watch = Watch()
    assert share([], {"scaled": 1}, (), watch) == ("", "the profiler saw no work on the device")
    assert watch.detectors == ()
    (line,) = [line for line in watch.missing() if "kernel_share" in line]
    assert line == "detector kernel_share: unread: the profiler saw no work on the device"


def outcome(**fields: Any) -> tuple[Status, str] | None:
    """The gate's answer for a candidate with one Kernel that was called five times, and what besides was seen."""
    candidate = Candidate("op_kforge.py", {"op_kforge.py": "from kforge.kernel import Kernel\n"})
    result = Result(launches={"own": 5}, calls=5, later_calls=4, influence=True, **fields)
    return judge(result, candidate, Watch(), [])


def test_launches_after_the_return_are_no_answer() -> None:
    """One is enough: the call had returned, and a kernel of its own came after."""
    assert outcome() is None
    status, words = outcome(late=1) or (None, "")
    assert status is Status.HACKED and "1 in 5 calls" in words


def test_threads_left_by_most_calls_are_told_from_a_pool_that_grows() -> None:
    """One that ends just when a call does hides no others; a pool that starts in two calls of four is torch's own."""
    assert outcome(growing_calls=2) is None
    assert (outcome(growing_calls=3) or (None,))[0] is Status.HACKED


def test_an_answer_that_is_there_without_kernels_has_another_maker() -> None:
    """Nine tenths of it; not where a library call, prepared weights or kernels of another kind explain it."""
    assert (outcome(elsewhere=0.9) or (None,))[0] is Status.HACKED
    assert outcome(elsewhere=0.4) is None and outcome(elsewhere=0.9, ops={"aten.mm.default": 1}) is None


def test_what_is_hidden_from_the_mode_is_foreign_like_any_other() -> None:
    """Allocation and copies may hide; an operator that computes is named with its being hidden."""
    assert outcome(ops={"aten.copy_.hidden": 2, "aten.view.hidden": 1}) is None
    status, words = outcome(ops={"aten.gelu.hidden": 5}) or (None, "")
    assert status is Status.HACKED and "aten.gelu.hidden" in words

"""What tests of kernels share: both ways a call is made, the native one over the emulator where there is no GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from kforge.kernel import kernel as kernel_module
from kforge.kernel import native
from kforge.kernel import plan as plan_module
from kforge.kernel.launchers.driver import Config

START = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(Config),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class NativeCalls:
    """Binds emulated plans as GPU ones are bound: where the driver would start the kernel, the emulator runs it.

    started: how often native code did that. status: what it is told; not 0 is a launch that the driver refuses.
    """

    def __init__(self) -> None:
        self.started = 0
        self.status = 0
        self._alive: list[Any] = []

    def make_plan(self, module: Any, definition: Any, checked: Any, overrides: Any, build_only: bool) -> Any:
        plan = plan_module.make_plan(module, definition, checked, overrides, build_only)
        if plan.launch is None:
            return plan
        launch, slots = plan.launch, plan_module._slots(definition, checked)
        types = [ctypes.c_uint64 if s is None else s.ctypes_class for s in slots]

        def start(config: Any, function: int, parameters: Any, extra: int) -> int:
            self.started += 1
            if not self.status:
                launch(0, [t.from_address(parameters[i]).value for i, t in enumerate(types)])
            return self.status

        callback = START(start)
        self._alive.append(callback)
        address = ctypes.cast(callback, ctypes.c_void_p).value or 0
        plan_module.bind_native(plan, definition, slots, address, ctypes.c_void_p(1), Config())
        return plan


@pytest.fixture
def native_calls(monkeypatch: pytest.MonkeyPatch) -> NativeCalls:
    """Repeated calls on CPU tensors go through native code."""
    module, reason = native.load()
    if module is None:
        pytest.skip(reason)
    calls = NativeCalls()
    monkeypatch.setattr(kernel_module, "make_plan", calls.make_plan)
    return calls


@pytest.fixture(params=["python", "native"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each way of making a repeated call in turn."""
    if request.param == "native":
        request.getfixturevalue("native_calls")
    yield request.param

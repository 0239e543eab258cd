"""Triton and Helion references without a GPU: interpreted in a child process, with its traps turned into errors."""

from __future__ import annotations

import os

import pytest
import torch

from kforge.errors import MissingError, TaskError
from kforge.task import Form, capture, load_task, observe, promote
from kforge.task.interpreted import Interpreted

TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i + SHIFT, value * 2, mask=i < n)

def double(x, *, shift=0):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), SHIFT=shift, BLOCK=64)
    print("a print must not disturb the pipe")
    return out
"""
INPUTS = "def get_inputs():\n    return [torch.randn(100)]\n"
cpu_only = pytest.mark.skipif(torch.cuda.is_available(), reason="the message is that of a machine without a GPU")


@pytest.fixture(scope="module")
def triton_task(tmp_path_factory):
    """The Triton task, loaded once."""
    pytest.importorskip("triton")
    path = tmp_path_factory.mktemp("triton") / "op.py"
    path.write_text(TRITON + INPUTS)
    return load_task(path)


@pytest.fixture(scope="module")
def module(triton_task):
    """Its reference: one child for all tests of this file."""
    return triton_task.make_reference()


def test_triton_form(triton_task, module):
    """The function that launches the kernel is the reference, with its own signature, and its result is right."""
    import inspect

    assert triton_task.form is Form.TRITON and triton_task.reference.__name__ == "double"
    assert str(inspect.signature(module.forward)) == "(x, *, shift=0)"
    call = triton_task.make_call()
    assert torch.equal(triton_task.run(module, call), call.args[0] * 2)


def test_environment_of_this_process_is_untouched(triton_task, module):
    """Only the child has the interpreter switched on."""
    triton_task.run(module, triton_task.make_call())
    assert os.environ.get("TRITON_INTERPRET") != "1"


def test_opaque_to_capture_and_promoted_by_double_inputs(triton_task, module):
    """There is no graph; the fp64 reference is the kernel on float64 inputs."""
    captured = capture(triton_task)
    assert captured.failure == "a Triton kernel is opaque to tracing"
    call = triton_task.make_call()
    wide = promote(captured)(module, call)
    assert wide.dtype == torch.float64 and torch.equal(wide, call.args[0].double() * 2)


def test_bfloat16_is_refused_by_name(triton_task, module):
    """Triton's interpreter gives wrong numbers for bfloat16 without a word: exit 3 instead."""
    call = type(triton_task.make_call())((torch.ones(4, dtype=torch.bfloat16),))
    with pytest.raises(MissingError, match="input x is bfloat16, which Triton's interpreter computes wrongly"):
        triton_task.run(module, call)


@cpu_only
def test_kernels_that_use_bfloat16_are_refused(load):
    """A cast to bfloat16 inside the kernel is the same trap."""
    task = load(TRITON.replace("value * 2", "value.to(tl.bfloat16) * 2") + INPUTS, raw=True)
    with pytest.raises(MissingError, match=r"op.py: the kernel uses tl.bfloat16"):
        task.make_reference()


def test_overrun_is_an_error_not_a_crash(triton_task):
    """A store far outside kills the child; the parent says so, and a fresh reference works again."""
    module = triton_task.make_reference()
    call = triton_task.make_call()
    bad = type(call)(call.args, {"shift": 1 << 40})
    with pytest.raises(TaskError, match=r"op.py: the interpreter died of SIG\w+: a kernel read or wrote outside"):
        triton_task.run(module, bad)
    with pytest.raises(TaskError, match="the interpreter"):
        triton_task.run(module, call)
    assert torch.equal(triton_task.run(triton_task.make_reference(), call), call.args[0] * 2)


def test_errors_of_the_launcher_keep_their_line(triton_task, module):
    """An exception in the child arrives with file and line."""
    call = type(triton_task.make_call())((3,))
    with pytest.raises(TaskError, match=r"op.py:13: the reference rejects its inputs: TypeError: "):
        triton_task.run(module, call)


def test_mutation_and_alias_cross_the_process(load):
    """An input that the kernel changes in place is changed here, and a returned input is the input."""
    pytest.importorskip("triton")
    task = load(
        TRITON.replace("    out = torch.empty_like(x)\n", "    out = x\n").replace("return out", "return out[2:]")
        + INPUTS,
        raw=True,
    )
    module, call = task.make_reference(), task.make_call()
    seen = observe(task, module, call)
    assert seen.effects.mutated == ("x",)
    assert [(a.source, a.offset, a.shape) for a in seen.effects.aliases] == [("x", 2, (98,))]
    assert torch.equal(seen.outputs, call.args[0][2:] * 2)


def test_the_child_ends_with_its_reference(triton_task):
    """No process and no folder outlives the module."""
    import gc

    module = triton_task.make_reference()
    triton_task.run(module, triton_task.make_call())
    child = module.function.child
    process, folder = child.process, child.folder
    assert process.poll() is None and folder.exists()
    del module, child
    gc.collect()
    assert process.poll() is not None and not folder.exists()


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("def other(x):\n    kernel[(1,)](x)\n    return x\n", "op.py: ambiguous reference: double, other"),
        ("", None),
    ],
)
def test_two_launchers_are_ambiguous(op, extra, expected):
    """With several launching functions one must be called `reference`."""
    pytest.importorskip("triton")
    if expected is None:
        text = TRITON + INPUTS + "def other(x):\n    kernel[(1,)](x)\n    return x\nreference = double\n"
        task = load_task(op(text, raw=True))
        assert task.form is Form.TRITON and task.reference.__name__ == "double"
        return
    with pytest.raises(TaskError) as caught:
        load_task(op(TRITON + INPUTS + extra, raw=True))
    assert caught.value.message == expected


def test_a_reference_that_uses_no_kernel_is_a_function(op):
    """A kernel in the file does not make a plain torch reference an interpreted one."""
    pytest.importorskip("triton")
    task = load_task(op(TRITON + INPUTS + "def reference(x):\n    return x * 2\n", raw=True))
    assert task.form is Form.FUNCTION and capture(task).failure == ""


def test_kernels_are_found_through_helpers_and_imports(op, tmp_path):
    """A reference that reaches a kernel through a helper of an imported file is a Triton task, autotuning included."""
    pytest.importorskip("triton")
    tuned = TRITON.replace("@triton.jit", "@triton.autotune([triton.Config({})], key=['n'])\n@triton.jit")
    (tmp_path / "kforge_test_kernels.py").write_text(tuned)
    text = "import kforge_test_kernels as k\ndef helper(x):\n    return k.double(x)\n"
    task = load_task(op(text + "def reference(x):\n    return helper(x)\n" + INPUTS))
    assert task.form is Form.TRITON


def test_kernel_without_launcher(op):
    """A kernel alone is no reference."""
    pytest.importorskip("triton")
    text = TRITON[: TRITON.index("def double")] + INPUTS
    with pytest.raises(TaskError, match=r"op.py: no reference found: no function launches the Triton kernel kernel"):
        load_task(op(text, raw=True))


def test_missing_package_names_the_extra(op, monkeypatch):
    """Without Triton the error says which extra to install, with exit 3."""
    import sys

    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingError) as caught:
        load_task(op("import triton\n"))
    assert caught.value.message == "op.py:3: triton is not installed"
    assert caught.value.hint == "install the extra: pip install 'kforge-cuda[triton]'" and caught.value.exit_code == 3


def test_missing_package_at_run_time(triton_task, monkeypatch):
    """The same when it disappears after loading."""
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match="triton is not installed"):
        Interpreted(triton_task)


def test_helion_form(root):
    """A Helion kernel is its own reference and runs interpreted."""
    pytest.importorskip("helion")
    task = load_task(root / "examples" / "helion_add.py")
    assert task.form is Form.HELION
    module, call = task.make_reference(), task.make_call()
    x, y = call.args
    assert torch.allclose(task.run(module, call), x + 0.5 * y, rtol=1e-6)

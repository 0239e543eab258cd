"""A Kernel under torch.compile, fake tensors and export: one opaque operator with its written arguments mutated."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kforge.errors import LaunchError
from kforge.kernel import Kernel

SOURCE = """\
extern "C" __global__ void affine(const float* x, const float* bias, float* y, long long n, float a) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * a + (bias ? bias[0] : 0.0f);
}
"""
affine = Kernel("affine", SOURCE, grid="ceil_div(n, 128)", block=128)


def _function(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    y = torch.empty_like(x)
    affine(x + 1, bias, y, x.numel(), 3.0)
    return y * 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_graph_break(backend: str) -> None:
    """Compiled whole, with dynamic sizes and a null pointer, the function has its eager values."""
    compiled = torch.compile(_function, backend=backend, fullgraph=True)
    with torch.no_grad():
        for shape, bias in (((4, 8), None), ((5, 9), None), ((6, 10), torch.tensor([2.0]))):
            x = torch.randn(shape)
            assert torch.equal(compiled(x, bias), _function(x, bias))


def test_mutation_is_in_the_schema() -> None:
    """The operator's schema says which arguments are written."""
    written = [a.name for a in affine._op._schema.arguments if a.is_write]
    assert written == ["y"]


def test_fake_tensors_launch_nothing() -> None:
    """On fake tensors a call is traced, not launched."""
    with FakeTensorMode():
        x, y = torch.empty(4), torch.empty(4)
        affine(x, None, y, 4, 1.0)
        assert y.shape == (4,)


def test_export() -> None:
    """torch.export keeps the kernel as one call."""

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _function(x, None)

    with torch.no_grad():
        program = torch.export.export(Model(), (torch.randn(4, 8),))
        x = torch.randn(4, 8)
        assert torch.equal(program.module()(x), _function(x, None))
    assert any("affine" in str(node.target) for node in program.graph.nodes)


def test_gradients_are_refused_when_compiled() -> None:
    """A compiled call refuses an argument that requires grad, as an eager one does."""
    compiled = torch.compile(_function, backend="aot_eager")
    with pytest.raises(LaunchError, match="requires grad"):
        compiled(torch.randn(4, requires_grad=True), None)


def test_a_kernel_is_let_go() -> None:
    """Kernels of a discarded candidate do not stay, though each is registered with torch."""
    kernel = Kernel("affine", SOURCE)
    alive = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert alive() is None

"""Attributes that the CUDA grammar does not know do not hide a kernel."""

from __future__ import annotations

import pytest

from kforge.kernel.signature import read_signature


@pytest.mark.parametrize("head", [
    'extern "C" __global__ void __cluster_dims__(4, 1, 1) name',
    "__global__ __cluster_dims__(2,\n 1, 1) void __launch_bounds__(128) name",
    "template <int N> __global__ void __launch_bounds__(N) __cluster_dims__(4) name",
])  # fmt: skip
def test_cluster_dims(head):
    """The parameters of a kernel with __cluster_dims__ anywhere before its name are read."""
    signature = read_signature(f"{head}(const float* x, int n) {{}}", "name", {})
    assert [(p.name, p.kind) for p in signature.params] == [("x", "pointer"), ("n", "scalar")]

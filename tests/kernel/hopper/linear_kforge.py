"""gelu(linear(x)) + residual in bfloat16 as one kernel of Hopper's tensor cores, fed by TMA."""

from pathlib import Path

import torch
from torch import nn

from kforge.kernel import Kernel, TensorMap

BM, BN, BK = 128, 128, 64
linear_gelu_add = Kernel(
    "linear_gelu_add",
    source=str(Path(__file__).with_name("linear_kforge.cu")),
    grid="blocks",
    block=384,
    shared=f"STAGES * {(BM + BN) * BK * 2} + 1024",
    constants={"STAGES": 4, "GROUP": 8},
    tune={"STAGES": [4, 5, 6], "GROUP": [8, 4, 16]},
)


def fits(*tensors: torch.Tensor) -> bool:
    """Whether TMA can read them: 16-byte aligned, rows contiguous and a multiple of 16 bytes apart."""
    return all(t.is_contiguous() and t.data_ptr() % 16 == 0 and t.size(-1) % 8 == 0 and t.numel() for t in tensors)


class ModelNew(nn.Module):
    def __init__(self, width: int, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, features, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        weight, bias = self.linear.weight, self.linear.bias
        if not fits(x, weight, residual, bias):
            return nn.functional.gelu(self.linear(x)) + residual
        y = torch.empty_like(residual)
        m, n, k = x.size(0), weight.size(0), x.size(1)
        tiles = -(-m // BM) * -(-n // BN)
        most = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
        blocks = min(tiles, most)
        a, b = TensorMap(x, (BM, BK), swizzle=128), TensorMap(weight, (BN, BK), swizzle=128)
        linear_gelu_add(a, b, bias, residual, y, m, n, k, blocks)
        return y

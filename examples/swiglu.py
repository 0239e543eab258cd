"""SwiGLU's activation: the gate's SiLU times the up projection, both halves of one matrix product's result."""

import torch


def reference(gate_up):
    gate, up = gate_up.chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up


def get_inputs():
    return [torch.randn(128, 2 * 1376)]


def get_input_variants():
    return [
        lambda: [torch.randn(128, 2 * 1376).half()],
        lambda: [torch.randn(8192, 2 * 11008)],  # for a GPU
        lambda: [torch.randn(8192, 2 * 11008).bfloat16()],
    ]

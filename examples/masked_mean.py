"""Mean over the tokens that a mask keeps, as sentence embeddings are pooled."""

import torch

CONSTRAINTS = ["keep_nan"]


def reference(hidden, mask):
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    total = (hidden * weights).sum(dim=1)
    count = weights.sum(dim=1).clamp(min=1e-9)
    return total / count


def make_inputs(batch, length, dim):
    lengths = torch.randint(1, length + 1, (batch,))
    mask = torch.arange(length)[None, :] < lengths[:, None]
    return {"hidden": torch.randn(batch, length, dim), "mask": mask}


def get_inputs():
    return make_inputs(16, 64, 384)


def get_input_variants():
    return [
        lambda: make_inputs(1024, 512, 768),  # for a GPU
    ]

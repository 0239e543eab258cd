import torch

MODE = "train"


class Model(torch.nn.Module):
    """Subtracts a running mean that each call moves towards the batch's."""

    def __init__(self):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(64))

    def forward(self, x):
        self.running_mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.running_mean


def get_inputs():
    return [torch.randn(32, 64)]

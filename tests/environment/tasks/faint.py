import torch


class Model(torch.nn.Module):
    """The second term is far below the rounding of the first."""

    def __init__(self, width):
        super().__init__()
        self.z = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return 2.0 + torch.sin(x) + 1e-9 * self.z


def get_init_inputs():
    return [40]


def get_inputs():
    return [torch.randn(48, 40)]

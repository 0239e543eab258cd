import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.linspace(-3.0, 3.0, 24 * 60).view(24, 60)]

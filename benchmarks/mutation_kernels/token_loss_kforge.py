import torch
from torch import nn

from kforge.kernel import Kernel

token_loss = Kernel("token_loss", source="token_loss_kforge.cu", grid="(rows, 1, 1)", block="(64, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, logits, target):
        logits, target = logits.contiguous(), target.contiguous()
        loss = torch.empty(logits.size(0), dtype=logits.dtype, device=logits.device)
        token_loss(logits, target, loss, logits.size(0), logits.size(1))
        return loss

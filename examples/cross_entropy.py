"""Cross entropy of a language model's logits: one loss a token, ignored tokens give zero."""

import torch

IGNORED = -100


def reference(logits, target):
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    log_sum = torch.log(torch.exp(shifted).sum(dim=-1))
    kept = target != IGNORED
    chosen = shifted.gather(-1, target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return torch.where(kept, log_sum - chosen, torch.zeros_like(log_sum))


def make_inputs(tokens, vocabulary):
    target = torch.randint(0, vocabulary, (tokens,))
    target[::7] = IGNORED
    return {"logits": torch.randn(tokens, vocabulary), "target": target}


def get_inputs():
    return make_inputs(64, 4000)


def get_input_variants():
    return [
        lambda: make_inputs(3, 50257),
        lambda: make_inputs(4096, 128256),  # for a GPU
    ]

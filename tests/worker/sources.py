"""Candidates as text, for the tests of the worker."""

from __future__ import annotations

from kforge.kernel.candidate import Candidate

DOUBLE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * 2
"""


def candidate(source: str) -> Candidate:
    """A candidate of one file."""
    return Candidate("op_kforge.py", {"op_kforge.py": source})


def body(*lines: str, before: str = "") -> Candidate:
    """A candidate whose forward(self, x) runs these lines."""
    text = "\n        ".join(lines)
    return candidate(
        f"import os, torch\n{before}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {text}\n"
    )

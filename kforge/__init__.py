"""kforge: an agent that writes CUDA kernels for a PyTorch op, and a judge that can be trusted."""

__version__ = "0.1.0"

"""The captured graph as tensors and expressions: import, sizes, rewrites, state."""

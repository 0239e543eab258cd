"""Handlers of ATen operators, one file a kind: each says what its operator is as tensors (graph/tensors.py)."""

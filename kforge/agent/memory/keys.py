"""Under what a lesson is kept: family of the operator, class of its shapes, chip. Read from a captured graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.task import Capture

# Classes are ours. Below LAUNCH bytes the launch costs more than the memory; below CACHE they stay in the L2 cache.
LAUNCH, CACHE = 1 << 20, 32 << 20
SHORT, MEDIUM = 1024, 16384  # elements of a row: a warp holds it, a block holds it


@dataclass(frozen=True)
class Key:
    """family: softmax, norm ...; shape_class: "memory, medium rows"; chip: "NVIDIA H200" or "emulator"."""

    family: str
    shape_class: str
    chip: str


def key_of(capture: Capture, chip: str) -> Key:
    """The key of a task; family "other" where its reference has no graph."""
    if capture.graph_module is None:
        return Key("other", "unknown", chip)
    nodes = list(capture.graph.nodes)
    names = {_operator(node.target) for node in nodes if node.op == "call_function"}
    shapes = []
    for node in nodes:
        values = node.meta.get("val") if node.op == "placeholder" else None
        shape = getattr(values, "shape", None)
        if shape is not None:
            shapes.append((tuple(int(n) for n in shape), values.element_size()))  # type: ignore[union-attr]
    family = family_of(names)
    return Key(family, shape_class(family, shapes), chip)


def family_of(operators: Iterable[str]) -> str:
    """The family of a graph from the names of its core ATen operators; the most demanding part decides."""
    names = frozenset(operators) - _FREE
    return next((family for family, belongs in _FAMILIES if belongs(names)), "pointwise" if names else "movement")


def shape_class(family: str, shapes: Sequence[tuple[Sequence[int], int]]) -> str:
    """Of (shape, bytes an element) of the inputs: where they fit, and how long rows are where rows matter."""
    sizes = [math.prod(shape) * element for shape, element in shapes]
    total = sum(sizes)
    where = "launch" if total < LAUNCH else "cache" if total < CACHE else "memory"
    if family not in _BY_ROWS or not sizes:
        return where
    largest = shapes[sizes.index(max(sizes))][0]
    row = largest[-1] if largest else 1
    return f"{where}, {'short' if row <= SHORT else 'medium' if row <= MEDIUM else 'long'} rows"


def _operator(target: Any) -> str:
    """aten._softmax.default -> _softmax."""
    parts = str(target).split(".")
    return parts[1] if len(parts) > 1 else getattr(target, "__name__", parts[0])


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FREE = _words("""
    view _unsafe_view reshape unsqueeze squeeze expand alias detach getitem slice select split split_with_sizes permute
    transpose t clone copy _to_copy convert_element_type constant_pad_nd cat stack flip roll repeat unbind as_strided
    full zeros ones empty arange scalar_tensor lift_fresh_copy _assert_tensor_metadata
""")
_MATMULS = _words("mm bmm addmm baddbmm matmul linear _int_mm")
_SOFTMAXES = _words("_softmax _log_softmax logsumexp")
_SUMS = _words("sum mean var var_mean std linalg_vector_norm norm")
_BY_ROWS = _words("softmax norm reduction scan sort attention")


def _softmax(names: frozenset[str]) -> bool:
    return bool(names & _SOFTMAXES) or {"amax", "exp", "sum"} <= names


def _norm(names: frozenset[str]) -> bool:
    return any("_norm" in n and n.startswith(("native", "_native", "_fused")) for n in names) or bool(
        names & {"rsqrt", "sqrt"} and names & _SUMS
    )


def _any(text: str) -> Callable[[frozenset[str]], bool]:
    wanted = _words(text)
    return lambda names: bool(names & wanted)


_FAMILIES: tuple[tuple[str, Callable[[frozenset[str]], bool]], ...] = (
    ("attention", lambda names: bool(names & _MATMULS) and _softmax(names)),
    ("convolution", _any("convolution")),
    ("matmul", lambda names: bool(names & _MATMULS)),
    ("scan", _any("cumsum cumprod logcumsumexp cummax cummin")),
    ("sort", _any("sort topk argsort kthvalue median mode unique2 _unique2")),
    ("pooling", lambda names: any("_pool" in name for name in names)),
    ("softmax", _softmax),
    ("norm", _norm),
    ("scatter", _any("scatter scatter_add scatter_reduce index_put index_add index_copy bincount histc")),
    ("gather", _any("embedding gather index index_select take masked_select")),
    (
        "reduction",
        _any("sum mean prod amax amin max min argmax argmin any all var var_mean std norm linalg_vector_norm"),
    ),
)

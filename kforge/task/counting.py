"""The least a task must move and compute, counted from its graph: the numerator of the physical floor (CONTRACTS 5).

Every input is read once and every output written once; of an input that is only indexed (embedding, gather, slices)
just the parts that can be read. Operations are counted for the arithmetic of the captured operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.task.graph import Capture, Origin
from kforge.task.precision import Precision

if TYPE_CHECKING:
    import torch


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VIEWS = _names("""
    view _unsafe_view reshape permute t transpose expand unsqueeze squeeze alias detach as_strided view_as_real
    view_as_complex lift_fresh_copy slice select narrow unbind split split_with_sizes unfold diagonal
""")
SHAPE_ONLY = _names("""
    empty_like zeros_like ones_like full_like rand_like randn_like randint_like new_empty new_zeros new_ones new_full
    sym_size sym_stride sym_numel sym_storage_offset
""")
# op -> position of the tensor of which only as many elements as the result has are read
INDEXED = {"embedding": 0, "index_select": 0, "gather": 0, "index": 0, "take": 0}
# op -> position of the written values: the rest of the result is the untouched base (argument 0)
UPDATES = {"slice_scatter": 1, "select_scatter": 1, "index_put": 2, "scatter": 3, "scatter_add": 3, "index_copy": 3}
MATMULS = _names("mm bmm addmm baddbmm convolution matmul linear _int_mm")
SPECIAL = _names("""
    exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc
    erfinv sqrt rsqrt pow sigmoid lgamma digamma
""")
# op -> (fp32 operations, special functions) an element: of the input for reductions, of the result otherwise
COMPOUND = {
    "_softmax": (4, 1),  # max, subtract, add, divide; exp
    "_log_softmax": (4, 1),
    "gelu": (5, 1),
    "silu": (2, 1),
    "elu": (3, 1),
    "leaky_relu": (2, 0),
    "hardtanh": (2, 0),
    "clamp": (2, 0),
    "native_layer_norm": (7, 0),  # mean 1, variance 3, normalise 2 - of which the affine part is one fma
    "native_group_norm": (7, 0),
    "_native_batch_norm_legit": (7, 0),
    "_native_batch_norm_legit_functional": (7, 0),
    "_native_batch_norm_legit_no_training": (4, 0),
    "var": (4, 0),
    "var_mean": (4, 0),
    "std": (4, 0),
    "native_dropout": (2, 0),
    "addcmul": (3, 0),
    "addcdiv": (3, 0),
}
REDUCTIONS = _names("""
    sum mean prod median mode kthvalue amax amin max min argmax argmin any all var var_mean std cumsum cumprod
    logcumsumexp logsumexp _softmax _log_softmax norm linalg_vector_norm native_layer_norm native_group_norm
    _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
    avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices _adaptive_avg_pool2d _adaptive_avg_pool3d
    scatter_add scatter_reduce
""")
FREE = _names("""
    getitem clone copy _to_copy convert_element_type full zeros ones empty arange scalar_tensor embedding index_select
    gather index index_put scatter slice_scatter select_scatter cat stack constant_pad_nd flip roll repeat eye fill
    bernoulli rand randn randint randperm tril triu resize empty_strided empty_permuted
""")


@dataclass(frozen=True)
class NodeCost:
    """Operations of one node: kind is a key of Cost.flops, special functions are counted apart."""

    node: str
    op: str
    kind: str
    operations: int
    special: int = 0
    origin: Origin | None = None


@dataclass(frozen=True)
class Cost:
    """read_bytes, write_bytes: the least traffic of one call. flops: operations by class.

    Classes: "fp32" (also half precision outside the tensor cores), "fp64", "int", "special" (exp, tanh, rsqrt, ...) and
    "tensor" (matrix products that tensor cores run: half precision, or float32 at PRECISION high and medium; a
    multiply-add is two operations). tensor_dtype names the rate that applies: "float16", "bfloat16", "tf32" or "".
    """

    read_bytes: int
    write_bytes: int
    flops: dict[str, int] = field(default_factory=dict, hash=False)
    tensor_dtype: str = ""
    nodes: tuple[NodeCost, ...] = ()

    @property
    def total_bytes(self) -> int:
        return self.read_bytes + self.write_bytes

    @property
    def operations(self) -> int:
        """All operations, whatever their class."""
        return sum(self.flops.values())

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.operations / self.total_bytes if self.total_bytes else math.inf


def count(capture: Capture) -> Cost:
    """Bytes and operations of one call. Raises NoCandidate where capture failed."""
    graph = capture.graph
    output = next(n for n in graph.nodes if n.op == "output")
    reads = sum(_read_bytes(n) for n in graph.nodes if n.op in ("placeholder", "get_attr"))
    results = dict.fromkeys(n for n in output.args[0] if hasattr(n, "meta"))
    updated = set(list(output.args[0])[: len(capture.mutations)])
    writes = sum(_write_bytes(n, n in updated) for n in results)
    nodes = tuple(filter(None, (_operations(n, capture.precision) for n in graph.nodes)))
    flops: dict[str, int] = {}
    for item in nodes:
        flops[item.kind] = flops.get(item.kind, 0) + item.operations
        if item.special:
            flops["special"] = flops.get("special", 0) + item.special
    products = [n for n in graph.nodes if _name(n) in MATMULS]
    dtypes = {_tensor_dtype(n, capture.precision) for n in products} - {""}
    return Cost(reads, writes, {k: v for k, v in flops.items() if v}, min(dtypes, default=""), nodes)


def _name(node: torch.fx.Node) -> str:
    """`softmax` for aten.softmax.int, `getitem` for operator.getitem, "" for nodes that call nothing."""
    if node.op != "call_function":
        return ""
    packet = getattr(node.target, "overloadpacket", None)
    return str(packet).rsplit(".", 1)[-1] if packet is not None else getattr(node.target, "__name__", "")


def _value(node: Any) -> Any:
    return node.meta.get("val") if hasattr(node, "meta") else node


def _distinct(value: Any) -> int:
    """Elements that occupy memory of their own: expanded dimensions (stride 0) count once."""
    if not _is_tensor(value) or _symbolic(value) or value.numel() == 0:
        return 0
    return math.prod(size for size, stride in zip(value.shape, value.stride(), strict=True) if stride != 0 or size == 1)


def _symbolic(value: Any) -> bool:
    """A size depends on values (nonzero, a boolean mask): nothing is known about it, and 0 stays a lower bound."""
    return not all(isinstance(size, int) for size in value.shape)


def _bytes(node: torch.fx.Node) -> int:
    value = _value(node)
    parts = value if isinstance(value, (tuple, list)) else [value]
    return sum(_distinct(part) * getattr(part, "itemsize", 0) for part in parts)


def _read_bytes(node: torch.fx.Node) -> int:
    """Bytes of `node` that its users can need: all of it, unless every user reads a part only."""
    parts: dict[Any, int] = {}
    for user in node.users:
        key = _index_of(node, user) if _name(user) in INDEXED else user  # look-ups with one index read the same rows
        parts[key] = max(parts.get(key, 0), _read_through(node, user))
    return min(_bytes(node), sum(parts.values()))


def _index_of(node: torch.fx.Node, user: torch.fx.Node) -> str:
    return str(sorted(str(a) for a in user.all_input_nodes if a is not node))


def _read_through(node: torch.fx.Node, user: torch.fx.Node) -> int:
    import torch

    name, whole = _name(user), _bytes(node)
    if user.op == "output" or name in SHAPE_ONLY:  # an input handed back is an alias: nothing moves
        return 0
    if name == "copy" and user.args[0] is node and user.args[1] is not node:  # only its shape matters
        return 0
    if name in VIEWS or name == "getitem":
        return min(_read_bytes(user), whole)
    if name in INDEXED and user.args[INDEXED[name]] is node:
        value = user.meta.get("val")
        elsewhere = any(a is node for i, a in enumerate(user.args) if i != INDEXED[name])
        if isinstance(value, torch.Tensor) and not elsewhere:
            return min(whole, whole if _symbolic(value) else value.numel() * node.meta["val"].itemsize)
    if name in UPDATES and user.args[0] is node and node.op == "placeholder" and _only_returned(user):
        return 0  # updated in place: what is not overwritten stays where it is
    return whole


def _only_returned(node: torch.fx.Node) -> bool:
    return all(user.op == "output" for user in node.users)


def _write_bytes(node: torch.fx.Node, updated: bool) -> int:
    """Bytes written for one result; a view of an input is an alias, an update in place writes its values only."""
    name = _name(node)
    if node.op == "placeholder":
        return 0
    if name in VIEWS:
        return _write_bytes_of_base(node)
    args: Any = node.args
    if updated and name in UPDATES and args[0].op == "placeholder":
        source: Any = args[UPDATES[name]] if len(args) > UPDATES[name] else None
        return _bytes(source) if hasattr(source, "meta") else _bytes(node)
    return _bytes(node)


def _write_bytes_of_base(node: torch.fx.Node) -> int:
    base: Any = node
    while _name(base) in VIEWS or _name(base) == "getitem":
        if not hasattr(base.args[0], "meta"):
            break
        previous = base.args[0]
        if _name(base) == "getitem" and _name(previous) not in VIEWS:
            break
        base = previous
    return 0 if base.op == "placeholder" else min(_bytes(node), _bytes(base) or _bytes(node))


def _tensor_dtype(node: torch.fx.Node, precision: Precision) -> str:
    """Which tensor-core rate a matrix product has: "" when it runs on the ordinary units."""
    value = next((_value(a) for a in node.args if _is_tensor(_value(a))), None)
    name = str(value.dtype).removeprefix("torch.") if value is not None else ""
    if name == "float32":
        return "" if precision is Precision.HIGHEST else "tf32"
    return name if name in ("float16", "bfloat16") or name.startswith("float8") else ""


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _operations(node: torch.fx.Node, precision: Precision) -> NodeCost | None:
    """The node's arithmetic; None for nodes that compute nothing."""
    name = _name(node)
    if not name or name in VIEWS or name in SHAPE_ONLY or name in FREE or name.startswith("sym_"):
        return None
    value = _value(node)
    result = value[0] if isinstance(value, (tuple, list)) else value
    if not _is_tensor(result):
        return None
    operand = next((_value(a) for a in node.args if _is_tensor(_value(a))), result)
    if _symbolic(result) or _symbolic(operand):
        return None
    kind, origin = _kind(operand if name in REDUCTIONS else result), node.meta.get("origin")
    if name in MATMULS:
        tensor = _tensor_dtype(node, precision)
        return NodeCost(node.name, name, "tensor" if tensor else kind, _product_operations(node, name), 0, origin)
    elements = max(operand.numel(), result.numel()) if name in REDUCTIONS else result.numel()
    if name in COMPOUND:
        plain, special = COMPOUND[name]
        return NodeCost(node.name, name, kind, plain * elements, special * elements, origin)
    exponent: Any = node.args[1] if name == "pow" else 0
    products = {2: 1, 3: 2, 4: 2}.get(exponent, 0)
    if products:
        return NodeCost(node.name, name, kind, products * elements, 0, origin)
    if name in SPECIAL:
        return NodeCost(node.name, name, kind, 0, elements, origin)
    if name in ("sort", "topk"):
        length = operand.shape[-1] if operand.dim() else 1
        return NodeCost(
            node.name, name, kind, operand.numel() * max(1, math.ceil(math.log2(max(2, length)))), 0, origin
        )
    return NodeCost(node.name, name, kind, elements, 0, origin)


def _kind(value: Any) -> str:
    import torch

    if value.dtype in (torch.float64, torch.complex128):
        return "fp64"
    return "fp32" if value.is_floating_point() or value.is_complex() else "int"


def _product_operations(node: torch.fx.Node, name: str) -> int:
    """Two operations a multiply-add: 2 M N K, or 2 outputs x (channels a group x filter size)."""
    result = _value(node)
    shapes: Callable[[int], Any] = lambda i: _value(node.args[i]).shape  # noqa: E731
    if name == "convolution":
        weight = shapes(1)
        transposed = bool(node.args[6])
        elements = _value(node.args[0]).numel() if transposed else result.numel()
        return int(2 * elements * math.prod(weight[1:]))
    left = shapes(1) if name in ("addmm", "baddbmm") else shapes(0)
    extra = result.numel() if name in ("addmm", "baddbmm") else 0
    return int(2 * result.numel() * left[-1] + extra)

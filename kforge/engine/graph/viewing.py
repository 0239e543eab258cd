"""Which strides the result of each node has (strides.py), from those of its operands and from how it was called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kforge.engine.graph.formats import DENSE
from kforge.engine.graph.importer import HANDLERS, layout_of
from kforge.engine.graph.ir import Buffer
from kforge.engine.graph.strides import (
    Dense,
    Image,
    Joined,
    Kept,
    Layout,
    Viewed,
    as_shaped,
    channels_last,
    inputs_of,
    part_of,
    viewed,
)
from kforge.engine.graph.tensors import Tensor
from kforge.task.capturing import CALL
from kforge.task.tracing import OPERANDS

# operators whose result torch lays out as their operand; of a part, the order of the dimensions counts
KEEPS_STRIDES = {"_to_copy", "alias", "clone", "detach", "lift_fresh_copy", "positive"}
PARTS = {"slice", "split_with_sizes"}
ALIKE = {
    "native_dropout",
    "bernoulli",
    "full_like",
    "zeros_like",
    "ones_like",
}  # all that they give lies as the operand
COPIERS = {"select_scatter", "slice_scatter", "diagonal_scatter", "index_fill", "put"}  # on a copy that keeps strides
WRITERS = {"scatter", "scatter_add", "scatter_reduce", "index_put", "index_add", "index_copy", "index_reduce"}
WRITERS |= COPIERS
VIEWED = {"select_scatter", "slice_scatter", "diagonal_scatter"}  # called as such, they keep gaps as well


def lay_out(node: Any, packet: str, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any], values: Any) -> None:
    """Set the layout of what a node gives; pointwise operators without a handler have set theirs."""
    import torch

    in_place, fills = _in_place(node, packet), "masked_fill." in str(node.meta.get("original_aten"))
    if fills and packet in ("where", "masked_fill"):  # of a contiguous copy
        result.layout = args[0 if packet == "masked_fill" else 2].layout if _call_of(node).endswith("_") else None
        return
    for t in result if isinstance(result, (tuple, list)) else (result,):
        if not isinstance(t, Tensor):
            continue
        if _call_of(node) in VIEWED and (written := _written(packet, args)) is not None:
            t.layout = Kept(written) if isinstance(written, Buffer) else written
        elif packet in PARTS or in_place:
            own = args[0].layout
            t.layout = own if own is None or isinstance(own, Buffer) else part_of(own, args[0].shape, t.shape)
            t.format = args[0].format if packet in PARTS else t.format
        elif packet in ALIKE and not _reorders(kwargs):
            t.layout, t.format = layout_of([args[0]], t.shape), args[0].format
        elif packet == "where" and "select_scatter" in str(node.meta.get("original_aten")):
            t.layout = args[2].layout
        elif packet in VIEWS:
            t.layout = VIEWS[packet](args[0], lies(args[0]), t, *args[1:])
        elif packet in KEEPS_STRIDES:
            if _reorders(kwargs) or _call_of(node) == "contiguous":
                last = len(t.shape) in (4, 5) and "channels_last" in str(kwargs.get("memory_format"))
                t.layout = channels_last(t.shape) if last else None
            elif isinstance(args[0], Tensor):
                t.format = args[0].format
        elif packet == "cat":
            t.layout = _cat(t, *args)
        elif packet == "index" and str(node.meta.get("original_aten", node.target)).startswith("aten.index."):
            t.layout = _index(t, *args)
        elif packet in HANDLERS and packet != "sort":
            pointwise = torch.Tag.pointwise in node.target.tags
            t.layout = layout_of([a for a in args if isinstance(a, Tensor)], t.shape) if pointwise else None
    own = [_named(values, name) for name in node.meta.get(OPERANDS, ())]
    if isinstance(result, Tensor) and result.shape and all(isinstance(t, Tensor) for t in own) and own and not in_place:
        result.layout = layout_of(own, result.shape)


def _written(packet: str, args: Sequence[Any]) -> Layout | None:
    """The layout of what a part is written into; select_scatter becomes a choice between the two."""
    return args[0].layout if packet in VIEWED else args[2].layout if packet == "where" else None


def lies(x: Tensor) -> Layout | None:
    """How a tensor lies that is looked at: as an image where it follows one; None: contiguous."""
    if isinstance(x.layout, Buffer) and x.buffer is None:  # in the order of the input, but dense
        return Joined((as_shaped(x.layout, x.shape),))
    if x.layout is not None or x.format is None or x.format[1] or len(x.shape) not in (4, 5):
        return x.layout
    source = x.format[0]
    return Image((source,), x.shape, dense=isinstance(source, Buffer) and source.kind == DENSE)


def _cat(result: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Layout | None:
    """Channels last where all parts are images that lie so; a part without elements and dimensions is none."""
    rules = [as_shaped(rule, x.shape) for x in parts if (rule := lies(x)) is not None]
    alike = len(rules) == len(parts) and all(len(x.shape) == len(result.shape) for x in parts)
    if len(result.shape) not in (4, 5) or not alike:
        return None
    return Image(tuple(dict.fromkeys(rules)), result.shape, dense=False)


def _index(result: Tensor, x: Tensor, indices: Sequence[Tensor | None]) -> Layout | None:
    """As a pointwise operator of the operand, with no step where it is indexed, and of the index tensors."""
    used = [t for t in indices if t is not None]
    if not any(rule is not None and inputs_of(rule) for rule in map(lies, (x, *used))):
        return None
    first, shared = index_places(x, indices)
    rule, behind = _rule(x), len(result.shape) - first - shared
    for d in reversed([d for d, t in enumerate(indices) if t is not None]):
        rule = Viewed(rule, "select", (d, 0))
    for _ in range(shared):
        rule = Viewed(rule, "unsqueeze", (first,))
    rules: list[Layout] = [Viewed(rule, "expand", result.shape)]
    for t in used:
        rule = _rule(t)
        for _ in range(behind):
            rule = Viewed(rule, "unsqueeze", (-1,))
        rules.append(Viewed(rule, "expand", result.shape))
    return Joined(tuple(dict.fromkeys(rules)))


def index_places(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[int, int]:
    """Where index tensors' own dimensions stand in the result, and how many they are: where the first one stood, in
    front where others are between them."""
    places = [d for d, t in enumerate(indices) if t is not None]
    apart = places != list(range(places[0], places[0] + len(places)))
    return 0 if apart else places[0], max(len(t.shape) for t in indices if t is not None)


def _rule(x: Tensor) -> Layout:
    rule = lies(x)
    return Dense(x.shape) if rule is None else as_shaped(rule, x.shape)


def _named(values: Mapping[Any, Any], name: str) -> Any:
    return next((value for node, value in values.items() if node.name == name), None)


def _call_of(node: Any) -> str:
    """The function that the user's line called."""
    return str((node.meta.get("custom") or {}).get(CALL, ""))


def _in_place(node: Any, packet: str) -> bool:
    """Whether a result has its first operand's strides since that is what is written, or a copy of it."""
    call = _call_of(node)
    if packet not in WRITERS:
        return call in (f"{packet}_", f"__i{packet}__")
    ends = call.endswith("_") and not call.startswith("__")
    return packet in COPIERS or ends or call in ("index_put", "index_fill", "__setitem__")


def _reorders(kwargs: Mapping[str, Any]) -> bool:
    """Whether a copy asks for another memory format than its operand's."""
    import torch

    return kwargs.get("memory_format") not in (None, torch.preserve_format)


def _permute(x: Tensor, own: Layout | None, result: Tensor, dims: Sequence[int]) -> Layout | None:
    return viewed(own, x.shape, "permute", [d % len(x.shape) for d in dims])


def _transpose(x: Tensor, own: Layout | None, result: Tensor, a: int, b: int) -> Layout | None:
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return viewed(own, x.shape, "permute", order)


def _t(x: Tensor, own: Layout | None, result: Tensor) -> Layout | None:
    return viewed(own, x.shape, "permute", (1, 0)) if len(x.shape) == 2 else own


def _unsqueeze(x: Tensor, own: Layout | None, result: Tensor, dim: int) -> Layout | None:
    return viewed(own, x.shape, "unsqueeze", (dim,))


def _squeeze(x: Tensor, own: Layout | None, result: Tensor, *_: Any) -> Layout | None:
    """A reshape: the sizes say which dimensions are left."""
    return viewed(own, x.shape, "reshape", result.shape)


def _select(x: Tensor, own: Layout | None, result: Tensor, dim: int, index: int) -> Layout | None:
    return viewed(own, x.shape, "select", (dim, 0))


def _expand(x: Tensor, own: Layout | None, result: Tensor, *_: Any) -> Layout | None:
    return viewed(own, x.shape, "expand", result.shape)


def _reshape(x: Tensor, own: Layout | None, result: Tensor, *_: Any) -> Layout | None:
    """As it is where that is a view, else a copy, which is contiguous: what torch's reshape does as well."""
    return viewed(own, x.shape, "reshape", result.shape)


def _flip(x: Tensor, own: Layout | None, result: Tensor, dims: Sequence[int]) -> Layout | None:
    """No view, but a copy that lies as its operand."""
    return own


VIEWS: dict[str, Callable[..., Layout | None]] = {
    "flip": _flip,
    "permute": _permute,
    "transpose": _transpose,
    "t": _t,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "select": _select,
    "expand": _expand,
    "view": _reshape,
    "reshape": _reshape,
    "_unsafe_view": _reshape,
}

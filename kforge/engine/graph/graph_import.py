"""`import_graph`: an fx.GraphModule of core ATen, node by node, through the importer's handlers (importer.py).

A size that turns out to be another starts the pass over, with what is known then.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable, Sequence
from typing import Any

from kforge.engine.emit.cgen import C_TYPES
from kforge.engine.graph.cuts import gaps_of
from kforge.engine.graph.evidence import Evidence
from kforge.engine.graph.formats import follow
from kforge.engine.graph.importer import (
    HANDLERS,
    Graph,
    Importer,
    Meta,
    Refine,
    cast,
    common_type,
    computing,
    constants_of,
    layout_of,
    literal,
    pick,
)
from kforge.engine.graph.ir import FLOAT8, Buffer, Expr, Origin
from kforge.engine.graph.probing import Resized, contradictions
from kforge.engine.graph.symbols import Poly, Size
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor, from_buffer
from kforge.engine.graph.viewing import lay_out
from kforge.engine.handlers.operators import COMPARISONS, POINTWISE
from kforge.engine.switches import OURS, Switches
from kforge.errors import NoCandidate

MANY_ROWS = 26
"""Rows from which on torch.cdist multiplies matrices."""


def import_graph(
    module: Any,
    names: dict[str, tuple[str, str]],
    origins: Callable[[Any], Origin | None],
    constants: dict[str, list[float | int | bool]] | None = None,
    variants: Callable[[], list[Any]] = list,
    pinned: bool = False,
    resized: Resized | None = None,
    switches: Switches = OURS,
    contents: Callable[[str], Any] | None = None,
) -> Graph:
    """Import an fx.GraphModule of core ATen.

    names: placeholder -> (readable name, kind); origins: fx node -> Origin; constants: placeholders of known elements;
    variants: gives the same graph for other shapes, asked for only when a literal would fix a size; pinned: parameters
    cannot have other sizes; resized: gives the graph for any shapes, asked for where literals were taken for sizes;
    contents: as Importer has it. NoCandidate names what has no handler.
    """
    from kforge.engine.handlers import (  # noqa: F401  (they register handlers)
        accumulating,
        antialias,
        arithmetic,
        composites,
        creation,
        distances,
        dropout,
        indexing,
        narrow,
        norms,
        ordering,
        pooling_backward,
        products,
        resampling,
        resampling_backward,
        sampling,
        scans,
        searching,
        skinny,
        slices,
        special,
        views,
        windows,
    )

    known: dict[Size, Poly] = _parameter_sizes(module, names) if pinned else {}
    evidence = Evidence(module, variants, names, probed=resized is not None)
    for _ in range(300):
        imp = Importer(dict(known), evidence, switches, contents)
        try:
            graph = _run(imp, module, names, origins, constants or {})
        except Refine as refine:
            known[refine.size] = refine.value
            continue
        wrong = contradictions(imp, graph, module, resized) if resized is not None and imp.guessed else {}
        if not wrong:
            return graph
        known |= wrong
    raise NoCandidate("the sizes of the graph do not settle", operator="shapes")


def _parameter_sizes(module: Any, names: dict[str, tuple[str, str]]) -> dict[Size, Poly]:
    """The sizes of all parameters and buffers, fixed."""
    found = {}
    for node in module.graph.nodes:
        if node.op == "placeholder" and names.get(node.name, ("", ""))[1] == "parameter":
            for axis, hint in enumerate(node.meta["val"].shape):
                found[Size(f"{names[node.name][0]}_{axis}", int(hint))] = Poly.of(int(hint))
    return found


def _run(
    imp: Importer,
    module: Any,
    names: dict[str, tuple[str, str]],
    origins: Callable[[Any], Origin | None],
    constants: dict[str, list[float | int | bool]],
) -> Graph:
    import torch

    values = imp.values
    inputs: dict[str, Buffer] = {}
    real, odd = "float", set()
    library = ("mm.default", "convolution", "copy_", "set_")  # their operands and targets are contiguous here
    permuted = not any(name in str(n.target) for n in module.graph.nodes for name in library)
    for node in module.graph.nodes:
        imp.origin, imp.node = origins(node), node
        if node.op == "placeholder":
            fake = node.meta.get("val")
            if node.name in constants:
                numbers = constants[node.name]
                values[node] = constants_of(imp, numbers, _dtype(fake), tuple(fake.shape))
                continue
            if not isinstance(fake, torch.Tensor):
                values[node] = fake
                continue
            name, kind = names[node.name]
            shape = []
            for axis, hint in enumerate(fake.shape):
                symbol = Size(f"{name}_{axis}", int(hint))
                imp.sources[symbol] = (name, axis)
                shape.append(imp.resolve(Poly.of(symbol)))
            _refuse_dtype(node)
            order = _order(fake) if permuted and kind == "input" else ()
            buffer = Buffer(name, _dtype(fake), tuple(shape), kind, order)
            odd |= set() if fake.is_contiguous() else {name}
            real = "double" if buffer.dtype == "float64" else real
            inputs[node.name] = buffer
            values[node] = from_buffer(buffer)
        elif node.op == "get_attr":
            raise NoCandidate(f"the graph holds a constant tensor {node.target}", operator="constant tensor")
        elif node.op == "call_function":
            values[node] = _call(imp, node, values)
            _refuse_dtype(node)
            real = "double" if getattr(node.meta.get("val"), "dtype", None) == torch.float64 else real
        elif node.op == "output":
            flat = torch.utils._pytree.tree_leaves(node.args[0])
            outputs = [values.get(n, n) if isinstance(n, torch.fx.Node) else n for n in flat]
            for n, value in zip(flat, outputs, strict=True):  # a gradient has the sizes of what it belongs to
                owner = inputs.get(n.meta.get("sized_as", "")) if isinstance(n, torch.fx.Node) else None
                for a, b in zip(value.shape, owner.shape, strict=True) if owner is not None else ():
                    imp.equal(a, b)
                if isinstance(value, Tensor) and (rule := gaps_of(n, values, _has_gaps(n))) is not None:
                    value.layout, value.format = rule, None
            expanded = {}
            for k, n in enumerate(flat):
                if (whole := _expands(n)) and isinstance(inner := values[whole], Tensor) and inner.buffer is None:
                    expanded[k], outputs[k] = outputs[k].shape, inner
            graph = Graph(inputs, outputs, imp.known, imp.sources, real, imp.minimum, imp.seeds, frozenset(odd))
            graph.expanded = expanded
            return graph
    raise NoCandidate("the graph has no output", operator="output")


def _expands(node: Any) -> Any:
    """What an output repeats without copying it; None where it is no such view."""
    if getattr(node, "op", "") != "call_function" or "expand." not in str(node.target):
        return None
    return node.args[0] if node.args[0].meta["val"].shape != node.meta["val"].shape else None


def _has_gaps(node: Any) -> bool:
    """Whether a node's elements do not lie side by side in any order; of none nobody knows."""
    fake = node.meta.get("val")
    return fake is not None and (fake.numel() == 0 or (not fake.is_contiguous() and not _order(fake)))


def _order(fake: Any) -> tuple[int, ...]:
    """The dimensions of a dense tensor that is not contiguous as they lie in memory; () for any other."""
    if fake.is_contiguous():
        return ()
    order = tuple(sorted(range(fake.dim()), key=fake.stride, reverse=True))
    return order if fake.permute(order).is_contiguous() else ()


FLOAT8_MADE = (
    "view permute transpose t slice select expand clone unsqueeze squeeze alias detach cat index index_select gather "
    "flip embedding split_with_sizes unbind roll repeat abs index_put _to_copy"
)
"""Operators that give elements of float8 which need no rounding: those that move them, beside the cast itself."""


def _refuse_dtype(node: Any) -> None:
    """NoCandidate for a tensor whose elements no kernel can hold (uint16, complex numbers; what is computed in float8),
    but where it is only passed to the library."""
    import torch

    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return
    name = str(node.target).removeprefix("aten.").split(".")[0]
    written = _dtype(value) in FLOAT8 and node.op == "call_function" and name not in FLOAT8_MADE.split()
    if (written or _dtype(value) not in C_TYPES) and not _passed_on(node):
        raise NoCandidate(f"no kernel holds elements of dtype {_dtype(value)}", operator=f"dtype {_dtype(value)}")


def _passed_on(node: Any) -> bool:
    """Whether views of a node, or itself, are operands of a library's product and nothing else."""
    if not node.users or node.op not in ("placeholder", "call_function"):
        return False
    seen = {user: str(user.target) for user in node.users}
    views = [user for user, name in seen.items() if name in ("aten.permute.default", "aten.view.default")]
    return all(user in views or name == "aten._scaled_mm.default" for user, name in seen.items()) and all(
        map(_passed_on, views)
    )


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _call(imp: Importer, node: Any, values: dict[Any, Any]) -> Any:
    import torch

    def convert(a: Any) -> Any:
        return torch.fx.node.map_arg(a, lambda n: values[n])

    args, kwargs = convert(node.args), convert(node.kwargs)
    if node.target is python_operator.getitem:
        return args[0][args[1]]
    imp.operator = str(node.target)
    name = getattr(node.target, "_schema", None)
    packet = name.name.split("::")[-1] if name is not None else imp.operator
    fake = node.meta.get("val")
    dtype = _dtype(fake) if isinstance(fake, torch.Tensor) else ""
    unknown = isinstance(fake, torch.Tensor) and any(isinstance(s, torch.SymInt) for s in fake.shape)
    if unknown and packet != "bincount":
        raise imp.reject("its size depends on data")
    shape = tuple(int(s) for s in fake.shape) if isinstance(fake, torch.Tensor) and not unknown else ()
    if isinstance(fake, (tuple, list)) and fake and isinstance(fake[0], torch.Tensor):
        dtype = _dtype(fake[0])
    if "complex" in dtype:
        raise imp.reject("complex numbers")
    meta = Meta(dtype, shape, imp.operator)
    if packet in POINTWISE or packet in {"full", "full_like", "scalar_tensor"}:
        imp.check_literals(node)
    if packet in ("mm", "bmm") and "_euclidean_dist" in str(node.meta.get("original_aten")):
        rows = max(args[0].shape[-2], args[1].shape[-1], key=Poly.hint)
        if rows.hint() >= MANY_ROWS:  # torch subtracts fewer, which is more exact where they are near each other
            imp.at_least(rows, MANY_ROWS)
    if packet in HANDLERS:
        result = HANDLERS[packet](imp, meta, *args, **kwargs)
    elif packet in POINTWISE:
        result = pointwise(imp, meta, packet, args, kwargs)
    else:
        raise NoCandidate(
            f"the engine has no kernel for {imp.operator}",
            "write the kernel by hand, or let a chat model propose one",
            operator=imp.operator,
        )
    for t in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(t, Tensor) and not t.name:
            t.name = node.name
    lay_out(node, packet, result, args, kwargs, values)
    follow(node, result)
    for t in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(t, Tensor) and t.buffer is None:
            t.settled = True
    return result


def pointwise(imp: Importer, meta: Meta, packet: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """An operator of the pointwise table: positional operands, keyword scalars."""
    formula = POINTWISE[packet]
    compute: str | None = None
    if packet in COMPARISONS or packet.startswith("logical_") or packet in {"isnan", "isinf"}:
        compute = common_type(args)
        if packet.startswith("logical_"):
            compute = "bool"
    keywords = {k: v for k, v in kwargs.items() if v is not None and k not in {"dtype", "device", "layout"}}
    if packet in {"where", "masked_fill"}:
        return _select(imp, meta, packet, args)
    names, extra = list(keywords), list(keywords.values())
    count = len(args)

    def applied(b: Any, *scalars: Any) -> Expr:
        return formula(b, *scalars[:count], **dict(zip(names, scalars[count:], strict=True)))

    try:
        return imp.map(applied, *args, *extra, dtype=meta.dtype, compute=compute)
    except NotImplementedError as error:
        raise imp.reject(str(error)) from None


def _select(imp: Importer, meta: Meta, packet: str, args: Sequence[Any]) -> Tensor:
    """where and masked_fill: the condition keeps its own type."""
    condition, yes, no = args if packet == "where" else (args[1], args[2], args[0])
    tensors = [t for t in (condition, yes, no) if isinstance(t, Tensor)]
    shape = imp.broadcast([t.shape for t in tensors])
    target = computing(meta.dtype)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        def scalar(o: Any, kind: str) -> Expr:
            if isinstance(o, Tensor):
                return cast(ctx, ctx.value(o, pick(index, o.shape), guard), kind)
            return literal(ctx, o, kind)

        chosen = (scalar(condition, "bool"), scalar(yes, target), scalar(no, target))
        return ctx.builder.op("where", *chosen, dtype=target)

    result = imp.tensor(shape, meta.dtype, at, *tensors)
    result.layout = layout_of(tensors, shape)
    return result

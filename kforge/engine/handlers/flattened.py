"""Convolutions in three dimensions as ones in two: taps along the depth become channels of their own.

Each slice of the result needs as many slices of the input as there are taps along the depth; with those side by side
as channels, filters (f, c, t, h, w) are filters (f, c * t, h, w) as they lie in memory. The input is written as often
as there are taps, which is little where channels are few: there libraries are far from the machine's rate in three
dimensions, since the channels do not fill a tile. Without padding along the depth no product is added.
"""

from __future__ import annotations

from kforge.engine.calls.vendor import VendorCall
from kforge.engine.graph.importer import Importer
from kforge.engine.graph.symbols import Poly
from kforge.engine.graph.tensors import Index, Tensor, unflatten
from kforge.engine.handlers.transposed import Convolve, Placing

MANY = 1 << 16  # images that a dimension of blocks holds
MOST = 64  # channels of a convolution in two dimensions that stands in for one in three


def flattened(
    imp: Importer,
    call: VendorCall,
    how: Placing,
    convolve: Convolve,
) -> Tensor | None:
    """The result of a convolution of x (n, c, d, h, w); None where it is better left as it is."""
    stride, padding, dilation = how.stride, how.padding, how.dilation
    x, weight, *bias = call.operands
    channels, taps = (s.hint() for s in weight.shape[1:3])
    if call.operator != "conv3d" or "groups" in call.keywords or padding[0] or channels * taps > MOST:
        return None
    for size in weight.shape:
        imp.fix(size)
    sizes = []
    for size, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True):
        sizes.append(imp.derived(size, 2 * p - d * (k.hint() - 1) - 1 + s, s))
    count, depth, step, gap = x.shape[0], sizes[0], stride[0], dilation[0]
    if (count * depth).hint() > MANY:
        return None

    def slices(index: Index) -> Index:
        image, channel, *place = index
        which, slice_ = unflatten(image, (count, depth))
        own, tap = unflatten(channel, (Poly.of(channels), Poly.of(taps)))
        return (which, own, slice_ * step + tap * gap, *place)

    images = imp.view(x, (count * depth, Poly.of(channels * taps), *x.shape[3:]), slices)
    images.name = f"{x.name or 'images'}_slices"
    filters = imp.view(
        weight,
        (weight.shape[0], Poly.of(channels * taps), *weight.shape[3:]),
        lambda i: (i[0], *unflatten(i[1], (Poly.of(channels), Poly.of(taps))), *i[2:]),
    )
    keywords: dict[str, object] = {}
    for key, values, default in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        if any(v != default for v in values[1:]):
            keywords[key] = values[1] if values[1] == values[2] else tuple(values[1:])
    inner = VendorCall("conv2d", (images, filters, *bias), keywords, call.operations)
    flat = convolve(inner, (count * depth, weight.shape[0], *sizes[1:]))
    return imp.view(flat, (count, weight.shape[0], *sizes), lambda i: (i[0] * depth + i[2], i[1], *i[3:]))

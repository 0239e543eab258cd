"""Library calls as opaque steps of a graph: what a product or convolution reads, and how its call is written.

A tensor that a library computes cannot be pulled (tensors.py): pulling it raises `Cut`, and the partition makes a
`CallStep` whose operands lie in memory, as views of inputs and temporaries. What comes before and after is fused into
kernels of ours; a library call alone is no candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from kforge.engine.graph.ir import Buffer, Builder
from kforge.engine.graph.symbols import Poly, Size, Var, product
from kforge.engine.graph.tensors import Context, Cut, Index, Tensor

if TYPE_CHECKING:
    from kforge.engine.emit.hostcode import Host
    from kforge.engine.emit.kernelcode import KernelCode

LIBRARY = "library"
"""The kind of a buffer that lies between kernels and library calls: in torch's own dtype, unlike other temporaries."""


@dataclass(eq=False)
class VendorCall:
    """operator: mm, bmm, addmm, conv1d-3d, conv_transpose1d-3d or scaled_dot_product_attention. keywords: written after
    the operands as they are.

    operations: multiplications and additions at the captured sizes, for the prediction of time. last: of a convolution,
    operands and result lie channels-last, as dense tensors (n, ..., c). scheme: how the
    product is computed (precision.py, halved.py), "" by one call. results: its tensors, several with a scheme; labels:
    names of those after the first. along: the last dimension of each operand lies along memory. names: keywords
    of operands, "" for those by position. facts: what else its lowering has to know.
    """

    operator: str
    operands: tuple[Tensor, ...]
    keywords: Mapping[str, object] = field(default_factory=dict)
    operations: int = 0
    last: bool = False
    scheme: str = ""
    labels: tuple[str, ...] = ()
    along: bool = False
    names: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    results: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Operand:
    """A strided view of a buffer: `buffer.view(shape).permute(order).expand(expanded)`, each part only where needed.

    strides: of a part of a buffer, instead of all that, with the place of its first element.
    """

    buffer: Buffer
    shape: tuple[Poly, ...] = ()
    order: tuple[int, ...] = ()
    expanded: tuple[Poly, ...] = ()
    strides: tuple[Poly, ...] = ()
    first: Poly = field(default_factory=Poly)

    @property
    def along(self) -> bool:
        """Whether its last dimension lies along memory."""
        if self.strides:
            return self.strides[-1].constant == 1
        last = len(self.order) - 1
        repeated = bool(self.expanded) and self.shape[self.order[last]].constant == 1 != self.expanded[last].constant
        return not self.order or (self.order[last] == last and not repeated)

    @property
    def of_lines(self) -> bool:
        """Whether a part of a buffer is of matrices whose lines lie along memory, without overlap, or is one line."""
        steps = self.strides[-2:]
        if len(steps) < 2:
            return steps[0].constant == 1
        for step, pitch, size in ((*steps[::-1], self.shape[-1]), (*steps, self.shape[-2])):
            if step.constant == 1 and pitch.hint() >= size.hint():
                return True
        return False

    def python(self, host: Host, name: str = "") -> str:
        """The view as a person would write it."""
        text = name or self.buffer.name
        shape = self.buffer.shape
        if self.strides:
            sizes, steps = (f"({', '.join(map(host.size, given))})" for given in (self.shape, self.strides))
            own = (
                "" if self.buffer.kind == LIBRARY else f"{text}.storage_offset() + "
            )  # torch counts from the storage's
            first = f", {own}{host.size(self.first)}" if self.first.terms else ""
            return f"{text}.as_strided({sizes}, {steps}{first})"
        if self.shape != shape:
            text += f".view({', '.join(_size(host, s, self.shape) for s in self.shape)})"
        if self.order != tuple(range(len(self.order))):
            text += _permuted(self.order)
        if self.expanded:
            text += f".expand({', '.join(host.size(s) for s in self.expanded)})"
        return text


@dataclass(eq=False)
class CallStep:
    """One library call between kernels. level: steps of lower levels are over before it begins.

    result: where the first of its tensors lies; others: the rest of them.
    """

    call: VendorCall
    operands: tuple[Operand, ...]
    result: Buffer
    others: tuple[Buffer, ...] = ()
    level: int = 0

    @property
    def tensor(self) -> Tensor:
        return self.call.results[0]

    @property
    def results(self) -> tuple[Buffer, ...]:
        return (self.result, *self.others)

    @property
    def read(self) -> set[Buffer]:
        return {o.buffer for o in self.operands}


@dataclass(frozen=True)
class Lowering:
    """One way to compute a library step: kernels of ours that it needs (none for the plain call) and forward's lines.

    lines: (step, host, operands as Python, variables of the kernels) -> statements that leave the result under its
    name. helpers: functions of the module that the lines call. seconds: predicted at the captured sizes.
    """

    lines: Callable[[CallStep, Host, list[str], Mapping[str, str]], list[str]]
    seconds: float
    idea: str = ""
    kernels: tuple[KernelCode, ...] = ()
    helpers: tuple[str, ...] = ()


def _size(host: Host, size: Poly, shape: Sequence[Poly]) -> str:
    """-1 for the one size of a view that is not constant, where there is but one."""
    open_sizes = [s for s in shape if s.constant is None]
    return "-1" if size.constant is None and len(open_sizes) == 1 else host.size(size)


def _permuted(order: tuple[int, ...]) -> str:
    moved = [k for k, axis in enumerate(order) if k != axis]
    if len(order) == 2:
        return ".t()"
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]})"
    return f".permute({', '.join(map(str, order))})"


def vendor_tensor(shape: Sequence[Poly], dtype: str, call: VendorCall, name: str, origin: object = None) -> Tensor:
    """The result of a library call."""

    def at(ctx: Context, index: Index, guard: object) -> None:
        raise Cut(result)

    result = Tensor(tuple(shape), dtype, at, name, origin, inputs=call.operands)  # type: ignore[arg-type]
    result.vendor = call
    call.results.append(result)
    return result


def as_view(builder: Builder, tensor: Tensor, ready: Mapping[Tensor, Buffer], strided: bool = False) -> Operand | None:
    """`tensor` as a view of a buffer in memory, or None where it is computed or no such view. Raises Cut.

    strided: a part of a buffer is such a view, too.
    """
    loops = [Var(f"v{k}", s) for k, s in enumerate(tensor.shape)]
    index = tuple(Poly() if v.size.constant == 1 else Poly.of(v) for v in loops)
    value = Context(builder, materialised=dict(ready)).value(tensor, index)
    if value.op != "load" or value.args or value.buffer is None or value.index is None:
        return None
    if value.buffer.dtype != tensor.dtype:
        return None
    strides = [value.index.coefficient(v) for v in loops]
    first = value.index - sum((Poly.of(v) * s for v, s in zip(loops, strides, strict=True)), Poly())
    if found := _ordered(value.buffer, tensor.shape, strides) if not first.terms else None:
        return found
    steady = all(isinstance(a, Size) for p in (first, *strides) for a in p.atoms())
    return Operand(value.buffer, tensor.shape, strides=tuple(strides), first=first) if strided and steady else None


def _ordered(buffer: Buffer, shape: tuple[Poly, ...], strides: list[Poly]) -> Operand | None:
    """A dense view in another order of dimensions, broadcast dimensions aside."""
    repeated = [s.constant != 1 and not step.terms for s, step in zip(shape, strides, strict=True)]
    sizes = [Poly.of(1) if r else s for s, r in zip(shape, repeated, strict=True)]
    keys, following = [], 1
    for size, step in reversed(list(zip(sizes, strides, strict=True))):
        following = following if size.constant == 1 else step.hint()
        keys.append(following)
    keys.reverse()
    memory = sorted(range(len(shape)), key=lambda k: -keys[k])
    expected = Poly.of(1)
    for k in reversed(memory):
        if sizes[k].constant != 1:
            if strides[k] != expected:
                return None
            expected = expected * sizes[k]
    if product(sizes) != product(buffer.shape):
        return None
    order = tuple(memory.index(k) for k in range(len(shape)))
    return Operand(buffer, tuple(sizes[k] for k in memory), order, shape if any(repeated) else ())


RATES = {"float32": 4.8e13, "float16": 6.5e14, "bfloat16": 6.5e14, "float64": 5.5e13}
RATES |= {"int8": 1e15, "float8_e4m3fn": 1.1e15, "float8_e5m2": 1.1e15}
"""Operations a second of the library's products on one H200, TF32 off; of eight bits as expected, not measured."""
TF32_RATE, CONVOLUTION_RATE = 3.8e14, 1.7e14
SLOW_RATE = 1.5e13  # of convolutions in three dimensions with many taps and few channels, of transposed ones more often
MANY_TAPS, FEW = 27, 8


def plain(step: CallStep, precision: str = "highest") -> Lowering:
    """The library's own call at the task's precision."""

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        names = step.call.names or ("",) * len(operands)
        given = [f"{name}={text}" if name else text for name, text in zip(names, operands, strict=True)]
        given += [f"{name}={value!r}" for name, value in step.call.keywords.items()]
        function = f"channels_last_{step.call.operator}" if step.call.last else f"torch.{step.call.operator}"
        return [f"{step.result.name} = {function}({', '.join(given)})"]

    narrow = step.call.operands[0].dtype
    tf32 = narrow == step.result.dtype == "float32" and (
        precision != "highest" or step.call.operator.startswith("conv")
    )
    rate = CONVOLUTION_RATE if step.call.operator.startswith("conv") else TF32_RATE
    rate = rate if tf32 else RATES.get(narrow, 4.8e13)
    seconds = 5e-6 + step.call.operations / (SLOW_RATE if _is_slow(step.call) else rate)
    seconds *= 0.5 if step.call.last else 20 if "groups" in step.call.keywords else 1  # what it takes in torch's format
    how = "on channels-last operands" if step.call.last else "as it is"
    helpers = (channels_last(step.call.operator, len(step.result.shape)),) if step.call.last else ()
    return Lowering(lines, seconds, f"torch.{step.call.operator} {how}", helpers=helpers)


def _is_slow(call: VendorCall) -> bool:
    """Whether cuDNN computes a convolution far below its rate, as seen on an H200."""
    if not call.operator.endswith("3d"):
        return False
    taps = prod(s.hint() for s in call.operands[1].shape[2:])
    many = taps > MANY_TAPS
    if call.operator == "conv3d":
        return many and call.operands[1].shape[1].hint() < FEW
    return many or "stride" not in call.keywords


INTEGER = "integer"
"""The scheme of products that are computed in floats by the reference and in integers by us."""

INTEGER_PRODUCT = '''\
def integer_product(a, b):
    """a @ b of integers of eight bits in 32 bits, exact; at sizes that are not the library's in double precision."""
    depth = a.shape[1]
    if not 8 <= depth <= 1 << 16 or (a.is_cuda and (a.shape[0] <= 16 or depth % 8 or b.shape[1] % 8)):
        return torch.mm(a.double(), b.double()).int()
    return torch._int_mm(a, b)'''


def integers(step: CallStep) -> Lowering:
    """A product of integers of eight bits, of any size."""

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{step.result.name} = integer_product({', '.join(operands)})"]

    seconds = 5e-6 + step.call.operations / RATES["int8"]
    return Lowering(lines, seconds, "a product of integers, which is exact", helpers=(INTEGER_PRODUCT,))


SMALL = 8_000_000_000
"""Operations of a convolution that torch computes in its own format at run time: there is nothing to gain, and what
cuDNN chooses there may be more exact than TF32."""


def channels_last(operator: str, rank: int) -> str:
    """A function that convolves dense tensors (n, ..., c) and gives such a tensor."""
    spatial = range(1, rank - 1)
    first = ", ".join(map(str, (0, rank - 1, *spatial)))
    back = ", ".join(map(str, (0, *(d + 1 for d in spatial), 1)))
    return f'''\
def channels_last_{operator}(x, weight, *bias, **options):
    """torch.{operator} of x (n, ..., c) and a weight that lies likewise; so does the result."""
    small = 2 * x.shape[:-1].numel() * weight.numel() < {SMALL}
    x, weight = x.permute({first}), weight.permute({first})
    if small:  # nothing to gain, and in torch's own format perhaps more exact than TF32
        x, weight = x.contiguous(), weight.contiguous()
    return torch.{operator}(x, weight, *bias, **options).permute({back}).contiguous()'''


def checks(step: CallStep, known: Mapping[Size, Poly], host: Host) -> list[str]:
    """Refusals for sizes of a result that another tensor's were taken for."""
    lines = []
    for axis, size in enumerate(step.result.shape):
        own = Size(f"{step.tensor.name}_{axis}", size.hint())
        if own in known and size.constant != 1:
            place = f"{step.result.name}.shape[{axis}]"
            lines += [f"if {place} != {host.size(size)}:"]
            lines += [f'    raise ValueError(f"these kernels need {{{host.size(size)}}} here; it is {{{place}}}")']
    return lines


def bytes_of(step: CallStep) -> int:
    """Elements that the product reads and writes once, at four bytes."""
    return 4 * sum(prod(s.hint() for s in b.shape) for b in [*step.read, step.result])

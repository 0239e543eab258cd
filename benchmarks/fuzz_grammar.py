"""The statements of fuzz_engine.py: templates over values of any shape; what torch does not take is drawn again.

{a}, {b}, {c} are values, {i} an index tensor, {m} a mask, {d}, {e} dimensions of a, {k} a small number, {s} a size
of a as a user may write it: as a number, or read from the value. Discrete statements stand on exact values only: one
rounding more would choose another element.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Value:
    """A variable of the task; exact: its elements are elements of inputs, without any rounding."""

    name: str
    tensor: torch.Tensor
    exact: bool


def _listed(text: str) -> tuple[str, ...]:
    """Templates between semicolons."""
    return tuple(part.strip() for part in text.split(";"))


POINTWISE = _listed("""
torch.relu({a}); torch.sigmoid({a}); torch.tanh({a}); torch.exp(-{a}.abs()); torch.sqrt({a}.abs()); F.gelu({a});
F.silu({a}); torch.erf({a}); {a} * {a}; torch.log1p({a}.abs()); F.softplus({a}); {a} * 2; {a} / 3; 1 - {a};
{a} ** 2; {a}.clamp(-0.5, 1.5); torch.sin({a}); F.leaky_relu({a}, 0.1); F.elu({a}); F.hardswish({a}); F.mish({a});
{a} * {s}; {a} / {s}; {a}.clone().mul_(0.5); {a} + {k}; F.hardtanh({a}, -1.0, 0.7); torch.rsqrt({a}.abs() + 1);
{a}.float(); {a}.double().float(); -{a}
""")
BINARY = _listed("""
{a} + {b}; {a} - {b}; {a} * {b}; {a} / ({b}.abs() + 1); torch.maximum({a}, {b}); {b} + {a};
torch.where({b} > 0, {a}, {b}); torch.lerp({a}, {b}, 0.3); torch.addcmul({a}, {b}, {c}); torch.minimum({a}, {b});
{a}.clone().add_({b}); torch.stack([{a}, {b}], {d}); torch.cat([{a}, {b}], {d}); {a} + {b}.mean();
torch.where({a} > {b}, {a}, {c}); torch.hypot({a}, {b}); {a}.masked_fill({b} > 1, 0.5)
""")
VIEWS = _listed("""
{a}.transpose({d}, {e}); {a}.unsqueeze({d}); {a}.flatten(); {a}.reshape(-1, {s}); {a}.flip({d}); {a}.mT; {a}[1:];
{a}[..., :{k}]; {a}[:, {k}]; {a}[..., -{k}:]; {a}[::2]; {a}.roll({k}, {d}); {a}.movedim({d}, {e});
{a}.expand({k}, *{a}.shape); {a}.chunk(2, {d})[0]; {a}.chunk(2, {d})[1]; {a}.squeeze(); {a}.contiguous();
{a}.tril(); {a}.triu({k}); {a}.diagonal(); {a}.flatten(0, 1); {a}.repeat({k}, *[1] * ({a}.dim() - 1)); {a}.view(-1);
F.pad({a}, ({k}, 1)); F.pad({a}, (0, {k}), value=1.0); {a}.permute(*reversed(range({a}.dim())));
{a}.unflatten({d}, (-1, {k})); {a}.narrow({d}, 0, {k}); {a}.reshape({s}, -1); {a}.reshape(*{a}.shape[::-1]);
{a}.repeat_interleave({k}, {d}); {a}.select({d}, 0); {a}.clone(); {a}.flatten({d});
{a}.to(memory_format=torch.channels_last); {a}.unbind({d})[-1]
""")
REDUCTIONS = _listed("""
{a}.sum({d}); {a}.mean({d}, keepdim=True); {a}.amax({d}); {a}.amin({d}, keepdim=True); {a}.sum(); {a}.var({d});
{a}.std({d}, keepdim=True); torch.logsumexp({a}, {d}); {a}.norm(dim={d}); {a}.mean(); torch.softmax({a}, {d});
torch.log_softmax({a}, {d}); {a}.sum(({d}, {e})); {a}.mean(({d}, {e}), keepdim=True); {a}.cumsum({d});
F.layer_norm({a}, {a}.shape[-1:]); F.normalize({a}, dim={d}); {a}.sum({d}) / {s};
F.layer_norm({a}, {a}.shape[{d}:]); F.rms_norm({a}, {a}.shape[-1:]); F.group_norm({a}, {k}); F.instance_norm({a});
F.mse_loss({a}, {b}); F.l1_loss({a}, {b}); F.cosine_similarity({a}, {b}, {d}); {a}.flip({d}).cumsum({d}).flip({d});
F.batch_norm({a}, None, None, training=True); {a}.max({d}).values; torch.var_mean({a}, {d})[0];
F.smooth_l1_loss({a}, {b}, reduction='none'); {a}.norm(); {a}.logcumsumexp({d})
""")
IMAGES = _listed("""
F.max_pool2d({a}, 2); F.avg_pool2d({a}, 3, 1, 1); F.max_pool2d({a}, 3, 2, 1); F.pixel_shuffle({a}, 2);
F.interpolate({a}, scale_factor=2.0, mode='bilinear'); F.interpolate({a}, scale_factor=2); F.avg_pool2d({a}, 2);
F.interpolate({a}, size=(5, 7), mode='bicubic'); F.interpolate({a}, size=({s}, 4)); F.pixel_unshuffle({a}, 2);
F.adaptive_avg_pool2d({a}, {k}); F.adaptive_avg_pool2d({a}, 1); F.pad({a}, (1, 1, 1, 1), mode='reflect');
F.channel_shuffle({a}, 2); F.unfold({a}, 2); F.adaptive_max_pool2d({a}, {k}); F.lp_pool2d({a}.abs(), 2, 2);
F.interpolate({a}, size=({k}, {s}), mode='bilinear', antialias=True); {a}.mean((2, 3)); F.avg_pool2d({a}, {k});
F.max_pool1d({a}, 2); F.avg_pool1d({a}, 3, 1, 1); F.adaptive_avg_pool1d({a}, {k});
F.pad({a}, (2, 1), mode='circular')
""")
INDEXING = _listed("""
torch.gather({a}, {d}, {i}); {a}.index_select({d}, {i}); {a}[{i}]; {a}[..., {i}]; F.embedding({i}, {a});
torch.take_along_dim({a}, {i}, {d}); {a}.index_add({d}, {i}, {b}); torch.zeros({s}, {s}).index_add(0, {i}, {b});
{a}.scatter_add({d}, {i}, {b}); torch.zeros_like({a}).scatter_add_({d}, {i}, {b});
{a}.clone().index_add_({d}, {i}, {b}); torch.zeros({s}, {s}).scatter_add(0, {i}, {b}); {a} + torch.arange({s});
{a} * torch.ones({s}); torch.zeros({s}, {s}) + {a}; torch.cat([{a}, torch.zeros({s}, {s})]);
F.one_hot({i}, {s}) * 1.5; {a} + {i}; {a}.scatter_reduce({d}, {i}, {b}, 'amax'); torch.arange({s})[:, None] * {a};
torch.full(({s},), 0.5) + {a}; {a}.index_fill({d}, {i}, 0.0); torch.eye({s}) * {a}
""")
DISCRETE = _listed("""
{a}.argmax({d}); {a}.argmin({d}); ({a} > {b}) * 1.0; {a}.sign(); {a}.floor(); {a}.sort({d}).values;
{a}.topk({k}, {d}).values; ({a} > 0).any({d}); ({a} > 0).sum({d}); {a}.argsort({d}, stable=True);
{a}.cummax({d}).values; {a}.max({d}).indices; {a}.median({d}).values; {a}.round(); ({a} > {b}) & ({a} > 0);
{a} == {b}; {a}.isnan(); {a}.int(); {a} // 0.5; torch.bucketize({a}, torch.arange({k}) * 1.0); {a}.trunc()
""")
PRODUCTS = _listed("""
{a} @ {b}; {a} @ {b}.mT; F.linear({a}, {b}); torch.einsum('...i,i->...', {a}, {b}); ({a} * {b}).sum({d});
torch.matmul({a}.mT, {b}); torch.outer({a}, {b}); torch.cdist({a}, {b}); torch.dot({a}, {b}); {a} @ {a}.mT
""")
MIXED = _listed("""
{a}.half().float(); {a}.double(); {a}.bfloat16() + 1; {a}.half() * {b}; {a}.to({b}.dtype); {a}.type_as({b}) - {b};
{a} * {m}; {a}.masked_fill({m}, -1.5); torch.where({m}, {a}, 0.25); torch.where({m}, 2.0, {a}); {a} + {m}.int();
torch.where({m}, {a}, {b}); {a}.masked_fill(~{m}, 0.0).sum({d}); {m}.float() @ {a}; {m}.long().cumsum({d}) * {a};
{a}.clamp(min={b}); {a}.clamp(min={b}, max={c}); {a}.clamp(max={b}); {a}.clamp_min(0.1); {m}.any({d}) * {a};
{a}.cumsum({d}).gather({d}, {i}); {a}.gather({d}, {i}).cumsum({d}); {a}.cumsum({d})[..., -1:] - {a};
{a} - {a}.mean({d}, keepdim=True); {a} / {a}.abs().amax({d}, keepdim=True).clamp_min(1e-3); {m}.sum({d}) + 1;
{a} - {a}.amax({d}, keepdim=True) + {a}.amin({e}, keepdim=True); ({a} - {a}.mean({d}, True)).pow(2).mean({e}, True);
{a}.flip({d}) * {b}; {a}.flip({d})[..., :{k}]; {a}.flip(0).contiguous(); {a}.flip({d}).sum({d}); {a}.rot90(1, (0, -1));
{a}.clone().mul_({b}).add_({c}); {a}.clone().clamp_(-1, 1).div_(3); {a}.clone().masked_fill_({m}, 0.5);
{a}.clone().fill_(0.5) * {b}; {a}.clone().index_fill_({d}, {i}, 1.0); {a}.expand({k}, *{a}.shape).clone().mul_(2);
{a}[None] + {b}[..., None]; {a}.unsqueeze({d}) * {b}; {a}[:, None] - {b}; torch.addcdiv({a}, {b}, {c}.abs() + 1);
{a}[..., {k}:]; {a}[..., :0]; {a}[:, {k}:{k}]; torch.cat([{a}[..., :0], {b}], -1); {a} + {b} * {c}.sum(-1, True);
{m}.logical_not() * 2.0; ({a} * {m}).sum({d}) / {m}.sum({d}).clamp_min(1); {m}.all({d}).float(); {m}.int().sum();
{a}.sum({d}, dtype=torch.float64); {a}.half().sum({d}); {a}.mean({d}, dtype=torch.float32)
""")
GROUPS = (
    *((MIXED,), (MIXED, BINARY, REDUCTIONS), (MIXED, VIEWS, POINTWISE), (MIXED, INDEXING), (MIXED, DISCRETE)),
    *((POINTWISE, BINARY, VIEWS), (POINTWISE, BINARY, REDUCTIONS), (VIEWS, BINARY, REDUCTIONS, POINTWISE)),
    *((IMAGES, POINTWISE, BINARY), (IMAGES, VIEWS, REDUCTIONS), (INDEXING, BINARY, VIEWS), (INDEXING, REDUCTIONS)),
    *((DISCRETE, VIEWS, BINARY), (PRODUCTS, POINTWISE, REDUCTIONS), (VIEWS, REDUCTIONS, INDEXING, DISCRETE)),
)
EXACT = set(VIEWS)
MOVING = {"torch.relu({a})", "-{a}", "torch.maximum({a}, {b})", "torch.minimum({a}, {b})", "{a}.amax({d})"}


def statements(rng: random.Random, values: Sequence[Value], group: Sequence[Sequence[str]]) -> tuple[str, bool]:
    """A statement over these values, most often the last of them; whether its result is exact."""
    template = rng.choice(rng.choice(group))
    discrete = template in DISCRETE
    indices = [v for v in values if v.tensor.dtype == torch.int64]
    masks = [v for v in values if v.tensor.dtype == torch.bool]
    floats = [v for v in values if v.tensor.is_floating_point() and (v.exact or not discrete)] or [*values]
    a = rng.choice((floats[-1], floats[-1], rng.choice(floats)))
    alike = [v for v in floats if v is not a and v.tensor.shape == a.tensor.shape]
    b = rng.choice(alike) if alike and rng.random() < 0.5 else rng.choice(floats)
    c = rng.choice(floats)
    rank, shape = max(1, a.tensor.dim()), a.tensor.shape

    def size() -> str:
        if not shape:
            return "1"
        axis = rng.randrange(len(shape))
        return f"{a.name}.shape[{axis}]" if rng.random() < 0.5 else str(shape[axis])

    while "{s}" in template:
        template = template.replace("{s}", size(), 1)
    names = {"a": a.name, "b": b.name, "c": c.name, "i": rng.choice(indices).name if indices else "index"}
    names["m"] = rng.choice(masks).name if masks else f"({b.name} > 0)" if b.exact else "mask"
    d = rng.choice((-1, -1, rng.randrange(-rank, rank)))
    text = template.format(**names, d=d, e=rng.randrange(rank), k=rng.choice((1, 2, 2, 3, 4)))
    exact = a.exact and (template in EXACT or template in MOVING) and (b.exact or "{b}" not in template)
    return text, exact

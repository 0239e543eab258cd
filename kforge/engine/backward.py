"""Forward/backward pairs: the reference and its derivative are lowered apart, and one autograd.Function joins both.

The derivative is a graph like any other. It computes anew what it needs of the forward from the saved inputs, in the
kernels that use it.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kforge.engine.graph.probing import Shapes
from kforge.engine.proposing import propose
from kforge.errors import NoCandidate
from kforge.kernel.candidate import Candidate

if TYPE_CHECKING:
    from kforge.task import Capture, Task

_OWN = re.compile(r"^(\w+) = (self[.\[].*)$")


def propose_pair(task: Task, capture: Capture, *, arch: str, device: str, facts: Any = None) -> Iterator[Candidate]:
    """Candidates for a pair, best guess first. task: of gradient_task; capture: its graph. NoCandidate as `propose`."""
    from kforge.task import capture as capture_task
    from kforge.task import capture_resized

    plain, gradients = task.plain, task.gradients
    assert plain is not None and gradients is not None
    if any(m.kind.value != "buffer" for m in capture.mutations):
        raise NoCandidate("a reference that changes its inputs has no forward/backward pair", operator="pair")
    forward = propose(plain, capture_task(plain, device=capture.device), arch=arch, device=device)
    derived = replace(task, name=f"{task.name}_backward")
    graph = _derivative(capture, gradients.names, gradients.upstream)

    def variants() -> list[Any]:
        found = [capture_task(task, v, device=capture.device) for v in range(1, gradients.own)]
        return [
            _derivative(c, gradients.names, gradients.upstream).graph_module
            for c in found
            if c.graph_module is not None
        ]

    def resized(shapes: Shapes) -> Any:
        paths = {node: ref.path for node, ref in capture.placeholders().items()}
        found = capture_resized(task, capture, {paths[node]: shape for node, shape in shapes})
        try:
            return _derivative(found, gradients.names, gradients.upstream).graph_module if found.graph_module else None
        except NoCandidate:  # upstream gradients of other sizes than the outputs': these sizes say nothing
            return None

    backward = propose(derived, graph, arch=arch, device=device, variants=variants, resized=resized)
    join = partial(_join, task)
    first, second = next(forward), next(backward)
    yield join(first, second)
    for other in backward:
        yield join(first, other)
    for other in forward:
        yield join(other, second)


def _derivative(capture: Capture, names: tuple[str, ...], upstream: tuple[str, ...]) -> Capture:
    """The part of a pair's graph that leads to the gradients, with the inputs that it needs."""
    import torch
    from torch.utils import _pytree as pytree

    module = capture.module
    graph = copy.deepcopy(module.graph)
    output = next(n for n in graph.nodes if n.op == "output")
    found = list(pytree.tree_leaves(output.args[0]))[-len(names) :]
    owners = {ref.path: ref.node for ref in capture.inputs}
    for name, node in zip(names, found, strict=True):
        if not isinstance(node, torch.fx.Node):
            raise NoCandidate(f"the gradient of {name} is no tensor", operator="gradient")
        node.meta["label"] = "grad_" + re.sub(r"\W+", "_", name).strip("_")
        node.meta["sized_as"] = owners[name]
    output.args = (tuple(found),)
    _scalars(graph, {ref.node for ref in capture.inputs if ref.path in upstream})
    graph.eliminate_dead_code()
    places = [n for n in graph.nodes if n.op == "placeholder"]
    sizes = {size for n in places if n.users for size in n.meta["val"].shape}
    shaping = {ref.node for ref in capture.inputs if ref.kind.value == "input" and ref.path in names}
    used = []
    for node in places:
        if node.users or (node.name in shaping and not sizes >= set(node.meta["val"].shape)):
            used.append(node.name)  # its values, or a size that only it has
        else:
            graph.erase_node(node)
    cut = torch.fx.GraphModule(module, graph)
    refs = tuple(ref for ref in capture.inputs if ref.node in used)
    spec = pytree.tree_structure(tuple(names))
    return replace(capture, graph_module=cut, inputs=refs, mutations=(), literals={}, out_spec=spec)


def _scalars(graph: Any, upstream: set[str]) -> None:
    """The judge gives a scalar's upstream gradient one dimension, autograd none: the reshaping of it goes."""
    import torch

    for node in [n for n in graph.nodes if n.op == "placeholder" and n.name in upstream]:
        views = [u for u in node.users if u.target is torch.ops.aten.view.default and not u.meta["val"].shape]
        if views and len(views) == len(node.users):
            node.meta["val"] = views[0].meta["val"]
            for view in views:
                view.replace_all_uses_with(node)
                graph.erase_node(view)


@dataclass(frozen=True)
class _Part:
    """A candidate's text in parts. own: local name -> expression of self that gives it."""

    text: str
    kernels: list[str]
    like: str
    others: list[str]  # imports and helpers of op.py
    head: str  # class ModelNew up to its forward
    signature: str
    parameters: list[str]
    own: dict[str, str]
    body: list[str]
    result: str

    @staticmethod
    def of(candidate: Candidate) -> _Part:
        text = candidate.files[candidate.module]
        lines, tree = text.splitlines(), ast.parse(text)

        def source(node: ast.stmt) -> str:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            return "\n".join(lines[first - 1 : node.end_lineno])

        kernels, others, like, model = [], [], "", None
        for node in tree.body[1:]:
            if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
                model = node
            elif isinstance(node, ast.Assign) and source(node).partition("= ")[2].startswith(("Kernel(", "Module(")):
                kernels.append(source(node))
            elif isinstance(node, ast.FunctionDef) and node.name == "like":
                like = source(node)
            else:
                others.append(source(node))
        assert model is not None
        forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
        body = [line.removeprefix(" " * 8) for line in lines[forward.body[0].lineno - 1 : forward.end_lineno]]
        own = {m[1]: m[2] for line in body if (m := _OWN.match(line))}
        rest = [line for line in body if not _OWN.match(line)]
        if any(re.search(r"\bself\b", line) for line in rest):
            raise NoCandidate("a forward that changes its module's state has no backward here", operator="pair")
        return _Part(
            text,
            kernels,
            like,
            others,
            "\n".join(lines[model.lineno - 1 : forward.lineno - 1]).rstrip(),
            ast.unparse(forward.args),
            [a.arg for a in forward.args.args[1:]],
            own,
            rest[:-1],
            rest[-1].removeprefix("return "),
        )


def _join(task: Task, forward: Candidate, backward: Candidate) -> Candidate:
    """Both candidates as one: ModelNew.forward goes through an autograd.Function over both kernels."""
    gradients = task.gradients
    assert gradients is not None
    first, second = _Part.of(forward), _Part.of(backward)
    result = ast.parse(first.result, mode="eval").body
    if not isinstance(result, ast.Name | ast.Tuple):
        raise NoCandidate("an autograd.Function returns a tensor or a tuple of them, no other tree", operator="pair")
    if any(not name.isidentifier() for name, _ in gradients.inputs):
        raise NoCandidate("inputs in a list or dict have no forward/backward pair yet", operator="pair")
    parameters = [*first.parameters, *first.own]
    given = {name: name for name in first.parameters} | first.own
    local = {expression: name for name, expression in given.items()}
    saved: dict[str, str] = {}  # name in backward -> name in forward
    for name in (n for n in _reads(second) if n not in gradients.upstream):
        expression = second.own.get(name, name)
        if expression not in local:
            local[expression] = name if name not in given else f"{name}_"
            parameters.append(local[expression])
            given[local[expression]] = expression
        saved[name] = local[expression]
    words = set(re.findall(r"\w+", first.text + second.text))
    compute, differentiate, function = (_free(w, words) for w in ("compute", "differentiate", "Differentiable"))
    outputs = list(result.elts) if isinstance(result, ast.Tuple) else [result]
    upstream = dict(zip(gradients.outputs, gradients.upstream, strict=True))
    ups = [upstream.get(k, f"_{k}") for k in range(len(outputs))]
    found = {
        _expression(n) if n in gradients.parameters else n: _leaf(second, k) for k, n in enumerate(gradients.names)
    }
    returned = [found.get(given[name], "None") for name in parameters]
    inputs = [*saved, *gradients.upstream]
    body, wanted = _guarded(second, list(found.values()), words)
    if unused := [name for name in wanted if name not in returned]:
        raise NoCandidate(
            f"no gradient of {', '.join(unused)} is returned: the output does not use it", operator="autograd"
        )
    needs = [f"ctx.needs_input_grad[{returned.index(name)}]" for name in wanted]
    title = f"{task.name} and its gradient as CUDA kernels, a drop-in for the reference of {task.path.name}."
    others = list(dict.fromkeys([*first.others, *second.others]))
    imports = [o for o in others if o.startswith(("import ", "from "))]
    imports = list(dict.fromkeys(["import torch", *imports]))
    imports = sorted(imports, key=lambda i: ("kforge" in i, "torch" in i, i.replace("from ", "import ")))
    blocks = [
        f'"""{title}\n\nForward: {_lower(forward.idea)}.\nBackward: {_lower(backward.idea)}.\n"""',
        "\n".join(imports),
        *first.kernels,
        *second.kernels,
    ]
    parts = ["\n\n".join(blocks)]
    parts += [p for p in (first.like or second.like, *(o for o in others if o not in imports)) if p]
    parts += [
        _function(compute, parameters, "The reference's outputs.", first.body, first.result),
        _function(differentiate, [*inputs, *wanted.values()], _said(gradients.names, wanted), body, second.result),
        _pair(
            function,
            forward=f"{compute}({', '.join(parameters)})",
            backward=f"{differentiate}({', '.join([*inputs, *needs])})",
            parameters=parameters,
            saved=saved,
            upstream=ups,
            found=list(found.values()),
            returned=returned,
        ),
        f"{first.head}\n\n    def forward({first.signature}):\n"
        f"        return {function}.apply({', '.join(given[name] for name in parameters)})",
    ]
    text = re.sub(r"(class ModelNew.*:\n)\n+", r"\1", "\n\n\n".join(parts)) + "\n"
    files = {forward.module: text}
    files |= {name: content for c in (forward, backward) for name, content in c.files.items() if name != c.module}
    idea = f"forward: {_lower(forward.idea)}; backward: {_lower(backward.idea)}"
    gain = forward.expected_gain
    return Candidate(forward.module, files, proposer="engine", idea=idea, expected_gain=gain)


def _expression(path: str) -> str:
    """How a parameter is read from the module."""
    return "self" + "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in path.split("."))


def _said(names: tuple[str, ...], wanted: dict[str, str]) -> str:
    more = "; those that are not needed are left unwritten" if wanted else ""
    return f"Gradients of {', '.join(names)}{more}."


def _guarded(part: _Part, gradients: list[str], words: set[str]) -> tuple[list[str], dict[str, str]]:
    """The body with launches that write nothing but some of the gradients made only where these are needed.

    The flags come with it: gradient -> name of the parameter that says whether it is needed.
    """
    kernels = {kernel.partition(" = ")[0] for kernel in part.kernels}
    text = "\n".join(part.body)
    seen: set[str] = set()
    temporaries = set(re.findall(r"^(\w+) = torch\.(?:empty|zeros)\(", text, re.M)) - set(gradients)
    launches = []
    for node in ast.parse(text).body:
        called = [n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) in kernels]
        if not called:
            continue
        names = {n.id for call in called for n in ast.walk(call) if isinstance(n, ast.Name)}
        own = [g for g in gradients if g in names]
        fresh = (names & temporaries) - seen
        seen |= names
        launches.append((node, own if not fresh else []))
    body, wanted = list(part.body), dict[str, str]()
    if len(launches) < 2:
        return body, wanted
    for node, own in reversed(launches):
        if not own or any(g in {n for other, names in launches if other is not node for n in names} for g in own):
            continue
        flags = []
        for gradient in own:
            wanted.setdefault(gradient, _free(f"needs_{gradient.removeprefix('grad_')}", words))
            flags.append(wanted[gradient])
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        body[first:last] = [f"if {' or '.join(flags)}:", *(f"    {line}" for line in body[first:last])]
    return body, {g: wanted[g] for g in gradients if g in wanted}


def _reads(part: _Part) -> list[str]:
    """What a body takes from outside: inputs that it reads, then parameters."""
    names = set(re.findall(r"\w+", "\n".join([*part.body, part.result])))
    inputs = [m for m in dict.fromkeys(part.parameters) if m in names]
    return [*inputs, *part.own]


def _leaf(part: _Part, number: int) -> str:
    result = ast.parse(part.result, mode="eval").body
    assert isinstance(result, ast.Tuple)
    return ast.unparse(result.elts[number])


def _free(wish: str, words: set[str]) -> str:
    while wish in words:
        wish += "_"
    words.add(wish)
    return wish


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _function(name: str, parameters: list[str], doc: str, body: list[str], result: str) -> str:
    lines = [f"def {name}({', '.join(parameters)}):", f'    """{doc}"""', *(f"    {b}" if b else "" for b in body)]
    return "\n".join([*lines, f"    return {result}"])


def _pair(
    name: str,
    *,
    forward: str,
    backward: str,
    parameters: list[str],
    saved: dict[str, str],
    upstream: list[str],
    found: list[str],
    returned: list[str],
) -> str:
    """The autograd.Function over both functions. saved: name in backward -> name in forward."""
    unpacked = ", ".join(saved) if len(saved) > 1 else f"({', '.join(saved)},)"
    results = ", ".join(found) if len(found) > 1 else f"({', '.join(found)},)"
    lines = [
        f"class {name}(torch.autograd.Function):",
        "    @staticmethod",
        f"    def forward(ctx, {', '.join(parameters)}):",
        f"        ctx.save_for_backward({', '.join(saved.values())})",
        f"        return {forward}",
        "",
        "    @staticmethod",
        f"    def backward(ctx, {', '.join(upstream)}):",
        *([f"        {unpacked} = ctx.saved_tensors"] if saved else []),
        f"        {results} = {backward}",
        f"        return {', '.join(returned)}",
    ]
    return "\n".join(lines)

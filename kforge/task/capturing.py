"""From a reference to a graph of core ATen operators: torch.export first, make_fx where that fails.

Tracing runs on fake tensors, so neither a GPU nor memory for the inputs is needed. A failure is data, not an exception.
"""

from __future__ import annotations

import linecache
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError, TaskError
from kforge.task.call import Call, call_leaves
from kforge.task.checks import unchecked, unchecked_distributions
from kforge.task.device import move_call, redirect_cuda
from kforge.task.form import Form
from kforge.task.graph import Capture, Origin
from kforge.task.tracing import DIFFERENTIATING, TRACERS, Tracers, fake_type
from kforge.task.usercode import first_line

if TYPE_CHECKING:
    import torch

    from kforge.task.task import Task

LINE = "kforge_line"  # key of the op.py line in fx's custom node metadata
CALL = "kforge_call"  # key of the function that the line called
VIEWS = {"__getitem__", "detach", "expand", "flatten", "narrow", "permute", "reshape", "select", "squeeze", "t"}
VIEWS |= {"transpose", "unsqueeze", "view"}


def capture(task: Task, variant: int = 0, device: torch.device | str = "cpu", seed: int = 0) -> Capture:
    """The graph of a task's reference for one variant's shapes. Works for "cuda" without a GPU (nodes are relabelled).

    Raises TaskError for bad inputs; a reference that cannot be traced gives a Capture with `failure`.
    """
    import torch

    if task.form in (Form.TRITON, Form.HELION):
        return Capture(
            None, failure=f"a {task.form.value.capitalize()} kernel is opaque to tracing", device=str(device)
        )
    wants_cuda = torch.device(device).type == "cuda"
    relabel = wants_cuda and not torch.cuda.is_available()
    real = "cpu" if relabel else device
    module = task.make_reference(seed, real)
    return capture_module(task, module, fake_call(task, variant, real) or task.make_call(variant, seed, real), relabel)


def capture_resized(task: Task, captured: Capture, shapes: Mapping[str, Sequence[int]]) -> Capture:
    """The graph of variant 0 by the same tracer with inputs (by path) of other shapes, which are fake tensors.

    What the reference does not take, or cannot do without looking at values, gives a Capture with `failure`.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils import _pytree as pytree

    device = captured.device if torch.cuda.is_available() else "cpu"
    module = task.make_reference(0, device)
    call = fake_call(task, 0, device) or task.make_call(0, 0, device)
    paths = iter(path for path, _ in call_leaves(call, module.forward))
    leaves = [leaf for _, leaf in call_leaves(call) if _is_tensor(leaf)]
    mode = torch._guards.detect_fake_mode(leaves) or FakeTensorMode(allow_non_fake_inputs=True)

    def resized(leaf: Any) -> Any:
        path = next(paths)
        if not _is_tensor(leaf):
            return leaf
        shape = shapes.get(path)
        if shape is None or tuple(shape) == tuple(leaf.shape):
            return leaf if isinstance(leaf, fake_type()) else mode.from_tensor(leaf)
        order = sorted(range(leaf.dim()), key=leaf.stride, reverse=True)
        with mode:
            made = torch.empty([shape[d] for d in order], dtype=leaf.dtype, device=leaf.device)
            return made.permute([order.index(d) for d in range(leaf.dim())]).requires_grad_(leaf.requires_grad)

    args, kwargs = pytree.tree_map(resized, (call.args, call.kwargs))
    tracers = DIFFERENTIATING if task.gradients else TRACERS
    with trying_fakes(task):
        return capture_module(task, module, Call(args, kwargs), tracers=[t for t in tracers if t[0] == captured.method])


def fake_call(task: Task, variant: int, device: torch.device | str) -> Call | None:
    """Inputs of a variant as fake tensors, without memory; None where the maker needs real ones (numpy, values)."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with trying_fakes(task), FakeTensorMode(allow_non_fake_inputs=True), redirect_cuda(device, []):
            return move_call(task.draw(variant), device)
    except KforgeError:
        return None


@contextmanager
def trying_fakes(task: Task) -> Iterator[None]:
    """Run the task's code on fake tensors: nothing stays in its globals or, where it fails, in torch's log."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    level, before = log.level, dict(task.namespace)
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(level)
        _forget(task.namespace, before)


def _forget(namespace: dict[str, Any], before: dict[str, Any]) -> None:
    """Undo what a maker kept in its globals or caches: fake tensors must not meet a later real call."""
    for name in set(namespace) - set(before):
        del namespace[name]
    namespace.update(before)
    for value in before.values():
        clear = getattr(value, "cache_clear", None)
        if callable(clear):
            clear()


def capture_module(
    task: Task, module: torch.nn.Module, call: Call, relabel: bool = False, tracers: Tracers | None = None
) -> Capture:
    """The graph of `module` (the reference or something with its signature) on `call`, real or fake.

    tracers: tried in turn, those that the task needs by default.
    """
    failures = []
    for method, trace in tracers or (DIFFERENTIATING if task.gradients else TRACERS):
        try:
            with _tracing(task, module, call):
                traced = trace(module, call)
        except KforgeError:
            raise
        except Exception as error:  # tracing raises anything; the reason is the result
            failures.append(f"{method}: {first_line(error)}")
            continue
        _drop_assertions(traced.graph_module)
        _set_origins(traced.graph_module, task.path)
        if relabel:
            _relabel(traced.graph_module)
        literals = {path: leaf for path, leaf in call_leaves(call, module.forward) if not _is_tensor(leaf)}
        found = Capture(
            *traced[:4],
            literals=literals,
            out_spec=traced.out_spec,
            method=method,
            device="cuda" if relabel else str(_device(call)),
            precision=task.precision,
        )
        if found.mutations and _shared(call):  # torch.export would read old values through the other name
            failures = ["inputs share memory, and the reference writes to it"]
            break
        return found
    return Capture(None, failure="; ".join(failures), precision=task.precision)


def _shared(call: Call) -> bool:
    """Whether two input tensors lie in one storage."""
    import torch

    tensors = [leaf for _, leaf in call_leaves(call) if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided]
    return len({t.untyped_storage()._cdata for t in tensors}) < len(tensors)


def _is_tensor(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor)


def _device(call: Call) -> torch.device:
    import torch

    found = [leaf.device for _, leaf in call_leaves(call) if isinstance(leaf, torch.Tensor)]
    return next((d for d in found if d.type != "cpu"), torch.device("cpu"))


@contextmanager
def _tracing(task: Task, module: torch.nn.Module, call: Call) -> Iterator[None]:
    """Conditions of a trace: attention as plain arithmetic, node metadata kept, lines of op.py noted, no warnings."""
    import torch.fx.traceback
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(task.conditions(module, call))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.fx.traceback.preserve_node_meta())
        stack.enter_context(unchecked_distributions())
        stack.enter_context(_line_mode(task.path))
        yield


def _line_mode(path: Path) -> Any:
    """A mode that writes the innermost line of op.py into the metadata of the nodes that a torch call makes.

    fx's own stack traces keep frames named `forward` only and so lose the lines of helper functions.
    """
    import torch
    import torch.fx.traceback
    from torch.overrides import TorchFunctionMode

    file = str(path)

    class Lines(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.hidden: list[torch.Tensor] = []  # what .data gave, and views of it

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _refuse_hidden_write(func, args, self.hidden, path)
            read = func == torch.Tensor.data.__get__  # type: ignore[attr-defined]
            # torch.export crashes on its own node for .data; read, it is what detach() gives
            result = args[0].detach() if read else self._with_line(func, args, kwargs)
            if func is torch.Tensor.contiguous and result is args[0]:  # what is not so would be copied: a graph that
                with torch.fx.traceback.annotate({CALL: "contiguous"}):  # shows nothing says nothing of its strides
                    result = torch.ops.aten.alias.default(result)
            if read or (getattr(func, "__name__", "") in VIEWS and args and _one_of(args[0], self.hidden)):
                self.hidden.append(result)
            return result

        def _with_line(self, func: Any, args: Any, kwargs: Any) -> Any:
            frame: Any = sys._getframe(2)
            while frame is not None and frame.f_code.co_filename != file:
                frame = frame.f_back
            traced = unchecked(func)
            if frame is None:
                return traced(*args, **(kwargs or {}))
            with torch.fx.traceback.annotate({LINE: frame.f_lineno, CALL: getattr(func, "__name__", "")}):
                return traced(*args, **(kwargs or {}))

    return Lines()


def _one_of(value: Any, tensors: list[torch.Tensor]) -> bool:
    return any(value is t for t in tensors)


def _refuse_hidden_write(func: Any, args: Any, hidden: list[torch.Tensor], path: Path) -> None:
    """TaskError for a write through .data, which functionalisation does not see: tracing it crashes torch."""
    import torch

    name = getattr(func, "__name__", "")
    assigned = func == torch.Tensor.data.__set__  # type: ignore[attr-defined]
    in_place = name == "__setitem__" or (name.startswith("__i") and name not in ("__index__", "__int__", "__invert__"))
    in_place |= name.endswith("_") and not name.endswith("__")
    if assigned or (in_place and args and _one_of(args[0], hidden)):
        raise TaskError(
            f"{path.name}: the reference writes through .data, which no tracer can see",
            "write the tensor itself: under torch.no_grad(), `self.w.mul_(0.5)` for `self.w.data.mul_(0.5)`",
        )


def _drop_assertions(graph_module: torch.fx.GraphModule) -> None:
    """Remove export's run-time checks of dtype and device: they compute nothing and would refuse float64 inputs."""
    graph = graph_module.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and not node.users and str(node.target).startswith("aten._assert_"):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    graph_module.recompile()


def _set_origins(graph_module: torch.fx.GraphModule, path: Path) -> None:
    for node in graph_module.graph.nodes:
        line = (node.meta.get("custom") or {}).get(LINE) or _line_of(node.meta.get("stack_trace"), path)
        if line and node.op not in ("placeholder", "output"):
            node.meta["origin"] = Origin(path.name, line, linecache.getline(str(path), line).strip())


def _line_of(stack_trace: str | None, path: Path) -> int | None:
    """The innermost line of `path` in an fx stack trace, for a torch without node annotations."""
    found = None
    for text in (stack_trace or "").splitlines():
        before, _, after = text.partition(f'File "{path}", line ')
        if after and not before.strip():
            found = int(after.split(",")[0])
    return found


def _relabel(graph_module: torch.fx.GraphModule) -> None:
    """Turn a graph traced on the CPU into one for "cuda:0": device arguments and fakes, 0-dim inputs excepted."""
    import torch
    from torch.utils import _pytree as pytree

    cuda = torch.device("cuda", 0)

    def fake(value: Any) -> Any:
        with value.fake_mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=cuda)

    for node in graph_module.graph.nodes:
        node.args = pytree.tree_map_only(torch.device, lambda _: cuda, node.args)
        node.kwargs = pytree.tree_map_only(torch.device, lambda _: cuda, node.kwargs)
        value = node.meta.get("val")
        scalar = node.op == "placeholder" and isinstance(value, torch.Tensor) and value.dim() == 0
        if value is not None and not scalar:
            node.meta["val"] = pytree.tree_map_only(fake_type(), fake, value)
    graph_module.recompile()

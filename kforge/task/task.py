"""The loaded task: its reference, its inputs and its optional settings. Made by load.py, used by every room above."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import TaskError, UsageError
from kforge.task.call import Call, call_from, init_call_from
from kforge.task.constraints import Constraint
from kforge.task.device import move_call, move_module, redirect_cuda
from kforge.task.domain import Domain
from kforge.task.form import Form
from kforge.task.precision import Precision, matmul_precision
from kforge.task.tolerance import Tolerance
from kforge.task.usercode import local_imports, user_code

if TYPE_CHECKING:
    import torch

    from kforge.task.backward import Gradients


@dataclass(frozen=True)
class Task:
    """A reference and its inputs.

    reference: the class Model (form a) or the function (b-d). makers: input makers, get_inputs first, called lazily.
    mode: "train", "eval" or None (as constructed). digest: 16 hex digits over the source text of op.py.
    gradients: what is differentiated where this is the task of a pair (backward.py).
    redirects: filled while the user's code runs for the CPU; places where "cuda" was sent there.
    """

    path: Path
    name: str
    form: Form
    source: str = field(repr=False)
    digest: str
    constraints: tuple[Constraint, ...] = ()
    tolerance: Tolerance = field(default_factory=Tolerance)
    mode: str | None = None
    precision: Precision = Precision.HIGHEST
    domain: Domain = field(default_factory=Domain)
    reference: Callable[..., Any] = field(default=len, repr=False, compare=False)
    makers: tuple[Callable[[], Any], ...] = field(default=(), repr=False, compare=False)
    namespace: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    redirects: list[str] = field(default_factory=list, repr=False, compare=False)
    gradients: Gradients | None = field(default=None, repr=False, compare=False)  # of a forward/backward pair
    plain: Task | None = field(default=None, repr=False, compare=False)  # what a pair's task was derived from

    @property
    def n_variants(self) -> int:
        """Number of input makers, at least 1; variant 0 is get_inputs."""
        return len(self.makers)

    def make_call(self, variant: int = 0, seed: int = 0, device: torch.device | str = "cpu") -> Call:
        """Inputs of one variant, drawn after seeding torch, on `device` (0-dim tensors stay). Raises TaskError."""
        if not 0 <= variant < self.n_variants:
            raise UsageError(f"{self.path.name} has input variants 0 to {self.n_variants - 1} (asked: {variant})")
        with seeded(seed), redirect_cuda(device, self.redirects):
            return move_call(self.draw(variant), device)

    def draw(self, variant: int = 0) -> Call:
        """Inputs as the maker returns them, without seeding, redirection or moving (see make_call)."""
        what = "get_inputs()" if variant == 0 else f"get_input_variants()[{variant - 1}]()"
        with user_code(self.path, f"{what} raised"):
            value = self.makers[variant]()
        return call_from(value, f"{self.path.name}: {what}")

    def init_call(self) -> Call:
        """Arguments of Model(...); empty for the other forms and where get_init_inputs is absent."""
        maker = self.namespace.get("get_init_inputs")
        if self.form is not Form.MODULE or maker is None:
            return Call()
        with user_code(self.path, "get_init_inputs() raised"):
            value = maker()
        return init_call_from(value, f"{self.path.name}: get_init_inputs()")

    def make_reference(self, seed: int = 0, device: torch.device | str = "cpu") -> torch.nn.Module:
        """The reference as a module on `device`, constructed after seeding torch, in the mode that MODE asks for.

        Forms (b)-(d) give a module without state whose forward has the reference's signature.
        """
        import torch

        if self.form is Form.MODULE:
            with seeded(seed), redirect_cuda(device, self.redirects):
                init = self.init_call()
                with user_code(self.path, "Model(...) raised"):
                    module = self.reference(*init.args, **init.kwargs)
            if not isinstance(module, torch.nn.Module):
                raise TaskError(f"{self.path.name}: Model(...) is not a torch.nn.Module")
        else:
            module = function_module(self.runner(device))
        if self.mode is not None:
            module.train(self.mode == "train")
        if self.gradients is not None:
            from kforge.task.backward import differentiating

            module = differentiating(module, self.gradients)
        return move_module(module, device)

    def runner(self, device: torch.device | str) -> Callable[..., Any]:
        """The function behind forms (b)-(d): itself, or its interpreter in a child process on the CPU (c, d)."""
        interpreted = self.form in (Form.TRITON, Form.HELION) and str(device).split(":")[0] == "cpu"
        if not interpreted:
            return self.reference
        from kforge.task.interpreted import Interpreted

        return Interpreted(self)

    def run(self, module: torch.nn.Module, call: Call, seed: int | None = None) -> Any:
        """Outputs of `module` (reference or candidate) on `call`: no gradients, PRECISION set, "cuda" redirected.

        seed: torch's generators are reseeded before the call and restored after it; None leaves them alone.
        Exceptions of the module pass through unchanged.
        """
        with self.conditions(module, call, seed):
            return module(*call.args, **call.kwargs)

    @contextmanager
    def conditions(self, module: torch.nn.Module, call: Call, seed: int | None = None) -> Iterator[None]:
        """The conditions that `run` sets up, for callers that run something else under them."""
        import torch

        with ExitStack() as stack:
            stack.enter_context(local_imports(self.path))
            stack.enter_context(torch.no_grad())
            stack.enter_context(matmul_precision(self.precision))
            if seed is not None:
                stack.enter_context(seeded(seed))
            stack.enter_context(redirect_cuda(device_of(module, call), self.redirects))
            yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run the block after torch.manual_seed(seed); the generators' states found before are put back."""
    import torch

    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed formats a stack trace on each call
        if torch.cuda.is_available():
            torch.cuda.manual_seed_all(seed)
        yield


def device_of(module: torch.nn.Module, call: Call) -> torch.device:
    """The device that a run is on: the first tensor of the state or inputs that is not on the CPU, else the CPU."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = [*module.parameters(), *module.buffers(), *pytree.tree_leaves((call.args, call.kwargs))]
    others = (t.device for t in leaves if isinstance(t, torch.Tensor) and t.device.type != "cpu")
    return next(others, torch.device("cpu"))


def function_module(function: Callable[..., Any]) -> torch.nn.Module:
    """A module without state around a function; `forward` shows the function's parameters and defaults."""
    import torch

    class Reference(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.function = function

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.function(*args, **kwargs)

    signature = inspect.signature(function)
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [first, *(p.replace(annotation=p.empty) for p in signature.parameters.values())]
    if any(p.name == "self" for p in signature.parameters.values()):
        parameters = parameters[1:]
    functools.update_wrapper(Reference.forward, function, assigned=("__doc__",), updated=())
    del Reference.forward.__wrapped__  # type: ignore[attr-defined]
    Reference.forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return Reference()

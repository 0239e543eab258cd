"""Loading op.py: from a path to a Task, or to one line that says what is wrong with the file."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kforge.errors import TaskError
from kforge.task.constraints import parse_constraints
from kforge.task.device import redirect_cuda
from kforge.task.domain import Domain, parse_domain
from kforge.task.form import Form
from kforge.task.precision import Precision, parse_precision
from kforge.task.task import Task
from kforge.task.tolerance import Tolerance, parse_tolerance
from kforge.task.usercode import user_code

MAKERS = ("get_inputs", "get_init_inputs", "get_input_variants")
HOW = (
    "define class Model(nn.Module), a function reference(...), or a Triton or Helion kernel with its launching function"
)


def digest_of(data: bytes) -> str:
    """What names the text of an op.py: 16 hex digits."""
    return hashlib.sha256(data).hexdigest()[:16]


def load_task(path: str | Path) -> Task:
    """Run op.py and read its names. Raises TaskError (exit 2) with one clear line, MissingError (exit 3) for extras."""
    file = Path(path)
    data = _read(file)
    file = file.resolve()
    source, code = _compile(data, file)
    digest = digest_of(data)
    redirects: list[str] = []
    namespace = _execute(code, file, f"kforge_task_{file.stem}_{digest}", redirects)
    form, reference = find_reference(namespace, file)
    return Task(
        path=file,
        name=file.stem,
        form=form,
        source=source,
        digest=digest,
        reference=reference,
        makers=_makers(namespace, file, redirects),
        namespace=namespace,
        redirects=redirects,
        **_settings(namespace, file),
    )


def _read(file: Path) -> bytes:
    if not file.exists():
        raise TaskError(f"no such file: {file}")
    if not file.is_file():
        raise TaskError(f"not a file: {file}")
    try:
        return file.read_bytes()
    except OSError as error:
        raise TaskError(f"{file} cannot be read: {error.strerror}") from error


def _compile(data: bytes, file: Path) -> tuple[str, types.CodeType]:
    try:
        source = importlib.util.decode_source(data)
        return source, compile(source, str(file), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise TaskError(f"{file.name}:{error.lineno or 1}: syntax error: {error.msg}") from error
    except ValueError as error:  # undecodable or null bytes
        raise TaskError(f"{file.name}: not a Python source: {error}") from error


def _execute(code: types.CodeType, file: Path, name: str, redirects: list[str]) -> dict[str, Any]:
    import torch

    module = types.ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module  # dataclasses and inspect look the module up by name
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        with redirect_cuda(device, redirects), user_code(file, "loading failed:"):
            exec(code, module.__dict__)
            if device == "cpu" and "set_default_device" in code.co_names:  # it would outlive the redirection
                torch.set_default_device(None)
                redirects.append(f"{file.name}: set_default_device cuda -> cpu")
    except TaskError as error:
        del sys.modules[name]
        cause = error.__cause__
        if isinstance(cause, ImportError):
            place = error.message.split(": ")[0]
            raise TaskError(f"{place}: import failed: {cause.msg}") from cause
        raise
    return module.__dict__


def find_reference(namespace: dict[str, Any], file: Path) -> tuple[Form, Callable[..., Any]]:
    """The form of a file and its reference; raises TaskError when there is none or more than one."""
    import torch

    model, function = namespace.get("Model"), namespace.get("reference")
    is_model = isinstance(model, type) and issubclass(model, torch.nn.Module)
    kernels = {name: form for name, value in namespace.items() if (form := kernel_form(value))}
    if is_model and callable(function):
        raise TaskError(f"{file.name}: ambiguous reference: class Model and reference(...)", "keep one of them")
    if is_model:
        return Form.MODULE, model  # type: ignore[return-value]
    if callable(function):
        return _form_of(function), function
    if not kernels:
        if isinstance(model, type):
            raise TaskError(f"{file.name}: no reference found: class Model is not a torch.nn.Module", HOW)
        how = "it defines ModelNew, so it is a candidate: op.py comes first" if "ModelNew" in namespace else HOW
        raise TaskError(f"{file.name}: no reference found", how)
    names = [n for n, value in namespace.items() if _is_launcher(n, value, file)]
    names = names or [name for name, form in kernels.items() if form is Form.HELION]
    if not names:
        listed = ", ".join(kernels)
        raise TaskError(f"{file.name}: no reference found: no function launches the Triton kernel {listed}", HOW)
    if len(names) > 1:
        raise TaskError(
            f"{file.name}: ambiguous reference: {', '.join(names)}", "name the one that is meant `reference`"
        )
    return _form_of(namespace[names[0]]), namespace[names[0]]


def kernel_form(value: Any) -> Form | None:
    """TRITON or HELION for a kernel object, told by its type without importing either package; None otherwise."""
    home, kind = type(value).__module__, type(value).__name__
    if home.startswith("helion.") and kind == "Kernel":
        return Form.HELION
    if not home.startswith("triton.runtime"):
        return None
    function = value
    while hasattr(function, "fn"):  # autotuned and heuristic kernels wrap one
        function = function.fn
    own = function is not value and not str(function.__module__).startswith("triton.")  # tl.sum is a kernel as well
    return Form.TRITON if own else None


def _is_launcher(name: str, value: Any, file: Path) -> bool:
    """A function of this file, no input maker, that itself uses a kernel."""
    code = getattr(value, "__code__", None)
    if code is None or code.co_filename != str(file) or name in MAKERS:
        return False
    return any(kernel_form(used) for used in _globals_used(value, code))


def _form_of(reference: Callable[..., Any]) -> Form:
    """FUNCTION, unless the reference is a kernel or reaches one through the functions that it calls."""
    seen: set[int] = set()
    waiting: list[Any] = [reference]
    found = set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        code = getattr(value, "__code__", None)
        if form := kernel_form(value):
            found.add(form)
        elif code is not None and not _is_installed(code.co_filename):
            waiting += _globals_used(value, code)
    return Form.HELION if Form.HELION in found else Form.TRITON if found else Form.FUNCTION


def _is_installed(filename: str) -> bool:
    return "site-packages" in filename or "dist-packages" in filename


def _globals_used(function: Any, code: types.CodeType) -> list[Any]:
    """Values that a function's code, nested functions included, finds in its globals, and in modules among them."""
    names = set(code.co_names)
    found: list[Any] = []
    for value in (function.__globals__.get(name) for name in names):
        if isinstance(value, types.ModuleType) and not _is_installed(
            getattr(value, "__file__", None) or "site-packages"
        ):
            found += [getattr(value, name) for name in names if hasattr(value, name)]
        elif value is not None:
            found.append(value)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _globals_used(function, constant)
    return found


def _makers(namespace: dict[str, Any], file: Path, redirects: list[str]) -> tuple[Callable[[], Any], ...]:
    first = namespace.get("get_inputs")
    if not callable(first):
        raise TaskError(
            f"{file.name}: get_inputs() is missing", "define get_inputs() that returns the inputs of one call"
        )
    more = namespace.get("get_input_variants")
    if more is None:
        return (first,)
    with redirect_cuda("cpu", redirects), user_code(file, "get_input_variants() raised"):
        makers = more()
    if not isinstance(makers, (list, tuple)) or not all(callable(maker) for maker in makers):
        raise TaskError(
            f"{file.name}: get_input_variants() must return a list of input makers (functions without arguments)"
        )
    return (first, *makers)


def _settings(namespace: dict[str, Any], file: Path) -> dict[str, Any]:
    """The optional names of CONTRACTS 1, checked."""
    mode = namespace.get("MODE")
    if mode not in (None, "train", "eval"):
        raise TaskError(f"{file.name}: unknown MODE {mode!r}; available: train, eval")
    try:
        return {
            "mode": mode,
            "constraints": parse_constraints(namespace.get("CONSTRAINTS", ())),
            "tolerance": parse_tolerance(namespace["TOLERANCE"]) if "TOLERANCE" in namespace else Tolerance(),
            "precision": parse_precision(namespace.get("PRECISION", Precision.HIGHEST.value)),
            "domain": parse_domain(namespace["DOMAIN"]) if "DOMAIN" in namespace else Domain(),
        }
    except TaskError as error:
        raise TaskError(f"{file.name}: {error.message}", error.hint) from error

"""Fills the templates of the exported Python package: its modules, and what they say of inputs and gradients."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kforge.export.domain import box
from kforge.export.package import domain, launching_source
from kforge.export.templates import plain_file, render_template
from kforge.export.tensor_maps import MODULE, python_file, takes_maps
from kforge.export.text import docstring, literal

if TYPE_CHECKING:
    from kforge.export.interface import Interface
    from kforge.export.package import Export
    from kforge.export.translate import Translated

_PYTHON = {"Tensor": "torch.Tensor", "SymInt": "int", "float": "float", "bool": "bool", "str": "str"}


def python_files(export: Export, kernels: str, version: str) -> dict[str, str]:
    """The Python package, by path in its folder. kernels: the text of _kernels.py."""
    context = template_context(export, version)
    runtime = sorted(export.translated.runtime)
    launched = ", ".join([*(["Unjudged"] if export.unjudged else []), *runtime])
    faked = f"\nfrom ._runtime import {', '.join(runtime)}\n" if runtime else ""
    source = export.code.module
    launching = f'"""forward of {source}, translated: it allocates and launches."""\n\n'
    launching += f"{_imports(export.translated.launching)}\n"
    launching += f"from ._runtime import {launched}\n" if launched else ""
    launching += _maps(export.translated)
    launching += f"from ._kernels import kernels\n\n\n{launching_source(export, 'Unjudged')}\n"
    faking = f'"""forward of {source} without its launches: shapes, strides and dtypes of the outputs."""\n\n'
    faking += f"{_imports(export.translated.faking)}{faked}{_maps(export.translated)}\n\n{export.translated.faking}\n"
    derivative = {}
    if export.derivative is not None:
        called = export.derivative.translated.runtime
        deriving = f'"""backward of {source}, translated: it allocates and launches."""\n\n'
        deriving += f"{_imports(export.derivative.translated.launching)}\n"
        more = ", ".join([*(["Unjudged"] if export.unjudged else []), *sorted(called)])
        deriving += f"from ._runtime import {more}\n" if more else ""
        launched_text = launching_source(export, "Unjudged", export.derivative.translated.launching)
        deriving += _maps(export.derivative.translated)
        deriving += f"from ._kernels import kernels\n\n\n{launched_text}\n"
        derivative["_derivative.py"] = _tidy(deriving)
    maps = {MODULE: python_file(described=False)} if any(map(takes_maps, export.kernels)) else {}
    return {
        **derivative,
        **maps,
        "__init__.py": render_template("package/init.py.j2", context),
        "ops.py": _tidy(render_template("package/ops.py.j2", context)),
        "_operator.py": _tidy(render_template("package/operator.py.j2", context)),
        "_forward.py": _tidy(launching),
        "_fake.py": _tidy(faking),
        "_runtime.py": plain_file("package/runtime.py"),
        "_kernels.py": _tidy(kernels),
        "reference.py": reference_module(export),
        "domain.json": json.dumps(domain(export), indent=1) + "\n",
    }


def _maps(translated: Translated) -> str:
    return "from ._tensor_maps import TensorMap\n" if translated.maps else ""


def _imports(text: str) -> str:
    """The modules that translated functions name; torch always."""
    named = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    lines = ["import math\n"] if "math" in named else []
    lines += ["import torch"]
    lines += ["import torch.nn as nn"] if "nn" in named else []
    lines += ["import torch.nn.functional as F"] if "F" in named else []
    lines += ["import triton"] if "triton" in named else []
    return "\n".join(lines) + "\n"


def _tidy(text: str) -> str:
    """Two blank lines at most, one at the end."""
    return re.sub(r"\n{4,}", "\n\n\n", text).rstrip() + "\n"


def reference_module(export: Export) -> str:
    """The reference as a module of its own: `reference` for a function, `made()` for the module as verified."""
    task = export.task
    text = task.source.rstrip() + "\n"
    if export.layer is None:
        name = getattr(task.reference, "__name__", "reference")
        return text if name == "reference" else f"{text}\n\nreference = {name}\n"
    mode = {"train": ".train()", "eval": ".eval()", None: ""}[task.mode]
    return (
        f"{text}\n\ndef made():\n"
        '    """The module that was verified."""\n'
        '    init = get_init_inputs() if "get_init_inputs" in globals() else []\n'
        "    if isinstance(init, dict):\n"
        f"        return Model(**init){mode}\n"
        "    if len(init) == 2 and isinstance(init[0], (list, tuple)) and isinstance(init[1], dict):\n"
        f"        return Model(*init[0], **init[1]){mode}\n"
        f"    return Model(*init){mode}\n"
    )


def template_context(export: Export, version: str) -> dict[str, Any]:
    """What the Python package's templates are filled with."""
    i, inputs = export.interface, export.translated.inputs
    arguments = {a.name: a for a in i.arguments}
    forward = ast.parse(f"def f({i.signature}): pass").body[0]
    assert isinstance(forward, ast.FunctionDef)
    keywords = {a.arg for a in forward.args.kwonlyargs}

    def value(name: str) -> str:
        return name if name in arguments else literal(i.constants[name])

    passed = [f"{n}={value(n)}" for n in inputs] + [f"{n}={n}" for n in export.translated.state.values()]
    operands = [a.name for a in i.inputs] + [f"state_[{a.path!r}]" for a in i.state]
    names = [a.name for a in i.arguments]
    public = [n for n in (export.layer, export.function) if n]
    function_signature = re.sub(r"^self(, )?", "", i.signature)
    positional = [value(n) for n in inputs if n not in keywords]
    named = [f"{n!r}: {value(n)}" for n in inputs if n in keywords]
    return {
        "title": docstring(f"{export.task.name} as CUDA kernels"),
        "first_line": f"{', '.join(export.evidence.stamps)}: " if export.evidence.stamps else "",
        "how": docstring(f"Exported by kforge from {export.code.module}."),
        "summary": docstring(summary(export)),
        "facts": [docstring(line) for line in facts(export)],
        "namespace": export.namespace,
        "op": export.op,
        "package": export.package,
        "version": version,
        "backward": export.backward,
        "recompute": export.backward in ("recompute", "kernels"),
        "derived": export.derivative is not None,
        "triton": bool(export.code.triton),
        "annotated": ", ".join(f"{a.name}: {_PYTHON[a.schema]}" for a in i.arguments),
        "returned": "torch.Tensor" if len(i.outputs) == 1 else f"Tuple[{', '.join(['torch.Tensor'] * len(i.outputs))}]",
        "derivative_call": _derivative_call(export, value) if export.derivative else "",
        "gradients": _gradients(export) if export.derivative else [],
        "unjudged": export.unjudged,
        "schema_arguments": _schema_arguments(i),
        "mutated": list(i.mutated),
        "returned_places": list(i.returned),
        "returns": "Tensor" if len(i.outputs) == 1 else "(" + ", ".join(["Tensor"] * len(i.outputs)) + ")",
        "parameters": ", ".join(names),
        "names": repr(names),
        "forward_call": ", ".join(passed),
        "single": len(i.outputs) == 1,
        "autocast": export.autocast,
        "tensors": [a.name for a in i.arguments if a.schema == "Tensor"],
        "scalars": [a.name for a in i.arguments if a.schema != "Tensor"],
        "has_module": export.layer is not None,
        "has_function": export.function is not None,
        "layer": export.layer,
        "function": export.function,
        "mode": i.mode,
        "state": [(a.path, a.name) for a in i.state],
        "reference_call": "".join(f"{v}, " for v in positional),
        "reference_keywords": ", ".join(named),
        "reference_arguments": ", ".join([*positional, *(f"{n}={value(n)}" for n in inputs if n in keywords)]),
        "signature": i.signature,
        "function_signature": function_signature,
        "inputs_dict": "{" + ", ".join(f'"{n}": {n}' for n in inputs) + "}",
        "fallback_call": ", ".join(f"{n}={n}" if n in keywords else n for n in inputs),
        "operator_call": ", ".join(operands),
        "function_operator_call": ", ".join(a.name for a in i.inputs),
        "tree": i.tree,
        "public": public,
        "all": sorted(["DOMAIN", "NAMESPACE", "OutsideDomain", "outside_domain", "unavailable", *public]),
        "kernels": [{"name": k.name, "op": k.op, "maps": takes_maps(k)} for k in export.kernels],
        "archs": export.archs,
    }


def _schema_arguments(interface: Interface) -> str:
    """The operator's arguments as its schema writes them: what it changes is `Tensor(a!)`."""
    letters = {name: f"Tensor({chr(ord('a') + k)}!)" for k, name in enumerate(interface.mutated)}
    return ", ".join(f"{letters.get(a.name, a.schema)} {a.name}" for a in interface.arguments)


def _derivative_call(export: Export, value: Callable[[str], str]) -> str:
    """The arguments of the translated backward, in terms of the operator's."""
    d = export.derivative
    assert d is not None
    ups = {name: f"grads_[{k}]" for k, name in enumerate(d.upstream)}
    tensors = [a.name for a in export.interface.arguments if a.schema == "Tensor"]
    owners = _gradients(export)
    ups |= {n: f"needs_[{tensors.index(owners[k])}]" if owners[k] else "False" for n, k in d.needs.items()}
    state = {a.path: a.name for a in export.interface.state}
    passed = [f"{n}={ups[n] if n in ups else value(n)}" for n in d.translated.inputs]
    return ", ".join(passed + [f"{name}={state[path]}" for path, name in d.translated.state.items()])


def _gradients(export: Export) -> list[str]:
    """The operator's argument that each result of the translated backward belongs to; "" where to none."""
    assert export.derivative is not None
    state = {f"self.{a.path}": a.name for a in export.interface.state}
    known = {a.name for a in export.interface.inputs}
    return [state.get(g, g if g in known else "") for g in export.derivative.gradients]


def summary(export: Export) -> str:
    """The first line of the reference's docstring, or a plain one."""
    text = (ast.get_docstring(ast.parse(export.task.source)) or "").strip().split("\n")[0]
    return text or f"{export.task.name} as one operator."


def facts(export: Export) -> list[str]:
    """Shapes, dtypes, gradients and errors, for docstrings and README."""
    lines = []
    for name in export.translated.inputs:
        argument = next((a for a in export.interface.inputs if a.name == name), None)
        if argument is None:
            lines.append(f"{name}: {export.interface.constants[name]!r}, the one value that was verified.")
        elif argument.schema == "Tensor":
            at = list(argument.dtypes)
            lines.append(f"{name}: {' or '.join(at)}, {box(argument.sizes)}, any strides.")
        else:
            lines.append(f"{name}: one of {', '.join(map(repr, argument.values))}.")
    if export.interface.mutated:
        lines.append(f"changes in place: {', '.join(export.interface.mutated)}.")
    fresh = (
        f"{', '.join(export.interface.outputs)}; fresh tensors" if export.interface.outputs else "the changed inputs"
    )
    lines.append(f"returns: {fresh}, never views of the inputs.")
    if export.backward == "kernels":
        lines.append("Gradients: by kernels, judged with the forward (once only).")
    elif export.backward == "recompute":
        lines.append(
            "Gradients: the reference's own, by running it again in backward (slower than a kernel; once only)."
        )
    elif export.interface.mutated:
        lines.append("Gradients: where they are wanted the reference computes the call.")
    else:
        lines.append(f"Gradients: refused ({export.backward}).")
    lines.append("Outside of these sizes and dtypes, and on the CPU, the reference computes the call and says so once.")
    return lines

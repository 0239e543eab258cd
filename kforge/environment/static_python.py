"""Rules over the candidate module's Python syntax tree. Names come from allowlist.toml."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache

from kforge.environment.allowlist import allowlist
from kforge.environment.static import Finding
from kforge.environment.static_counting import counted

GROWING = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "popleft", "appendleft"}
SETUP = {"__init__", "reset_parameters", "extra_repr", "_init_weights", "__repr__"}  # not on the path of a call
DYNAMIC = {"eval", "exec", "compile", "__import__", "globals", "locals", "vars", "breakpoint", "input", "delattr"}
INTROSPECTION = {
    "__builtins__", "__closure__", "__code__", "__globals__", "__mro__", "__subclasses__", "_getframe", "f_back",
    "f_globals", "f_locals", "gi_frame", "__self__", "__wrapped__", "__loader__", "__spec__", "__dict__", "__class__",
    "__bases__", "__getattribute__", "__reduce__", "__reduce_ex__", "__array__", "__array_interface__", "__func__",
    "resizable", "_cdata",
}  # fmt: skip
SUBCLASS = {"_make_subclass", "_make_wrapper_subclass", "__torch_function__", "__torch_dispatch__", "as_subclass"}
FLAGS = (
    "torch.backends", "torch.set_float32_matmul_precision", "torch.use_deterministic_algorithms", "torch.autocast",
    "torch.set_default_dtype", "torch.set_num_threads", "torch.set_default_device", "torch.amp", "torch.cuda.amp",
    "torch.set_flush_denormal", "torch.cuda.set_device", "torch.cuda.memory", "torch.cuda.set_stream",
    "torch.set_deterministic_debug_mode",
)  # fmt: skip
FILES = {
    "open", "torch.load", "torch.save", "torch.from_file", "from_file", "write_text", "write_bytes", "unlink",
    "mkdir", "read_bytes", "symlink_to", "hardlink_to", "touch", "rmdir", "chmod", "iterdir", "glob", "rglob",
    "readlink", "rename", "load_library", "fromfile", "tofile", "memmap", "numpy.load", "numpy.save", "numpy.savez",
    "numpy.savetxt", "numpy.loadtxt", "numpy.genfromtxt", "numpy.open_memmap",
}  # fmt: skip
SWALLOWING = {"contextlib.suppress", "contextlib.ExitStack", "contextlib.AsyncExitStack", "contextlib.*"}
LEAVING = {"__exit__", "__aexit__"}  # what they return can end an exception, as `except` does
SEEDING = {  # what sets a generator of torch's; draws advance it, which is all that a call may do
    "manual_seed", "manual_seed_all", "seed_all", "set_rng_state", "set_rng_state_all", "fork_rng", "set_state",
    "graphsafe_set_state", "set_offset", "torch.seed", "torch.random.seed", "torch.cuda.seed", "torch.cuda.random.seed",
    "torch.default_generator.seed",
}  # fmt: skip
ANSWERS_FOR_IT = {  # methods by which the judge reads a module's state, or that run behind its back
    "__del__": "runs work after the judge has looked",
    "__getattr__": "answers for attributes that are not there",
    "__getattribute__": "answers for the module's own attributes",
    "state_dict": "answers for the module's state",
    "load_state_dict": "receives the judge's state and may ignore it",
    "_load_from_state_dict": "receives the judge's state and may ignore it",
    "_save_to_state_dict": "answers for the module's state",
    "named_parameters": "answers for the module's state",
    "named_buffers": "answers for the module's state",
    "parameters": "answers for the module's state",
    "buffers": "answers for the module's state",
}
OF_KFORGE = {"kforge.kernel", *(f"kforge.kernel.{n}" for n in ("Kernel", "Module", "TensorMap", "philox", "prepared"))}
OWN_SUBMODULES = {"random", "signal", "time", "io"}  # torch.random is no way to random
NUMPY_FREE = {
    "bool_", "ceil", "dtype", "finfo", "float16", "float32", "float64", "floor", "iinfo", "int8", "int16", "int32",
    "int64", "log2", "prod", "uint8", "uint16", "uint32", "uint64",
}  # fmt: skip


@dataclass
class ModuleReport:
    """What the rules found in one module. vendor: call name -> first line."""

    findings: list[Finding] = field(default_factory=list)
    vendor: dict[str, int] = field(default_factory=dict)
    inline_sources: list[str] = field(default_factory=list)
    has_kernel: bool = False
    defines_model: bool = False


def check_module(
    file: str, tree: ast.Module, reference_source: str, reference_names: Collection[str], shapes: Collection[int]
) -> ModuleReport:
    """All Python rules over one module."""
    checker = _Checker(file, set(reference_names) - {"ModelNew"}, _bodies(reference_source), set(shapes))
    checker.visit(tree)
    for node, what in counted(tree, SETUP):
        words = f"counts its calls in {what}: what a call answers must not depend on how many there were"
        checker.add("call_count", node, words)
    return checker.report


class _Checker(ast.NodeVisitor):
    def __init__(self, file: str, reference: set[str], copies: set[str], shapes: set[int]) -> None:
        self.file, self.reference, self.copies, self.shapes = file, reference, copies, shapes
        self.report = ModuleReport()
        self.aliases: dict[str, str] = {}  # local name -> dotted path of what it was imported from
        self.functions: list[str] = []
        self.kernels: set[str] = set()  # names bound to what a maker returned

    def add(self, rule: str, node: ast.AST, message: str, rejects: bool = True) -> None:
        self.report.findings.append(Finding(rule, self.file, getattr(node, "lineno", 0), message, rejects))

    # imports

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self._import(node, name.name)
            root = name.name.split(".")[0]
            self.aliases[name.asname or root] = name.name if name.asname else root

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level:
            self.add("import", node, "imports relative to its folder; a candidate is one module")
            return
        for name in node.names:
            path = f"{node.module}.{name.name}"
            self._import(node, path)
            self.aliases[name.asname or name.name] = path
            self._seeding(node, path)
            self._swallowing(node, path)

    def _import(self, node: ast.AST, path: str) -> None:
        names = allowlist()
        root = path.split(".")[0]
        if root in names.forbidden:
            self.add("forbidden_import", node, f"imports {root}, which {names.forbidden[root]}")
        elif root not in names.imports:
            self.add("forbidden_import", node, f"imports {root}; allowed: {', '.join(sorted(names.imports))}")
        elif closed := next((c for c in names.closed if path == c or path.startswith(c + ".")), None):
            self.add("forbidden_import", node, f"reaches into {closed}")
        elif root == "kforge" and path not in OF_KFORGE:
            self.add("forbidden_import", node, f"imports {path}, which is the judge's; there are {_words(OF_KFORGE)}")

    # definitions

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.report.defines_model |= node.name == "ModelNew"
        for base in node.bases:
            path = self._path(base)
            if path in self.reference or path == "Model":
                self.add("reference_fallback", node, f"class {node.name} inherits from the reference {path}")
            elif path in ("torch.Tensor", "torch.nn.Parameter"):
                self.add("tensor_subclass", node, f"class {node.name} is a tensor subclass: it may compute on access")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in SUBCLASS:
            self.add("tensor_subclass", node, f"defines {node.name}, which intercepts torch calls")
        elif node.name in LEAVING:
            self.add("try_except", node, f"defines {node.name}, which can hide a failing launch; let errors out")
        elif node.name in ANSWERS_FOR_IT:
            self.add("judge_deceived", node, f"defines {node.name}, which {ANSWERS_FOR_IT[node.name]}")
        if node.name not in SETUP and _body(node) in self.copies:
            self.add("reference_fallback", node, f"{node.name} is a copy of the reference's own code")
        for decorator in node.decorator_list:
            path = self._path(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if path in ("triton.jit", "helion.kernel", "triton.autotune"):
                self.report.has_kernel |= path != "triton.autotune"
                return  # a kernel's body is not Python that runs here
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    # statements

    def visit_Try(self, node: ast.Try) -> None:
        importing = all(isinstance(s, (ast.Import, ast.ImportFrom, ast.Pass, ast.Assign)) for s in node.body)
        if node.handlers and not (importing and not self.functions):
            self.add("try_except", node, "try/except can hide a failing launch behind a fallback; let errors out")
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.add("global_state", node, f"keeps state between calls in global {', '.join(node.names)}", rejects=False)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._patched(target)
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Call) and self._makes(node.value):
                self.kernels.add(target.id)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._patched(node.target)
        self.generic_visit(node)

    def _patched(self, target: ast.expr) -> None:
        path = self._path(target) if isinstance(target, ast.Attribute) else ""
        if path.startswith(FLAGS):
            self.add("backend_flag", target, f"sets {path}: settings are the user's, and apply to every baseline alike")
        elif path and path.split(".")[0] in self._modules() | self.kernels:
            self.add("monkeypatch", target, f"replaces {path}")
        elif path.startswith("?"):
            self.add("monkeypatch", target, f"sets .{path[2:]} of what an expression returns")

    def visit_Compare(self, node: ast.Compare) -> None:
        literals = [c.value for c in ast.walk(node) if isinstance(c, ast.Constant) and isinstance(c.value, int)]
        equality = any(isinstance(op, (ast.Eq, ast.In)) for op in node.ops)
        if equality and any(value in self.shapes and value > 1 for value in literals):
            self.add("hard_coded_shape", node, "dispatches on the exact size of the benchmark's inputs", rejects=False)
        self.generic_visit(node)

    # expressions

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult):
            self.report.vendor.setdefault("matmul", node.lineno)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in INTROSPECTION:
            self.add("introspection", node, f"uses {node.attr}, which looks outside the candidate")
        elif node.attr in SUBCLASS:
            self.add("tensor_subclass", node, f"uses {node.attr}, which makes lazy tensors")
        else:
            self._reached(node, self._path(node))
            self._seeding(node, self._path(node))
            self._swallowing(node, self._path(node))
        self.generic_visit(node)

    def _swallowing(self, node: ast.AST, path: str) -> None:
        """try/except under another name."""
        if path in SWALLOWING:
            self.add("try_except", node, f"uses {path}, which can hide a failing launch; let errors out")

    def _seeding(self, node: ast.AST, path: str) -> None:
        """torch.manual_seed, generator.set_state ...: what others draw afterwards would be the candidate's choice."""
        *owner, name = path.split(".")
        if path in SEEDING or (name in SEEDING and owner != ["self"]):
            words = f"uses {path.removeprefix('?.')}: the generators are the user's, who seeds them"
            self.add("generator_state", node, words)

    def _reached(self, node: ast.Attribute, path: str) -> None:
        """What an import could not name, by way of an attribute: torch.os, torch._C, kforge.kernel.hooks."""
        root, *rest = path.split(".")
        if root not in self._modules() or not rest:
            return
        names = allowlist()
        closed = next((c for c in names.closed if path == c), None)
        foreign = next((p for p in rest if p in names.forbidden and p not in OWN_SUBMODULES), None)
        if rest[-1] != foreign and foreign:  # said once, at the part itself
            return
        if closed or foreign:
            self.add("forbidden_import", node, f"reaches {closed or foreign} through {path}")
        elif path.startswith("kforge.") and path.count(".") == 2 and path not in OF_KFORGE:
            self.add("forbidden_import", node, f"reaches {path}, which is the judge's")

    def visit_Call(self, node: ast.Call) -> None:
        path = self._path(node.func)
        name = path.split(".")[-1]
        if self.functions and SETUP.isdisjoint(self.functions):
            counts = path == "next" and bool(node.args) and isinstance(node.args[0], ast.Name)
            if counts or (path.startswith("self.") and path.count(".") > 1 and name in GROWING):
                self.add("global_state", node, f"keeps state between calls: {path}()", rejects=False)
        if self._makes(node):
            self.report.has_kernel = True
            self._keep_inline(node)
            self._sources(node)
        if path in DYNAMIC and path not in self.aliases:
            self.add("dynamic_code", node, f"calls {path}(), which the static gate cannot follow")
        elif path == "setattr" and node.args and self._path(node.args[0]).split(".")[0] != "self":
            self.add("monkeypatch", node, "setattr() on what is not the module itself")
        elif path == "getattr" and node.args and self._path(node.args[0]).split(".")[0] in self._modules():
            self.add("monkeypatch", node, "getattr() on a module")
        elif path in ("operator.attrgetter", "operator.methodcaller"):
            self.add("dynamic_code", node, f"calls {path}(), which the static gate cannot follow")
        elif name == "read_text" and "__file__" not in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}:
            self.add("file_access", node, "reads a file that is not beside it")
        elif (
            path.startswith("numpy.") and name not in NUMPY_FREE and self.functions and SETUP.isdisjoint(self.functions)
        ):
            self.add("numpy_compute", node, f"calls {path} on the path of a call: numpy in place of an own kernel")
        elif path in FILES or name in FILES:
            self.add("file_access", node, f"calls {name}(), which reads or writes files")
        elif path in self.reference and path not in dir(builtins):
            self.add("reference_fallback", node, f"calls the reference {path}")
        elif path.startswith(("torch.compile", "torch.jit.", "torch._dynamo", "torch.export")):
            self.add("torch_compile", node, f"calls {path}: compiling the reference is a setting, not a kernel")
        elif path.startswith(FLAGS):
            self.add("backend_flag", node, f"calls {path}: settings are the user's, and apply to every baseline alike")
        elif name in ("_version", "id") and path == "id":
            self.add("pointer_cache", node, "id() as a key outlives the tensor it was taken from", rejects=False)
        else:
            self._torch_call(node, path, name)
        if name == "prepared":  # derived weights: any op may be used, and the timing includes it
            for argument in node.args[:1]:
                self.visit(argument)
            return
        self.generic_visit(node)

    def _torch_call(self, node: ast.Call, path: str, name: str) -> None:
        """Compute ops by torch's own names; operators between tensors are seen by the dispatch mode at run time."""
        method = isinstance(node.func, ast.Attribute) and not path.startswith(("torch.", "math.", "numpy."))
        category = allowlist().torch.get(name)
        if path.startswith("torch.fft.") or path.startswith("torch.linalg."):
            category = "vendor"
        if category == "vendor" and (path.startswith("torch.") or method):
            self.report.vendor.setdefault(name, node.lineno)
        if category is not None or any(f in SETUP for f in self.functions) or not self.functions:
            return
        root = path.split(".")[0]
        quiet = ("torch.nn.init", "torch.cuda", "torch.return_types.")  # the last are containers
        if path.startswith("torch.") and not name[:1].isupper() and not path.startswith(quiet):
            self.add("torch_compute", node, f"calls {path}: a torch compute op in place of an own kernel")
        elif path.startswith("torch.cuda.") and name not in allowlist().torch:
            self.add("torch_compute", node, f"calls {path}, which is not allowed in a candidate")
        elif path.startswith("torch.nn.") and name[:1].isupper() and not path.startswith("torch.nn.Parameter"):
            self.add("torch_compute", node, f"makes {path} on the path of a call")
        elif method and root not in self._modules() and root != "self" and name in _tensor_methods():
            self.add("torch_compute", node, f"calls .{name}(): a torch compute op in place of an own kernel")

    def _makes(self, node: ast.Call) -> bool:
        """Whether this call makes a kernel."""
        path, makers = self._path(node.func), allowlist().makers
        name = path.split(".")[-1]
        makes = path in makers or (name in makers and name not in ("load", "Module", "Program"))
        return makes or path in ("kforge.kernel.Module", "torch.utils.cpp_extension.load", "cuda.core.Program")

    def _sources(self, node: ast.Call) -> None:
        """A source is text or a file of the candidate's folder: the judge's compiler opens what is named."""
        named = [k.value for k in node.keywords if k.arg == "source"] + list(node.args[:2])
        for value in named:
            text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
            if "\n" not in text and "__global__" not in text and ("/" in text or ".." in text):
                self.add("file_access", node, f"takes its source from {text!r}, outside the candidate")

    def _keep_inline(self, node: ast.Call) -> None:
        for value in [*node.args, *(k.value for k in node.keywords)]:
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and "__global__" in value.value:
                self.report.inline_sources.append(value.value)

    def _modules(self) -> set[str]:
        """Roots of what was imported: `torch`, `math`, ..."""
        return {path.split(".")[0] for path in self.aliases.values()}

    def _path(self, node: ast.expr) -> str:
        """Dotted path of a name or attribute with import aliases resolved: F.relu -> torch.nn.functional.relu."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ".".join(["?", *reversed(parts)]) if parts else ""
        return ".".join([self.aliases.get(node.id, node.id), *reversed(parts)])


def _words(names: set[str]) -> str:
    return ", ".join(sorted(name.split(".")[-1] for name in names if name.count(".") > 1))


@cache
def _tensor_methods() -> frozenset[str]:
    """Public methods of torch.Tensor, those of Python's own containers and strings excepted."""
    import torch

    plain = {name for kind in (list, dict, set, str, tuple, int, float) for name in dir(kind)}
    return frozenset(name for name in dir(torch.Tensor) if not name.startswith("__")) - plain | {"sort"}


def _bodies(source: str) -> set[str]:
    """Normalised bodies of the reference's functions that do some work."""
    return {_body(f) for f in _functions(source) if f.name not in SETUP and len(ast.dump(f)) > 400}


def _functions(source: str) -> Iterator[ast.FunctionDef]:
    if not source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            yield node


def _body(function: ast.FunctionDef) -> str:
    """The statements without docstring, positions or names of local variables' annotations."""
    statements = function.body
    if statements and isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
        statements = statements[1:]
    return "\n".join(ast.dump(s) for s in statements)

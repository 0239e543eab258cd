"""Rules over CUDA sources by tree-sitter: literals equal to the benchmark's sizes, and what constraints forbid.

Without the tree-sitter wheels nothing here can be said; the report then lists it under `not_tested`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any

from kforge.environment.allowlist import allowlist
from kforge.environment.static import Finding

COMMON = {16, 32, 64, 128, 256, 512, 1024}  # tile and warp sizes: no evidence of a hard-coded shape
INTEGERS = {"int", "unsigned", "size_t", "uint32_t", "uint64_t", "int32_t", "int64_t", "long", "short", "char"}


_BETWEEN = r"(?:[ \t]|/\*.*?\*/)*"
_INCLUDE = re.compile(rf"^{_BETWEEN}(?:\#|%:){_BETWEEN}include(?:_next)?{_BETWEEN}(.*)$", re.MULTILINE)
_PLAIN_INCLUDE = re.compile(r"<(?!/)[^>]*>|\"(?!/)[^\"]*\"")
_CONDITION = re.compile(rf"^{_BETWEEN}(?:\#|%:){_BETWEEN}(?:if|elif)\w*(.*)$", re.MULTILINE)
_HOST_MACRO = re.compile(
    r"\b(KFORGE_\w+|__(?:x86_64|aarch64|GNUC|GNUG|GLIBC|linux|unix|clang|OPTIMIZE|SANITIZE_\w+?|ELF|SSE2?|STDC_HOSTED)__)\b"
)
_EMULATOR = re.compile(r"\bkforge_emulator\w*|__attribute__\s*\(\(\s*(?:__)?(?:con|de)structor|\.incbin\b")


def is_available() -> tuple[bool, str]:
    """Whether the CUDA grammar is installed, and the reason if it is not."""
    try:
        import tree_sitter
        import tree_sitter_cuda
    except ImportError as error:
        return False, f"{error.name} is not installed"
    del tree_sitter, tree_sitter_cuda
    return True, ""


def check_text(file: str, source: str) -> list[Finding]:
    """Rules that need no grammar: includes stay inside, nothing tells the emulator from a GPU."""
    text = source.replace("\\\n", "")
    findings: list[Finding] = []

    def add(rule: str, at: int, message: str) -> None:
        findings.append(Finding(rule, file, text.count("\n", 0, at) + 1, message))

    for match in _INCLUDE.finditer(text):
        named = _PLAIN_INCLUDE.match(match[1])
        if named is None or ".." in named[0]:
            add(
                "file_access",
                match.start(),
                f"includes {match[1].strip()[:60]}; only names, no path",
            )
    for match in _CONDITION.finditer(text):
        if macro := _HOST_MACRO.search(match[1]):
            add("judge_probe", match.start(), f"asks for {macro[0]}, which tells the emulator from a GPU")
    if found := _EMULATOR.search(text):
        add("judge_probe", found.start(), f"uses {found[0]}, which is the judge's or runs outside a launch")
    return findings


def check_cuda(file: str, source: str, shapes: Collection[int], constraints: Mapping[str, object]) -> list[Finding]:
    """All CUDA rules over one source text. Preprocessor lines are not searched for sizes: constants belong there."""
    if not is_available()[0]:
        return []
    root = _parser().parse(source.encode()).root_node
    findings: list[Finding] = []
    sizes = {size for size in shapes if size > 16} - COMMON
    integers, declared = _declared(root)
    for node in _walk(root):
        line, text = node.start_point[0] + 1, node.text.decode(errors="replace")
        if node.type == "number_literal" and _value(text) in sizes and not _in_preprocessor(node):
            message = f"literal {text} equals a size of the task's inputs: right only where that size is checked"
            findings.append(Finding("hard_coded_shape", file, line, message, rejects=False))
        elif node.type == "call_expression":
            name = _callee(node)
            if "no_fast_math" in constraints and name in allowlist().fast_math:
                findings.append(Finding("no_fast_math", file, line, f"calls {name}, and the task forbids fast math"))
            if "deterministic" in constraints and name in allowlist().float_atomics:
                target = _first_argument(node)
                if target not in integers:
                    kind = "a float" if target in declared else "what may be a float"
                    message = f"{name} on {kind} depends on thread order, and the task is deterministic"
                    findings.append(Finding("deterministic", file, line, message))
        elif node.type in ("string_literal", "raw_string_literal", "gnu_asm_expression"):
            for word in allowlist().fast_math if "no_fast_math" in constraints else ():
                if "." in word and word in text:
                    findings.append(Finding("no_fast_math", file, line, f"uses {word}, and the task forbids fast math"))
    return list(dict.fromkeys(findings))


@cache
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def _walk(node: Any) -> Iterator[Any]:
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def _value(text: str) -> int | None:
    digits = text.rstrip("uUlL").replace("'", "")
    try:
        return int(digits, 0)
    except ValueError:
        return None


def _in_preprocessor(node: Any) -> bool:
    while node is not None:
        if node.type in ("preproc_def", "preproc_if", "preproc_elif", "enumerator"):
            return True
        node = node.parent
    return False


def _callee(node: Any) -> str:
    function = node.child_by_field_name("function")
    return str(function.text.decode().split("<")[0].split("::")[-1]) if function is not None else ""


def _first_argument(node: Any) -> str:
    """The variable that the first argument names: `&out[row]` -> out, `sum` -> sum."""
    arguments = node.child_by_field_name("arguments")
    if arguments is None or not arguments.named_children:
        return ""
    names = [n for n in _walk(arguments.named_children[0]) if n.type == "identifier"]
    return str(names[0].text.decode()) if names else ""


def _declared(root: Any) -> tuple[set[str], set[str]]:
    """Variables and parameters declared with an integer type, and all declared ones."""
    integers: set[str] = set()
    declared: set[str] = set()
    for node in _walk(root):
        if node.type in ("parameter_declaration", "declaration"):
            kind = node.child_by_field_name("type")
            words = set(kind.text.decode().split()) if kind is not None else set()
            for child in node.children_by_field_name("declarator"):
                names = [n.text.decode() for n in _walk(child) if n.type == "identifier"][:1]
                declared.update(names)
                if words & INTEGERS:
                    integers.update(names)
    return integers, declared

"""The tool that runs a short script in the candidates' sandbox: never in this process, bounded in time and output."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import Toolbox, ToolError, ToolResult, clip
from kforge.errors import ChildFailed

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.worker import Child

SCRIPT, SOURCE = "probe.py", "probe.cu"
_COMPILING = ("kforge.kernel", "triton", "cpp_extension", "cupy", "pycuda")
_BUILD_S = 60.0
_LOG_BYTES = 64 << 10


@tool
def probe(
    box: Toolbox,
    python: str,
    cuda: str = "",
    files: list[str] = [],  # noqa: B006 - read into the schema, never changed
    seconds: float = 10.0,
) -> ToolResult:
    """Run a short Python script in the candidates' sandbox and read what it prints: how torch behaves, what a small
    kernel computes, what your candidate gives for one input. It sees torch and kforge.kernel, no network, no home, no
    files but those named here. Kernels are built in a first pass in which they do not launch. A GPU is there only if
    the target is one.

    python: the script; print what you want to know.
    cuda: CUDA source, which lies beside the script as probe.cu: Kernel("name", source="probe.cu", ...).
    files: files of your folder to lie beside it, for example ["softmax_kforge.py", "softmax_kforge.cu"] for
        `from softmax_kforge import ModelNew`.
    seconds: how long it may run.
    """
    from kforge import scratch
    from kforge.kernel.candidate import Candidate

    if not 0 < seconds <= box.limits.probe_s:
        raise ToolError(f"seconds lie above 0 and up to {box.limits.probe_s:g}")
    for name, text in ((SCRIPT, python), (SOURCE, cuda)):
        _check(name, text, box.limits.file_bytes)
    texts = {name: box.files.read(name) for name in files} | {SCRIPT: python} | ({SOURCE: cuda} if cuda else {})
    script = Candidate(SCRIPT, texts)
    folder = scratch.make("probe")
    try:
        built = ""
        if any(word in text for text in texts.values() for word in _COMPILING):
            _, built = _run(box, folder, "build", script, _BUILD_S)
        text, failed = _run(box, folder, "run", script, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if failed and built and built != failed:
        failed += f"\nin the first pass, where kernels are built and not launched, it said: {built}"
    parts = [f"failed: {failed}"] if failed else []
    parts.append(text.rstrip() or "(nothing was printed)")
    return ToolResult(clip("\n".join(parts), box.limits.result), is_error=bool(failed))


def _check(name: str, text: str, most: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ToolError(f"{name} is no Unicode text: {error.reason}") from error
    if size > most:
        raise ToolError(f"{name} has {size} bytes; the limit is {most}")
    if "\0" in text:
        raise ToolError(f"{name} holds a null character")


def _run(box: Toolbox, folder: Path, phase: str, script: Candidate, seconds: float) -> tuple[str, str]:
    """(what was printed, how it failed) of one pass in a process of its own."""
    from kforge.worker import gpu_lock

    box.bench.control.check()
    with gpu_lock(box.bench.device, shared=True), _fork(box, folder, phase, seconds) as child:
        try:
            child.probe(script)
            printed, failed = child.log(), ""
        except ChildFailed as failure:
            box.bench.control.check()  # a stop ends the child too
            printed, failed = failure.log or child.log(), _told(failure, seconds)
    return printed, failed


def _fork(box: Toolbox, folder: Path, phase: str, seconds: float) -> Child:
    from kforge.environment.target import plain_mode, share_emulator
    from kforge.worker import Limits

    limits = Limits(
        call_s=seconds, life_s=seconds + 90.0, processes=32, log_bytes=_LOG_BYTES,
        memory_bytes=min(box.limits.probe_memory, Limits().memory_bytes),
    )  # fmt: skip
    zygote, device = box.bench.zygote(), box.bench.device
    if device != "cpu":
        return zygote.fork(folder, device, phase, limits)
    return zygote.fork(folder, "cpu", phase, limits, {"KFORGE_EMULATOR": plain_mode().text}, share_emulator(folder))


def _told(failure: ChildFailed, seconds: float) -> str:
    """How the process ended, in the candidate's own terms."""
    if failure.error.get("message"):
        words = failure.error["message"] + (f"; {failure.error['hint']}" if failure.error.get("hint") else "")
        log = failure.error.get("log", "").strip()
        return f"{words}\n{log}" if log else words
    if failure.kind == "timed_out":
        return f"it did not end within {seconds:g} s"
    return f"{failure.ended}: {failure.text.strip()}" if failure.kind != "raised" else failure.text.strip()

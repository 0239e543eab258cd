"""Compiles the emulator's own parts beside the work that will need them: on a machine where it never ran, seconds.

As a program, `python -m kforge.kernel.emulator.ahead fast checked traced` compiles what these modes need and ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kforge.errors import KforgeError
from kforge.kernel.emulator.build import has_prelude, prelude_folder, runtime_library, tracer_library
from kforge.kernel.emulator.mode import Kind


@contextmanager
def compiled_ahead(kinds: Sequence[Kind]) -> Iterator[None]:
    """While the block works, a process compiles what these modes lack; it ends with the block, done or not.

    Who needs a part before it is there waits for its lock. What cannot be compiled is said where it is needed.
    """
    try:
        missing = [kind.value for kind in kinds if not has_prelude(kind)]
    except KforgeError:  # no compiler
        missing = []
    if not missing:
        yield
        return
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kforge.kernel.emulator.ahead", *missing],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _leave(*_: Any) -> None:
    raise SystemExit(0)  # within a compilation: what it has written is removed


def main(names: Sequence[str]) -> None:
    """Compile what the modes of these names need, in their order."""
    signal.signal(signal.SIGTERM, _leave)
    os.nice(19)  # the work beside it comes first
    with suppress(KforgeError):
        runtime_library()
        for kind in map(Kind, names):
            prelude_folder(kind)
            if kind is Kind.TRACED:
                tracer_library()


if __name__ == "__main__":
    main(sys.argv[1:])

"""`kforge worker`: evaluations for another process, JSON lines on stdin and stdout (docs/workers.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kforge.cli import options, output


@output.command
def worker(out: output.Output, device: options.Device = None, arch: options.Arch = None) -> int:
    """Serve evaluations: one JSON request a line on stdin, events and one report each on stdout."""
    from kforge import config

    out.json = True  # every exit ends with an object, errors included
    settings = options.settings()
    chosen_device = config.parse_device(device) if device else settings.device
    chosen_arch = options.parse_arch(arch, settings)

    from kforge.environment.service import Judge
    from kforge.errors import WorkerLost
    from kforge.worker.service import Service, Unusable

    with Judge(chosen_device, chosen_arch, repro=Path(".kforge/repro").resolve()) as judge:
        output.narrate(f"kforge worker: {judge.device}, {judge.arch}")
        try:
            Service(out.message, judge).run(_lines())
        except Unusable as error:
            raise WorkerLost(str(error), "start it again; other workers take its jobs") from error
    return output.OK


def _lines() -> Iterator[bytes]:
    """Lines of stdin. Programs started from here get none of it."""
    from kforge.worker import wire

    fd = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    with os.fdopen(fd, "rb") as stream:
        yield from wire.lines(stream)

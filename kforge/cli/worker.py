"""`kforge worker`: evaluations for another process, JSON lines on stdin and stdout (docs/workers.md)."""

from __future__ import annotations

from pathlib import Path

from kforge.cli import options, output, streams


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
    from kforge.worker import wire
    from kforge.worker.service import Service, Unusable

    with Judge(chosen_device, chosen_arch, repro=Path(".kforge/repro").resolve()) as judge:
        output.narrate(f"kforge worker: {judge.device}, {judge.arch}")
        try:
            Service(out.message, judge).run(wire.lines(streams.take_stdin()))
        except Unusable as error:
            raise WorkerLost(str(error), "start it again; other workers take its jobs") from error
    return output.OK

"""One call of a candidate in a process of its own, for instruments that must be there from the start.

`python -m kforge.worker.standalone folder done [marked]`: sanitizer.py makes the folder; `done` is written when it is
over. marked: warm up first, and tell a profiler where the call begins and ends.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any


def main(folder: Path, done: Path, marked: bool = False) -> None:
    """Construct, load the state, call once, wait for the device. marked: see above."""
    import torch

    from kforge.kernel import hooks
    from kforge.kernel.build.cache import read_only_cache
    from kforge.task.backward import Gradients, differentiating
    from kforge.task.precision import Precision, matmul_precision
    from kforge.worker.construct import import_module

    saved = torch.load(folder / "call.pt", weights_only=True, map_location="cpu")
    device = saved["device"]

    def moved(tree: Any) -> Any:
        def place(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.dim() == 0:
                return tensor
            storage = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).to(device)
            empty = torch.empty(0, dtype=tensor.dtype, device=device)
            return empty.set_(storage.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())

        return torch.utils._pytree.tree_map_only(torch.Tensor, place, tree)

    torch.cuda.set_device(device)
    args, kwargs = moved((saved["args"], saved["kwargs"]))
    overrides = hooks.overrides(saved["overrides"]) if saved["overrides"] else nullcontext()
    with torch.no_grad(), matmul_precision(Precision(saved["precision"])), read_only_cache(), overrides:
        init_args, init_kwargs = saved["init"]
        model = import_module(Path(saved["module"])).ModelNew(*init_args, **init_kwargs)
        model = model.to(device).train(saved["training"])
        named = dict(model.named_parameters()) | dict(model.named_buffers())
        for name, value in saved["state"].items():
            if name in named:
                named[name].copy_(value)
        if saved["gradients"]:
            model = differentiating(model, Gradients.read(saved["gradients"]))
        if marked:
            model(*args, **kwargs)
            torch.cuda.synchronize()
        with torch.cuda.profiler.profile() if marked else nullcontext():
            model(*args, **kwargs)
            torch.cuda.synchronize()
    done.write_text("")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "marked" in sys.argv[3:])

"""What torch.compile makes of the reference: Inductor's output code, for a model or a person to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.errors import KforgeError, MissingError

if TYPE_CHECKING:
    from kforge.environment import Prepared


def inductor_source(prepared: Prepared) -> str:
    """The generated module with its Triton kernels, for variant 0. Compiled in the judge's process, seconds.

    MissingError without a GPU: what Inductor writes for the CPU says nothing about kernels. KforgeError where the
    reference does not compile.
    """
    if prepared.device == "cpu":
        raise MissingError(
            "Inductor's Triton code needs a GPU, and there is none here",
            "the captured graph is what the engine starts from",
        )
    import torch
    from torch._inductor.utils import run_and_get_code

    from kforge.task import matmul_precision

    task = prepared.task
    call = task.make_call(0, 0, prepared.device)
    compiled = torch.compile(prepared.reference(0))
    try:
        with torch.no_grad(), matmul_precision(task.precision):
            _, sources = run_and_get_code(compiled, *call.args, **call.kwargs)
    except Exception as error:  # Dynamo and Inductor may raise anything for foreign code
        words = str(error).strip().partition("\n")[0]
        raise KforgeError(f"torch.compile fails on the reference: {type(error).__name__}: {words}") from error
    if not sources:
        raise KforgeError("torch.compile made no code for the reference: it breaks the graph everywhere")
    return "\n\n".join(sources)

"""What the compiler says of a candidate's kernels: as its text declares them, and as its calls have built them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.worker.child import Server


def resources(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """Build the declared kernels and read the compiler's figures; none of the candidate's Python runs."""
    from kforge.kernel import hooks, static_report

    with hooks.overrides(request["overrides"]):
        return {"kernels": static_report(server.folder, request["arch"], element=request["element"])}


def figures(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """The compiler's figures on kernels that are not `known`: as calls of this process have built them, with
    `idle` the others too, as they are declared."""
    from kforge.kernel import hooks, kernel_report
    from kforge.kernel.report import declared_report

    arch, found = request["arch"], []
    with hooks.overrides(server.overrides):
        for kernel in hooks.kernels():
            if kernel.name in request["known"]:
                continue
            if kernel.configurations:
                found += kernel_report(kernel, arch)
            elif request["idle"]:
                found.append(declared_report(kernel, arch, request["element"]))
    return {"kernels": [kernel.as_dict() for kernel in found]}


def made(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """The names of the kernels that the candidate has made."""
    from kforge.kernel import hooks

    return {"names": sorted({kernel.name for kernel in hooks.kernels()})}

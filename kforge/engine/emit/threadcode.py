"""Row code for one thread per row: right where neighbouring rows are neighbours in memory and columns are not.

Lanes of a warp take neighbouring rows, so that each load of a warp is one contiguous stretch; SPLIT warps share the
columns of 32 rows and join their results in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kforge.engine.emit.access import Access
from kforge.engine.emit.paircode import OnlineCode
from kforge.engine.graph.ir import Expr
from kforge.engine.graph.symbols import Poly


@dataclass
class ThreadCode(OnlineCode):
    states: dict[int, str] = field(default_factory=dict)
    shifts: dict[int, str] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    follows_columns = False  # they are far apart

    def __post_init__(self) -> None:
        super().__post_init__()
        for uid, access in self.memory.loads.items():
            if access.kind == "scalar" and self._linear(access):
                step = access.index.coefficient(self.inner)
                base = access.index - step * Poly.of(self.inner)
                self.memory.loads[uid] = Access(access.buffer, access.index, base, "vector")

    def _linear(self, access: Access) -> bool:
        rest = access.index - access.index.coefficient(self.inner) * Poly.of(self.inner)
        plain = all(type(a).__name__ in ("Var", "Size") for a in access.index.atoms())
        return plain and self.inner not in rest.atoms()

    def _vector(self, e: Expr, access: Access) -> str:
        text = f"load<VEC>({access.buffer.name} + {self.scope.index(access.index)})"
        if e.args:
            text = f"{self.scope.text(e.args[0], 2)} ? {text} : Pack<{self.types.element(access.buffer)}, VEC>()"
        return text

    def declare_pointers(self) -> None:
        """Columns are far apart: every access is written out in full."""

    def combine(self, operation: str, value: str, neutral: str, ctype: str) -> str:
        return self.column_reduce(operation, value, ctype, "[SPLIT][32]")

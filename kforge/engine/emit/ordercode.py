"""The body of a kernel that sorts rows: words of key and index are sorted, and the row is read again in that order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kforge.engine.emit.naming import Names
from kforge.engine.emit.passes import Pass
from kforge.engine.emit.scancode import ScanCode
from kforge.engine.graph.ir import Expr, walk

FEW = 16  # elements that a warp takes one by one rather than by merging


@dataclass
class SortCode(ScanCode):
    """The whole row lies in the registers of a warp or block."""

    def declare_sort(self, e: Expr, outside: Names) -> None:
        self.helpers.add("sort")
        name = outside.fresh("order")
        self.names.taken.add(name)
        self.running[e.uid] = name

    def word(self, e: Expr) -> str:
        return f"Word<{self.types.scalar(e.args[0].dtype)}>"

    def first_columns(self, p: Pass) -> int:
        """How many columns are written, where these are a fixed number; else 0."""
        limits = [s.below.constant if s.below is not None else None for s in p.stores]
        return max((n for n in limits if n is not None), default=0) if None not in limits and not p.reductions else 0

    def walk_tiles(self, p: Pass, sums: dict[int, str], preload: list[Expr], outside: Names) -> None:
        loads = [e for e in p.fresh if self._is_vector(e)]
        parts = self._tile_partials(p, sums)
        if loads:
            self._load(loads, "", "_in", outside)
        for e in self._scans(p):
            if e.kind.startswith("sort"):
                self.sort(e, p)
            elif e.uid in self.running:
                self._fill(e, p)
                self._scan(e)
        with self._vectors("", str(self.first_columns(p) or "")):
            self.split_columns()
            self.element(p, parts)
        for uid, part in parts.items():
            if part != sums[uid]:
                self.lines.add(f"{sums[uid]}.add(pairwise({part}));")
        for e in loads:
            self.arrays.pop(e.uid, None)

    def vectors(self, p: Pass, note: str = "", elements: bool = True):  # type: ignore[no-untyped-def]
        return self._vectors("")

    def _words(self, e: Expr, p: Pass, tile: str, place: str) -> None:
        """Each element of a tile as a word, at `place`."""
        descending = "true" if e.kind == "sort_down" else "false"
        way = "descending" if e.kind == "sort_down" else "ascending"
        self.lines.comment(self._sources(f"{way} order", e))
        with self._vectors(tile), self.of_elements(e.args[0], p) as value:
            self.lines.add(f"{place} = word<{descending}>({value}, static_cast<unsigned int>({self.at} + j));")

    def sort(self, e: Expr, p: Pass) -> None:
        self.sites += 1
        name, shared = self.running[e.uid], f"words_{self.sites}"
        threads, teams = ("BLOCK", "") if self.style.scratch else ("32", "[BLOCK / 32]")
        self.scratch_lines.append(
            f"__shared__ Words<{self.word(e)}, ITEMS * VEC, {threads} * ITEMS * VEC> {shared}{teams};"
        )
        self.lines.add(f"auto& {name} = {shared}{'[threadIdx.x / 32]' if teams else ''};")
        self._words(e, p, "", f"{name}[{self.at} + j]")
        keep = self.first_columns(p) if len(self._scans(p)) == 1 else 0
        count = f"static_cast<int>({self.style.end})"
        if teams and 0 < keep <= FEW:
            self.helpers.add("first")
            self.lines.add(f"first_words<{keep}>({name}, {count});")
        else:
            self.lines.add(f"sort_words<{threads}, {keep}>({name}, {count});")

    def sorted_text(self, e: Expr) -> str:
        return f"index_of({self.running[e.uid]}[{self.at} + j])"


@dataclass
class TopCode(SortCode):
    """The first few of a sorted row of any length: what cannot be among them is dropped as it is read."""

    count: int = 0
    each: int = 16  # words of a pool that a lane has: room for what is kept and for a vector of every lane

    def walk_tiles(self, p: Pass, sums: dict[int, str], preload: list[Expr], outside: Names) -> None:
        (e,) = (e for e in self._scans(p))
        style = self.style
        self.helpers.add("top")
        name = self.running[e.uid]
        self.names.taken |= {"pool", "pools"}
        words = f"Words<{self.word(e)}, {self.each}, 32 * {self.each}>"
        self.scratch_lines.append(f"__shared__ {words} pools[BLOCK / 32];")
        body = [x for x in walk([e.args[0]], into_reductions=False) if x.op == "load"]
        loads = [x for x in p.fresh if x in body and self._is_vector(x)]
        self.lines.add(f"Pool<{self.count}, {self.word(e)}, {self.each}> pool(pools[threadIdx.x / 32]);")
        step = f"{style.threads} * VEC * ITEMS"
        with self.lines.block(f"for ({style.column} tile = 0; tile < {style.end}; tile += {step})"):
            if loads:
                self._load(loads, "tile", "_in", self.names)
            self.lines.add(f"{self.word(e)} {name}[ITEMS][VEC];")
            with self.lines.block("for (int k = 0; k < ITEMS * VEC; ++k)", unroll=True):
                self.lines.add(f"{name}[k / VEC][k % VEC] = last_word({name}[0][0]);")
            self._words(e, p, "tile", f"{name}[k][j]")
            self.lines.add(f"pool.add({name});")
        for x in loads:
            self.arrays.pop(x.uid, None)
        self.lines.add("join_pools(pool, pools);")
        rest = walk([s.value for s in p.stores], into_reductions=False)
        below = {x.uid for x in walk([e.args[0]])} | {e.uid}
        outer = [x for x in p.fresh if x in rest and self._used_beside(x, e, rest, below)]
        head = f"for ({style.column} {self.at} = threadIdx.x * VEC; {self.at} < {self.count}; {self.at} += BLOCK * VEC)"
        with self.lines.block(head):
            self.element(replace(p, fresh=outer), sums)

    @staticmethod
    def _used_beside(load: Expr, e: Expr, rest: list[Expr], below: set[int]) -> bool:
        """Whether a load has users other than what is sorted."""
        if load.uid not in below:
            return True
        users = [x for x in rest if load in x.args or (x.index is not None and repr(load) in repr(x.index))]
        return any(u.uid not in below for u in users)

    def sorted_text(self, e: Expr) -> str:
        return f"index_of(pools[0][min(static_cast<int>({self.at} + j), {self.count} - 1)])"

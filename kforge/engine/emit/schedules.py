"""Choices by size: which block and how many vectors a thread, measured on one H200 and meant as a good first guess."""

from __future__ import annotations

from kforge.engine.emit.passes import Pass


def block_classes(per_thread: int, vec: int) -> list[tuple[int, tuple[int, int]]]:
    """(columns up to, (BLOCK, ITEMS)) for a row held in registers; per_thread: elements that a thread may hold.

    Softmax in fp32: 1024 columns 128 x 2, 2048 128 x 4, 4096 256 x 4, 8192 512 x 4, 16384 512 x 8, 32768 1024 x 8. With
    1024 x 4 a thread takes more than 32 registers: one block a multiprocessor then, 0.75 of the floor instead of 0.94.
    """
    wanted = [(256, 64), (1024, 128), (2048, 128), (4096, 256), (8192, 512), (16384, 512), (32768, 1024)]
    classes = []
    for limit, block in wanted:
        if limit > 1024 * per_thread:
            break
        while block * per_thread < limit:
            block *= 2
        classes.append((limit, (block, max(1, limit // (block * vec)))))
    return classes


def fitted(columns: int, vec: int, block: int, items: int) -> tuple[int, int]:
    """(BLOCK, ITEMS) of a class for a row of this length: few threads and vectors without columns, many vectors each.

    A row of 5,120 floats is 320 threads with four vectors, not 512 of which 192 load the row's last columns again.
    """
    vectors = -(-columns // vec)
    found = [(max(2, -(-vectors // (32 * i))) * 32, i) for i in range(max(1, items // 2), items + 1)]
    return min(((b, i) for b, i in found if b <= 1024), key=lambda c: (c[0] * c[1], -c[1]), default=(block, items))


def live_values(passes: list[Pass]) -> int:
    """The most element values that are held at once between two passes, at least 1, rounded up to a power of two.

    A load that moves with rows and an outer loop over columns, not with the innermost, is no vector and is not held.
    """
    inner = max((v.name for p in passes for e in p.fresh for v in e.variables() if v.name.startswith("c")), default="")
    last_use: dict[int, int] = {}
    for p in passes:
        for e in p.reused:
            last_use[e.uid] = p.number
    most = 1
    for p in passes:
        held = sum(
            1 for q in passes if q.number <= p.number for e in q.kept if last_use.get(e.uid, q.number) > p.number
        )
        moving = [{v.name for v in e.variables()} for e in p.fresh if e.index is not None]
        loaded = sum(1 for names in moving if len(names) > 1 and inner in names)
        most = max(most, held, loaded)
    return 1 << (most - 1).bit_length()

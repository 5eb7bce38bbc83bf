"""Programs that break memory into pieces, on a pool with a hard limit: what is refused, and was it necessary?

A refusal is needless where the system's pages that no live block touches would have held the block: pages can
lie anywhere, so that no order of blocks excuses it.

    python -m benchmarks.pool_adversaries

Exit status 1: something was refused needlessly.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from mmap import PAGESIZE

import click

from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.native_pool import BlockHandle
from symalloc.pool.pool_errors import OutOfMemoryError

KIB, MIB = 2**10, 2**20
LIMIT = 64 * MIB


class _Tried:
    """A pool with a limit, its live blocks, and the refusals."""

    def __init__(self) -> None:
        self.pool = InstrumentedPool(limit=LIMIT)
        self.live: list[BlockHandle] = []
        self.bytes = self.asked = self.refused = self.needless = 0

    def alloc(self, nbytes: int) -> bool:
        self.asked += 1
        try:
            block = self.pool.alloc(nbytes)
        except OutOfMemoryError:
            self.refused += 1
            self.needless += self._pages() * PAGESIZE + -(-nbytes // PAGESIZE) * PAGESIZE <= LIMIT
            return False
        self.live.append(block)
        self.bytes += nbytes
        return True

    def keep(self, keeps: Callable[[int, BlockHandle], bool]) -> None:
        """Free all but the blocks that `keeps`, by number and handle."""
        kept = []
        for index, block in enumerate(self.live):
            if keeps(index, block):
                kept.append(block)
            else:
                self.free(block)
        self.live = kept

    def free(self, block: BlockHandle) -> None:
        self.bytes -= block.nbytes
        block.free()

    def fill(self, nbytes: int, upto: int = LIMIT) -> None:
        """Allocate blocks of `nbytes` while fewer than `upto` bytes are live, until one is refused."""
        while self.bytes + nbytes <= upto and self.alloc(nbytes):
            pass

    def _pages(self) -> int:
        """The number of the system's pages that live blocks touch."""
        ranges = ((b.pointer // PAGESIZE, (b.pointer + b.nbytes - 1) // PAGESIZE) for b in self.live)
        return len({page for first, last in ranges for page in range(first, last + 1)})


def _robson(tried: _Tried) -> None:
    """Blocks of doubling sizes, of which those stay that keep most places of the next size from being free
    (Robson, Bounds for some functions concerning dynamic storage allocation, 1974).
    """
    residue, upto = 0, LIMIT // 4
    tried.fill(64, upto)
    for size in (64 << i for i in range(1, 15)):
        covers = {
            r: lambda _, b, r=r, size=size: (r - b.pointer) % size < b.nbytes
            for r in (residue, residue + size // 2)
        }
        residue = max(covers, key=lambda r: sum(covers[r](0, b) for b in tried.live))
        tried.keep(covers[residue])
        tried.fill(size, upto)


def _checkerboard(tried: _Tried) -> None:
    for size, larger in ((48 * KIB, 80 * KIB), (4 * KIB, 12 * KIB), (100 * KIB, 300 * KIB)):
        tried.keep(lambda _, __: False)
        tried.fill(size)
        tried.keep(lambda index, _: index % 2 == 0)
        tried.fill(larger)


def _sixteenth(tried: _Tried) -> None:
    for size in (KIB, 5 * KIB, 64 * KIB, 200 * KIB):
        tried.fill(size)
        tried.keep(lambda index, _: index % 16 == 0)


def _crowded(tried: _Tried) -> None:
    source = random.Random(1)
    for _ in range(20_000):
        nbytes = source.randint(1, 256 * KIB)
        while tried.bytes + nbytes > LIMIT * 95 // 100:
            at = source.randrange(len(tried.live))
            tried.live[at], tried.live[-1] = tried.live[-1], tried.live[at]
            tried.free(tried.live.pop())
        tried.alloc(nbytes)


PROGRAMS = {
    "Robson's": _robson,
    "checkerboard": _checkerboard,
    "one of 16 kept": _sixteenth,
    "random, 95% live": _crowded,
}


def needless_refusals() -> int:
    """Run every program; show and count what was refused needlessly."""
    click.echo(f"under a limit of {LIMIT // MIB} MiB")
    needless = 0
    for name, program in PROGRAMS.items():
        tried = _Tried()
        program(tried)
        needless += tried.needless
        click.echo(
            f"  {name:<18}{tried.asked:>9} blocks asked for, {tried.refused:>6} refused, "
            f"{tried.needless:>4} of them needlessly"
        )
    return needless


if __name__ == "__main__":
    sys.exit(needless_refusals() > 0)

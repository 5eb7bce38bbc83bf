"""How long static packing problems in MiniMalloc's CSV form take: `id,lower,upper,size`, in bytes.

MiniMalloc (Moffitt 2023; C++) is reported to need 0.5-6.5 s for each of its own problems A-K, 27.6 s in all,
in 1048576 bytes.  Every packing printed as found has been checked here, pair by pair.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import accumulate, combinations
from pathlib import Path
from time import perf_counter

import click

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.packing.exact_packing import CliqueInstance, ExactPacking, pack_exactly
from symalloc.size.expr import constant


def _read(path: Path) -> list[Buffer]:
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Buffer(
                id=number,
                name=row["id"],
                size=constant(int(row["size"])),
                live=((int(row["lower"]), int(row["upper"])),),
                alignment=1,
            )
            for number, row in enumerate(csv.DictReader(file))
        ]


def _check(buffers: Sequence[Buffer], offsets: Sequence[int], capacity: int | None) -> None:
    """Raises ValueError where two buffers share a byte at some time, or one lies outside."""
    ends = [offset + b.size.evaluate({}) for b, offset in zip(buffers, offsets, strict=True)]
    for b in buffers:
        if offsets[b.id] < 0 or (capacity is not None and ends[b.id] > capacity):
            raise ValueError(f"buffer {b.id} lies outside")
    for one, two in combinations(buffers, 2):
        (begin, end), (other_begin, other_end) = one.live[0], two.live[0]
        apart = ends[one.id] <= offsets[two.id] or ends[two.id] <= offsets[one.id]
        if begin < other_end and other_begin < end and not apart:
            raise ValueError(f"buffers {one.id} and {two.id} overlap")


def one_on_the_other(buffers: Sequence[Buffer]) -> list[int]:
    """Offsets in bytes at which no two buffers touch, whenever they live."""
    return list(accumulate((b.size.evaluate({}) for b in buffers), initial=0))[:-1]


def _says(found: ExactPacking) -> str:
    if found.offsets is not None:
        return str(found.height)
    return f"none below {found.height}" if found.optimal else "not found"


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option("--capacity", type=int, help="Bytes to pack into; without it, as low as can be.")
@click.option("--steps", default=10_000_000, show_default=True, help="The most for one problem.")
@click.option("--seed", default=0, show_default=True)
def main(paths: tuple[Path, ...], capacity: int | None, steps: int, seed: int) -> None:
    """Pack the problems in PATHS."""
    total = 0.0
    print(f"{'problem':24}{'buffers':>8}{'steps':>9}{'seconds':>9}{'floor':>12}{'height':>12}")
    for path in paths:
        buffers = _read(path)
        floor, start = CliqueInstance.of(buffers, {}).floor, one_on_the_other(buffers)
        begin = perf_counter()
        found = pack_exactly(buffers, start, capacity=capacity, steps=steps, seed=seed)
        taken = perf_counter() - begin
        total += taken
        if found.offsets is not None:
            _check(buffers, found.offsets, capacity)
        print(
            f"{path.stem:24}{len(buffers):8}{found.steps:9}{taken:9.2f}{floor:12}{_says(found):>12}",
            flush=True,
        )
    print(f"{total:.1f} s in all; reported for MiniMalloc's A-K: 0.5-6.5 s each, 27.6 s in all")


if __name__ == "__main__":
    main()

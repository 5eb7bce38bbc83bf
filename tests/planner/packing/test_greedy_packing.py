"""Greedy packings, compared with plain ones of the textbook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from random import Random

import numpy as np
import pytest

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.packing.exact_packing import SizedBuffers, pack_greedily
from tests.planner.packing.test_exact_packing import buffer

Row = tuple[int, int, int]  # begin, end, size


def buffers(rows: Sequence[Row]) -> list[Buffer]:
    return [buffer(i, size, (begin, end)) for i, (begin, end, size) in enumerate(rows)]


def training(chance: Random, count: int) -> list[Row]:
    """A step of training: what is made forwards is used backwards, from a few sizes."""
    sizes = [2621440, 20971520, 33554432, 41943040, 16384, 4100]
    rows = [(i, 6 * count - i + chance.randrange(5), chance.choice(sizes)) for i in range(count // 6)]
    while len(rows) < count:
        begin = chance.randrange(6 * count)
        rows.append((begin, begin + chance.randrange(1, 40), chance.choice(sizes)))
    return rows


def scattered(chance: Random, count: int) -> list[Row]:
    """Lifetimes and sizes of all magnitudes."""
    begins = [chance.randrange(count) for _ in range(count)]
    return [(b, b + int(2 ** chance.uniform(0, 9)), int(2 ** chance.uniform(3, 24))) for b in begins]


def placed(rows: Sequence[Row], order: Sequence[int], smallest: bool) -> int:
    """The height of a plain first fit, or best fit, in this order."""
    lying: list[tuple[int, int, int, int]] = []
    height = 0
    for i in order:
        begin, end, size = rows[i]
        top, found, least = 0, -1, inf
        for low, high in sorted((low, high) for low, high, b, e in lying if b < end and begin < e):
            if size <= low - top < least:
                found, least = top, low - top
                if not smallest:
                    break
            top = max(top, high)
        offset = top if found < 0 else found
        lying.append((offset, offset + size, begin, end))
        height = max(height, offset + size)
    return height


def greedies(rows: Sequence[Row]) -> dict[str, int]:
    """The heights of the textbook's packings."""
    loads = {b: sum(s for x, y, s in rows if x <= b < y) for b, _, _ in rows}

    def breadth(row: Row) -> int:
        return max(load for at, load in loads.items() if row[0] <= at < row[1])

    keys: dict[str, Callable[[Row], object]] = {
        "size": lambda row: -row[2],
        "area": lambda row: -row[2] * (row[1] - row[0]),
        "lifespan": lambda row: -(row[1] - row[0]),
        "start": lambda row: row[0],
        "breadth": lambda row: (-breadth(row), -row[2]),
    }
    orders = {name: sorted(range(len(rows)), key=lambda i: key(rows[i])) for name, key in keys.items()}
    found = {name: placed(rows, order, name == "breadth") for name, order in orders.items()}
    return {**found, "best fit": placed(rows, orders["size"], True)}


@pytest.mark.parametrize("make", [training, scattered])
@pytest.mark.parametrize("seed", range(3))
def test_no_packing_of_the_textbook_is_lower(make: Callable[[Random, int], list[Row]], seed: int) -> None:
    rows = make(Random(seed), 240)
    given = SizedBuffers.of(buffers(rows), {})
    height = given.height(pack_greedily(given, given.floor, work=0, seed=0))
    assert given.floor <= height <= min(greedies(rows).values())


def test_what_lies_too_high_comes_sooner_the_next_time() -> None:
    better = 0
    for seed in range(6):
        given = SizedBuffers.of(buffers(scattered(Random(seed), 400)), {})
        once, again = (given.height(pack_greedily(given, given.floor, work=w, seed=0)) for w in (-1, 10**6))
        assert given.floor <= again <= once
        better += again < once
    assert better


def test_many_buffers_take_memory_for_themselves_only() -> None:
    """No pair of them is stored, although 9e6 are live together."""
    rows = [(i % 7, 5000 + i, 8 * (1 + i % 97)) for i in range(4300)]
    given = SizedBuffers.of(buffers(rows), {})
    offsets = pack_greedily(given, given.floor, work=0, seed=0)
    assert given.height(offsets) == given.floor == sum(size for _, _, size in rows)


@pytest.mark.parametrize("alignment", [1, 64, 24])
def test_gaps_alignments_and_fixed_offsets_are_kept(alignment: int) -> None:
    for seed in range(8):
        chance = Random(seed)
        lives = []
        for _ in range(700):
            begin = chance.randrange(300)
            pause = begin + chance.randrange(1, 20)
            again = pause + chance.randrange(1, 30)
            lives.append(((begin, pause), (again, again + chance.randrange(1, 9)))[: chance.randrange(1, 3)])
        some = [buffer(i, chance.randrange(40), *live, alignment=alignment) for i, live in enumerate(lives)]
        fixed = {0: 192, 1: 384, 2: 576}
        given = SizedBuffers.of(some, fixed)
        offsets = pack_greedily(given, given.floor, work=1000, seed=seed)
        assert {i: offsets[i] for i in fixed} == fixed
        assert not (offsets % alignment).any() and (offsets >= 0).all()
        cells = np.zeros((360, given.height(offsets)), dtype=int)
        for b, at in zip(some, offsets, strict=True):
            for begin, end in b.live:
                cells[begin:end, at : at + b.size.evaluate({})] += 1
        assert cells.max() == 1

"""Offsets whose formulas share their parts: the same values as flat ones, and short."""

from __future__ import annotations

import pytest

from symalloc.planner.layout import offsets as module
from symalloc.planner.layout.dominance import Dominance
from symalloc.planner.layout.offsets import Alternatives, offsets
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.search.stacking import Stacking
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.choice import maximum
from symalloc.size.expr import round_up, symbol

NAMES = tuple(f"n{i}" for i in range(8))
BINDINGS = tuple({name: (7 * i + 3 * k) % 11 * k for i, name in enumerate(NAMES)} for k in range(12))


def staircase() -> list[Buffer]:
    """Each of those that live long lies on the one before, and on one that is there when it ends."""
    found = []
    for i, name in enumerate(NAMES):
        long, short = round_up(32 * symbol(name), 64), round_up(4 * symbol(name) * symbol(NAMES[i - 1]), 64)
        found.append(Buffer(id=2 * i, name=f"t{i}", size=short, live=((20 + 2 * i, 22 + 2 * i),)))
        found.append(Buffer(id=2 * i + 1, name=f"h{i}", size=long, live=((i, 21 + 2 * i),)))
    return found


def values(placed: list[Alternatives]) -> list[list[int]]:
    return [[maximum(*one).evaluate(binding) for one in placed] for binding in BINDINGS]


def placed(buffers: list[Buffer]) -> list[Alternatives]:
    order = sorted(range(len(buffers)), key=lambda i: (i % 2, i))
    return offsets(buffers, Stacking.of(order, buffers), Dominance(Domain(), Prover(), NAMES))


@pytest.mark.parametrize("limit", ("MOST_NESTED", "LONGEST"))
def test_shared_maxima_have_the_values_of_flat_ones(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = staircase()
    monkeypatch.setattr(module, "LONG", 4)
    nested = placed(buffers)
    monkeypatch.setattr(module, limit, 1)  # what is more than this is laid out flat
    flat = placed(buffers)
    assert values(nested) == values(flat)
    assert max(len(one) for one in nested) < max(len(one) for one in flat)
    assert sum(len(e.key) for one in nested for e in one) < sum(len(e.key) for one in flat for e in one)


def test_a_shared_maximum_shows_that_it_is_aligned() -> None:
    longest = max(placed(staircase()), key=lambda one: sum(len(e.key) for e in one))
    assert all(coefficient % 64 == 0 for e in longest for coefficient in e.terms.values())

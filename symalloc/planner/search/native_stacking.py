"""The search for stackings on the native library: the same decisions as in Python, from the same numbers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from symalloc.native.flat_lists import lists_of
from symalloc.native.library import load_library
from symalloc.native.native_functions import packer_functions
from symalloc.planner.interference import Changes
from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.search.grid import Values

if TYPE_CHECKING:
    from symalloc.native.native_functions import GraphObject


def native_graph(neighbours: Sequence[Sequence[int]], changes: Changes) -> GraphObject | None:
    """Return an interference graph for the library; None where that is missing."""
    if load_library() is not None:
        return None
    begins, ends = ([change[side] for change in changes] for side in (0, 1))
    return packer_functions.graph(lists_of(neighbours), lists_of(begins), lists_of(ends))


def place_natively(
    graph: GraphObject, order: Sequence[int], sizes: Sequence[int], *, best_fit: bool
) -> list[int]:
    """Return offsets in bytes, as `greedy.place`; `sizes` sum up to less than `LARGEST`."""
    offsets = array("q")
    placed = packer_functions.place(graph, array("i", order).tobytes(), array("q", sizes).tobytes(), best_fit)
    offsets.frombytes(placed)
    return offsets.tolist()


def pile_natively(
    graph: GraphObject, order: Sequence[int], kinds: Sequence[int], values: Values
) -> tuple[tuple[tuple[int, ...], ...], Values]:
    """Return what each buffer lies on, as `resting_on`, and the heights, as `stacking.heights`."""
    counts, items, heights = packer_functions.pile(
        graph, array("i", order).tobytes(), array("i", kinds).tobytes(), values.tobytes(), values.shape[1]
    )
    numbers = iter(memoryview(items).cast("i").tolist())
    below = tuple(tuple(islice(numbers, count)) for count in memoryview(counts).cast("i"))
    return below, np.frombuffer(heights)


def improve_natively(
    graph: GraphObject,
    order: Sequence[int],
    columns: Sequence[Sequence[float]],
    *,
    target: float,
    steps: int,
    seed: int,
    once: int,
    budget: PlanBudget,
) -> tuple[list[int], int]:
    """Return a stacking and the steps taken, as `local_search.improve`; raises MemoryError.

    To stack all buffers at one point counts as `once`.
    """
    answer = array("q")
    sizes = b"".join(array("d", column).tobytes() for column in columns)
    left = budget.allowed - budget.spent
    answer.frombytes(
        packer_functions.improve(
            graph, array("i", order).tobytes(), sizes, target, steps, seed, once, float(left)
        )
    )
    taken, spent, *better = answer
    budget.spend(spent)
    return better, taken

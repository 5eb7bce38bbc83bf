"""The search for stackings on the native library: the same decisions as in Python, from the same numbers."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symalloc.native.library import load_library
from symalloc.native.native_functions import packer_functions
from symalloc.planner.exact.native_search import lists_of
from symalloc.planner.plan_budget import PlanBudget

if TYPE_CHECKING:
    from symalloc.native.native_functions import GraphObject


def native_graph(neighbours: Sequence[Sequence[int]]) -> GraphObject | None:
    """Return an interference graph for the library; None where that is missing."""
    return packer_functions.graph(lists_of(neighbours)) if load_library() is None else None


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

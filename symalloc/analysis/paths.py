"""The paths through a function: under which branches a point is reached.

Ifs are taken to be independent of each other here; `symalloc.analysis.feasibility` knows which are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from symalloc.program.control_flow import ControlFlowGraph

PathCondition: TypeAlias = frozenset[tuple[int, bool]]
"""The branches that a path takes: (number of the BRANCH, True for its then-block)."""

EVERY_PATH: PathCondition = frozenset()
"""The condition that every path meets."""


def consistent(condition: PathCondition) -> bool:
    """True if no If is taken both ways."""
    return len(condition) < 2 or len({branch for branch, _ in condition}) == len(condition)


def path_conditions(cfg: ControlFlowGraph) -> Sequence[PathCondition]:
    """The branches that lead to each point; ELSE and JOIN are reached through the blocks that they end."""
    return [frozenset(sides) for sides in cfg.sides]

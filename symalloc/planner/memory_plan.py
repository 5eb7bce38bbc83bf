"""What a plan is: buffers, where each lies in its arena, and the checks that the arithmetic needs.

Sizes and offsets are in bytes.  A live range is a sorted tuple of half-open intervals [begin, end) of
moments: two buffers may lie in the same place where no moment is in both, and nothing else may be read from
the numbers.  What comes later needs no other types: memory that lives inside one kernel is a buffer of that
one moment; a kernel that may write its output over a dying input counts as two moments, so that the two do
not meet; another order of the instructions, or a copy left out, is another numbering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from symalloc.program.model import Var
from symalloc.size.condition import Condition
from symalloc.size.expr import ZERO, Expr

ALIGNMENT = 64  # bytes; compiled kernels assume it, and ensure_zero_offset copies nothing at its multiples

LiveRange: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A stretch of memory wanted for a while.

    Invariant:  `size` is a multiple of `alignment` (bytes) and >= 0 for every binding.  `nbytes` is what the
    tensor really holds.  `var` is the allocation in the program that it stands for, or the call whose callee
    works in it (`callee` names that function then); None for a buffer that comes from elsewhere.  Buffers of
    equal device, scope and `after` share an arena: see `Arena.after`.  `steps` are the first and the last
    step (`symalloc.program.control_flow`) that touch it; None where there is no program.
    """

    id: int
    name: str
    size: Expr
    live: LiveRange
    nbytes: Expr = ZERO
    device: int = 0
    scope: str = "global"
    var: Var | None = None
    alignment: int = ALIGNMENT
    callee: str | None = None
    after: Var | None = None
    steps: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A buffer at `offset` bytes from the start of its arena."""

    buffer: Buffer
    offset: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """One reserved stretch of `size` bytes on one device and memory scope, and what lies in it.

    It is reserved at function entry, or right behind the instruction that binds `after`, where the last
    symbol that it is sized by becomes known (a match_cast).
    """

    device: int
    scope: str
    size: Expr
    placements: tuple[Placement, ...]
    after: Var | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplanned:
    """An allocation that keeps memory of its own, and why; `nbytes` is None where the size is not known.

    `var` is the allocation, or the call of a function that reserves its own arenas.
    """

    name: str
    reason: str
    nbytes: Expr | None = None
    var: Var | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A check at function entry, or right behind the instruction that binds `after`.

    `condition` is what must hold; `check` implies it, and nothing in it leaves 64 bits when it is evaluated.
    """

    condition: Condition
    check: Condition
    after: Var | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where everything of one function lies.  `representative` is the binding at which buffers were
    stacked.
    """

    function: str
    arenas: tuple[Arena, ...] = ()
    unplanned: tuple[Unplanned, ...] = ()
    guards: tuple[Guard, ...] = ()
    representative: Mapping[str, int] = field(default_factory=dict)

    @property
    def placements(self) -> Mapping[Var, tuple[Arena, Placement]]:
        """Where each planned allocation of the program lies."""
        return {p.buffer.var: (a, p) for a in self.arenas for p in a.placements if p.buffer.var is not None}

    def arena_bytes(self, binding: Mapping[str, int]) -> int:
        """The bytes of all arenas under `binding`; raises KeyError where a symbol is missing."""
        return sum(arena.size.evaluate(binding) for arena in self.arenas)

"""The plan of a function: buffers, where each lies in its arena, and the checks that the arithmetic needs.

Sizes and offsets are in bytes.  A live range is a sorted tuple of half-open intervals [begin, end) of
positions (`symalloc.analysis.liveness`): two buffers may lie in the same place where no position is in
both, and nothing else may be read from the numbers.  What comes later needs no other types: memory that lives
inside one kernel is a buffer of that one position; a kernel that may write its output over a dying input
counts as two positions, so that the two do not meet; another order of the instructions, or a copy left out,
is another numbering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import msgspec

from symalloc.analysis.dependencies import OrderName
from symalloc.analysis.liveness import Intervals
from symalloc.program.ir import Var
from symalloc.program.record import record
from symalloc.program.types import ALIGNMENT
from symalloc.shown import Shown, counted
from symalloc.size.condition import Condition
from symalloc.size.expr import ZERO, Expr


@record(kw_only=False)
class Buffer:
    """Memory that is needed for a while: the one record that planning passes on, from candidate to placement.

    Invariant:  `size` is a multiple of `alignment` (bytes) and >= 0 for every binding.  `nbytes` is what the
    tensor really holds.  `var` is the allocation in the program that it stands for, None for a buffer that
    comes from elsewhere.  `steps` are the first and the last step that touch it; None
    where there is no program.  `grounded`: it must lie at the start of a storage.  `returned`: it is a result
    of the function, and the memory of the arena is its own: the others are dead before it is made.  `made` is
    the program point of its allocation, and `known` that behind which its size is known, where `defined_by`
    is bound: -1 and None at entry.
    """

    id: int
    name: str
    size: Expr
    live: Intervals = ()
    nbytes: Expr = ZERO
    device: int = 0
    scope: str = "global"
    var: Var | None = None
    alignment: int = ALIGNMENT
    defined_by: Var | None = None
    steps: tuple[int, int] | None = None
    grounded: bool = False
    returned: bool = False
    made: int = 0
    known: int = -1


@record(kw_only=False)
class Placement:
    """A buffer at `offset` bytes from the start of its arena."""

    buffer: Buffer
    offset: Expr


class FurtherArena(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reason why an arena is not one with the first: without it a call takes `saves` bytes more at the
    binding `at`, or its tensors cannot lie there.
    """

    reason: str
    saves: int = 0
    at: Mapping[str, int] = msgspec.field(name="binding", default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """One reserved stretch of `size` bytes on one device and memory scope, and what lies in it.

    It is reserved in front of the first instruction that needs it, in the innermost block that holds all of
    them, and released behind the last.  Its size is known at entry, or behind the instruction `defined_by`,
    which binds the last symbol that it is sized by (a match_cast).  `further`: why it is not one with the
    first.  `given`: the caller gives it, and it is there from entry to end.
    """

    device: int = 0
    scope: str = "global"
    size: Expr
    placements: tuple[Placement, ...]
    defined_by: Var | None = None
    further: FurtherArena | None = None
    given: bool = False

    @classmethod
    def of(cls, size: Expr, placements: Iterable[Placement]) -> Arena:
        """Return the arena of buffers that share one: device, scope and time of reservation are theirs."""
        placed = tuple(placements)
        if not placed:
            return cls(size=size, placements=())
        last = max([p.buffer for p in placed], key=lambda buffer: buffer.known)
        return cls(
            device=last.device, scope=last.scope, size=size, placements=placed, defined_by=last.defined_by
        )

    @classmethod
    def from_caller(cls, arenas: Sequence[Arena]) -> tuple[Arena, ...]:
        """Return `arenas` with those of one device and scope one behind the other in one that the caller
        gives; results, and what is sized later than at entry, keep theirs.
        """
        own = [a for a in arenas if a.result is not None or a.defined_by is not None]
        places: dict[tuple[int, str], Arena] = {}
        for one in (a for a in arenas if a not in own):
            first = places.get((one.device, one.scope))
            begin, placed = (ZERO, ()) if first is None else (first.size, first.placements)
            moved = tuple(replace(p, offset=begin + p.offset) for p in one.placements)
            places[one.device, one.scope] = replace(
                one, size=begin + one.size, placements=(*placed, *moved), further=None, given=True
            )
        return (*places.values(), *own)

    @property
    def result(self) -> Buffer | None:
        """The result whose memory this is, which outlives the call; None for an arena that does not."""
        return next((p.buffer for p in self.placements if p.buffer.returned), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplanned:
    """An allocation that keeps memory of its own, and why; `nbytes` is None where the size is not known.

    `var` is the allocation.
    """

    name: str
    reason: str
    nbytes: Expr | None = None
    var: Var | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A check at function entry, or right behind the instruction that binds `defined_by`.

    `condition` is what must hold; `check` implies it, and nothing in it leaves 64 bits when it is evaluated.
    `declared`: it is a bound that the function declares, on which every proof of the plan may rely.
    """

    condition: Condition
    check: Condition
    defined_by: Var | None = None
    declared: bool = False


class TooLarge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tensor that takes more than one buffer may, at the binding `at` for one: `size` bytes, as do all that
    are `alike`, itself among them.
    """

    name: str
    size: Expr = msgspec.field(name="bytes")
    limit: int
    alike: int
    at: Mapping[str, int] = msgspec.field(name="binding")


FallbackKind: TypeAlias = Literal["search", "storages", "arenas"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """A way in which a plan gave in where a budget ran out, or a call would take more (`arenas`), and why.

    `ratio` is the largest of the arenas to their floor among the bindings that were looked at.
    """

    kind: FallbackKind
    reason: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Shown):
    """The memory plan of one function.

    Without `fallbacks` each arena is at its floor wherever that was looked at.  `picked` says what
    bounds="auto" stands for in it, and why.  `too_large` are the tensors that no arena can hold within
    --max-buffer.  `order`: the plan is right in any order of the dispatches that this permits; `order_cost`
    is what that costs at most, as a share of a call with a plan for the order of the text, where it was
    reckoned.
    """

    function: str
    arenas: tuple[Arena, ...] = ()
    unplanned: tuple[Unplanned, ...] = ()
    guards: tuple[Guard, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    picked: str = ""
    too_large: tuple[TooLarge, ...] = ()
    order: OrderName = "total"
    order_cost: float | None = None

    def __repr__(self) -> str:
        tensors = counted(sum(len(arena.placements) for arena in self.arenas), "tensor")
        left = f", {len(self.unplanned)} unplanned" if self.unplanned else ""
        return f"<Plan of {self.function}: {tensors} in {counted(len(self.arenas), 'arena')}{left}>"

    def refusing(self, binding: Mapping[str, int]) -> list[Guard]:
        """The guards whose check fails at a binding, as far as it tells."""
        known = [guard for guard in self.guards if guard.check.symbols <= binding.keys()]
        return [guard for guard in known if not guard.check.evaluate(binding)]

    @property
    def placements(self) -> Mapping[Var, tuple[Arena, Placement]]:
        """The arena and the placement of each planned allocation of the program."""
        return {p.buffer.var: (a, p) for a in self.arenas for p in a.placements if p.buffer.var is not None}

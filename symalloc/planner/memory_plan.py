"""The plan of a function: buffers, where each lies in its arena, and the checks that the arithmetic needs.

Sizes and offsets are in bytes.  A live range is a sorted tuple of half-open intervals [begin, end) of
positions (`symalloc.analysis.effects`): two buffers may lie in the same place where no position is in
both, and nothing else may be read from the numbers.  What comes later needs no other types: memory that lives
inside one kernel is a buffer of that one position; a kernel that may write its output over a dying input
counts as two positions, so that the two do not meet; another order of the instructions, or a copy left out,
is another numbering.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

import msgspec

from symalloc.analysis.dependencies import OrderName
from symalloc.analysis.donation import Donation, parse_donation
from symalloc.analysis.effects import Intervals
from symalloc.errors import UsageError, require_texts
from symalloc.options import PATH, Kind, amount, choice, option, read_fields, whole
from symalloc.program.ir import Var
from symalloc.program.types import ALIGNMENT, record
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
    bounds="auto" stands for in it, and why, `pieces` what is computed in pieces, or could be.  `too_large`
    are the tensors that no arena can hold within --max-buffer.  `order`: the plan is right in any order of
    the dispatches that this permits; `order_cost` is what that costs at most, as a share of a call with a
    plan for the order of the text, where it was reckoned.
    """

    function: str
    arenas: tuple[Arena, ...] = ()
    unplanned: tuple[Unplanned, ...] = ()
    guards: tuple[Guard, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    picked: str = ""
    pieces: str = ""
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
    def places(self) -> dict[Var, tuple[int, Expr]]:
        """The number of its arena and the offset of each planned allocation of the program."""
        placed = ((index, one) for index, arena in enumerate(self.arenas) for one in arena.placements)
        return {one.buffer.var: (index, one.offset) for index, one in placed if one.buffer.var is not None}


EffortName: TypeAlias = Literal["quick", "normal", "thorough"]
Flavour: TypeAlias = Literal["auto", "arena", "storages"]
BoundsUse: TypeAlias = Literal["ignore", "enforce", "reserve", "auto"]
GuardKind: TypeAlias = Literal["assert", "fallback", "native", "none"]
MemoryGiver: TypeAlias = Literal["own", "caller"]
OrderChoice: TypeAlias = Literal["total", "lanes", "dag", "auto"]
ShrinkChoice: TypeAlias = Literal["none", "safe", "full"]

SHRINK = choice(ShrinkChoice)
POOL = "the pool of TVM's machine keeps a block for each size"
GIVEN = "the caller gives it"


class PlanChoices(TypedDict, total=False):
    """Keyword arguments for how to plan, as `PlanOptions` has them; docs/options.md describes each."""

    flavour: Flavour
    guards: GuardKind
    bounds: BoundsUse
    effort: EffortName
    max_buffer: int | str | None
    alias: str | Sequence[str]
    arena: MemoryGiver
    results: MemoryGiver
    order: OrderChoice
    shrink: ShrinkChoice
    max_arena: int | str | None
    chunks: int


def _donations(name: str, value: object) -> tuple[Donation, ...]:
    if isinstance(value, tuple) and all(isinstance(one, Donation) for one in value):
        return value
    return tuple(map(parse_donation, require_texts(name, value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Options of a search for offsets, and of the proof of what is found."""

    seed: int = option(0, whole(0), "The seed of the search; the same seed gives the same answer.")
    certificate: Path | None = option(
        None,
        PATH,
        "Write the proofs to this folder as SMT-LIB2, so that another solver can check them.",
        metavar="DIR",
    )

    def __post_init__(self) -> None:
        """Raise UsageError for a value that there is not."""
        read_fields(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions(SearchOptions):
    """The options of packing a problem."""

    capacity: int | None = option(
        None, amount(), "Find a packing that needs at most so many bytes, such as 2GiB."
    )
    effort: EffortName = option(
        "normal", choice(EffortName), "The time spent on the search, if the floor is not reached at once."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(SearchOptions):
    """The options of the planner: one record for the command line, Python, the pipeline and the pass.

    `kept` says why memory of constant size is kept from call to call, as CUDA graphs do: it has one arena,
    whatever a call holds besides.  `read_by` may count storages of constant size: these have arenas of their
    own.
    """

    flavour: Flavour = option(
        "auto",
        choice(Flavour),
        "arena: tensors lie at offsets of one arena; storages: tensors share whole storages; auto: "
        "an arena, or storages where the target's kernels could not run with an arena.",
    )
    guards: GuardKind = option(
        "assert",
        choice(GuardKind),
        "What happens at shapes for which the plan is not proved: an error; the function runs "
        "without the plan; an error that needs no Python; or no check.",
    )
    bounds: BoundsUse = option(
        "ignore",
        choice(BoundsUse),
        "The bounds that a function declares (tir_var_upper_bound): nothing relies on them; "
        "they are checked at entry, and proofs rely on them; or memory is reserved for them, at "
        "constant offsets; auto: reserve, in functions with tensors that a bound sizes, in one arena.",
    )
    effort: EffortName = option(
        "quick", choice(EffortName), "The time spent on the search for a better plan."
    )
    max_buffer: int | None = option(
        None,
        amount(ALIGNMENT),
        "The most that one buffer of the device may take, such as 1GiB: arenas are split under it, within "
        "declared bounds. Tensors that take more by themselves are named.",
        in_file=True,
    )
    alias: tuple[Donation, ...] = option(
        (),
        Kind(read=_donations, metavar="[FUNCTION:]OUT=IN[ROWS]", several=True),
        "The caller donates the input IN, and the output OUT is written into its memory; may be "
        "repeated. OUT is a field of the result (0, 1.0), a variable (also one that is not "
        "returned), or `result`. IN is a parameter or "
        "a field of one (caches.0); `cache[rows]` comes with room for `rows` rows.",
    )
    arena: MemoryGiver = option(
        "own",
        choice(MemoryGiver),
        "caller: a public function takes its arena as last parameter, bytes at a multiple of 64, and "
        "FUNCTION_bytes(R.Shape([n, …])) tells how many; own: it reserves them.",
    )
    results: MemoryGiver = option(
        "own",
        choice(MemoryGiver),
        "caller: a public function takes a tensor for each result behind its inputs, and writes there.",
    )
    order: OrderChoice = option(
        "total",
        choice(OrderChoice),
        "The orders in which kernels may run: as the function says; so on each device by itself; any that "
        "the dependency graph permits; auto: any, in functions where that takes no more memory.",
    )
    shrink: ShrinkChoice = option(
        "none",
        SHRINK,
        "Kernels take less memory of their own, and write outputs over what they read last, with the same "
        "bits: safe, where it costs no time; full, also where it may, such as the padding in front of a "
        "convolution; none, nowhere.",
        in_file=True,
    )
    max_arena: int | None = option(
        None,
        amount(),
        "The most that the arenas of a function may take, within declared bounds and at --bind: "
        "symalloc plan fails where they can take more.",
    )
    chunks: int = option(
        1,
        whole(1, 256),
        "The most pieces in which kernels compute what is large, some rows at a time, with the same bits: as "
        "few as bring the arenas of a function to --max-arena, where some do.",
    )
    kept: str = ""
    read_by: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def given(self) -> bool:
        """True where the caller gives the arena, for as long as a call lasts."""
        return self.kept == GIVEN

    @property
    def searched(self) -> OrderName:
        """The order that a plan is looked for: what "auto" stands for where it is free."""
        return "dag" if self.order == "auto" else self.order

    @property
    def most(self) -> int | None:
        """The bytes that one buffer may take, a multiple of ALIGNMENT; None for any number."""
        return None if self.max_buffer is None else self.max_buffer // ALIGNMENT * ALIGNMENT

    @property
    def reserves(self) -> bool:
        """True where "auto" may reserve memory for bounds: a guard can check them."""
        return self.bounds == "auto" and self.guards != "none"

    def picked(self, bounds: Sequence[object]) -> PlanOptions:
        """Return the options of a function that `bounds` are checked in: what "auto" stands for there."""
        if self.bounds != "auto":
            return self
        if not bounds:
            return replace(self, bounds="ignore")
        return replace(self, bounds="reserve", kept=self.kept or self.read_by or POOL)

    def __post_init__(self) -> None:
        """Raise UsageError for a value that there is not, and for choices that contradict each other."""
        read_fields(self)
        if self.bounds in ("enforce", "reserve") and self.guards == "none":
            raise UsageError(
                f'bounds="{self.bounds}" rests on a check at entry, and guards="none" leaves it out; '
                "take other guards"
            )
        if self.arena == "caller" and (self.flavour == "storages" or self.max_buffer is not None):
            other = "max_buffer= splits it" if self.max_buffer is not None else "whole storages are none"
            raise UsageError(f'arena="caller" takes one arena, and {other}; leave one of the two out')
        if self.chunks > 1 and (self.max_arena is None or self.shrink == "none" or self.order != "total"):
            raise UsageError('chunks= takes max_arena=, shrink="safe" or shrink="full", and order="total"')


BASE, EACH = 1_300_000, 1_500  # of the effort "quick": for a function, and for each of its tensors
TIMES: Mapping[EffortName, int] = {"quick": 1, "normal": 20, "thorough": 400}


class PlanBudget:
    """The work that is left: numbers, pairs or terms looked at one by one; many at once count less.

    The search for stackings, the choice between them, their formulas and the proof all spend it.  Once it is
    `exhausted` each takes what it has, and the planner takes a fallback.
    """

    __slots__ = ("allowed", "spent")

    def __init__(self, allowed: float = inf) -> None:
        self.allowed, self.spent = allowed, 0

    @classmethod
    def of(cls, effort: EffortName, tensors: int) -> PlanBudget:
        """Return the budget that an effort gives a function with so many tensors."""
        return cls(TIMES[effort] * (BASE + EACH * tensors))

    def spend(self, work: int) -> None:
        """Count `work` that is done."""
        self.spent += work

    @property
    def exhausted(self) -> bool:
        """True once all of it is spent."""
        return self.spent > self.allowed

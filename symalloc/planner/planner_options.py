"""The options of a plan: effort of the search, forms of tensors and guards, a folder for proofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

from symalloc.analysis.dependencies import OrderName
from symalloc.analysis.donation import Donation, parse_donation
from symalloc.errors import UsageError, require_texts
from symalloc.options import PATH, Kind, amount, choice, option, read_fields, whole
from symalloc.program.types import ALIGNMENT

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
    kept: str = ""
    read_by: str = ""

    @property
    def constants_apart(self) -> bool:
        """True where what has a constant size has an arena of its own, which is constant, too."""
        return not self.given and (bool(self.kept or self.read_by) or self.bounds == "reserve")

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
            other = "max_buffer splits it" if self.max_buffer is not None else "whole storages are none"
            raise UsageError(f'arena="caller" takes one arena, and {other}; leave one of the two out')


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

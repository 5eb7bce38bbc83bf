"""The memory that a call holds over time: the one account of it, for plans, reports and budgets.

TVM's machine is followed register by register; see `symalloc.analysis.register_machine`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from symalloc.analysis.register_lifetimes import Kills
from symalloc.analysis.register_machine import RegisterMachine, Reservation, Step, UnknownMemoryError
from symalloc.program import ir
from symalloc.program.types import ALIGNMENT
from symalloc.size.choice import undominated
from symalloc.size.expr import ONE, ZERO, Expr, evaluated


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The memory that a call of a function holds at each of `steps`.

    `doubt` says why it may hold less at some step, `problem` why it is not known.  `unseen` names functions
    that take more, of which nothing is known.  `results` is what a call has made and its result holds, on
    each path.
    """

    steps: Sequence[Step] = ()
    reservations: Sequence[Reservation] = ()
    doubt: str | None = None
    problem: str | None = None
    unseen: tuple[str, ...] = ()
    results: tuple[tuple[Reservation, ...], ...] = ()

    @classmethod
    def of(
        cls,
        program: ir.Program,
        name: str,
        *,
        kills: Kills = "paths",
        decided: Mapping[ir.Var, bool] = {},
        same: bool = False,
    ) -> Timeline:
        """The timeline of a call of the function `name`; `decided` tells by their variables how Ifs go.

        With `same` paths that meet go on as one only where they hold the same memory.
        """
        machine = RegisterMachine(program, kills, decided, same=same)
        try:
            reservations = machine.run(program.functions[name])
        except UnknownMemoryError as error:
            return cls(problem=str(error))
        return cls(
            steps=machine.steps,
            reservations=reservations,
            doubt=machine.doubt,
            unseen=tuple(machine.unseen),
            results=machine.results,
        )

    def only(self, keep: Callable[[Reservation], bool]) -> Timeline:
        """The same with some of the memory that is seen only."""
        return replace(self, unseen=(), reservations=[one for one in self.reservations if keep(one)])

    @property
    def unknown(self) -> list[Reservation]:
        """The memory whose size is not known."""
        return [one for one in self.taken() if one.size is None]

    @property
    def known(self) -> Timeline:
        """The memory whose size is known: a call holds at least this, and `unknown` besides."""
        return self.only(lambda one: one.size is not None)

    @property
    def not_known(self) -> str | None:
        """The reason for which it is not known how much a call holds; None where it is."""
        if self.problem is not None:
            return self.problem
        unknown = [f"the size of `{one.var.name}`" for one in self.unknown]
        unknown += [f"what `{name}` takes" for name in self.unseen]
        return f"{unknown[0]} is not known" if unknown else None

    def taken(self) -> list[Reservation]:
        """All memory that is taken, each once."""
        return [*{one.number: one for one in self.reservations}.values()]

    def at(self, step: int) -> list[Reservation]:
        """All that is held at a step."""
        return [one for one in self.reservations if one.begin <= step < one.end]

    def totals(self, binding: Mapping[str, int], *, known: bool = False) -> list[int] | None:
        """The bytes that are seen to be held at each step; `known`: of what is known at `binding`, else None
        where a size is not.
        """
        if self.problem is not None:
            return None
        sizes: dict[Expr | None, int | None] = {}
        changes = [0] * (len(self.steps) + 1)
        for one in self.reservations:
            if one.size not in sizes:
                sizes[one.size] = padded(evaluated(one.size, binding))
            size = sizes[one.size]
            if size is None:
                if known:
                    continue
                return None
            changes[one.begin] += size
            changes[one.end] -= size
        return list(accumulate(changes[:-1]))

    def peak(self, binding: Mapping[str, int], *, known: bool = False) -> int | None:
        """The most bytes held at one step; see `totals`.  None where more is taken that is not seen."""
        totals = None if self.unseen and not known else self.totals(binding, known=known)
        return None if totals is None else max(totals, default=0)

    @property
    def blocks(self) -> int | None:
        """The most pieces of memory held at one step; None where more is taken that is not seen."""
        alike = replace(self, reservations=[replace(one, size=ONE) for one in self.reservations])
        peak = alike.peak({})
        return None if peak is None else peak // ALIGNMENT

    def formulas(self) -> Iterator[tuple[int, Expr]]:
        """Yield each step with the bytes held at it, all of which must be known."""
        changes: defaultdict[int, list[Expr]] = defaultdict(list)
        for one in self.reservations:
            size = one.padded
            assert size is not None, "a size is not known"
            changes[one.begin].append(size)
            changes[one.end].append(-size)
        held: Expr = ZERO
        for step in range(len(self.steps)):
            held = sum(changes.get(step, ()), held)
            yield step, held

    def sums(self, signed: Collection[str] = ()) -> tuple[Expr, ...] | None:
        """Sums of bytes that are held together: the largest is the peak.  None where that is no formula.

        Symbols are >= 0, but for those that are `signed`.
        """
        return None if self.not_known else undominated((size for _, size in self.formulas()), signed)


def padded(size: int | None) -> int | None:
    """`size` rounded up to 64 bytes, as memory is taken."""
    return None if size is None else -(-size // ALIGNMENT) * ALIGNMENT

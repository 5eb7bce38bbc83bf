"""Judges a finished plan.  Shares no code with the packer: it reads only the plan's own ranges, sizes and
offsets.

What is asked, for all bindings of the domain: buffers that are live together are disjoint, every tensor
lies inside its arena, offsets are multiples of the alignment, and under the guards nothing that is
evaluated leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from symalloc.plan.model import ALIGNMENT, Arena, Buffer, Placement, Plan
from symalloc.prove.domain import INT64_MAX, INT64_MIN, Domain
from symalloc.prove.prover import Prover
from symalloc.prove.verdict import Verdict
from symalloc.size.atoms import Atom, FloorDiv, Max, Min, Mod, Select
from symalloc.size.condition import Condition, conjunction, disjunction, eq, ge, le
from symalloc.size.expr import Expr

__all__ = ["Fault", "PlanRefusedError", "validate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a plan, or could not be proved.

    `buffers` names the one or two buffers concerned; `binding` is a binding that breaks the plan, None
    where there is no such binding at hand because the proof, not the plan, fell short.
    """

    problem: str
    buffers: tuple[str, ...]
    constraint: Condition
    binding: Mapping[str, int] | None

    def __str__(self) -> str:
        where = ", ".join(f"`{name}`" for name in self.buffers) or "the arena"
        if self.binding is None:
            return f"{where}: {self.problem}: could not prove {self.constraint}"
        at = ", ".join(f"{name} = {value}" for name, value in sorted(self.binding.items())) or "every binding"
        return f"{where}: {self.problem} at {at}"


class PlanRefusedError(Exception):
    """A plan that does not validate; `faults` says what is wrong with it.

    Built from the text alone where it has crossed TVM's pass runner, which keeps nothing else:  `faults`
    is empty then.
    """

    def __init__(self, message: str, faults: tuple[Fault, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults

    @classmethod
    def of(cls, function: str, faults: tuple[Fault, ...]) -> PlanRefusedError:
        """The refusal of the plan for `function`, naming the first of its faults."""
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return cls(f"the plan for `{function}` is refused: {faults[0]}{more}", faults)


def validate(plan: Plan, domain: Domain, prover: Prover) -> tuple[Fault, ...]:
    """Every fault of `plan` over `domain`; empty where all of it is proved."""
    guarded = domain.assuming(g.condition for g in plan.guards)
    judge = _Judge(domain=domain, guarded=guarded, prover=prover, hint=plan.representative)
    return tuple(fault for arena in plan.arenas for fault in judge.arena(arena))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """`hint` is a binding that tells which of two orders to try to prove first; nothing rests on it."""

    domain: Domain
    guarded: Domain
    prover: Prover
    hint: Mapping[str, int]

    def arena(self, arena: Arena) -> Iterator[Fault]:
        for placement in arena.placements:
            yield from self.alone(placement, arena)
        for left, right in _live_together(arena.placements):
            yield from self.pair(left, right)
        yield from self.machine_range(arena)

    def alone(self, placement: Placement, arena: Arena) -> Iterator[Fault]:
        buffer, offset = placement.buffer, placement.offset
        name = (buffer.name,)
        yield from self.ask(ge(offset, 0), "it starts before its arena", name)
        if not all(self.proved(eq(part % ALIGNMENT, 0)) for part in _alternatives(offset)):
            yield from self.ask(eq(offset % ALIGNMENT, 0), f"its offset is no multiple of {ALIGNMENT}", name)
        yield from self.ask(le(buffer.nbytes, buffer.size), "it holds more bytes than are set aside", name)
        yield from self.ask(ge(buffer.size, 0), "its size can be negative", name)
        if not self.at_most(offset + buffer.size, arena.size):
            yield from self.ask(le(offset + buffer.size, arena.size), "it ends behind its arena", name)

    def pair(self, left: Placement, right: Placement) -> Iterator[Fault]:
        """Each order is tried by itself first: most pairs keep one throughout."""
        if self.starts_later(left, right):
            left, right = right, left
        left_end, right_end = left.offset + left.buffer.size, right.offset + right.buffer.size
        if self.at_most(left_end, right.offset) or self.at_most(right_end, left.offset):
            return
        orders = (le(left_end, right.offset), le(right_end, left.offset))
        empty = (le(left.buffer.size, 0), le(right.buffer.size, 0))
        names = (left.buffer.name, right.buffer.name)
        yield from self.ask(disjunction((*orders, *empty)), "they overlap while both are live", names)

    def starts_later(self, left: Placement, right: Placement) -> bool:
        """Whether `left` lies above `right` at the hint; a guess where the hint does not bind every
        symbol.
        """
        try:
            return left.offset.evaluate(self.hint) > right.offset.evaluate(self.hint)
        except (KeyError, ZeroDivisionError):
            return False

    def at_most(self, low: Expr, high: Expr) -> bool:
        """Whether `low <= high` is proved; maxima are taken apart, so that most questions are about
        polynomials.
        """
        highs = _alternatives(high)
        return all(any(self.proved(le(a, b)) for b in highs) for a in _alternatives(low))

    def machine_range(self, arena: Arena) -> Iterator[Fault]:
        values = {arena.size, *(p.offset for p in arena.placements)}
        inner = {part for value in values for part in _inner(value)}
        for value in sorted(values | inner, key=lambda e: e.key):
            fits = conjunction((le(value, INT64_MAX), ge(value, INT64_MIN)))
            yield from self.ask(fits, f"`{value}` can leave 64 bits", (), self.guarded)

    def proved(self, condition: Condition) -> bool:
        verdict = self.prover.prove(condition, self.domain, explain=False).verdict
        return verdict in (Verdict.ALWAYS_VALID, Verdict.VACUOUS)

    def ask(
        self, condition: Condition, problem: str, names: tuple[str, ...], domain: Domain | None = None
    ) -> Iterator[Fault]:
        proof = self.prover.prove(condition, domain or self.domain, explain=False)
        if proof.verdict in (Verdict.ALWAYS_VALID, Verdict.VACUOUS):
            return
        proof = self.prover.prove(condition, domain or self.domain)
        yield Fault(problem=problem, buffers=names, constraint=condition, binding=proof.counterexample)


def _live_together(placements: Sequence[Placement]) -> Iterator[tuple[Placement, Placement]]:
    """The pairs that are live together, each named in the order of `placements`' first moments."""
    ordered = sorted((p for p in placements if p.buffer.live), key=lambda p: min(p.buffer.live))
    for index, left in enumerate(ordered):
        end = max(end for _, end in left.buffer.live)
        for right in ordered[index + 1 :]:
            if min(right.buffer.live)[0] >= end:
                break
            if _together(left.buffer, right.buffer):
                yield left, right


def _alternatives(expr: Expr) -> tuple[Expr, ...]:
    """Expressions whose maximum is `expr`: its terms spread over a maximum that stands among them by
    itself.
    """
    for monomial, coefficient in expr.terms.items():
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            if isinstance(atom, Max):
                rest = expr - Expr({monomial: 1})
                return tuple(rest + operand for operand in atom.operands)
    return (expr,)


def _together(left: Buffer, right: Buffer) -> bool:
    """Whether some interval of one meets some interval of the other."""
    return any(max(a, c) < min(b, d) for a, b in left.live for c, d in right.live)


def _inner(expr: Expr) -> Iterator[Expr]:
    """The expressions inside the atoms of `expr`, at every depth."""
    for atom in expr.atoms:
        for operand in _operands(atom):
            yield operand
            yield from _inner(operand)


def _operands(atom: Atom) -> tuple[Expr, ...]:
    match atom:
        case FloorDiv(numerator=numerator, denominator=denominator):
            return (numerator, denominator)
        case Mod(numerator=numerator, denominator=denominator):
            return (numerator, denominator)
        case Min(operands=operands) | Max(operands=operands):
            return operands
        case Select(then=then, otherwise=otherwise):
            return (then, otherwise)
    return ()

"""Judges a finished plan.  Shares no code with the packer: it reads only the plan's own ranges, sizes and
offsets.

What is asked, for all bindings of the domain: buffers that are live together are disjoint, every tensor
lies inside its arena, offsets are multiples of the alignment, and under the guards nothing that is
evaluated leaves 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from symalloc.plan.model import ALIGNMENT, Arena, Buffer, Placement, Plan
from symalloc.prove.domain import INT64_MAX, INT64_MIN, Domain
from symalloc.prove.prover import Prover
from symalloc.prove.verdict import Verdict
from symalloc.size.condition import Condition, conjunction, disjunction, eq, ge, le
from symalloc.size.expr import Atom, Expr, FloorDiv, Max, Min, Mod, Select

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
    judge = _Judge(domain=domain, guarded=domain.assuming(g.condition for g in plan.guards), prover=prover)
    return tuple(fault for arena in plan.arenas for fault in judge.arena(arena))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    domain: Domain
    guarded: Domain
    prover: Prover

    def arena(self, arena: Arena) -> Iterator[Fault]:
        for placement in arena.placements:
            yield from self.alone(placement, arena)
        for left, right in combinations(arena.placements, 2):
            if _together(left.buffer, right.buffer):
                yield from self.pair(left, right)
        yield from self.machine_range(arena)

    def alone(self, placement: Placement, arena: Arena) -> Iterator[Fault]:
        buffer, offset = placement.buffer, placement.offset
        name = (buffer.name,)
        yield from self.ask(ge(offset, 0), "it starts before its arena", name)
        yield from self.ask(eq(offset % ALIGNMENT, 0), f"its offset is no multiple of {ALIGNMENT}", name)
        yield from self.ask(le(buffer.nbytes, buffer.size), "it holds more bytes than are set aside", name)
        yield from self.ask(ge(buffer.size, 0), "its size can be negative", name)
        yield from self.ask(le(offset + buffer.size, arena.size), "it ends behind its arena", name)

    def pair(self, left: Placement, right: Placement) -> Iterator[Fault]:
        """The two orders are tried by themselves first: most pairs keep one order throughout."""
        before = le(left.offset + left.buffer.size, right.offset)
        after = le(right.offset + right.buffer.size, left.offset)
        if self.proved(before) or self.proved(after):
            return
        empty = (le(left.buffer.size, 0), le(right.buffer.size, 0))
        names = (left.buffer.name, right.buffer.name)
        yield from self.ask(disjunction((before, after, *empty)), "they overlap while both are live", names)

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

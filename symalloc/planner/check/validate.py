"""Validate a finished plan.  Shares only the prover with the packer: it reads only the plan's own ranges,
sizes and offsets.

What is asked (`symalloc.planner.check.obligations`), for all bindings of the domain: buffers that are live
together are disjoint, every tensor lies inside its arena, offsets are multiples of the alignment, and under
the guards nothing that is evaluated leaves 64 bits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from itertools import product, repeat
from math import gcd, lcm
from operator import add, itemgetter
from typing import NamedTuple, TypeAlias

from symalloc.analysis.dependencies import DependencyGraph, Edge, EdgeKind, dependency_graph
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.errors import RunError
from symalloc.planner.check.obligations import ArenaObligations, Obligation
from symalloc.planner.memory_plan import Arena, Plan
from symalloc.program.ir import Var
from symalloc.prover.domain import INT64_MAX, Budget, Domain, Proof, SyntacticOrder, Verdict
from symalloc.prover.prover import Prover
from symalloc.size.choice import Max, Min, Select, maximum
from symalloc.size.condition import Condition, Relation, disjunction, eq, le
from symalloc.size.expr import ZERO, Atom, Expr, FloorDiv, Mod, Monomial, from_atom, multiply


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFault:
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


class PlanRefusedError(RunError):
    """A plan that does not validate."""

    @classmethod
    def of(cls, function: str, faults: Sequence[PlanFault]) -> PlanRefusedError:
        """The refusal of the plan for `function`, naming the first of its faults that has a binding."""
        first = next((fault for fault in faults if fault.binding is not None), faults[0])
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return cls(f"the plan for `{function}` is refused: {first}{more}")


def validate(plan: Plan, domain: Domain, prover: Prover, *, machine: bool = True) -> tuple[PlanFault, ...]:
    """Return every fault of `plan` over `domain`; empty where all of it is proved.

    `machine` is that of `ArenaObligations.of_each`.
    """
    judge = ObligationProver.of(plan, domain, prover)
    return tuple(fault for arena in plan.arenas for fault in _arena_faults(arena, judge, machine))


def _arena_faults(arena: Arena, judge: ObligationProver, machine: bool) -> Iterator[PlanFault]:
    """The faults of an arena; all pairs are looked at only where those directly on each other do not do."""
    claims = ArenaObligations(arena)
    asked = claims.of_each(machine=machine, fits=partial(judge.fits, defined_by=arena.defined_by))
    found = [fault for obligation in asked for fault in _faults(obligation, judge, arena)]
    yield from found
    if found or not all(map(judge.sees, claims.piled_up())):
        yield from (fault for one in claims.all_apart() for fault in _faults(one, judge, arena))


def _faults(obligation: Obligation, judge: ObligationProver, arena: Arena) -> Iterator[PlanFault]:
    """A fault for everything that an obligation which is not proved speaks of."""
    proof = judge.proof(obligation)
    if proof.verdict is Verdict.ALWAYS_VALID:
        return
    claim = obligation.claim
    for numbers in obligation.where:
        names = tuple(arena.placements[number].buffer.name for number in sorted(numbers))
        yield PlanFault(
            problem=obligation.problem, buffers=names, constraint=claim, binding=proof.counterexample
        )


# -- the judge of obligations ------------------------------------------------------------------------------


_SEEN = Proof(verdict=Verdict.ALWAYS_VALID, decided_by="validator")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObligationProver:
    """Judges `plan` over `domain`, values past 64 bits under the guards that stand before them."""

    plan: Plan
    domain: Domain
    prover: Prover
    order: SyntacticOrder
    magnitudes: Magnitudes
    guarded: dict[Var | None, tuple[Domain, Sequence[Expr]]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, domain: Domain, prover: Prover) -> ObligationProver:
        """The judge of `plan` over `domain`, where the declared bounds hold that are checked at entry."""
        domain = domain.assuming(g.condition for g in plan.guards if g.declared)
        order = SyntacticOrder(domain)
        return cls(plan=plan, domain=domain, prover=prover, order=order, magnitudes=Magnitudes(order))

    def proof(self, obligation: Obligation) -> Proof:
        """The proof of `obligation`; with a counterexample where it does not hold."""
        if self.sees(obligation):
            return _SEEN
        if obligation.guarded:  # it limits a value, whose magnitude may be proved to fit in 64 bits
            ((low, high),) = obligation.sides
            if self.fits(high if low.as_constant is not None else low, obligation.defined_by):
                return _SEEN
        domain = self._guarded(obligation.defined_by)[0] if obligation.guarded else self.domain
        proof = self.prover.prove(obligation.claim, domain)
        return replace(proof, verdict=Verdict.ALWAYS_VALID) if proof.verdict is Verdict.VACUOUS else proof

    def sees(self, obligation: Obligation) -> bool:
        """Return whether `obligation` is proved at little cost; where it is not, nothing is known."""
        return any(self.order.at_most(low, high) for low, high in obligation.sides)

    def fits(self, value: Expr, defined_by: Var | None) -> bool:
        """Return whether it is proved that `value` and all sums of its terms fit in 64 bits, where the guards
        hold that stand before what is `defined_by`.
        """
        domain, limits = self._guarded(defined_by)
        bound, scale = self.magnitudes.scaled(value)
        excess = bound - scale * INT64_MAX
        known = any(_follows(excess, limit) for limit in limits)
        return known or self.prover.prove(le(excess, 0), domain, explain=False).holds

    def _guarded(self, defined_by: Var | None) -> tuple[Domain, Sequence[Expr]]:
        """The domain where the guards hold that stand before what is `defined_by`, and its limits."""
        if defined_by not in self.guarded:
            guards = (
                g.condition for g in self.plan.guards if g.defined_by in (None, defined_by) and not g.declared
            )
            domain = self.domain.assuming(guards)
            self.guarded[defined_by] = domain, self._limits(domain)
        return self.guarded[defined_by]

    def _limits(self, domain: Domain) -> list[Expr]:
        """The assumptions `expr <= 0` of whose terms only the constant one is ever negative."""
        return [
            a.expr
            for a in domain.assumptions
            if isinstance(a, Relation) and a.operator == "<="
            if all(c > 0 and self.order.signs.monomial(m) for m, c in a.expr.terms.items() if m)
        ]


def _follows(low: Expr, known: Expr) -> bool:
    """Return whether `low <= 0` follows from `known <= 0`, a multiple of which exceeds it term by term.

    Both are polynomials over what is >= 0, with no negative term but the constant ones.
    """
    times, over = 0, 1  # the factor of `known`
    for monomial, coefficient in low.terms.items():
        if monomial:
            have = known.terms.get(monomial, 0)
            if not have:
                return False
            if coefficient * over > times * have:
                times, over = coefficient, have
    return low.terms.get((), 0) * over <= times * known.terms.get((), 0)


# -- what no value exceeds in size -------------------------------------------------------------------------
# Written apart from the guards, which bound values before the plan is judged: neither relies on the other.

_Scaled: TypeAlias = tuple[Mapping[Monomial, int], int]
"""The terms of a polynomial, and what all of them are to be divided by."""

_UNIT: _Scaled = {(): 1}, 1


class Magnitudes:
    """Remembers the bound of every expression and atom that it met: offsets share most of what they are made
    of.
    """

    __slots__ = ("_atoms", "_known", "_order")

    def __init__(self, order: SyntacticOrder) -> None:
        self._order = order
        self._known: dict[Expr, _Scaled] = {}
        self._atoms: dict[Atom, _Scaled] = {}

    def scaled(self, expr: Expr) -> tuple[Expr, int]:
        """`(p, d)` with d*|expr| <= p everywhere and p a polynomial over what is never negative: symbols, and
        max(s, -s) for a symbol s that can be.

        No sum of terms of `expr` exceeds it either.  Divisors are taken to be at least 1.
        """
        terms, scale = self._expr(expr)
        common = gcd(scale, *terms.values())
        return Expr({m: c // common for m, c in terms.items() if c}), scale // common

    def _expr(self, expr: Expr) -> _Scaled:
        """The sum of the magnitudes of the terms."""
        found = self._known.get(expr)
        if found is None:
            powers = ([self._atom(a) for a, power in m for _ in range(power)] for m in expr.terms)
            parts = [reduce(_product, factors, _UNIT) for factors in powers]
            found = self._known[expr] = _combined(parts, map(abs, expr.terms.values()), add)
        return found

    def _atom(self, atom: Atom) -> _Scaled:
        found = self._atoms.get(atom)
        if found is None:
            found = self._atoms[atom] = self._bound(atom)
        return found

    def _bound(self, atom: Atom) -> _Scaled:
        match atom:
            case FloorDiv(numerator=above, denominator=below):
                divisor = max(below.as_constant or 1, 1)
                terms, scale = self._expr(above)
                if not self._order.at_most(ZERO, above):  # it rounds away from zero
                    terms = {**terms, (): terms.get((), 0) + divisor * scale}
                return terms, scale * divisor
            case Mod(denominator=below):
                return self._expr(below)
            case Min(operands=operands):  # what is not negative bounds it from above
                return self._largest(_without(lambda value: value >= 0, operands))
            case Max(operands=operands):
                return self._largest(_without(lambda value: value <= 0, operands))
            case Select(then=then, otherwise=otherwise):
                return self._largest((then, otherwise))
        size = from_atom(atom)
        if not self._order.at_most(ZERO, size):
            size = maximum(size, -size)
        return size.terms, 1

    def _largest(self, operands: Iterable[Expr]) -> _Scaled:
        """Term by term the largest coefficient: at least the magnitude of each operand."""
        return _combined([self._expr(operand) for operand in operands], repeat(1), max)


def _without(idle: Callable[[int], bool], operands: Sequence[Expr]) -> Sequence[Expr]:
    """The operands but for constants that are `idle`, unless there are no others."""
    return [e for e in operands if (value := e.as_constant) is None or not idle(value)] or operands


def _combined(parts: Sequence[_Scaled], times: Iterable[int], combine: Callable[[int, int], int]) -> _Scaled:
    """The terms of `parts`, each that many `times`, brought to one scale; those of one monomial combined."""
    scale = lcm(*(own for _, own in parts))
    total: dict[Monomial, int] = {}
    for (terms, own), factor in zip(parts, times, strict=False):
        for monomial, c in terms.items():
            total[monomial] = combine(total.get(monomial, 0), c * factor * (scale // own))
    return total, scale


def _product(left: _Scaled, right: _Scaled) -> _Scaled:
    total: dict[Monomial, int] = {}
    for (a, x), (b, y) in product(left[0].items(), right[0].items()):
        monomial = multiply(a, b)
        total[monomial] = total.get(monomial, 0) + x * y
    return total, left[1] * right[1]


class TensorPlace(NamedTuple):
    """The bytes of a tensor on a storage, the region `root`; None for what is not known."""

    root: int
    offset: Expr | None = None
    nbytes: Expr | None = None


def fenced_graph(analysis: FunctionAnalysis, domain: Domain) -> DependencyGraph:
    """Return the graph of a function with the fences of the plan that is written into it: an executor that
    keeps all edges computes what the order of the text does, at every shape of `domain`.
    """
    graph = dependency_graph(analysis)
    regions = {number: graph.points_to.regions[number] for number in graph.touches}
    places = {n: TensorPlace(r.root, r.offset, r.nbytes) for n, r in regions.items() if r.parent is not None}
    return graph.with_edges(fences(graph, places, domain))


def fences(graph: DependencyGraph, places: Mapping[int, TensorPlace], domain: Domain) -> tuple[Edge, ...]:
    """Return the edges that keep the order of the program between memories that share bytes, as few as
    suffice beside those of `graph`.

    What has written a place waits for all that touched it before: the next has to wait for it, and for those
    that have read the place since.  z3 is not asked: what is not proved to lie apart costs a fence at most.
    """
    apart = cache(partial(_apart, Prover(Budget(z3_steps=0)), domain))
    uses = defaultdict[int, list[tuple[bool, TensorPlace, str]]](list)  # by dispatch; True: it writes
    for memory, place in places.items():
        name = graph.points_to.regions[memory].name
        for touch in graph.touches.get(memory, ()):
            uses[touch.dispatch].append((touch.writes, place, name))
    since = defaultdict[TensorPlace, dict[int, tuple[bool, str]]](dict)
    found: list[Edge] = []
    ahead: list[int] = []
    for number, waits in enumerate(graph.predecessors):
        known = reduce(lambda known, n: known | ahead[n] | 1 << n, waits, 0)
        here = sorted(uses[number], key=itemgetter(0))
        due = [
            (early, other, one, f"{lost} / {name}")
            for writes, one, name in here
            for other, before in since.items()
            for early, (wrote, lost) in before.items()
            if (writes or wrote) and one.root == other.root and not known >> early & 1
        ]
        for early, other, one, names in sorted(due, key=itemgetter(0), reverse=True):
            if not known >> early & 1 and not apart(other, one):
                found.append(Edge(early, number, EdgeKind.FENCE, (names,)))
                known |= ahead[early] | 1 << early
        ahead.append(known)
        for writes, one, name in here:
            since[one] = {**({} if writes else since[one]), number: (writes, name)}
    return tuple(found)


def _apart(prover: Prover, domain: Domain, one: TensorPlace, other: TensorPlace) -> bool:
    """True if two places of one storage are proved to have no byte in common."""
    if one.offset is None or one.nbytes is None or other.offset is None or other.nbytes is None:
        return False
    ends = le(one.offset + one.nbytes, other.offset), le(other.offset + other.nbytes, one.offset)
    empty = eq(one.nbytes, ZERO), eq(other.nbytes, ZERO)
    return prover.prove(disjunction((*ends, *empty)), domain, explain=False).holds

"""Proves the constraints of one function: over which points each is asked, and what is known there.

The indices in kernels are proved first, over the kernel's own symbols: those hold at every call.

A verdict is sought with as few facts as possible: first what holds on entry, then what asserts, casts and
tests say, then what kernels check.  So a definite verdict does not hang on a check that is itself at fault,
and the report can say which constraints hold only thanks to a check at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice, product
from typing import NamedTuple

from symalloc.analysis.facts import Facts, FunctionFacts
from symalloc.analysis.kernels.index_bounds import (
    IndexBound,
    entry_facts_of,
    index_bounds,
    place_in_memory,
    scalars_of,
    unknown_indices,
)
from symalloc.program.ir import DeclaredBound, Function, Kernel, Origin, Var, declared_bounds
from symalloc.program.types import TensorType, TupleType, Type
from symalloc.prover.budget import Budget, excess
from symalloc.prover.domain import INT64_MIN, Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Proof, Verdict
from symalloc.size.condition import FALSE, Condition, conjunction, disjunction, ge, le, lt, negate
from symalloc.size.defined import evaluated_divisors
from symalloc.size.expr import ZERO, Expr

LARGEST_EXTENT = 2**22
"""The largest value of a symbol where inputs are taken to be ordinary."""
LARGEST_INPUT = 2**32
"""Bytes of the largest parameter tensor where inputs are taken to be ordinary."""
_GIVEN = frozenset({Origin.DIMENSION, Origin.CAST, Origin.SCALAR, Origin.FLAG})
"""The origins of symbols that have a value for each input of a function."""
_BY_SIGHT = Proof(verdict=Verdict.ALWAYS_VALID, decided_by="constant")


class Passes(NamedTuple):
    """The passes of a kernel's loops at which a constraint is asked: those where `conditions` hold.

    `counters` are symbols that count passes, each >= 0, with the number of passes where that is known; a
    fault at one pass is a fault, unless it is not `certain` that each of them is executed.
    """

    conditions: tuple[Condition, ...] = ()
    counters: tuple[tuple[str, Expr | None], ...] = ()
    certain: bool = True


ANY_PASS = Passes()
"""Where a constraint is none of a kernel's body."""


class PlacedConstraint(NamedTuple):
    """A constraint at a place where `facts` are known.

    `sized`: asked about ordinary inputs only (see `FunctionDomains`).  `divisors` are taken to be at least 1:
    the program stops at a division by 0 before anything else goes wrong, and that a divisor can be 0 is a
    finding of its own.  `passes`: asked at these passes of a kernel's loops.
    """

    constraint: Condition
    facts: Facts
    sized: bool = False
    divisors: tuple[Expr, ...] = ()
    passes: Passes = ANY_PASS


class FunctionDomains:
    """Makes the domains of one function, each once: the prover remembers by domain.

    A symbol that is an extent is at least 0, a scalar is any int64, a flag, and what stands for a test of an
    If, is 0 or 1.  Assumptions about symbols that the function does not have are left out.  A `sized` domain
    holds ordinary inputs only: no extent of 0 (an empty parameter limits no other extent), no symbol above
    `LARGEST_EXTENT`, no parameter above `LARGEST_INPUT` bytes.  `bounds` are the declared bounds,
    which no domain takes for granted.
    """

    def __init__(self, function: Function, facts: FunctionFacts, assume: Sequence[Condition]) -> None:
        lower = {name: INT64_MIN for name, origin in function.symbols.items() if origin is Origin.SCALAR}
        flags = {name for name, origin in function.symbols.items() if origin is Origin.FLAG}
        flags |= frozenset().union(*(c.symbols for c in facts.tests.values())) - function.symbols.keys()
        self.flags = dict.fromkeys(sorted(flags), 0)
        known = function.symbols.keys()
        given = [c.substitute(facts.definitions) for c in assume if c.symbols <= known]
        upper = dict.fromkeys(self.flags, 1)
        self.entry = Domain(lower=lower | self.flags, upper=upper, assumptions=(*given, *facts.entry))
        self.bounds = declared_bounds(function)
        given_value = (n for n, origin in function.symbols.items() if origin in _GIVEN)
        self.inputs = tuple(name for name in given_value if name not in facts.definitions)
        self._sized = self._ordinary(function)
        self._made: dict[tuple[Facts | None, bool, bool, tuple[Expr, ...], Passes], Domain] = {}

    def _ordinary(self, function: Function) -> Domain:
        inputs = (t.nbytes for p in function.params for t in _tensors(p))
        limits = [le(nbytes, LARGEST_INPUT) for nbytes in inputs if nbytes is not None]
        domain = self.entry.assuming(c for c in dict.fromkeys(limits) if c.as_bool is None)
        lower = dict.fromkeys(domain.lower, -LARGEST_EXTENT) | self.flags
        return replace(non_empty(domain), lower=lower, default_upper=LARGEST_EXTENT)

    def over(
        self,
        facts: Facts | None = None,
        *,
        calls: bool = False,
        sized: bool = False,
        divisors: tuple[Expr, ...] = (),
        passes: Passes = ANY_PASS,
    ) -> Domain:
        """The inputs where `facts` (those of kernels only with `calls`) hold; `divisors` are at least 1."""
        if facts is None and not divisors and passes is ANY_PASS:
            return self._sized if sized else self.entry
        key = (facts, calls, sized, divisors, passes)
        domain = self._made.get(key)
        if domain is None:
            guards = facts.guards if facts is not None else ()
            checks = facts.calls if facts is not None and calls else ()
            usable = (ge(divisor, 1) for divisor in divisors)
            domain = self.over(sized=sized).assuming((*guards, *checks, *usable, *passes.conditions))
            if passes.counters:
                domain = replace(domain, lower={**domain.lower, **{name: 0 for name, _ in passes.counters}})
            self._made[key] = domain
        return domain


GLANCE = Budget(z3_steps=5_000, z3_milliseconds=500, sampling_steps=400, cases=12, work=6_000)


class FunctionProver:
    """Proves the constraints of one function."""

    def __init__(self, prover: Prover, domains: FunctionDomains) -> None:
        self.prover, self.domains = prover, domains

    @cached_property
    def glancing(self) -> FunctionProver:
        """The same with a small budget, for what is a fault only where a point is found that shows it."""
        return FunctionProver(Prover(GLANCE), self.domains)

    def decide(self, asked: PlacedConstraint) -> Proof:
        """The verdict on a constraint where it stands; `guarded` where it takes a check at run time."""
        constraint, facts, sized, divisors, passes = asked
        if constraint.as_bool is True:
            return _BY_SIGHT
        over = partial(self.domains.over, sized=sized, divisors=divisors, passes=passes)
        proof = self._ask(constraint, over())
        if facts.guards and not proof.holds:
            proof = self._ask(constraint, over(facts))
            if proof.verdict is Verdict.ALWAYS_VALID:
                return replace(proof, guarded=True)
        if sized and proof.verdict is Verdict.VACUOUS:  # what is given asks for inputs that are not ordinary
            return self.decide(asked._replace(sized=False))
        if facts.calls and proof.verdict is Verdict.RUNTIME_CHECK:
            checked = self._ask(constraint, over(facts, calls=True))
            if checked.verdict is Verdict.ALWAYS_VALID:
                return replace(checked, guarded=True)
            if checked.verdict is not Verdict.VACUOUS:
                return checked
        return proof

    def explain(self, constraint: Condition, decided: Proof) -> tuple[Proof, bool]:
        """Prove what does not always hold, with points; and tell whether only empty tensors break it.

        The counterexample has extents of at least 1 where there is such a one, and is the smallest of those.
        A constraint that no non-empty shape satisfies is `always-invalid` here; its witness is a point with
        an empty tensor.  What is very long and was not decided is only glanced at.
        """
        domain = domain_of(decided)
        hopeless = decided.unknown and decided.counterexample is None and excess((constraint,)) > 1
        proof = decided if hopeless else self.prover.prove(constraint, domain)
        if proof.verdict is not Verdict.RUNTIME_CHECK:
            return self._at_a_shape(proof), False
        prover = self.glancing.prover if hopeless else self.prover
        inner = prover.prove(constraint, non_empty(domain))
        if inner.verdict is Verdict.ALWAYS_INVALID:
            return self._at_a_shape(replace(inner, witness=proof.witness, domain=domain)), False
        if inner.counterexample is None:
            return replace(proof, smallest=proof.smallest and inner.holds), inner.holds
        return replace(proof, counterexample=inner.counterexample, smallest=inner.smallest), inner.holds

    def at_every_shape(self, asked: PlacedConstraint, proof: Proof) -> Proof:
        """`proof` as always invalid where a pass of a kernel's loops is shown to fail at every shape.

        That is so where no shape has a say, and where a first or last pass fails whatever the shape is.
        """
        counters = {name for name, _ in asked.passes.counters}
        spoken = asked.constraint.symbols.union(*(c.symbols for c in asked.passes.conditions))
        static = proof.counterexample is not None and spoken <= counters
        if not static and not self._runs_at_every_shape(asked):
            return proof
        if static or any(self._fails_at(asked, values) for values in _corners(asked.passes)):
            return self._at_a_shape(replace(proof, verdict=Verdict.ALWAYS_INVALID, precondition=None))
        return proof

    def _at_a_shape(self, proof: Proof) -> Proof:
        """`proof`, if it is always invalid, with a point even where no symbol of the function has a say.

        All points of its domain are as good then; the one taken has small values.
        """
        inputs, point = self.domains.inputs, proof.counterexample or {}
        if proof.verdict is not Verdict.ALWAYS_INVALID or not inputs or any(name in point for name in inputs):
            return proof
        for domain in (non_empty(domain_of(proof)), domain_of(proof)):
            found = self.prover.complete(point, domain)
            if found is not None:
                nearest = {n: max(domain.lower_of(n), min(domain.upper_of(n), 0)) for n in inputs}
                return replace(proof, counterexample={**nearest, **found}, smallest=False)
        return proof

    def with_passes(self, proof: Proof) -> Proof:
        """`proof` with values in its counterexample for the inputs that it leaves out and that may not be 1.

        What is assumed of them says when the place is got to: that a loop is run, or a check passed.
        """
        point = proof.counterexample
        if point is None or _are_met(domain_of(proof), point, self.domains.inputs):
            return proof
        for domain in (non_empty(domain_of(proof)), domain_of(proof)):
            found = self.prover.complete(point, domain)
            if found is not None:
                more = {name: found[name] for name in self.domains.inputs if found.get(name, 1) != 1}
                return replace(proof, counterexample={**point, **more})
        return proof

    def at_some_shape(self, asked: PlacedConstraint, proof: Proof) -> tuple[Proof, bool]:
        """`proof`, which says that each pass fails, as one of a fault at those shapes that have such a pass,
        and whether all of these hold empty tensors.

        The same where each shape is shown to have one.
        """
        counted = {name for name, _ in asked.passes.counters}
        spoken = asked.constraint.symbols.union(*(c.symbols for c in asked.passes.conditions))
        if spoken <= counted or (not counted and self._runs_at_every_shape(asked)):
            return proof, False
        passes = Passes((), asked.passes.counters, asked.passes.certain)
        domain = self.domains.over(
            asked.facts, calls=True, sized=asked.sized, divisors=asked.divisors, passes=passes
        )
        idle = negate(conjunction(asked.passes.conditions))
        found = self.prover.prove(disjunction((idle, asked.constraint)), non_empty(domain))
        if found.holds:
            return replace(proof, verdict=Verdict.RUNTIME_CHECK, precondition=None), True
        if found.counterexample is None:
            return proof, False
        return self.at_every_shape(asked, replace(found, precondition=None)), False

    def _runs_at_every_shape(self, asked: PlacedConstraint) -> bool:
        """True if the conditions on sizes alone under which there are passes hold unless a shape is empty."""
        counters = {name for name, _ in asked.passes.counters}
        needed = [c for c in asked.passes.conditions if c.symbols.isdisjoint(counters)]
        ends = (last for _, last in asked.passes.counters if last is not None)
        needed += (ge(last, 1) for last in ends if last.symbols.isdisjoint(counters))
        domain = self.domains.over(asked.facts, calls=True, divisors=asked.divisors)
        return self._ask(conjunction(needed), non_empty(domain)).holds

    def _fails_at(self, asked: PlacedConstraint, values: Mapping[str, Expr]) -> bool:
        """Return whether a pass is proved to be executed and to fail at every shape at which loops run."""
        inside = [c for c in asked.passes.conditions if not c.symbols.isdisjoint(values)]
        given = [c for c in asked.passes.conditions if c.symbols.isdisjoint(values)]
        runs = [ge(passes, 1) for _, passes in asked.passes.counters if passes is not None]
        domain = self.domains.over(
            asked.facts, calls=True, divisors=asked.divisors, passes=Passes((*given, *runs))
        )
        fails = conjunction((*inside, negate(asked.constraint))).substitute(values)
        return self._ask(fails, non_empty(domain)).verdict is Verdict.ALWAYS_VALID

    def always(self, condition: Condition) -> bool:
        """True where `condition` is proved for all inputs of the function."""
        return self._ask(condition, self.domains.entry).holds

    def possible(self, conditions: Sequence[Condition]) -> bool | None:
        """Return whether `conditions` can hold together for some inputs; None where undecided."""
        verdict = self._ask(FALSE, self.domains.entry.assuming(conditions)).verdict
        return None if verdict is Verdict.RUNTIME_CHECK else verdict is Verdict.ALWAYS_INVALID

    def needed_bounds(self, constraint: Condition, domain: Domain) -> tuple[DeclaredBound, ...]:
        """The declared bounds without one of which `constraint` is not proved over `domain`; none where they
        do not make it hold.
        """
        bounds = self.bounds
        if not bounds or not self._holds_within(constraint, domain, bounds):
            return ()
        own = sorted(bounds, key=lambda bound: (bound.symbol not in constraint.symbols, not bound.is_upper))
        kept = next(((bound,) for bound in own if self._holds_within(constraint, domain, (bound,))), None)
        if kept is not None:
            return kept
        for bound in reversed(own):
            fewer = tuple(other for other in bounds if other != bound)
            if self._holds_within(constraint, domain, fewer):
                bounds = fewer
        return bounds

    def within_bounds(self, constraint: Condition, domain: Domain) -> Proof | None:
        """The proof where callers keep to the declared bounds; None where these settle nothing."""
        if not self.bounds:
            return None
        limited = domain.assuming(bound.condition for bound in self.bounds)
        for bounded in (non_empty(limited), limited):
            proof = self.prover.prove(constraint, bounded)
            if proof.counterexample is not None:
                return proof
        return None

    @cached_property
    def bounds(self) -> tuple[DeclaredBound, ...]:
        """The declared bounds; none where they contradict each other, or what is known on entry."""
        found = self.domains.bounds
        return () if self.possible([bound.condition for bound in found]) is False else found

    def _holds_within(self, constraint: Condition, domain: Domain, bounds: Sequence[DeclaredBound]) -> bool:
        return self._ask(constraint, domain.assuming(bound.condition for bound in bounds)).holds

    def _ask(self, constraint: Condition, domain: Domain) -> Proof:
        return self.prover.prove(constraint, domain, explain=False)


_MOST_TRIED = 8
"""Passes that are tried out to find one that fails at every shape."""


def _corners(passes: Passes) -> Iterator[Mapping[str, Expr]]:
    """The first and last passes of loops whose ends do not depend on each other."""
    names = frozenset(name for name, _ in passes.counters)
    ends = [
        (ZERO,) if last is None or last.symbols & names else (last - 1, ZERO) for _, last in passes.counters
    ]
    for values in islice(product(*ends), _MOST_TRIED):
        yield {name: value for (name, _), value in zip(passes.counters, values, strict=True)}


def _are_met(domain: Domain, point: Mapping[str, int], inputs: Collection[str]) -> bool:
    """True if all assumptions hold at `point`, where other inputs are 1 and loops at their first pass."""
    about = [condition for condition in domain.assumptions if not condition.symbols <= point.keys()]
    names = frozenset().union(*(condition.symbols for condition in about))
    values = {name: int(name in inputs) for name in names} | dict(point)
    try:
        return all(condition.evaluate(values) for condition in about)
    except ZeroDivisionError:
        return False


def non_empty(domain: Domain) -> Domain:
    """The points of `domain` at which every extent is at least 1; scalars keep their bounds."""
    return replace(domain, default_lower=max(1, domain.default_lower))


def domain_of(proof: Proof) -> Domain:
    """The domain that a proof was found over."""
    return Domain() if proof.domain is None else proof.domain


def _tensors(param: Var) -> list[TensorType]:
    found: list[TensorType] = []
    pending: list[Type] = [param.type]
    while pending:
        kind = pending.pop()
        if isinstance(kind, TensorType):
            found.append(kind)
        elif isinstance(kind, TupleType):
            pending.extend(kind.fields)
    return found


class UnprovedIndices:
    """The indices of kernels that the kernel's own text does not prove to be inside their buffers.

    Each kernel is looked at once, when it is first asked for: what holds for all its extents and scalars
    holds at every call.  `data_dependent` counts the indices in these kernels that depend on data.
    """

    def __init__(self, kernels: Mapping[str, Kernel], prover: Prover) -> None:
        self._kernels, self._prover = kernels, prover
        self._known: dict[str, tuple[IndexBound, ...]] = {}
        self.data_dependent = 0

    def of(self, name: str) -> tuple[IndexBound, ...]:
        """The indices of the kernel `name` that are not proved; none for what is no kernel."""
        found = self._known.get(name)
        if found is None:
            kernel = self._kernels.get(name)
            found = self._known[name] = () if kernel is None else tuple(self._unproved(kernel))
        return found

    def _unproved(self, kernel: Kernel) -> Iterator[IndexBound]:
        self.data_dependent += unknown_indices(kernel)
        bounds = list(index_bounds(kernel))
        if not bounds:
            return
        lower = dict.fromkeys(scalars_of(kernel), INT64_MIN)
        domain = Domain(lower=lower, assumptions=(*kernel.asserts, *entry_facts_of(kernel)))
        for bound in bounds:
            if not self._is_inside(bound, domain):
                place = place_in_memory(kernel, bound)
                in_memory = place is not None and bound.access.exact and self._is_inside(place, domain)
                yield replace(bound, in_memory=in_memory)

    def _is_inside(self, bound: IndexBound, domain: Domain) -> bool:
        """True if it is proved that an index is inside: at every pass, or where it is not known which of them
        are executed at some pass.
        """
        least, greatest = bound.certain_range
        wanted = conjunction((le(ZERO, least), lt(greatest, bound.extent)))
        if wanted.as_bool is not None:
            return wanted.as_bool
        divisors = evaluated_divisors((bound.range.least, bound.range.greatest, bound.extent))
        usable = (ge(divisor, 1) for divisor in divisors)
        return self._prover.implies((*bound.range.where, *usable), wanted, domain)

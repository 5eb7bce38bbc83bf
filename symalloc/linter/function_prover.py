"""Proves the constraints of one function: over which points each is asked, and what is known there.

The indices in kernels are proved first, over the kernel's own symbols: those hold at every call.

A verdict is sought with as few facts as possible: first what holds on entry, then what asserts, casts and
tests say, then what kernels check.  So a definite verdict does not hang on a check that is itself at fault,
and the report can say which constraints hold only thanks to a check at run time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice, product
from typing import NamedTuple

from symalloc.analysis.facts import Facts, FunctionFacts
from symalloc.analysis.kernels.coverage import KernelTable, Passes, kernel_coverage
from symalloc.analysis.kernels.index_bounds import (
    IndexBound,
    entry_facts_of,
    index_bounds,
    place_in_memory,
    scalars_of,
)
from symalloc.program.ir import DeclaredBound, Function, Kernel, KernelAccess, Origin, declared_bounds
from symalloc.program.types import TensorType, type_leaves
from symalloc.prover.domain import INT64_MIN, Domain, Proof, Verdict
from symalloc.prover.prover import Prover
from symalloc.size.choice import evaluated_divisors
from symalloc.size.condition import FALSE, Condition, conjunction, disjunction, ge, le, lt, negate
from symalloc.size.expr import ZERO, Expr

LARGEST_EXTENT = 2**22
"""The largest value of a symbol where inputs are taken to be ordinary."""
LONG = 1600
"""Characters of a constraint from which on it is only glanced at again where it was not decided."""
LARGEST_INPUT = 2**32
"""Bytes of the largest parameter tensor where inputs are taken to be ordinary."""
_GIVEN = frozenset({Origin.DIMENSION, Origin.CAST, Origin.SCALAR, Origin.FLAG})
"""The origins of symbols that have a value for each input of a function."""
_BY_SIGHT = Proof(verdict=Verdict.ALWAYS_VALID, decided_by="constant")


ANY_PASS = Passes()
"""Where a constraint is none of a kernel's body."""


class PlacedConstraint(NamedTuple):
    """A constraint at a place where `facts` are known.

    `sized`: asked about ordinary inputs only (see `FunctionProver`).  `divisors` are taken to be at least 1:
    the program stops at a division by 0 before anything else goes wrong, and that a divisor can be 0 is a
    finding of its own.  `passes`: asked at these passes of a kernel's loops.
    """

    constraint: Condition
    facts: Facts
    sized: bool = False
    divisors: tuple[Expr, ...] = ()
    passes: Passes = ANY_PASS


class FunctionProver:
    """Proves the constraints of one function.

    A symbol that is an extent is at least 0, a scalar is any int64, a flag, and what stands for a test of an
    If, is 0 or 1.  Assumptions about symbols that the function does not have are left out.  Ordinary inputs
    have no extent of 0 (an empty parameter limits no other extent), no symbol above `LARGEST_EXTENT`, no
    parameter above `LARGEST_INPUT` bytes.  No domain takes the declared bounds for granted.
    """

    def __init__(
        self, prover: Prover, function: Function, facts: FunctionFacts, assume: Sequence[Condition] = ()
    ) -> None:
        self.prover, self.function = prover, function
        known = function.symbols.keys()
        scalars = {name for name, origin in function.symbols.items() if origin is Origin.SCALAR}
        flags = {name for name, origin in function.symbols.items() if origin is Origin.FLAG}
        flags |= frozenset().union(*(c.symbols for c in facts.tests.values())) - known
        self._flags = dict.fromkeys(sorted(flags), 0)
        lower, upper = dict.fromkeys(scalars, INT64_MIN) | self._flags, dict.fromkeys(self._flags, 1)
        given = [c.substitute(facts.definitions) for c in assume if c.symbols <= known]
        self.entry = Domain(lower=lower, upper=upper, assumptions=(*given, *facts.entry))
        given_value = (name for name, origin in function.symbols.items() if origin in _GIVEN)
        self.inputs = tuple(name for name in given_value if name not in facts.definitions)

    @cached_property
    def glancing(self) -> FunctionProver:
        """The same with a small budget, for what is a fault only where a point is found that shows it."""
        other = copy(self)
        other.prover = self.prover.glancing
        return other

    @cached_property
    def _ordinary(self) -> Domain:
        """The inputs that are ordinary."""
        leaves = (kind for param in self.function.params for _, kind in type_leaves(param.type))
        inputs = (kind.nbytes for kind in leaves if isinstance(kind, TensorType))
        limits = [le(nbytes, LARGEST_INPUT) for nbytes in inputs if nbytes is not None]
        domain = self.entry.assuming(c for c in dict.fromkeys(limits) if c.as_bool is None)
        lower = dict.fromkeys(domain.lower, -LARGEST_EXTENT) | self._flags
        return replace(non_empty(domain), lower=lower, default_upper=LARGEST_EXTENT)

    def _over(self, asked: PlacedConstraint, *, guards: bool = True, calls: bool = False) -> Domain:
        """The inputs that a constraint is asked about, where what is known of its place holds."""
        known = (*(asked.facts.guards if guards else ()), *(asked.facts.calls if calls else ()))
        usable = (ge(divisor, 1) for divisor in asked.divisors)
        domain = self._ordinary if asked.sized else self.entry
        domain = domain.assuming((*known, *usable, *asked.passes.conditions))
        counted = {name: 0 for name, _ in asked.passes.counters}
        return replace(domain, lower={**domain.lower, **counted}) if counted else domain

    def decide(self, asked: PlacedConstraint) -> Proof:
        """The verdict on a constraint where it stands; `guarded` where it takes a check at run time."""
        constraint, facts = asked.constraint, asked.facts
        if constraint.as_bool is True:
            return _BY_SIGHT
        proof = self._ask(constraint, self._over(asked, guards=False))
        if facts.guards and not proof.holds:
            proof = self._ask(constraint, self._over(asked))
            if proof.verdict is Verdict.ALWAYS_VALID:
                return replace(proof, guarded=True)
        if asked.sized and proof.verdict is Verdict.VACUOUS:  # what is given asks for other inputs
            return self.decide(asked._replace(sized=False))
        if facts.calls and proof.verdict is Verdict.RUNTIME_CHECK:
            checked = self._ask(constraint, self._over(asked, calls=True))
            if checked.verdict is Verdict.ALWAYS_VALID:
                return replace(checked, guarded=True)
            if checked.verdict is not Verdict.VACUOUS:
                return checked
        return proof

    def explain(
        self, asked: PlacedConstraint, decided: Proof, *, numbers: bool = False
    ) -> tuple[Proof, bool]:
        """Prove what does not always hold, with points; and tell whether only empty tensors break it, or
        `numbers` below 1.

        The counterexample has extents of at least 1 and no negative number where there is such a one, and is
        the smallest of those.
        A constraint that no non-empty shape satisfies is `always-invalid` here; its witness is a point with
        an empty tensor.  What is very long and was not decided is only glanced at.
        """
        constraint, domain = asked.constraint, domain_of(decided)
        hopeless = decided.unknown and decided.counterexample is None and len(constraint.key) >= LONG
        proof = decided if hopeless else self.prover.prove(constraint, domain)
        if proof.verdict is not Verdict.RUNTIME_CHECK:
            return self._at_shapes(asked, proof)
        prover = self.prover.glancing if hopeless else self.prover
        inner = prover.prove(constraint, non_empty(domain, numbers=numbers))
        if any(value < 0 for value in (inner.counterexample or {}).values()):
            usual = prover.prove(constraint, non_empty(domain, numbers=True))
            if usual.counterexample is not None:
                inner = replace(inner, counterexample=usual.counterexample, smallest=usual.smallest)
        if inner.verdict is Verdict.ALWAYS_INVALID:
            return self._at_shapes(asked, replace(inner, witness=proof.witness, domain=domain))
        if inner.counterexample is None:
            proof = replace(proof, smallest=proof.smallest and inner.holds)
        else:
            proof = replace(proof, counterexample=inner.counterexample, smallest=inner.smallest)
        return self._at_shapes(asked, proof, only_empty=inner.holds)

    def _at_shapes(
        self, asked: PlacedConstraint, proof: Proof, *, only_empty: bool = False
    ) -> tuple[Proof, bool]:
        """`proof`, which is about all passes of a kernel's loops, as one about shapes: a shape is at fault if
        a pass that it has fails.
        """
        if proof.holds or not (asked.passes.conditions or asked.passes.counters):
            return proof, only_empty
        counters = {name for name, _ in asked.passes.counters}
        spoken = asked.constraint.symbols.union(*(c.symbols for c in asked.passes.conditions))
        shown = proof.counterexample is not None and spoken <= counters  # whatever the shape is
        if shown or self._fails_at_every_shape(asked):
            return replace(proof, verdict=Verdict.ALWAYS_INVALID, precondition=None), False
        if proof.verdict is Verdict.RUNTIME_CHECK:
            return self._or_without_passes(proof, asked.passes, counters), only_empty
        inner = self.prover.prove(asked.constraint, non_empty(domain_of(proof)))
        found = proof if inner.counterexample is None else replace(inner, domain=proof.domain)
        return replace(found, verdict=Verdict.RUNTIME_CHECK, precondition=None), inner.holds

    def _or_without_passes(self, proof: Proof, passes: Passes, counters: set[str]) -> Proof:
        """`proof` with a precondition that shapes meet, too, at which no pass is run."""
        over_shapes = (c for c in passes.conditions if c.symbols.isdisjoint(counters))
        without = disjunction(negate(c) for c in over_shapes if getattr(c, "operator", "") != "==")
        if proof.precondition is not None:
            left_out = non_empty(self.entry).assuming((without, negate(proof.precondition)))
            if self._ask(FALSE, left_out).verdict is Verdict.ALWAYS_INVALID:
                return replace(proof, precondition=disjunction((without, proof.precondition)))
        return proof

    def _fails_at_every_shape(self, asked: PlacedConstraint) -> bool:
        """True if one pass is proved to be run, and to fail, at every shape without an empty tensor."""
        passes = asked.passes
        runs = [FALSE if last is None else ge(last, 1) for _, last in passes.counters]
        fails = conjunction((*passes.conditions, *runs, negate(asked.constraint)))
        domain = non_empty(self._over(asked._replace(sized=False, passes=ANY_PASS), calls=True))
        tried = (self._ask(fails.substitute(values), domain) for values in _corners(passes))
        return any(proof.verdict is Verdict.ALWAYS_VALID for proof in tried)

    def completed(self, proof: Proof, constraint: Condition) -> Proof:
        """`proof` with values in its counterexample for the inputs that it leaves out and that may not be 1.

        What is assumed of them says when the place is got to: that a loop is run, or a check passed.  Where
        all points of the domain are as good, one with small values is taken; none if `constraint` is false.
        """
        if constraint.as_bool is False and not domain_of(proof).assumptions:  # at every shape
            return replace(proof, counterexample={}, smallest=True)
        point, inputs = proof.counterexample or {}, self.inputs
        every = proof.verdict is Verdict.ALWAYS_INVALID and inputs and point.keys().isdisjoint(inputs)
        if not every and (proof.counterexample is None or _are_met(domain_of(proof), point, inputs)):
            return proof
        for domain in (non_empty(domain_of(proof)), domain_of(proof)):
            found = self.prover.complete(point, domain)
            if found is not None and every:
                nearest = {n: max(domain.lower_of(n), min(domain.upper_of(n), 0)) for n in inputs}
                return replace(proof, counterexample={**nearest, **found}, smallest=False)
            if found is not None:
                more = {name: found[name] for name in inputs if found.get(name, 1) != 1}
                return replace(proof, counterexample={**point, **more})
        return proof

    def always(self, condition: Condition) -> bool:
        """True where `condition` is proved for all inputs of the function."""
        return self._ask(condition, self.entry).holds

    def possible(self, conditions: Sequence[Condition]) -> bool | None:
        """Return whether `conditions` can hold together for some inputs; None where undecided."""
        verdict = self._ask(FALSE, self.entry.assuming(conditions)).verdict
        return None if verdict is Verdict.RUNTIME_CHECK else verdict is Verdict.ALWAYS_INVALID

    def needed_bounds(self, constraint: Condition, domain: Domain) -> tuple[DeclaredBound, ...]:
        """The declared bounds without one of which `constraint` is not proved over `domain`; none where they
        do not make it hold.
        """
        kept = sorted(self.bounds, key=lambda b: (b.symbol not in constraint.symbols, not b.is_upper))
        if not kept or not self._holds_within(constraint, domain, kept):
            return ()
        for bound in reversed(kept):
            fewer = [other for other in kept if other != bound]
            if self._holds_within(constraint, domain, fewer):
                kept = fewer
        return tuple(kept)

    def within_bounds(self, constraint: Condition, domain: Domain) -> Proof | None:
        """The proof where callers keep to the declared bounds; None where these settle nothing."""
        if not self.bounds:
            return None
        limited = domain.assuming(bound.condition for bound in self.bounds)
        proofs = (self.prover.prove(constraint, bounded) for bounded in (non_empty(limited), limited))
        return next((proof for proof in proofs if proof.counterexample is not None), None)

    @cached_property
    def bounds(self) -> tuple[DeclaredBound, ...]:
        """The declared bounds; none where they contradict each other, or what is known on entry."""
        found = declared_bounds(self.function)
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


def non_empty(domain: Domain, *, numbers: bool = False) -> Domain:
    """The points of `domain` at which every extent is at least 1; scalars keep their bounds, but for
    `numbers`.
    """
    lower = {name: max(1, low) for name, low in domain.lower.items()} if numbers else domain.lower
    return replace(domain, lower=lower, default_lower=max(1, domain.default_lower))


def domain_of(proof: Proof) -> Domain:
    """The domain that a proof was found over."""
    return Domain() if proof.domain is None else proof.domain


class KernelProofs:
    """The proofs about kernels whatever they are given: what holds for all extents and scalars holds at every
    call.

    `coverage` is that of a kernel, `unproved` are its indices that its own text does not prove to be inside
    their buffers.
    """

    def __init__(self, prover: Prover) -> None:
        self.coverage = KernelTable(partial(kernel_coverage, decide=partial(_possible, prover))).of
        self.unproved = KernelTable(lambda one: tuple(unproved_among(prover, one, one.accesses))).of


def unproved_among(prover: Prover, kernel: Kernel, accesses: Iterable[KernelAccess]) -> Iterator[IndexBound]:
    """The indices of some accesses of a kernel that its own text does not prove to be inside."""
    for bound in index_bounds(kernel, accesses):
        domain = _domain_of_kernel(kernel)
        if not _is_inside(prover, bound, domain):
            place = place_in_memory(kernel, bound)
            in_memory = place is not None and bound.access.exact and _is_inside(prover, place, domain)
            yield replace(bound, in_memory=in_memory)


def _possible(prover: Prover, kernel: Kernel, conditions: Sequence[Condition]) -> bool | None:
    """Return whether conditions can hold together at some passes of a kernel; None where undecided."""
    domain = _domain_of_kernel(kernel).assuming(conditions)
    verdict = prover.glancing.prove(FALSE, domain, explain=False).verdict
    return None if verdict is Verdict.RUNTIME_CHECK else verdict is Verdict.ALWAYS_INVALID


def _is_inside(prover: Prover, bound: IndexBound, domain: Domain) -> bool:
    """True if it is proved that an index is inside: at every pass, or where it is not known which of them are
    executed at some pass.
    """
    least, greatest = bound.certain_range
    wanted = conjunction((le(ZERO, least), lt(greatest, bound.extent)))
    if wanted.as_bool is not None:
        return wanted.as_bool
    divisors = evaluated_divisors((bound.range.least, bound.range.greatest, bound.extent))
    usable = (ge(divisor, 1) for divisor in divisors)
    return prover.implies((*bound.range.where, *usable), wanted, domain)


def _domain_of_kernel(kernel: Kernel) -> Domain:
    """The sizes at which a kernel is called: its assertions hold only behind them."""
    return Domain(lower=dict.fromkeys(scalars_of(kernel), INT64_MIN), assumptions=entry_facts_of(kernel))

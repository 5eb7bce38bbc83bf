"""The cascade: each question goes to the cheapest layer that can settle it; z3 is asked last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from time import perf_counter

from symalloc.prover.domain import GLANCE, Box, Budget, Domain, Meter, Proof, Verdict, interval
from symalloc.prover.normalize import NormalizedDomain, components, normalize, read_bound, relevant
from symalloc.prover.query import Query, decide_query, first_points, inhabited, refute, satisfies, undecided
from symalloc.prover.smtlib import Solver
from symalloc.size.choice import Max, Min, fails, holds
from symalloc.size.condition import (
    TRUE,
    And,
    Condition,
    Junction,
    Or,
    Relation,
    conjunction,
    disjunction,
    eq,
    ge,
    le,
    ne,
    relation,
)
from symalloc.size.expr import Atom, Expr, FloorDiv, Mod, Symbol, evaluated, mod, symbol


class DomainCache:
    """A domain with its assumptions grouped, and its normal forms."""

    __slots__ = ("by_symbols", "domain", "empty", "groups")

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.empty = any(domain.lower_of(n) > domain.upper_of(n) for n in {**domain.lower, **domain.upper})
        self.groups = components(domain.assumptions) if domain.assumptions else []
        self.by_symbols: dict[frozenset[str], tuple[NormalizedDomain, str]] = {}

    def normalized(self, symbols: frozenset[str]) -> tuple[NormalizedDomain, str]:
        """The part of the domain that matters for `symbols`, and the text of its assumptions."""
        found = self.by_symbols.get(symbols)
        if found is None:
            names, assumptions = relevant(self.groups, symbols)
            text = "&".join(a.key for a in assumptions)
            found = (normalize(self.domain, names, assumptions), text)
            self.by_symbols[symbols] = found
        return found

    def other_parts(self, names: frozenset[str]) -> list[NormalizedDomain]:
        """The parts of the domain whose assumptions have no symbol of `names`."""
        return [self.normalized(group)[0] for group, _ in self.groups if group.isdisjoint(names)]


def content_key(domain: Domain) -> tuple[object, ...]:
    """A key that is equal for domains that say the same in the same order."""
    return (
        domain.default_lower,
        domain.default_upper,
        tuple(sorted(domain.lower.items())),
        tuple(sorted(domain.upper.items())),
        tuple(a.key for a in domain.assumptions),
    )


MAX_DOMAINS = 4096
MAX_PROOFS = 200_000
_EVERYTHING = Domain()


class Prover:
    """Decides conditions over domains, and remembers: by condition, and by what of a domain matters to it."""

    def __init__(self, budget: Budget = Budget()) -> None:  # noqa: B008 - frozen
        self.budget = budget
        self.solver = Solver(budget)
        # How many constraints each layer decided; answers from the cache do not count again.
        self.decided: Counter[str] = Counter()
        self._by_content: dict[tuple[object, ...], DomainCache] = {}
        self._proofs: dict[tuple[object, ...], Proof] = {}

    @cached_property
    def glancing(self) -> Prover:
        """A prover with a small budget."""
        return Prover(GLANCE)

    def prove(self, constraint: Condition, domain: Domain = _EVERYTHING, *, explain: bool = True) -> Proof:
        """The verdict on `constraint` over `domain`.

        With `explain` also the smallest counterexample and a precondition where one is found; without,
        whatever points the decision came by.
        """
        start, cache = perf_counter(), self._cache(domain)
        key = self._key(constraint, cache, explain)
        proof = self._proofs.get(key)
        if proof is None and explain:
            known = self._proofs.get((*key[:-1], False))
            if known and (known.holds or (known.unknown and known.counterexample is None)):
                proof = known  # there is no point to make smaller
        if proof is None:
            proof = self._decide(constraint, cache, explain)
            proof = replace(proof, seconds=perf_counter() - start, domain=cache.domain)
            self.decided[proof.decided_by] += 1
            if len(self._proofs) >= MAX_PROOFS:
                self._proofs.clear()
            self._proofs[key] = proof
        return proof if proof.domain is cache.domain else replace(proof, domain=cache.domain)

    def implies(
        self, premises: Iterable[Condition], conclusion: Condition, domain: Domain = _EVERYTHING
    ) -> bool:
        """True if `conclusion` was proved to follow from `premises` over `domain`; else False."""
        return self.prove(conclusion, domain.assuming(premises), explain=False).holds

    def complete(self, point: Mapping[str, int], domain: Domain) -> dict[str, int] | None:
        """`point` with small values for the assumptions' symbols that it leaves out; None where none are
        known.
        """
        cache = self._cache(domain)
        full = dict(point)
        for normalized in cache.other_parts(frozenset(point)):
            if inhabited(normalized, self.solver) is not True:
                return None
            self.solver.begin()
            start = first_points(normalized)[0]
            full |= normalized.to_domain(smallest(start, TRUE, normalized, self.solver)[0])
        return full

    def _cache(self, domain: Domain) -> DomainCache:
        key = content_key(domain)
        cache = self._by_content.get(key)
        if cache is None:
            if len(self._by_content) >= MAX_DOMAINS:
                self._by_content.clear()
            cache = self._by_content[key] = DomainCache(domain)
        return cache

    def _key(self, constraint: Condition, cache: DomainCache, explain: bool) -> tuple[object, ...]:
        """The question by that part of the domain which has to do with it."""
        normalized, text = cache.normalized(constraint.symbols)
        domain = cache.domain
        bounds = tuple((n, domain.lower_of(n), domain.upper_of(n)) for n in normalized.names)
        return constraint.key, text, bounds, self._others(cache, normalized), explain

    def _decide(self, constraint: Condition, cache: DomainCache, explain: bool) -> Proof:
        normalized, _ = cache.normalized(constraint.symbols)
        living = (inhabited(normalized, self.solver), self._others(cache, normalized))
        if False in living:
            return Proof(
                verdict=Verdict.VACUOUS, decided_by="bounds", reason="the assumptions contradict each other"
            )
        query = Query(constraint, normalized)
        self.solver.begin()
        proof = decide_query(query, self.solver)
        if proof.verdict is Verdict.ALWAYS_INVALID:
            if None in living:
                proof = undecided(proof, "no point that satisfies the assumptions was found")
            elif proof.counterexample is None:
                proof = replace(proof, counterexample=first_points(normalized)[0])
        if explain:
            proof = explain_proof(query, proof, self.solver)
        point, witness = proof.counterexample, proof.witness
        if point is None and witness is None:
            return proof
        return replace(
            proof,
            counterexample=None if point is None else normalized.to_domain(point),
            witness=None if witness is None else normalized.to_domain(witness),
        )

    def _others(self, cache: DomainCache, normalized: NormalizedDomain) -> bool | None:
        """True if what has nothing to do with `normalized` can be met, None if undecided."""
        if cache.empty:
            return False
        if not cache.groups:
            return True
        living = {inhabited(other, self.solver) for other in cache.other_parts(frozenset(normalized.names))}
        return False if False in living else None if None in living else True


MAX_LENGTH = 120
SMALL = Budget(z3_steps=0, cases=24, work=30_000)


def precondition(query: Query, failing: Mapping[str, int]) -> Condition | None:
    """The most readable condition found that is equivalent to the claim over its domain, in the domain's
    symbols.  `failing` is the smallest point found where the claim fails.
    """
    for candidate in _candidates(query, failing):
        short = len(candidate.key) <= MAX_LENGTH or len(str(candidate)) <= MAX_LENGTH
        if short and equivalent(query, candidate):
            return candidate
    return None


def equivalent(query: Query, candidate: Condition) -> bool:
    """True if `candidate` is proved to hold exactly where the claim does, over the claim's domain."""
    domain = query.domain
    if candidate == query.constraint and query.holds == domain.reduce(candidate):
        return True
    there = _reduced(candidate, domain)
    if any(there.evaluate(p) is not query.holds.evaluate(p) for p in domain.points[:40]):
        return False
    elsewhere = _reduced(candidate, domain, false=True)
    return _never((there, query.fails), domain) and _never((elsewhere, query.holds), domain)


def _never(conditions: Iterable[Condition], domain: NormalizedDomain) -> bool:
    return refute((*domain.facts, *conditions), domain.box, SMALL) is not None


def _candidates(query: Query, failing: Mapping[str, int]) -> Iterator[Condition]:
    domain = query.domain
    guarded = holds(query.constraint, domain.positive)
    simple = _without_the_given(simplify(guarded, domain.bounds()), domain)
    if read_bound(simple) is None and len(simple.symbols) == 1:
        (name,) = simple.symbols
        yield from _bounds_by_points(name, query, failing)
    yield simple
    if simple != guarded:
        yield guarded


def _bounds_by_points(name: str, query: Query, failing: Mapping[str, int]) -> Iterator[Condition]:
    """Conditions on `name` alone that tell the points apart that are known."""
    fails, value = query.domain.to_domain(failing)[name], symbol(name)
    yield from (le(value, fails - 1), ne(value, fails))
    if query.witness is not None:
        yield ge(value, query.domain.to_domain(query.witness)[name])


def _without_the_given(condition: Condition, domain: NormalizedDomain) -> Condition:
    """Drop conjuncts that follow from the domain and the others, and alternatives that never hold."""
    if isinstance(condition, Or):
        return disjunction(c for c in condition.operands if not _never([_reduced(c, domain)], domain))
    if not isinstance(condition, And):
        return condition
    kept = list(condition.operands)
    for part in reversed(condition.operands):
        others = [_reduced(c, domain) for c in kept if c != part]
        if _never((*others, _reduced(part, domain, false=True)), domain):
            kept.remove(part)
    return conjunction(kept)


def _reduced(condition: Condition, domain: NormalizedDomain, *, false: bool = False) -> Condition:
    write = fails if false else holds
    return domain.reduce(write(condition, domain.positive))


MAX_ROUNDS = 6


def simplify(condition: Condition, box: Box) -> Condition:
    """An equivalent of `condition` over `box`, simpler where a rule applies."""
    if isinstance(condition, Relation):
        return _rounds(condition, box, MAX_ROUNDS)
    assert isinstance(condition, Junction)
    return condition.connect(lambda operand: simplify(operand, box))


def _rounds(condition: Relation, box: Box, left: int) -> Condition:
    for rule in _RULES:
        changed = rule(condition, box)
        if changed is None or changed == condition:
            continue
        if isinstance(changed, Relation):
            return _rounds(changed, box, left - 1) if left else changed
        return simplify(changed, box) if left else changed
    return condition


def _divide_factor(subject: Relation, box: Box) -> Condition | None:
    """Divide by a symbol that every term has; one that may be zero is kept as an alternative."""
    for atom in sorted(subject.expr.atoms):
        quotient = subject.expr.over(((atom, 1),))
        if quotient is None or not isinstance(atom, Symbol) or box.lower[atom.name] < 0:
            continue
        divided = relation(subject.operator, quotient)
        if box.lower[atom.name] >= 1:
            return divided
        zero = eq(symbol(atom.name), 0)
        if subject.operator != "!=":
            return disjunction((divided, zero))
        return conjunction((divided, ge(symbol(atom.name), 1)))
    return None


def _open_extremum(subject: Relation, _box: Box) -> Condition | None:
    """`max(a, b) + r <= 0` is `a + r <= 0 and b + r <= 0`; with min, or a negative sign, an alternative."""
    if subject.operator != "<=":
        return None
    found = _linear_atom(subject.expr, Min, Max)
    if found is None:
        return None
    atom, coefficient, rest = found
    assert isinstance(atom, Min | Max)
    parts = [le(coefficient * operand + rest, 0) for operand in atom.operands]
    every = isinstance(atom, Max) is (coefficient > 0)
    return conjunction(parts) if every else disjunction(parts)


def _invert_quotient(subject: Relation, box: Box) -> Condition | None:
    """`t // d <= k` is `t <= d*k + d - 1`, and `t // d >= k` is `t >= d*k`."""
    if subject.operator != "<=":
        return None
    found = _linear_atom(subject.expr, FloorDiv)
    if found is None:
        return None
    atom, coefficient, rest = found
    assert isinstance(atom, FloorDiv)
    below, constant = atom.denominator, rest.as_constant
    if interval(below, box)[0] < 1 or (constant is None and abs(coefficient) != 1):
        return None
    if coefficient > 0:
        bound = -rest if constant is None else Expr({(): -constant // coefficient})
        return le(atom.numerator, below * bound + below - 1)
    bound = rest if constant is None else Expr({(): -(-constant // -coefficient)})
    return ge(atom.numerator, below * bound)


def _linear_atom(expr: Expr, *kinds: type) -> tuple[Atom, int, Expr] | None:
    """`(atom, coefficient, rest)` for the one term that is a number times an atom of `kinds`, none in the
    rest.
    """
    hits = [(m, c) for m, c in expr.terms.items() if any(isinstance(a, kinds) for a, _ in m)]
    if len(hits) != 1:
        return None
    monomial, coefficient = hits[0]
    if len(monomial) != 1 or monomial[0][1] != 1:
        return None
    rest = Expr({m: c for m, c in expr.terms.items() if m != monomial})
    return monomial[0][0], coefficient, rest


def _write_remainder(subject: Relation, _box: Box) -> Condition | None:
    """`t - d*(t // d)` is `t % d`, which is at most 0 where it is 0."""
    found = _linear_atom(subject.expr, FloorDiv)
    if found is None:
        return None
    atom, coefficient, rest = found
    assert isinstance(atom, FloorDiv)
    divisor = atom.denominator.as_constant or 0
    if divisor < 1 or coefficient % divisor:
        return None
    written = rest + coefficient // divisor * (atom.numerator - mod(atom.numerator, divisor))
    if len(written.terms) >= len(subject.expr.terms):
        return None
    if subject.operator == "<=" and isinstance(written.as_atom, Mod):
        return eq(written, 0)
    return relation(subject.operator, written)


_RULES: tuple[Callable[[Relation, Box], Condition | None], ...] = (
    _divide_factor,
    _write_remainder,
    _open_extremum,
    _invert_quotient,
)


Point = dict[str, int]
Found = Point | bool | None  # a point, False where it is proved that there is none, None where undecided
STEPS = 100  # bounds that are tried on the way to one smallest value


def explain_proof(query: Query, proof: Proof, solver: Solver) -> Proof:
    """`proof` with its counterexample made as small as can be and a precondition looked for."""
    if proof.verdict is Verdict.ALWAYS_VALID:
        return proof
    point, proved = _smallest_counterexample(query, proof, solver)
    wanted = proof.verdict is Verdict.RUNTIME_CHECK and not proof.unknown
    return replace(
        proof,
        counterexample=point,
        smallest=proved,
        precondition=precondition(query, point) if wanted and point is not None else None,
        reason=proof.reason or _undefined(query, point),
    )


def _undefined(query: Query, point: Mapping[str, int] | None) -> str | None:
    """That a divisor of the constraint is below 1 at `point`, in words."""
    below = () if point is None else query.constraint.divisors
    there = {} if point is None else query.domain.to_domain(point)
    for divisor in sorted(below, key=lambda d: (len(d.key), d.key)):
        value = evaluated(divisor, there)
        if value is not None and value < 1:
            return f"the divisor `{divisor}` can be {value}; a divisor must be at least 1"
    return None


def _smallest_counterexample(
    query: Query, proof: Proof, solver: Solver
) -> tuple[Mapping[str, int] | None, bool]:
    """The smallest point found, and True where it is proved smallest."""
    domain = query.domain
    known: list[Mapping[str, int]] = list(query.failing)
    if proof.counterexample is not None:
        known.append(proof.counterexample)
    if not known:
        return None, False
    least = min(known, key=lambda point: order(domain.to_domain(point)))
    fails = TRUE if proof.verdict is Verdict.ALWAYS_INVALID else query.fails
    solver.begin()
    return smallest(dict(least), fails, domain, solver)


def order(point: Mapping[str, int]) -> tuple[int, list[tuple[int, int]]]:
    """The key that points are compared by."""
    values = [(abs(point[name]), point[name]) for name in sorted(point)]
    return max((size for size, _ in values), default=0), values


def smallest(
    start: Point, condition: Condition, domain: NormalizedDomain, solver: Solver
) -> tuple[Point, bool]:
    """The smallest point of `domain` where `condition` holds, and True where it is proved smallest.

    `start` is such a point, in terms of `domain.box` as all points and conditions here; compared are the
    points of the domain that they stand for.
    """
    search = _Search(start, condition, domain, solver)
    proved = search.lower_largest() and all(map(search.lower_value, domain.names))
    return search.best, proved


class _Search:
    """Makes `best` smaller until no smaller point is left, or the budget is used up.

    `box` and `conditions` are what is known of the smallest point.
    """

    def __init__(self, start: Point, condition: Condition, domain: NormalizedDomain, solver: Solver) -> None:
        self.domain, self.solver = domain, solver
        self.conditions = tuple(c for c in (*domain.facts, condition) if c is not TRUE)
        self.box = domain.box
        self.meter = Meter(solver.budget.sampling_steps)
        self.best, self.shown, self.rank = start, dict[str, int](), order({})
        self._take(start)
        self._descend()

    def _take(self, point: Point) -> None:
        self.best, self.shown = point, self.domain.to_domain(point)
        self.rank = order(self.shown)

    # -- making a point smaller ----------------------------------------------------------------------------

    def _better(self, point: Point) -> bool:
        """Take `point` where it is smaller and satisfies the conditions."""
        self.meter.spend(1)
        try:
            better = self.domain.box.holds(point) and order(self.domain.to_domain(point)) < self.rank
        except ZeroDivisionError:  # the value of a symbol that is solved for
            return False
        if better and satisfies(point, self.conditions):
            self._take(point)
            return True
        return False

    def _descend(self) -> None:
        """Move all coordinates together, then one by one, towards zero, as long as the point gets smaller."""
        box = self.domain.box
        goal = box.origin()
        if self._better(goal):
            return
        largest = max((abs(value - goal[n]) for n, value in self.best.items()), default=0)
        self._bisect(lambda t: {n: _clipped(box, n, goal[n], t) for n in goal}, largest, rejected=0)
        for name in sorted(goal):
            here = self.best[name]
            sign = 1 if here > goal[name] else -1
            self._bisect(lambda t, n=name, s=sign: {**self.best, n: goal[n] + s * t}, abs(here - goal[name]))  # type: ignore[misc]

    def _bisect(self, at: Callable[[int], Point], known: int, rejected: int = -1) -> None:
        """Look for the least t between `rejected` and `known` at which `at` gives a better point."""
        while known - rejected > 1 and self.meter.left > 0:
            middle = (known + rejected) // 2 if rejected >= 0 else 0
            if self._better(at(middle)):
                known = middle
            else:
                rejected = middle

    # -- proving that nothing is smaller -------------------------------------------------------------------

    def lower_largest(self) -> bool:
        """Bring down the largest value; True where no point is proved to have a smaller one."""
        names = self.domain.names
        least = max(map(self._least, names), default=0)
        proved = self._lowered(
            lambda: self.rank[0], lambda size: dict.fromkeys(names, (-size, size)), least=least
        )
        self._keep(dict.fromkeys(names, (-self.rank[0], self.rank[0])))
        return proved

    def lower_value(self, name: str) -> bool:
        """Bring `name` nearer to zero, the values before it fixed; True where that is proved impossible."""
        proved = self._lowered(
            lambda: abs(self.shown[name]), lambda size: {name: (-size, size)}, least=self._least(name)
        )
        value = self.shown[name]
        if proved and value > 0:
            answer = self._find({name: (-value, -value)})
            proved = answer is not None
            if isinstance(answer, dict):
                self._take(answer)
        self._keep({name: (self.shown[name], self.shown[name])})
        return proved

    def _least(self, name: str) -> int:
        """A distance from zero that no value of `name` is below."""
        low, high = interval(self._value(name), self.box)
        return max(low, -high, 0)

    def _lowered(
        self, size: Callable[[], int], within: Callable[[int], dict[str, tuple[int, int]]], *, least: int
    ) -> bool:
        """Bring `size` of the best point down; True where it is proved to be the least."""
        for step in range(STEPS):
            here = size()
            if here <= least:
                return True
            tried = here - 1 if step < 4 else (least + here) // 2
            answer = self._find(within(tried))
            if answer is None:
                return False
            if isinstance(answer, dict):
                self._take(answer)
                self._descend()
            else:
                least = tried + 1
        return False

    def _find(self, limits: Mapping[str, tuple[int, int]]) -> Found:
        """A point within `limits` that satisfies the conditions, or False where there is none."""
        region = self._region(limits)
        if region is None:
            return False
        conditions, box = region
        if refute(conditions, box, self.solver.budget) is not None:
            return False
        asked = self.solver.ask(conditions, box)
        return False if isinstance(asked, str) else asked

    def _keep(self, limits: Mapping[str, tuple[int, int]]) -> None:
        region = self._region(limits)
        if region is not None:
            self.conditions, self.box = region

    def _region(self, limits: Mapping[str, tuple[int, int]]) -> tuple[tuple[Condition, ...], Box] | None:
        """The conditions, and a box, of the points within `limits`; None where a bound excludes all."""
        box, more = self.box.copy(), list[Condition]()
        for name, (low, high) in limits.items():
            if name in box.lower:
                if not box.narrow(name, low, high):
                    return None
                continue
            for limit in (ge(self._value(name), low), le(self._value(name), high)):
                bound = read_bound(limit)
                if limit.as_bool is False or (bound is not None and not box.narrow(*bound)):
                    return None
                if bound is None and limit.as_bool is None:
                    more.append(limit)
        return (*self.conditions, *more), box

    def _value(self, name: str) -> Expr:
        return self.domain.solved.get(name) or symbol(name)


def _clipped(box: Box, name: str, goal: int, distance: int) -> int:
    """The value at `distance` from `goal`, away from zero, as far as the bounds go."""
    moved = goal + distance if goal >= 0 else goal - distance
    return max(box.lower[name], min(moved, box.upper[name]))

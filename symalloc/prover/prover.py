"""The cascade: each question goes to the cheapest layer that can settle it; z3 is asked last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from time import perf_counter

from symalloc.prover.domain import GLANCE, Budget, Domain, Proof, Verdict
from symalloc.prover.explanation import explain_proof, smallest
from symalloc.prover.normalize import NormalizedDomain, components, normalize, relevant
from symalloc.prover.query import Query, decide_query, first_points, inhabited, undecided
from symalloc.prover.solver import Solver
from symalloc.size.condition import TRUE, Condition


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
        """True if `conclusion` was proved to follow from `premises` over `domain`; False also where
        undecided.
        """
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

"""The cascade: each question goes to the cheapest layer that can settle it; z3 is asked last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from time import perf_counter

from symalloc.prover.alpha import canonical, rename_proof
from symalloc.prover.budget import Budget
from symalloc.prover.domain import Domain
from symalloc.prover.explain import explain_proof
from symalloc.prover.inquiry import Inquiry, Outcome, decide_claim, inhabited
from symalloc.prover.region import Region
from symalloc.prover.sampling import first_points
from symalloc.prover.solver import Solver
from symalloc.prover.verdict import Proof, Verdict
from symalloc.prover.view import View, content_key
from symalloc.size.condition import Condition

__all__ = ["Prover"]

MAX_VIEWS = 4096
MAX_PROOFS = 200_000
_EVERYTHING = Domain()


class Prover:
    """Decides conditions over domains, and remembers: by condition and domain, and up to the names of
    symbols.
    """

    def __init__(self, budget: Budget = Budget()) -> None:  # noqa: B008 - frozen
        self.budget = budget
        self.solver = Solver(budget)
        self._decided: Counter[str] = Counter()
        self._views: dict[int, tuple[Domain, View]] = {}  # holds the domain, and so its id, alive
        self._by_content: dict[tuple[object, ...], View] = {}
        self._shared: dict[tuple[object, ...], tuple[tuple[str, ...], Proof]] = {}

    @property
    def decided(self) -> Mapping[str, int]:
        """How many constraints each layer decided; answers from the cache do not count again."""
        return dict(self._decided)

    def prove(self, constraint: Condition, domain: Domain = _EVERYTHING, *, explain: bool = True) -> Proof:
        """The verdict on `constraint` over `domain`.

        With `explain` also the smallest counterexample and a precondition where one is found; without,
        whatever points the decision came by.
        """
        entry = self._views.get(id(domain))
        view = entry[1] if entry is not None else self._view(domain)
        known = view.explained.get(constraint)
        if known is None and not explain:
            known = view.plain.get(constraint)
        return known if known is not None else self._prove(constraint, view, explain)

    def implies(
        self, premises: Iterable[Condition], conclusion: Condition, domain: Domain = _EVERYTHING
    ) -> bool:
        """Whether `conclusion` was proved to follow from `premises` over `domain`; False also where
        undecided.
        """
        proof = self.prove(conclusion, domain.assuming(premises), explain=False)
        return proof.verdict in (Verdict.ALWAYS_VALID, Verdict.VACUOUS)

    def complete(self, point: Mapping[str, int], domain: Domain) -> dict[str, int] | None:
        """`point` with values for the assumptions' symbols that it leaves out; None where none are known."""
        view = self._view(domain)
        full = dict(point)
        for region in view.other_groups(frozenset(point)):
            if inhabited(region, self.solver) is not True:
                return None
            full |= region.lift(first_points(region)[0])
        return full

    def _view(self, domain: Domain) -> View:
        key = content_key(domain)
        view = self._by_content.get(key)
        if view is None:
            if len(self._by_content) >= MAX_VIEWS:
                self._by_content.clear()
            view = self._by_content[key] = View(domain)
        if len(self._views) >= MAX_VIEWS:
            self._views.clear()
        self._views[id(domain)] = (domain, view)
        return view

    def _prove(self, constraint: Condition, view: View, explain: bool) -> Proof:
        start = perf_counter()
        key, names = self._shared_key(constraint, view, explain)
        shared = self._shared.get(key)
        proof = rename_proof(shared[1], shared[0], names) if shared is not None else None
        if proof is None:
            proof = self._decide(constraint, view, explain)
            proof = replace(proof, seconds=perf_counter() - start)
            self._decided[proof.decided_by] += 1
            if len(self._shared) >= MAX_PROOFS:
                self._shared.clear()
            self._shared[key] = (names, proof)
        (view.explained if explain else view.plain)[constraint] = proof
        return proof

    def _shared_key(
        self, constraint: Condition, view: View, explain: bool
    ) -> tuple[tuple[object, ...], tuple[str, ...]]:
        region, text = view.region(constraint.symbols)
        canon, names = canonical(f"{constraint.key}|{text}", region.names)
        domain = view.domain
        bounds = tuple((domain.lower_of(n), domain.upper_of(n)) for n in names)
        return (canon, bounds, self._others(view, region), explain), names

    def _decide(self, constraint: Condition, view: View, explain: bool) -> Proof:
        self.solver.begin()
        region, _ = view.region(constraint.symbols)
        living = (inhabited(region, self.solver), self._others(view, region))
        if False in living:
            return Proof(
                verdict=Verdict.VACUOUS, decided_by="bounds", reason="the assumptions contradict each other"
            )
        inquiry = Inquiry(constraint, region)
        outcome = decide_claim(inquiry, self.solver, self.budget)
        if outcome.verdict is Verdict.ALWAYS_INVALID and None in living:
            outcome = Outcome.unknown(outcome, "no point that satisfies the assumptions was found")
        if explain:
            return explain_proof(inquiry, outcome)
        return outcome.proof(region)

    def _others(self, view: View, region: Region) -> bool | None:
        """Whether the assumptions that have nothing to do with `region` can be met."""
        if not view.groups:
            return True
        living = {inhabited(other, self.solver) for other in view.other_groups(frozenset(region.names))}
        return False if False in living else None if None in living else True

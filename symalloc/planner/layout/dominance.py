"""Comparisons of byte counts that hold for every shape: cheap answers first, each question asked once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import iadd

import numpy as np

from symalloc.planner.plan_budget import PlanBudget
from symalloc.planner.search.domain_grid import sample_grid
from symalloc.planner.search.grid import Columns, Grid, Values
from symalloc.prover.domain import Domain
from symalloc.prover.ordering import SyntacticOrder
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.condition import Condition, eq, le
from symalloc.size.expr import Expr, Monomial, round_up

PROVER_BUDGET = 8
MOST_COMPARED = 4_000  # differences that are looked at closely
OPEN = 4
COMPARED, ASKED = 10, 500  # what a comparison counts besides its terms, and a question to the prover


class Dominance:
    """`reaches` and `align` over one domain.

    What fails at a sample binding is never asked; what can be seen costs little.  `prover_budget` is how many
    questions the prover is asked about the rest, those left open counted `OPEN` times; then none any more:
    offsets keep alternatives that they could do without, nothing is lost.  `most` differences are looked at
    closely.  `raised` counts the sums that took the place of others which they only bound.  What is compared
    is counted in `budget`, in terms.
    """

    __slots__ = (
        *(
            "_aligned",
            "_budget",
            "_columns",
            "_domain",
            "_grid",
            "_monomials",
            "_names",
            "_prover",
            "_reached",
        ),
        *("_values", "budget", "most", "order", "raised"),
    )

    def __init__(
        self,
        domain: Domain,
        prover: Prover,
        names: Iterable[str],
        *,
        prover_budget: int = PROVER_BUDGET,
        most: int = MOST_COMPARED,
        budget: PlanBudget | None = None,
    ) -> None:
        self.budget = PlanBudget() if budget is None else budget
        self.order, self.raised, self.most = SyntacticOrder(domain, most), 0, most
        self._domain, self._prover, self._budget = domain, prover, prover_budget
        assumed = (name for assumption in domain.assumptions for name in assumption.symbols)
        self._names = tuple(sorted({*names, *assumed}))
        self._grid: Grid | None = None
        self._reached: dict[tuple[Expr, Expr], bool] = {}
        self._aligned: dict[tuple[Expr, int], Expr] = {}
        self._values: dict[Expr, Values] = {}
        self._monomials: dict[Monomial, Values] = {}
        self._columns: Columns | None = None

    def reaches(self, high: Expr, low: Expr) -> bool:
        """Return whether `high >= low` is proved for every binding."""
        key = (high, low)
        found = self._reached.get(key)
        if found is None:
            self.budget.spend(COMPARED + len(high.terms) + len(low.terms))
            found = self.may_reach(high, low) and (self.order.at_most(low, high) or self._ask(le(low, high)))
            self._reached[key] = found
        return found

    @property
    def exhausted(self) -> bool:
        """True once so much was compared that only what terms show is seen: formulas must be short from
        here on.
        """
        return self.order.compared > self.most

    def may_reach(self, high: Expr, low: Expr) -> bool:
        """Return whether `high >= low` at the sample bindings."""
        return not (self.at_samples(high) < self.at_samples(low)).any()

    def at_samples(self, expr: Expr) -> Values:
        """Return the values at the sample bindings; nan where a divisor is zero."""
        found = self._values.get(expr)
        if found is None:
            self.budget.spend(COMPARED + len(expr.terms))
            parts = [coefficient * self._monomial(monomial) for monomial, coefficient in expr.terms.items()]
            found = self._values[expr] = reduce(iadd, parts) if parts else np.zeros(len(self.grid))
        return found

    @property
    def grid(self) -> Grid:
        """The sample bindings, made where they are first needed."""
        if self._grid is None:
            self._grid = sample_grid(self._domain, self._names)
        return self._grid

    def _monomial(self, monomial: Monomial) -> Values:
        found = self._monomials.get(monomial)
        if found is None:
            if self._columns is None:
                self._columns = Columns(self.grid)
            with np.errstate(divide="ignore", invalid="ignore"):
                found = self._monomials[monomial] = self._columns.product(monomial)
        return found

    def align(self, expr: Expr, step: int) -> Expr:
        """`expr` rounded up to a multiple of `step` bytes; as it is where it is proved to be one."""
        if all(c % step == 0 for c in expr.terms.values()):
            return expr
        key = (expr, step)
        found = self._aligned.get(key)
        if found is None:
            even = self._always_zero(expr % step)
            found = self._aligned[key] = expr if even else round_up(expr, step)
        return found

    def _ask(self, condition: Condition) -> bool:
        if self._budget <= 0:
            return False
        self.budget.spend(ASKED)
        proof = self._prover.prove(condition, self._domain, explain=False)
        self._budget -= OPEN if proof.unknown else 1
        return proof.verdict is Verdict.ALWAYS_VALID

    def _always_zero(self, remainder: Expr) -> bool:
        return not self.at_samples(remainder).any() and self._ask(eq(remainder, 0))

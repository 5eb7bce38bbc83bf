"""A stacking made into expressions: the arena's size and an offset for each buffer.

off_i = max over those below of off_j + size_j, simplified by the dominance that terms show.  An offset is
kept as its alternatives (their maximum is meant), so that sums distribute and most maxima vanish before an
expression is built.  Layers repeat: every distinct question is asked once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain
from math import gcd
from operator import iadd
from typing import TypeAlias

import numpy as np

from symalloc.planner.grid import Columns, Values, sample_grid
from symalloc.planner.memory_plan import Arena, Buffer, Placement, PlanBudget
from symalloc.planner.stack import Stacking
from symalloc.prover.domain import Domain, SyntacticOrder
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr, Monomial, round_up

COMPARED = 10  # work that a comparison counts besides its terms
MOST_COMPARED = 3000  # differences looked at closely for a stacking
LONG = 24  # terms of alternatives that become one maximum
LONGEST = 12_000  # characters of one of them

Alternatives: TypeAlias = tuple[Expr, ...]


def assemble(
    buffers: Sequence[Buffer],
    stacking: Stacking,
    domain: Domain,
    budget: PlanBudget | None = None,
) -> Arena | None:
    """Return the arena of `buffers` in `stacking`, over `domain`; there is at least one buffer.

    None where it is more work than is worth it to tell which alternatives of offsets matter, or `budget` is
    exhausted.
    """
    if len(buffers) == 1:
        return Arena.of(buffers[0].size, [Placement(buffers[0], ZERO)])
    symbols = frozenset().union(*(b.size.symbols for b in buffers))
    dominance = Dominance(domain, symbols, budget or PlanBudget())
    placed = offsets(buffers, stacking, dominance)
    if placed is None:
        return None
    size = arena_size(buffers, stacking, placed, dominance)
    built = {alternatives: maximum(*alternatives) for alternatives in dict.fromkeys(placed)}
    placements = (Placement(b, built[alternatives]) for b, alternatives in zip(buffers, placed, strict=True))
    return Arena.of(maximum(*size), placements)


def storage(buffers: Sequence[Buffer], domain: Domain) -> Arena:
    """Return an arena with all of `buffers`, which are never live at once, at offset 0: as large as the
    largest of them at each binding.
    """
    dominance = Dominance(domain, frozenset().union(*(b.size.symbols for b in buffers)))
    size = maximum(*prune((b.size for b in buffers), dominance))
    return Arena.of(size, (Placement(b, ZERO) for b in buffers))


# -- offsets as alternatives --------------------------------------------------------------------------------


def offsets(buffers: Sequence[Buffer], stacking: Stacking, dominance: Dominance) -> list[Alternatives] | None:
    """Return for each buffer the alternatives whose maximum is its offset, a multiple of its alignment.

    Long ones become one maximum, which what lies above does not repeat, but where such maxima get too long.
    None once `dominance` or its budget is exhausted.
    """
    found = _offsets(buffers, stacking, dominance, nested=True)
    if found is None and not dominance.too_long:
        found = _offsets(buffers, stacking, dominance, nested=False)
    return found


def _offsets(
    buffers: Sequence[Buffer], stacking: Stacking, dominance: Dominance, *, nested: bool
) -> list[Alternatives] | None:
    """Return the offsets, with maxima within others where `nested`; None where one of these gets too long,
    or `dominance` is exhausted.
    """
    found: list[Alternatives] = [()] * len(buffers)
    known: dict[tuple[frozenset[tuple[Alternatives, Expr]], int], Alternatives] = {}
    for current in stacking.order:
        step = buffers[current].alignment
        under = frozenset((found[j], buffers[j].size) for j in stacking.below[current])
        placed = known.get((under, step))
        if placed is None:
            ends = list(_ends((found[j], buffers[j].size) for j in stacking.below[current]))
            dominance.budget.spend(sum(len(end.terms) for end in ends))
            pruned = prune((dominance.align(end, step) for end in ends), dominance)
            placed = tuple(dominance.align(e, step) for e in pruned)
            if nested and len(placed) > 1 and sum(len(e.terms) for e in placed) > LONG:
                placed = _one_maximum(placed)
                if len(placed[0].key) > LONGEST:
                    return None
            if dominance.too_long:
                return None
            known[under, step] = placed
        found[current] = placed
    return found


def _one_maximum(alternatives: Alternatives) -> Alternatives:
    """Return the maximum of `alternatives`; what divides them all stands before it, where it can be seen."""
    grain = gcd(*(c for e in alternatives for c in e.terms.values()))
    parts = (Expr({m: c // grain for m, c in e.terms.items()}) for e in alternatives)
    return (grain * maximum(*parts),)


def arena_size(
    buffers: Sequence[Buffer], stacking: Stacking, placed: Sequence[Alternatives], dominance: Dominance
) -> Alternatives:
    """Return the alternatives whose maximum is the height of the whole stacking in bytes.

    What lies under another buffer ends where that starts or before.
    """
    covered = frozenset(chain.from_iterable(stacking.below))
    tops = ((placed[i], buffer.size) for i, buffer in enumerate(buffers) if i not in covered)
    return prune(_ends(dict.fromkeys(tops)), dominance)


def _ends(placed: Iterable[tuple[Alternatives, Expr]]) -> Iterable[Expr]:
    """Return the alternatives of where buffers end, given those of where they start and their sizes."""
    return dict.fromkeys(alternative + size for starts, size in placed for alternative in starts)


# -- the alternatives that matter --------------------------------------------------------------------------


def prune(candidates: Iterable[Expr], dominance: Dominance) -> tuple[Expr, ...]:
    """The candidates that no other is seen to reach; zero where there are none."""
    found = list(dict.fromkeys(candidates))
    if len(found) <= 1:
        return tuple(found) or (ZERO,)
    totals = [float(np.nan_to_num(dominance.at_samples(e)).sum()) for e in found]
    kept: list[Expr] = []
    for i in sorted(range(len(found)), key=lambda i: (-totals[i], -len(found[i].terms), found[i].key)):
        if not any(dominance.reaches(one, found[i]) for one in kept):
            kept.append(found[i])
    return tuple(sorted(kept, key=lambda e: e.key))


# -- comparisons that hold for every shape: cheap answers first, each question asked once -------------------


@dataclass
class Dominance:
    """`reaches` and `align` over one domain.

    What fails at a sample binding is not looked at.  What terms do not show is left open: offsets keep
    alternatives that they could do without, nothing is lost.  What is compared is counted in
    `budget`, in terms.
    """

    domain: Domain
    names: Collection[str]
    budget: PlanBudget = field(default_factory=PlanBudget)
    order: SyntacticOrder = field(init=False)
    _reached: dict[tuple[Expr, Expr], bool] = field(default_factory=dict)
    _aligned: dict[tuple[Expr, int], Expr] = field(default_factory=dict)
    _values: dict[Expr, Values] = field(default_factory=dict)
    _monomials: dict[Monomial, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.order = SyntacticOrder(self.domain, MOST_COMPARED)

    def reaches(self, high: Expr, low: Expr) -> bool:
        """Return whether `high >= low` is seen to hold for every binding."""
        key = (high, low)
        found = self._reached.get(key)
        if found is None:
            self.budget.spend(COMPARED + len(high.terms) + len(low.terms))
            found = self._reached[key] = self.may_reach(high, low) and self.order.at_most(low, high)
        return found

    @property
    def too_long(self) -> bool:
        """True once nothing more is to be spent, or so much was compared that only what terms show is seen:
        formulas must be short from there on.
        """
        return self.order.compared > MOST_COMPARED or self.budget.exhausted

    def may_reach(self, high: Expr, low: Expr) -> bool:
        """Return whether `high >= low` at the sample bindings."""
        return not (self.at_samples(high) < self.at_samples(low)).any()

    def at_samples(self, expr: Expr) -> Values:
        """Return the values at the sample bindings; nan where a divisor is zero."""
        found = self._values.get(expr)
        if found is None:
            self.budget.spend(COMPARED + len(expr.terms))
            parts = [coefficient * self._monomial(monomial) for monomial, coefficient in expr.terms.items()]
            found = self._values[expr] = reduce(iadd, parts) if parts else np.zeros(self.columns.count)
        return found

    @cached_property
    def columns(self) -> Columns:
        """The sample bindings."""
        assumed = (name for assumption in self.domain.assumptions for name in assumption.symbols)
        return Columns(sample_grid(self.domain, tuple(sorted({*self.names, *assumed}))))

    def _monomial(self, monomial: Monomial) -> Values:
        found = self._monomials.get(monomial)
        if found is None:
            with np.errstate(divide="ignore", invalid="ignore"):
                found = self._monomials[monomial] = self.columns.product(monomial)
        return found

    def align(self, expr: Expr, step: int) -> Expr:
        """`expr` rounded up to a multiple of `step` bytes; as it is where its terms are multiples."""
        if all(c % step == 0 for c in expr.terms.values()):
            return expr
        found = self._aligned.get((expr, step))
        if found is None:
            found = self._aligned[expr, step] = round_up(expr, step)
        return found

"""Comparisons of byte counts that hold for every shape: cheap answers first, each question asked once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.size.choice import Max
from symalloc.size.condition import Condition, Relation, eq, le
from symalloc.size.expr import Expr, round_up

EXTENTS = (1, 7, 192, 4096)
PROVER_BUDGET = 24
OPEN = 4
EASY = frozenset(("constant", "bounds", "univariate", "products", "sampling"))  # layers that take no time


class Dominance:
    """`reaches` and `align` over one domain.

    What fails at a sample binding is never asked of the prover; a difference of polynomials whose terms are
    all >= 0 need not be.  `prover_budget` is how many hard questions the prover is asked, those left open or
    about maxima of rounded sums counted `OPEN` times; then none any more: offsets keep alternatives that they
    could do without, nothing is lost.
    """

    __slots__ = ("_aligned", "_bindings", "_budget", "_domain", "_prover", "_reached", "_values")

    def __init__(
        self, domain: Domain, prover: Prover, names: Iterable[str], *, prover_budget: int = PROVER_BUDGET
    ) -> None:
        self._domain, self._prover, self._budget = domain, prover, prover_budget
        assumed = (name for assumption in domain.assumptions for name in assumption.symbols)
        self._bindings = samples(domain, sorted({*names, *assumed}))
        self._reached: dict[tuple[Expr, Expr], bool] = {}
        self._aligned: dict[tuple[Expr, int], Expr] = {}
        self._values: dict[Expr, tuple[int | None, ...]] = {}

    def reaches(self, high: Expr, low: Expr) -> bool:
        """Return whether `high >= low` is proved for every binding."""
        key = (high, low)
        found = self._reached.get(key)
        if found is None:
            found = self._reached[key] = self.may_reach(high, low) and self._proved(high, low)
        return found

    def may_reach(self, high: Expr, low: Expr) -> bool:
        """Return whether `high >= low` at the sample bindings."""
        pairs = zip(self._at_samples(high), self._at_samples(low), strict=True)
        return all(a is None or b is None or a >= b for a, b in pairs)

    def _at_samples(self, expr: Expr) -> tuple[int | None, ...]:
        found = self._values.get(expr)
        if found is None:
            found = self._values[expr] = tuple(_value(expr, binding) for binding in self._bindings)
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

    def _proved(self, high: Expr, low: Expr) -> bool:
        difference = high - low
        return self._plain(difference) or self._ask(le(low, high))

    def _ask(self, condition: Condition) -> bool:
        if self._budget <= 0:
            return False
        proof = self._prover.prove(condition, self._domain, explain=False)
        slow = proof.unknown or _is_tangled(condition)
        self._budget -= OPEN if slow else proof.decided_by not in EASY
        return proof.verdict is Verdict.ALWAYS_VALID

    def _plain(self, difference: Expr) -> bool:
        """Return whether `difference` is a polynomial whose terms are all seen to be >= 0."""
        if not difference.is_polynomial or any(c < 0 for c in difference.terms.values()):
            return False
        return all(self._domain.lower_of(name) >= 0 for name in difference.symbols)

    def _always_zero(self, remainder: Expr) -> bool:
        if any(self._at_samples(remainder)):
            return False
        return self._ask(eq(remainder, 0))


def _is_tangled(condition: Condition) -> bool:
    """Return whether `condition` holds a maximum of rounded sums.

    In one symbol that is decided, but it takes its time for each case and remainder.
    """
    if not isinstance(condition, Relation):
        return False
    maxima = (atom for atom in condition.expr.atoms if isinstance(atom, Max))
    return any(not operand.is_polynomial for atom in maxima for operand in atom.operands)


def samples(domain: Domain, names: Sequence[str]) -> tuple[Mapping[str, int], ...]:
    """A few bindings of `names` inside `domain`: all symbols alike, and each by itself large."""
    wanted = [dict.fromkeys(names, extent) for extent in EXTENTS]
    wanted += [dict.fromkeys(names, 1) | {name: EXTENTS[-1]} for name in names if len(names) > 1]
    clamped = (
        {n: min(max(v, domain.lower_of(n)), min(domain.upper_of(n), INT64_MAX)) for n, v in b.items()}
        for b in wanted
    )
    return tuple(b for b in clamped if _inside(domain, b))


def _inside(domain: Domain, binding: Mapping[str, int]) -> bool:
    try:
        return domain.contains(binding)
    except (KeyError, ZeroDivisionError):
        return False


def _value(expr: Expr, binding: Mapping[str, int]) -> int | None:
    """The value, or None where a divisor is zero."""
    try:
        return expr.evaluate(binding)
    except ZeroDivisionError:
        return None

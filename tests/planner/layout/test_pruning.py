"""Fewer alternatives reach all that they stand for, and no more than that where nothing is raised."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from symalloc.planner.layout.dominance import MOST_COMPARED, Dominance
from symalloc.planner.layout.pruning import FEW_ALTERNATIVES, MOST_ALTERNATIVES, MOST_TERMS, prune
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import le
from symalloc.size.expr import ZERO, Expr, round_up, symbol
from tests.scale import tries

NAMES = tuple(f"n{i}" for i in range(12))
PROVER = Prover()
BINDINGS = [dict.fromkeys(NAMES, 1) | {name: extent} for name in NAMES for extent in (0, 3, 700)]

terms = st.builds(
    lambda name, scale, rounded: round_up(scale * symbol(name), 64) if rounded else 64 * scale * symbol(name),
    st.sampled_from(NAMES),
    st.integers(1, 9),
    st.booleans(),
)
sums = st.lists(terms, max_size=6).map(lambda parts: sum(parts, ZERO))


def dominance(domain: Domain = Domain()) -> Dominance:  # noqa: B008 - frozen
    return Dominance(domain, PROVER, NAMES)


@settings(max_examples=tries(25, 400))
@given(st.lists(sums, min_size=1, max_size=50))
def test_the_maximum_never_falls_and_rises_only_where_it_says_so(candidates: list[Expr]) -> None:
    order = dominance()
    found = prune(candidates, order)
    assert len(found) <= MOST_ALTERNATIVES and sum(len(e.terms) for e in found) <= MOST_TERMS
    for binding in BINDINGS:
        height = max(e.evaluate(binding) for e in candidates)
        reached = max(e.evaluate(binding) for e in found)
        assert reached == height or (reached > height and order.raised)


def test_a_few_that_none_reaches_stay_as_they_are() -> None:
    candidates = [64 * symbol(name) for name in NAMES]
    order = dominance()
    assert set(prune(candidates, order)) == set(candidates) and not order.raised


def test_what_may_be_negative_is_not_summed_up() -> None:
    candidates = [64 * symbol(a) * symbol(b) for a in NAMES[:9] for b in NAMES[:9]]
    (only,) = prune(candidates, dominance(Domain(default_lower=-5)))
    for binding in ({**dict.fromkeys(NAMES, 2), "n0": -5}, dict.fromkeys(NAMES, 3)):
        assert only.evaluate(binding) == max(e.evaluate(binding) for e in candidates)


def test_sums_are_made_fewer_where_no_sample_is_in_the_domain() -> None:
    impossible = dominance(Domain(assumptions=(le(symbol("n0"), -1),)))
    candidates = [64 * k * symbol(a) + 64 * (9 - k) * symbol(b) for k in (1, 4) for a in NAMES for b in NAMES]
    found = prune(candidates, impossible)
    assert len(found) <= MOST_ALTERNATIVES
    for binding in BINDINGS:
        assert max(e.evaluate(binding) for e in found) >= max(e.evaluate(binding) for e in candidates)


@settings(max_examples=tries(25, 400))
@given(st.lists(sums, min_size=1, max_size=50))
def test_few_alternatives_are_left_once_much_was_compared(candidates: list[Expr]) -> None:
    order = dominance()
    order.order.compared = MOST_COMPARED + 1
    found = prune(candidates, order)
    assert len(found) <= FEW_ALTERNATIVES
    for binding in BINDINGS:
        assert max(e.evaluate(binding) for e in found) >= max(e.evaluate(binding) for e in candidates)

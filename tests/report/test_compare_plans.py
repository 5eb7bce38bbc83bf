"""What differs between two plans, in all and by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any, TypeAlias

from msgspec.structs import replace as changed

from symalloc.report.plan_diff import MeasureChange, PlanDiff, Trend, compare_plans, compare_tensors
from symalloc.report.plan_json import GuardEntry, PlannedFunction, TensorRecord
from symalloc.size.expr import highest
from symalloc.size.parse import parse_expr
from tests.report import plan_samples
from tests.scale import tries

EXTENTS = (1, 2, 3, 5, 17, 64, 1000)
_TERMS = ("n", "m", "n*m", "(n + 3)//4", "64", "max(n, 2*m)")


_LISTS = (
    *("arenas", "floor", "reserved", "signed", "fallbacks", "guards", "returned", "donated", "made"),
    *("unplanned", "kernels", "packed", "samples"),
)
NOTHING: dict[str, Any] = {
    **dict.fromkeys(_LISTS, ()),
    "bounds": {},
    "offsets": 0,
    "tvm": None,
    "target": None,
}


def record(*call: str | None, name: str = "main", **more: Any) -> PlannedFunction:
    held = None if call == (None,) else tuple(parse_expr(one) for one in call if one is not None)
    return PlannedFunction(function=name, held=held, **{**NOTHING, **more})


def guards(*conditions: str) -> tuple[GuardEntry, ...]:
    return tuple(GuardEntry(condition=c, check=c, after=None, declared=False) for c in conditions)


def compare(before: PlannedFunction, after: PlannedFunction) -> PlanDiff:
    return compare_plans([before], [after], [])


FAR = -(10**9)  # stands for no lower bound
SMALL = range(-6, 13)
Bounds: TypeAlias = dict[str, tuple[int | None, int | None]]


def _random_bounds(random: Random) -> Bounds:
    lows = {name: random.choice((None, 0, 1, 3, -4)) for name in "mns"}
    return {name: (low, random.randint(max(low or 1, 1), 9)) for name, low in lows.items()}


def _random_record(random: Random, bounds: Bounds) -> PlannedFunction:
    terms = (*_TERMS, "max(s, -s)", "(n*m + 1)//3", "min(n, s*s)")
    sums = [
        " + ".join(f"{random.randint(0, 3)}*({term})" for term in random.sample(terms, 2))
        for _ in range(random.randint(1, 2))
    ]
    return record(*sums, bounds=bounds, signed=("s",))


def _shapes(bounds: Bounds) -> Iterator[dict[str, int]]:
    """All shapes within the bounds, as far as they are small; of a dimension from 1 on."""
    ranges = []
    for name, (low, high) in bounds.items():
        least = max(FAR if low is None else low, FAR if name == "s" else 1)
        ranges.append([value for value in SMALL if least <= value <= (high or 0)])
    return (dict(zip("mns", point, strict=True)) for point in product(*ranges))


def _takes_more(change: MeasureChange, at: dict[str, int]) -> bool:
    assert change.before is not None and change.after is not None
    was, now = highest(change.before, at), highest(change.after, at)
    assert was is not None and now is not None
    return now > was


def test_verdicts_are_those_of_a_walk_over_all_shapes() -> None:
    """Bounds, and a scalar that may be negative: each shape within is compared by brute force."""
    random, met = Random(11), set()
    for _ in range(tries(40, 2000)):
        bounds = _random_bounds(random)
        before, after = _random_record(random, bounds), _random_record(random, bounds)
        change = compare(before, after).functions[0].peak
        met.add(change.trend)
        if change.trend is Trend.UNCOMPARED:
            continue
        more = [at for at in _shapes(bounds) if _takes_more(change, at)]
        if change.trend is not Trend.MORE:
            assert not more, (before, after)
            continue
        assert change.grown is not None
        found = dict(change.grown.binding)
        assert after.domain.contains(found) and _takes_more(change, found), (before, after)
        if change.grown.always:
            assert len(more) == len(list(_shapes(bounds)))
        if change.grown.smallest and found and "s" not in found:
            names = sorted(found)
            rank = [(max(at[n] for n in names), *(at[n] for n in names)) for at in (found, *more)]
            assert rank[0] <= min(rank[1:])
    assert {Trend.MORE, Trend.NEVER_MORE} <= met


MANY = [f"{64 * i}*n + {64 * (100 - i)}*m" for i in range(100)]  # the prover is not asked


def test_what_is_not_decided_is_no_success() -> None:
    diff = compare(record("6400*n + 6400*m + n % 7"), record(*[f"{one} + m % 3" for one in MANY]))
    (one,) = diff.functions
    assert one.peak.trend is Trend.UNDECIDED
    assert diff.grew
    assert repr(diff) == "<PlanDiff: main not decided in 1 function>"
    assert str(diff).endswith("main: undecided: not proved, and no more at the samples")


def test_samples_beyond_the_bounds_are_marked_and_do_not_count() -> None:
    at = [{"n": 20, "m": 1}, {"n": 3, "m": 0}, {"n": 3, "m": 1, "other": 0}]
    diff = compare_plans([record("n + m")], [record(*MANY, bounds={"n": (None, 8)})], at)
    (one,) = diff.functions
    assert [sample.counts for sample in one.samples] == [False, False, True]
    assert one.peak.grown is not None and dict(one.peak.grown.binding) == at[2]
    assert str(diff).count("not compared: beyond the bounds, or empty") == 2


def test_a_whole_call_that_is_a_formula_no_more_cannot_be_compared_and_its_arenas_are() -> None:
    known, unknown = record("64"), record(None, reserved=(parse_expr("64"),))
    assert compare(known, unknown).grew
    diff = compare(unknown, known)
    assert not diff.grew
    assert str(diff).endswith("nothing grew; of `main` only the arenas were compared")
    more = compare(unknown, record(None, reserved=(parse_expr("128"),)))
    assert more.functions[0].peak_measure == "arenas" and more.grew


def test_the_smallest_shape_that_takes_more_is_proved() -> None:
    change = compare(record("64*n + 640"), record("128*n")).functions[0].peak
    assert change.grown is not None
    assert (dict(change.grown.binding), change.grown.before, change.grown.after) == ({"n": 11}, 1344, 1408)
    assert change.grown.proved and change.grown.smallest and not change.grown.always


def test_what_the_prover_is_not_asked_is_seen_at_samples() -> None:
    sample = changed(plan_samples.small().samples[0], binding={"n": 3, "m": 1})
    grown = compare(record("n + m"), record(*MANY, samples=(sample,))).functions[0].peak.grown
    assert grown is not None and not grown.proved
    assert dict(grown.binding) == {"n": 3, "m": 1}


def test_formulas_over_other_symbols_are_not_compared() -> None:
    diff = compare(record("64*n"), record("64*batch"))
    assert diff.functions[0].peak.reason == "only before: `n`; only after: `batch`"
    assert diff.grew
    assert compare(record("64"), record("64*batch")).functions[0].peak.trend is Trend.MORE


def test_functions_of_one_side_and_guards_are_told() -> None:
    before, after = record("64", guards=guards("a", "b")), record("64", guards=guards("b", "c", "c"))
    diff = compare_plans([before, record("64", name="old")], [after, record("99", name="new")])
    assert (diff.new, diff.gone, diff.grew) == (("new",), ("old",), False)
    assert repr(diff) == "<PlanDiff: nothing grew in 1 function>"
    (found,) = diff.functions
    assert (found.guards.gone, found.guards.new) == (("a",), ("c", "c"))


def tensor(name: str, operator: str, size: str, offset: str = "0") -> TensorRecord:
    return TensorRecord(name=name, operator=operator, size=parse_expr(size), offset=parse_expr(offset))


def test_a_tensor_that_another_was_put_before_is_known_again() -> None:
    before = [tensor("alloc", "add", "64*n"), tensor("alloc1", "exp", "64*n")]
    after = [tensor("alloc", "take", "64"), tensor("alloc1", "add", "64*n"), tensor("alloc2", "exp", "64*n")]
    changes = compare_tensors(before, after)
    assert [one.operator for one in changes.new] == ["take"]
    assert not changes.gone and not changes.resized and not changes.moved


def test_sizes_offsets_and_how_many_there_are_of_equal_tensors() -> None:
    before = [tensor("a", "add", "64*n"), tensor("b", "exp", "64", "0")]
    after = [tensor("a", "add", "128*n"), tensor("b", "exp", "64", "128*n")]
    changes = compare_tensors(before, after)
    assert [(str(p.before.size), str(p.after.size)) for p in changes.resized] == [("64*n", "128*n")]
    assert [p.after.name for p in changes.moved] == ["b"]
    fewer = compare_tensors([tensor("a", "add", "64") for _ in range(3)], [tensor("a", "add", "64")])
    assert (len(fewer.gone), len(fewer.new)) == (2, 0)

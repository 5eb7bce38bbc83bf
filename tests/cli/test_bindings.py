from __future__ import annotations

import pytest

from symalloc.cli.bindings import MOST_BINDINGS, bindings, parse_bindings, parse_sweeps
from symalloc.errors import UsageError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("n=5", [5]),
        ("n=1..4", [1, 2, 3, 4]),
        ("n=0..9:4", [0, 4, 8]),
        (" n = 8, 1 ,3..5 ", [8, 1, 3, 4, 5]),
        ("n=-2..0", [-2, -1, 0]),
    ],
)
def test_values_stand_in_the_order_in_which_they_are_written(text: str, values: list[int]) -> None:
    assert parse_sweeps([text]) == {"n": values}


def test_all_combinations_are_run_with_what_is_fixed() -> None:
    swept = parse_sweeps(["n=1..2", "b=3,4"])
    assert bindings({"h": 7}, swept) == [
        {"h": 7, "n": 1, "b": 3},
        {"h": 7, "n": 1, "b": 4},
        {"h": 7, "n": 2, "b": 3},
        {"h": 7, "n": 2, "b": 4},
    ]
    assert bindings({"h": 7}, {}) == [{"h": 7}]


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (["n"], "expected NAME=VALUES"),
        (["=1..3"], "expected NAME=VALUES"),
        (["n="], "expected NAME=VALUES"),
        (["n=1..x"], "'x' is no whole number"),
        (["n=1..2..3"], "'2..3' is no whole number"),
        (["n=5..1"], "the range 5..1 is empty"),
        (["n=1..5:0"], "a step must be at least 1, not 0"),
        (["n=4:2"], "a step needs a range"),
        (["n=1,"], "'' is no whole number"),
        (["n=1", "n=2"], "gives the values of `n` twice"),
        (["n=1..9223372036854775808"], "no dimension can be more"),
        (["n=1..9223372036854775807"], f"more than {MOST_BINDINGS} values"),
    ],
)
def test_what_makes_no_sense_is_said(texts: list[str], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_sweeps(texts)
    assert problem in str(refused.value)


def test_too_many_combinations_and_two_values_are_refused() -> None:
    with pytest.raises(UsageError, match="makes 1000000 bindings"):
        bindings({}, parse_sweeps(["n=1..1000", "b=1..1000"]))
    with pytest.raises(UsageError, match="`n` has a value by --bind"):
        bindings({"n": 1}, {"n": [2]})


@pytest.mark.parametrize(
    ("texts", "sets"),
    [
        ([], []),
        (["n=1", "b=2"], [{"n": 1, "b": 2}]),
        (["n=1", "n=2"], [{"n": 1}, {"n": 2}]),
        (["n=1,b=2", "b=3", "n=4"], [{"n": 1, "b": 2}, {"b": 3, "n": 4}]),
    ],
)
def test_a_symbol_that_is_given_again_begins_a_further_sample(
    texts: list[str], sets: list[dict[str, int]]
) -> None:
    assert parse_bindings(texts) == sets

"""Constraints that are hard for some reason (`data/hard.json` says which): verdicts and smallest points."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest

from symalloc.prover.domain import Domain
from symalloc.prover.explanation import order
from symalloc.prover.prover import Prover
from symalloc.size.condition import Condition
from symalloc.size.defined import holds
from symalloc.size.parse import parse_condition

HARD = json.loads((Path(__file__).parent / "data" / "hard.json").read_text(encoding="utf-8"))
MOST = 20_000  # points that are looked at one by one below a counterexample


def domain_of(row: Mapping[str, Any]) -> Domain:
    assumptions = tuple(map(parse_condition, row["assume"]))
    return Domain(assumptions=assumptions, default_lower=row.get("least", 0))


@pytest.mark.parametrize("row", HARD, ids=[row["name"] for row in HARD])
def test_verdict_and_smallest_point(row: Mapping[str, Any]) -> None:
    proof = Prover().prove(parse_condition(row["constraint"]), domain_of(row))
    assert (proof.verdict, proof.unknown) == (row["verdict"], False)
    assert proof.counterexample == row["smallest"]
    assert proof.smallest is (row["smallest"] is not None)


@pytest.mark.parametrize("row", [r for r in HARD if r["smallest"]], ids=lambda row: row["name"])
def test_nothing_smaller_fails(row: Mapping[str, Any]) -> None:
    constraint, domain, found = parse_condition(row["constraint"]), domain_of(row), row["smallest"]
    claims = [defined(constraint), *map(defined, domain.assumptions)]
    assert [claim.evaluate(found) for claim in claims] == [False, *(True for _ in claims[1:])]
    size = max(map(abs, found.values()))
    sides = [range(max(domain.lower_of(n), -size), size + 1) for n in sorted(found)]
    if prod(map(len, sides)) > MOST:
        sides = [side[: int(MOST ** (1 / len(sides)))] for side in sides]
    for values in product(*sides):
        point = dict(zip(sorted(found), values, strict=True))
        if order(point) < order(found):
            assert claims[0].evaluate(point) or not all(c.evaluate(point) for c in claims[1:]), point


def defined(condition: Condition) -> Condition:
    return holds(condition, lambda _: False)

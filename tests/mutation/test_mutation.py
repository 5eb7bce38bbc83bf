"""Every planted fault that can go wrong is reported by a fitting rule, every harmless change is not reported.

A part of what `benchmarks/mutation.py` runs.
"""

from __future__ import annotations

import pytest

from symalloc.planner.planner_options import PlanOptions
from tests.mutation.editable import rebuild, take_apart
from tests.mutation.harness import FITTING, Outcome, judge, mutants
from tests.mutation.operators import OPERATORS
from tests.mutation.subjects import plan_theirs, subjects

pytestmark = pytest.mark.slow

THEIRS = ("mlp_dynamic_batch", "branch_then_only", "nested_tuples", "inplace", "slice_rows", "subroutines")
OURS = ("branches", "split_and_join", "computed_condition", "callee")
OTHERS = (
    ("storages", PlanOptions(flavour="storages"), ("nested_branches",)),
    ("native", PlanOptions(guards="native"), ("reshapes",)),
)
VIEWS = ("reshape_heads",)


@pytest.fixture(scope="module")
def outcomes() -> tuple[Outcome, ...]:
    planted = mutants(subjects(THEIRS, OURS, OTHERS, VIEWS), tries=1, seed=7)
    return tuple(judge(m) for m in planted)


@pytest.mark.parametrize("operator", OPERATORS)
def test_linter_and_interpreter_agree(operator: str, outcomes: tuple[Outcome, ...]) -> None:
    mine = [o for o in outcomes if o.mutant.operator == operator]
    assert mine, "the operator found nothing to change"
    for outcome in mine:
        words = (
            outcome.mutant.subject,
            outcome.mutant.change,
            outcome.faults,
            sorted(outcome.rules | outcome.warned),
        )
        if outcome.real:
            assert outcome.fitting, words
        if outcome.harmless:
            assert not outcome.rules, words


def test_enough_of_either_kind(outcomes: tuple[Outcome, ...]) -> None:
    assert sum(o.real for o in outcomes) >= 60
    assert sum(o.harmless for o in outcomes) >= 20


def test_every_kind_of_fault_has_rules(outcomes: tuple[Outcome, ...]) -> None:
    kinds = {f.kind for o in outcomes for f in o.faults}
    assert kinds <= FITTING.keys()


def test_same_seed_same_mutants() -> None:
    subject = [("mlp", plan_theirs("mlp_dynamic_batch"))]
    one, two = ([(m.operator, m.change) for m in mutants(subject, tries=2, seed=3)] for _ in range(2))
    assert one == two


def test_taking_apart_and_rebuilding_changes_nothing() -> None:
    for _, mod in subjects(("branch_then_only", "subroutines"), ("nested_branches",), (), ("branches",)):
        for name, function in mod.functions_items():
            if type(function).__name__ == "Function":
                assert rebuild(take_apart(function)).script() == function.script(), name

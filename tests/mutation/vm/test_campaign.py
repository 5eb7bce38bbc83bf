"""Every mutant that a run shows to be harmful is reported by a fitting rule, no other one is an error.

A part of what `benchmarks/mutation_vm.py` runs.
"""

from __future__ import annotations

import pytest

from tests.models.measure.library import compiler
from tests.mutation.editable import rebuild, take_apart
from tests.mutation.operators import OPERATORS
from tests.mutation.vm.campaign import campaign
from tests.mutation.vm.subjects import planned_by_tvm, vm_subjects
from tests.scale import tries

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(compiler() is None, reason="guarded memory needs a C++ compiler"),
]

PLANS = {
    "tvm": ("two_outputs_of_a_kernel",),
    "arena": ("callee", "computed_condition"),
    "views": ("reshape_heads",),
}


@pytest.mark.parametrize("index", range(4))
def test_linter_and_machine_agree(index: int) -> None:
    """In each run a quarter of the operators, others for each subject."""
    step = tries(4, 1)
    operators = dict(list(OPERATORS.items())[index % step :: step])
    found = campaign(list(vm_subjects(PLANS))[index], tries=1, seed=2, operators=operators)
    assert len(found.outcomes) >= tries(3, 10)
    assert not found.excluded
    for outcome in found.outcomes:
        words = (outcome.subject, outcome.change, outcome.judgement, outcome.findings)
        assert not outcome.missed, words
        assert not outcome.alarm, words
    assert sum(o.harmful for o in found.outcomes) >= tries(1, 4)
    assert sum(o.harmless for o in found.outcomes) >= tries(1, 3)


@pytest.mark.parametrize("name", ["branch_then_only", "subroutines"])
def test_taking_apart_and_rebuilding_changes_nothing(name: str) -> None:
    for _, function in planned_by_tvm(name).functions_items():
        if type(function).__name__ == "Function":
            assert rebuild(take_apart(function)).script() == function.script()

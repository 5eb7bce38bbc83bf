"""Every mutant that a run shows to be harmful is reported by a fitting rule, no other one is an error.

A part of what `benchmarks/mutation_vm.py` runs.
"""

from __future__ import annotations

import pytest

from tests.models.measure.library import compiler
from tests.mutation.operators import OPERATORS
from tests.mutation.vm.campaign import FITTING, campaign
from tests.mutation.vm.subjects import vm_subjects

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(compiler() is None, reason="guarded memory needs a C++ compiler"),
]

PLANS = {"tvm": ("two_outputs_of_a_kernel",), "arena": ("callee",)}


@pytest.mark.parametrize("index", range(2))
def test_linter_and_machine_agree(index: int) -> None:
    found = campaign(list(vm_subjects(PLANS))[index], tries=1, seed=2, operators=OPERATORS)
    assert len(found.outcomes) >= 10
    assert not found.excluded
    for outcome in found.outcomes:
        words = (outcome.subject, outcome.change, outcome.judgement, outcome.findings)
        assert not outcome.missed, words
        assert not outcome.alarm, words
    assert sum(o.harmful for o in found.outcomes) >= 4
    assert sum(o.harmless for o in found.outcomes) >= 3


def test_every_kind_of_fault_has_rules() -> None:
    assert all(rules and all(rule.startswith("SYM") for rule in rules) for rules in FITTING.values())

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from symalloc.report.plan_json import plans_as_json
from symalloc.report.plan_text import plans_as_text
from tests.report import plan_samples

Golden = Callable[[str, str], None]
SAMPLES = {
    make.__name__: make
    for make in (
        plan_samples.small,
        plan_samples.everything,
        plan_samples.large,
        plan_samples.refused,
        plan_samples.static,
    )
}


@pytest.mark.parametrize("name", SAMPLES)
def test_text(name: str, golden: Golden) -> None:
    golden(f"plan-{name}.txt", plans_as_text([SAMPLES[name]()]))


def test_json(golden: Golden) -> None:
    golden("plan.json", plans_as_json([plan_samples.small(), plan_samples.everything()]))


def test_a_call_that_holds_more_than_without_a_plan_is_told() -> None:
    report = plan_samples.small()
    same = msgspec.structs.replace(report.samples[-1], call=200, call_unplanned=200, refused=False)
    assert "times what it holds without a plan" not in plans_as_text([replace(report, samples=(same,))])
    above = msgspec.structs.replace(same, call=300)
    refused = msgspec.structs.replace(above, call=900, refused=True)
    text = plans_as_text([replace(report, samples=(above, refused))])
    at = ", ".join(f"{name} = {value}" for name, value in above.binding.items())
    assert f"a call holds up to 1.500 times what it holds without a plan, at {at}\n" in text

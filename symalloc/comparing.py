"""Compare the plans of two modules, or reports of them, for `symalloc diff` and `symalloc.diff`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from symalloc.errors import RunError, UsageError
from symalloc.planner.plan_diff.compare_plans import PlanDiff, compare_plans
from symalloc.planner.plan_diff.plan_record import FunctionRecord
from symalloc.planner.planner_options import PlanOptions
from symalloc.planning import planned_file
from symalloc.relax.files.requests import PlanRequest
from symalloc.report.plan_json import plans_as_json
from symalloc.report.read_plan import is_plan_report, read_plan


def diff_plans(
    before: Sequence[FunctionRecord],
    after: Sequence[FunctionRecord],
    bindings: Sequence[Mapping[str, int]] = (),
) -> PlanDiff:
    """Compare two modules; raises UsageError where they have no function in common, or no binding fits."""
    diff = compare_plans(before, after, bindings)
    if not diff.functions:
        names = (", ".join(f"`{one.name}`" for one in side) or "none" for side in (before, after))
        raise UsageError("the two have no function in common: {} before, {} after".format(*names))
    if bindings and not any(one.samples for one in diff.functions):
        raise UsageError("--bind gives no function all the symbols that its formulas have")
    return diff


def plans_in(request: PlanRequest, options: PlanOptions) -> tuple[FunctionRecord, ...]:
    """Return the plans that a file holds as JSON of `symalloc plan`, or those of the module in it.

    Raises UsageError and RunError.
    """
    data = request.data
    if data is None and request.path.suffix == ".json" and request.path.is_file():
        try:
            data = request.path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {request.path}: {error.strerror}") from None
    if data is not None and is_plan_report(data):
        return read_plan(str(request.path), data)
    return records_of(planned_file(request, options=replace(options, certificate=None)).reports)


def records_of(reports: Any) -> tuple[FunctionRecord, ...]:
    """Return the plans of some reports, as their JSON tells them."""
    if not reports:
        raise RunError("the module has no function to be planned")
    return read_plan("the plan", plans_as_json(reports))

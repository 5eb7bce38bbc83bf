"""Compare the plans of two modules, or reports of them, for `symalloc diff` and `symalloc.diff`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from symalloc.errors import RunError, UsageError
from symalloc.planner.memory_report.sample_bindings import SampleError, check_wanted
from symalloc.planner.plan_diff.compare_plans import PlanDiff, compare_plans
from symalloc.planner.plan_diff.plan_record import FunctionRecord
from symalloc.planner.planner_options import PlanOptions
from symalloc.relax.files.requests import PlanRequest
from symalloc.report.plan_json import is_plan_report, plans_as_json, read_plan
from symalloc.session.planning import planned_file


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
    _check_bindings(bindings, (*before, *after))
    return diff


def _check_bindings(bindings: Sequence[Mapping[str, int]], functions: Sequence[FunctionRecord]) -> None:
    """Raise UsageError where a binding names no symbol of the functions, or gives none all that it needs."""
    needed: dict[str, set[str]] = {}
    for one in functions:
        needed.setdefault(one.name, set()).update(_formula_symbols(one))
    told = {name for one in functions for shown in (one.bounds, *one.samples) for name in shown}
    try:
        check_wanted(bindings, needed, told)
    except SampleError as error:
        raise UsageError(str(error)) from None


def _formula_symbols(function: FunctionRecord) -> Iterator[str]:
    for sums in function.sums.values():
        for size in sums or ():
            yield from size.symbols


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

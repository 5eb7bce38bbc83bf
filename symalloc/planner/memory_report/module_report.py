"""The memory of the functions of a planned module, at any sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from symalloc.analysis.donation import function_meant
from symalloc.errors import UsageError, meant, require_binding, require_bytes, require_text
from symalloc.planner.memory_report.deployment import Asked, Deployment, FunctionFit, fit_functions
from symalloc.planner.memory_report.function_report import (
    FunctionReport,
    MemorySample,
    bound_label,
    check_wanted,
    chosen,
    needed_at_entry,
    plan_symbols,
    sample_at,
)
from symalloc.program.ir import Function
from symalloc.prover.prover import Prover
from symalloc.shown import Shown

NO_SIZES: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleReport(Shown):
    """The reports on the functions of a planned module, and the memory of each."""

    reports: tuple[FunctionReport, ...]
    deployment: Deployment
    functions: Mapping[str, Function]

    def of(self, function: str | None) -> FunctionReport:
        """Return the report on `function`, by default on the only one, or on main; raises UsageError."""
        reports = {report.plan.function: report for report in self.reports}
        wanted = None if function is None else require_text("function", function)
        found = function_meant(wanted, list(reports))
        if found is not None:
            return reports[found]
        if wanted is None:
            raise UsageError(f"the module has {len(reports)} functions: name one of {', '.join(reports)}")
        raise UsageError(f"the module has no function `{wanted}`{meant(wanted, list(reports))}")

    def at(
        self, binding: Mapping[str, int] = NO_SIZES, /, *, function: str | None = None, **sizes: int
    ) -> MemorySample:
        """Return the bytes of a call at some sizes, such as `plan.at(n=128).call`.

        `binding` gives sizes by name or by symbol of sympy; `function` chooses one where there are several.
        Raises UsageError for sizes that do not fit it.
        """
        given = require_binding("binding", binding) | require_binding("sizes", sizes)
        report = self.of(function)
        of, names = self.functions[report.plan.function], plan_symbols(report.plan, report.outside)
        check_wanted([given], {of.name: needed_at_entry(names, of)}, later=names)
        (at,) = chosen(names, of, [given])
        return sample_at(report, at, bound_label(at, of))

    def fits(
        self,
        limit: str | int,
        binding: Mapping[str, int] = NO_SIZES,
        /,
        *,
        function: str | None = None,
        **sizes: int,
    ) -> FunctionFit:
        """Say for which shapes arenas, a call, workspace, weights and inputs take at most `limit` bytes.

            plan.fits("1GiB", n=128).call.holds

        It is printed as `symalloc plan --fits` prints it; sizes that are given are fixed.  Raises UsageError.
        """
        given = require_binding("binding", binding) | require_binding("sizes", sizes)
        asked = Asked(limit=require_bytes("limit", limit), values=given)
        name = self.of(function).plan.function
        (memory,) = (one for one in self.deployment.functions if one.name == name)
        return fit_functions(replace(self.deployment, functions=(memory,)), asked, Prover())[0]

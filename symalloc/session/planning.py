"""Plan and run modules in files, each in a process of its own; compare plans of two; pack problems."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from symalloc.errors import RunError, SymallocError, UsageError, require_path
from symalloc.linter.diagnostic import Report
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import Linter
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import EffortName, PackOptions
from symalloc.planner.memory_report.call_moments import GraphDocument, LanesRequest
from symalloc.planner.memory_report.device_budget import BudgetOptions, DeviceBudget, device_budget
from symalloc.planner.memory_report.function_report import check_wanted
from symalloc.planner.memory_report.runs import RunOptions, RunReport
from symalloc.planner.packing.packing_problem import (
    Packing,
    PackingProblem,
    ProblemError,
    pack_problem,
    problem_of,
    read_csv,
    read_json,
)
from symalloc.planner.stack import SearchBudget
from symalloc.program.ir import Program
from symalloc.program.reading import FileResult
from symalloc.relax.files.requests import PlannedFile, PlanRequest
from symalloc.relax.read.find_files import require_function
from symalloc.relax.workers.worker_pool import CrashError, call_in_child
from symalloc.report.plan_diff import PlanDiff, compare_plans
from symalloc.report.plan_json import PlannedFunction, is_plan_report, plans_as_json, read_plan
from symalloc.session.files import explained, read_text, require_folder_of, write_file, write_proofs

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from symalloc.planner.memory_report.function_report import TvmComparison

ROOM = "symalloc.relax"  # that of the jobs of child processes
SAID = "symalloc: "  # how what the native core says begins, and the job in guard mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A file's module, planned, and the linter's report of the result.

    `report` tells findings of the original from those that planning brought; `plan_report` has them all by
    the names of the plan.
    """

    file: PlannedFile
    report: Report
    plan_report: Report

    def write(self, output: Path | None, certificate: Path | None = None) -> None:
        """Write the planned module to the file `output`, and the proofs to the folder `certificate`.

        Raises UsageError where that fails.
        """
        if output is not None:
            write_file(output, self.file.text.encode())
        if certificate is not None and self.file.certificate is not None:
            write_proofs(certificate, self.file.certificate)


def load_file(request: PlanRequest) -> IRModule:
    """Return the module that is asked for, read in a child process.  Raises UsageError and RunError."""
    text: str = _in_child("files.load:load_as_json", request, "reading")
    from symalloc.relax.read.open_model import load_module

    module: IRModule = load_module(text.encode(), trust=True)
    return module


def planned_file(
    request: PlanRequest,
    *,
    form: Literal["json", "script"] | None = None,
    samples: Sequence[Mapping[str, int]] = (),
    partial: bool = False,
    compare: bool = False,
) -> Planned:
    """Return the plan of a module, made in a child process, and linted; `Planned.write` writes it.

    A sample that is `partial`, and fits no function, is not shown.

    `form`: how the planned module is to be written, None where it is not.  With `compare` TVM's own planner
    is asked, too, in a child of its own: it may crash.  Raises UsageError and RunError.
    """
    _require_file(request)
    folder = request.plan.certificate
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"cannot write certificates to {folder}: it is not a directory")
        require_folder_of(folder, f"certificates to {folder}")
    comparison = _comparison(request) if compare else None
    found: PlannedFile = _in_child(
        "files.plan_file:plan_file",
        request,
        "planning",
        form=form,
        samples=tuple(samples),
        partial=partial,
        comparison=comparison,
    )
    logging.getLogger("symalloc").info("linting the plan")
    linter = Linter(LintOptions(stage="as-is"))

    def linted(*programs: Program) -> Report:
        return linter.lint(FileResult(file=str(request.path), programs=programs)).finished().report

    plan_report = linted(found.program)
    report = plan_report if plan_report.ok else linted(found.original, found.program)
    return Planned(file=found, report=report, plan_report=plan_report)


def budget_file(request: PlanRequest, budget: BudgetOptions) -> DeviceBudget:
    """Return the budget of a device for the functions of a module, which is planned in a child process.

    Raises UsageError and RunError.
    """
    return device_budget(_in_child("files.plan_file:deployment_file", request, "planning"), budget)


def graph_file(request: PlanRequest, wanted: LanesRequest | None) -> GraphDocument:
    """Return the dependency graphs of a module, which is planned in a child process, and calls on the lanes
    that are `wanted`.  Raises UsageError and RunError.
    """
    found: GraphDocument = _in_child("files.plan_file:graph_file", request, "planning", wanted=wanted)
    return found


def lanes_request(
    times: str | Path | Mapping[str, Any] | None, binding: Mapping[str, int], budget: int | None
) -> LanesRequest | None:
    """Return the lanes that are asked for: `times` of kernels, or a file with them, calls at a `binding`, by
    default that of the times, and the bytes that one may hold.  Raises UsageError.
    """
    if times is None:
        if binding or budget is not None:
            raise UsageError("sizes and a budget are for lanes: give the times of kernels, too (--times)")
        return None
    try:
        given = times if isinstance(times, Mapping) else msgspec.json.decode(read_text(Path(times)))
        found = msgspec.convert(given, LanesRequest)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        source = "times" if isinstance(times, Mapping) else times
        raise UsageError(f"{source}: no times of kernels, as `run --profile` has them: {error}") from None
    return msgspec.structs.replace(found, binding=dict(binding) or found.binding, budget=budget)


def run_file(request: PlanRequest, bindings: Sequence[Mapping[str, int]], how: RunOptions) -> RunReport:
    """Run a module in a file at each of `bindings`, in a child process.

    A crash that a pool in guard mode has seen coming is what it refused.  Raises UsageError and RunError.
    """
    try:
        found: RunReport = _in_child("run.runner:run_file", request, "running", bindings=bindings, how=how)
    except CrashError as error:
        seen = [line.removeprefix(SAID) for line in error.said.splitlines() if line.startswith(SAID)]
        if len(seen) < 2:  # no more than where it ran
            raise
        return RunReport(results=(), refused=f"{seen[-1]} (while {seen[-2]})")
    return found


def _comparison(request: PlanRequest) -> Mapping[str, TvmComparison] | str:
    """Return TVM's own plans by function, or why there are none; what else is wrong shows when we plan."""
    try:
        found: Mapping[str, TvmComparison] = call_in_child(
            f"{ROOM}.files.plan_file:compare_file", request, what="StaticPlanBlockMemory ran"
        )
    except RunError as error:
        return str(error).splitlines()[0]
    return found


def _in_child(job: str, request: PlanRequest, doing: str, **named: Any) -> Any:
    """Return what the function `job` makes of a request in a child process; raises UsageError, RunError."""
    _require_file(request)
    return call_in_child(f"{ROOM}.{job}", request, what=f"{doing} {request.path}", **named)


def _require_file(request: PlanRequest) -> None:
    """Raise UsageError where there is nothing to read, before a process is started that imports TVM."""
    path = require_path("the file", request.path)
    if request.data is not None or require_function(path, trust=request.trust):
        return
    if path.is_dir():
        raise UsageError(f"{path} is a directory; give one file")
    if not path.exists():
        raise UsageError(f"no such file: {path}")
    if not path.is_file():
        raise UsageError(f"{path} is not a regular file")


# -- two plans ----------------------------------------------------------------------------------------------


def diff_plans(
    before: Sequence[PlannedFunction],
    after: Sequence[PlannedFunction],
    bindings: Sequence[Mapping[str, int]] = (),
) -> PlanDiff:
    """Compare two modules; raises UsageError where they have no function in common, or no binding fits."""
    diff = compare_plans(before, after, bindings)
    if not diff.functions:
        names = (", ".join(f"`{one.function}`" for one in side) or "none" for side in (before, after))
        raise UsageError("the two have no function in common: {} before, {} after".format(*names))
    functions = (*before, *after)
    needed: dict[str, set[str]] = {one.function: set() for one in functions}
    for one in functions:
        needed[one.function].update(
            name for sums in one.sums.values() for size in sums or () for name in size.symbols
        )
    told = {name for one in functions for name in one.bounds}
    told |= {name for one in functions for sample in one.samples for name in sample.binding}
    check_wanted(bindings, needed, told)
    signed = frozenset[str]().union(*(one.signed for one in functions))
    for name, value in (item for binding in bindings for item in binding.items()):
        if value < 0 and name not in signed:
            raise UsageError(f"`{name}` is an extent of a tensor and cannot be {value}")
    return diff


def plans_in(request: PlanRequest) -> tuple[PlannedFunction, ...]:
    """Return the plans that a file holds as JSON of `symalloc plan`, or those of the module in it.

    Raises UsageError and RunError.
    """
    data = request.data
    if data is None and request.path.suffix == ".json" and request.path.is_file():
        with explained(f"cannot read {request.path}"):
            data = request.path.read_bytes()
    if data is not None and is_plan_report(data):
        return read_plan(str(request.path), data)
    return records_of(planned_file(request).file.reports)


def records_of(reports: Any) -> tuple[PlannedFunction, ...]:
    """Return the plans of some reports, as their JSON tells them."""
    if not reports:
        raise RunError("the module has no function to be planned")
    return read_plan("the plan", plans_as_json(reports))


# -- packing problems --------------------------------------------------------------------------------------


def pack(
    problem: PackingProblem | Mapping[str, Any] | str | Path,
    *,
    capacity: str | int | None = None,
    effort: EffortName = "normal",
    seed: int = 0,
    certificate: str | Path | None = None,
) -> Packing:
    """Return a proved packing of `problem`: a dictionary in the JSON form, or the path of a JSON or CSV file.

    `capacity` is in bytes, or such as "2GiB": `.overrun` says whether the packing fits it.  `effort` is how
    long to search; `certificate` a folder for the proof as SMT-LIB2.  Raises UsageError for a
    problem that makes no sense, SymallocError where the packing cannot be proved.
    """
    given: dict[str, Any] = {"capacity": capacity, "effort": effort, "seed": seed, "certificate": certificate}
    options = PackOptions(**given)
    known, folder = _known(problem), options.certificate
    budget = SearchBudget.of(options.effort, seed=options.seed)
    with _about(known.source):
        packing = pack_problem(known, budget=budget, capacity=options.capacity, certify=folder is not None)
    if folder is not None and packing.certificate is not None:
        write_proofs(folder, packing.certificate)
    return packing


@contextmanager
def _about(source: str) -> Iterator[None]:
    """Raise UsageError, which names the `source`, where a problem makes no sense."""
    try:
        yield
    except ProblemError as error:
        raise UsageError(f"{source}: {error}") from None
    except OverflowError:
        raise UsageError(f"{source}: a size goes beyond what a float can hold; nothing is so large") from None
    except PlanRefusedError as error:
        raise SymallocError(f"{source}: {error}") from None


def read_problem(path: Path) -> PackingProblem:
    """Return the problem in a file: CSV where its name ends in .csv, JSON otherwise.  Raises UsageError."""
    text = read_text(path)
    read = read_csv if path.suffix.lower() == ".csv" else read_json
    with _about(str(path)):
        return replace(read(text, path.stem), source=str(path))


def _known(problem: PackingProblem | Mapping[str, Any] | str | Path) -> PackingProblem:
    if isinstance(problem, PackingProblem):
        return problem
    if isinstance(problem, str | Path):
        return read_problem(require_path("problem", problem))
    if not isinstance(problem, Mapping):
        raise UsageError(f"a problem is a dictionary or the path of a file, not a {type(problem).__name__}")
    with _about("problem"):
        return problem_of(problem)

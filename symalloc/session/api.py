"""The verbs of the command line as functions, and `assert_memory_safe` for tests of other projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, Union, Unpack

from symalloc.errors import (
    RunError,
    UsageError,
    require_binding,
    require_bytes,
    require_path,
    require_text,
    shown,
)
from symalloc.linter.diagnostic import Report
from symalloc.linter.lint_options import LintKeywords, LintOptions, parse_assumptions, require_conditions
from symalloc.options import made
from symalloc.planner.memory_plan import PlanChoices, PlanOptions
from symalloc.planner.memory_report.call_moments import GraphDocument
from symalloc.planner.memory_report.device_budget import BudgetOptions, DeviceBudget, device_budget
from symalloc.planner.memory_report.runs import PlanKind, RunOptions, RunResult
from symalloc.program.reading import ModuleOptions, PipelineName, UnreadableError
from symalloc.prover.domain import Domain, Proof
from symalloc.prover.prover import Prover
from symalloc.relax.read.find_files import is_no_model
from symalloc.session.config import LintCache, found_files
from symalloc.session.linting import LintSession
from symalloc.size.parse import ConditionLike, as_condition

if TYPE_CHECKING:
    from onnx import ModelProto
    from sympy import Symbol
    from torch.export import ExportedProgram
    from tvm.ir import IRModule
    from tvm.relax.frontend.nn import Module as NnModule

    from symalloc.pool.instrumented_pool import InstrumentedPool
    from symalloc.relax.passes.plan_pass import PlannedModule
    from symalloc.report.plan_diff import PlanDiff
    from symalloc.report.plan_json import PlannedFunction

Binding: TypeAlias = "Mapping[str, int] | Mapping[Symbol, int]"
Size: TypeAlias = "int | str | Symbol"
Model: TypeAlias = Union["IRModule", "ModelProto", "ExportedProgram", tuple["NnModule", Any], str, Path]
"""What is linted, planned or run: a model in memory, a pair of an nn.Module and its spec, or a path."""


class FileKeywords(LintKeywords, total=False):
    """Keyword arguments of `lint`."""

    cache: str | Path | None
    executor: Executor | None


class PlanKeywords(PlanChoices, total=False):
    """Keyword arguments for how to read, lower and plan a module."""

    target: str
    pipeline: PipelineName
    trust: bool


def lint(
    target: Model | Sequence[Model],
    *,
    cache: str | Path | None = None,
    executor: Executor | None = None,
    **options: Unpack[LintKeywords],
) -> Report:
    """Lint models in memory, and files, directories or glob patterns given as str or Path.

    A model in memory is an IRModule, an onnx.ModelProto, a torch ExportedProgram, or a pair of a
    tvm.relax.frontend.nn.Module and its spec; it is checked in this process, files are read in worker
    processes.  `options` are those of the command line (docs/options.md): `assume` holds conditions on
    symbols ("n <= 2048", or sympy's), `select` and `ignore` rule ids, beginnings of ids, or names, `rules`
    folders of further rules; `stage` and `pipeline` say what is checked, `budget` the most bytes that a call
    of a function may hold at once, such as "512MiB" (SYM402).  `trust` lets scripts run whatever they hold.
    `baseline` is a file with findings to leave out, which `symalloc lint --write-baseline` wrote.

    `cache`: a folder for the findings of files, which are not linted again while nothing changes.
    `executor`: a concurrent.futures.Executor to lint files on; that of a Dask cluster is
    Client(address).get_executor().

    Raises UsageError for an argument that makes no sense.  What cannot be read is a finding (SYM902), not
    an exception.
    """
    chosen = made(LintOptions, options, LintKeywords)
    paths, modules = _sorted_out(target)
    if not isinstance(executor, Executor | None):
        raise UsageError(f"executor is {shown(executor)}; it must be a concurrent.futures.Executor")
    with ExitStack() as stack:
        kept = None if cache is None else LintCache(require_path("cache", cache), chosen, fixes=True)
        session = stack.enter_context(LintSession(chosen, cache=kept, executor=executor))
        reports = [session.lint_files(found_files(chosen, paths))] if paths else []
        reports += [session.lint_module(module, name) for name, module in modules]
        return session.without_known(reports[0] if len(reports) == 1 else Report.joined(reports))


def assert_memory_safe(target: Model | Sequence[Model], **options: Unpack[FileKeywords]) -> Report:
    """Fail, showing the findings, where `symalloc.lint(target, **options)` has errors or warnings.

        symalloc.assert_memory_safe(module, assume=["n <= 2048"])

    Return the report.  Raises AssertionError for findings, and where there is nothing to verify, as in a file
    without a Relax module; UsageError for what `lint` refuses.
    """
    __tracebackhide__ = True  # pytest shows the line of the test, not this one
    report = lint(target, **options)
    empty = [path for path in _sorted_out(target)[0] if Path(path).is_file() and is_no_model(Path(path))]
    if empty or (report.ok and not report.summary.functions):
        raise AssertionError(f"nothing to verify: no Relax function in {', '.join(empty) or shown(target)}")
    if not report.ok:
        from symalloc.report.text import render_text

        raise AssertionError(f"memory faults:\n\n{render_text(report)}")
    return report


def prove(constraint: ConditionLike, *, assume: ConditionLike | Sequence[ConditionLike] = ()) -> Proof:
    """Sort `constraint` ("4*m <= 16") into always-valid, always-invalid or runtime-check.

    A symbol is an integer in [0, 2**63 - 1]; `assume` holds further conditions on symbols.  Conditions are
    texts, sympy relations, joined by sympy's And, Or and Not as may be, or such as a proof holds.  Raises
    UsageError for what is no condition on sizes.
    """
    domain = Domain(assumptions=parse_assumptions(require_conditions("assume", assume)))
    try:
        claim = as_condition(constraint)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Prover().prove(claim, domain)


def plan(
    module: Model,
    *,
    seed: int = 0,
    certificate: str | Path | None = None,
    module_name: str | None = None,
    **options: Unpack[PlanKeywords],
) -> PlannedModule:
    """Lower `module` to the point where memory is planned, and plan it; `.module` builds with any pipeline.

    `module` is a model as `lint` takes it, or the path of one.  `.plans` holds the plan of each function.
    `options` are those of the command line (docs/options.md): `target` and `pipeline` say how it is
    lowered, `flavour`, `guards`, `bounds` and `effort` how it is planned, `alias` names inputs that the
    caller donates, such as "0=weights", each for an output to be written into its memory.  `seed` is that of
    the search, `certificate` a folder for the proof.  A path is read in a process of its own: `trust` lets
    the file run whatever it holds, `module_name` chooses one of its modules.  Raises SymallocError.
    """
    from symalloc.relax.files.plan_file import plan_module

    return plan_module(*_loaded(module, "plan", module_name, options, seed=seed, certificate=certificate))


def budget(
    module: Model,
    *,
    device: str | int,
    state: str | Sequence[str] | Mapping[str, Mapping[str, Size]] = (),
    bind: str | Sequence[str] | Mapping[str, Any] = (),
    free: str | Sequence[str] = (),
    skip: str | Sequence[str] = (),
    extra: str | int = 0,
    margin: str | int = 0,
    module_name: str | None = None,
    **options: Unpack[PlanKeywords],
) -> DeviceBudget:
    """Say whether weights, states and calls of `module`, planned, fit a device, and how much of what does.

        symalloc.budget(model, device="24GiB", bind={"seq_len": 2048}, free="batch_size")

    `module` is a model as `plan` takes it.  The arguments are those of `symalloc budget` (docs/options.md):
    `state` names the functions whose result a server keeps, each with its sizes, `bind` gives sizes, or what
    they are in terms of others, for all functions, or for one by its name; `free` are the symbols whose
    largest values are wanted, `skip` functions that are never called, `extra` bytes that something else
    takes, `margin` bytes, or a share such as "5%", that stay free.  Raises SymallocError.
    """
    from symalloc.relax.files.plan_file import deployment_in

    sizes: dict[str, Any] = {"state": state, "bind": bind, "free": free, "skip": skip}
    given: dict[str, Any] = {"device": device, "extra": extra, "margin": margin}
    wanted = BudgetOptions(**sizes, **given)
    return device_budget(deployment_in(*_loaded(module, "plan", module_name, options)), wanted)


def graph(
    module: Model,
    *,
    times: str | Path | Mapping[str, Any] | None = None,
    bind: Binding = MappingProxyType({}),
    budget: str | int | None = None,
    module_name: str | None = None,
    **options: Unpack[PlanKeywords],
) -> GraphDocument:
    """Return which calls of `module`, planned, wait for which: `.functions` has nodes and edges of each.

    `module` is a model as `plan` takes it.  `times` are seconds of kernels, as `{"kernels": {"add": 0.01}}`,
    or a file, as `symalloc run --profile` writes it: then `.lanes` are calls on 1, 2, … lanes at the sizes
    `bind`, and say which of them fit `budget` bytes.  Raises SymallocError.
    """
    from symalloc.relax.files.plan_file import graph_in
    from symalloc.session.planning import lanes_request

    given = require_path("times", times) if isinstance(times, str) else times
    if not isinstance(given, Path | Mapping | None):
        raise UsageError(f"times is {shown(given)}; it must be a mapping or a path")
    limit = None if budget is None else require_bytes("budget", budget)
    wanted = lanes_request(given, require_binding("bind", bind), limit)
    return graph_in(*_loaded(module, "plan", module_name, options), wanted)


def diff(
    before: Model | PlannedModule,
    after: Model | PlannedModule,
    *,
    bind: Binding | Sequence[Binding] = (),
    seed: int = 0,
    **options: Unpack[PlanKeywords],
) -> PlanDiff:
    """Compare what two plans of a model take, function by function: `.grew` is True where one takes more.

    Each is what `plan` returns, the path of JSON of `symalloc plan`, or a model as `plan` takes it, which is
    planned with the other arguments.  `bind`: the sizes at which bytes are shown, by name or
    symbol of sympy.  Raises SymallocError.
    """
    from symalloc.relax.files.requests import PlanRequest
    from symalloc.relax.passes.plan_pass import PlannedModule
    from symalloc.relax.passes.stages import target_of
    from symalloc.session.planning import diff_plans, plans_in, records_of

    several = bind if isinstance(bind, list | tuple) else [bind]
    bindings = [require_binding("binding", each) for each in several]
    target_of(made(ModuleOptions, options, PlanKeywords).target)
    chosen = made(PlanOptions, options, PlanKeywords, seed=seed)

    def plans(of: Model | PlannedModule) -> tuple[PlannedFunction, ...]:
        if isinstance(of, str | Path):
            path = require_path("the file", of)
            return plans_in(made(PlanRequest, options, PlanKeywords, path=path, plan=chosen))
        found = of if isinstance(of, PlannedModule) else plan(of, seed=seed, **options)
        return records_of(found.report.reports)

    return diff_plans(plans(before), plans(after), bindings)


def run(
    module: Model,
    binding: Binding,
    *,
    function: str | None = None,
    check: bool = False,
    seed: int = 0,
    repeat: int = 1,
    plan: PlanKind = "symalloc",
    pool: InstrumentedPool | None = None,
    workers: int = 1,
    module_name: str | None = None,
    **options: Unpack[PlanKeywords],
) -> RunResult:
    """Run a function of `module`, planned, on random arguments at `binding`, in this process.

    `module` is a model as `plan` takes it.  `plan` says who plans, as `symalloc run --plan` does; what is
    allocated comes from `pool`, where one is given.  `workers` threads run kernels, each once those are over
    that it waits for.  `seed` is that of the arguments.  With `check` it is compared bit for bit with the
    module in which every tensor has memory of its own.  Raises SymallocError.
    """
    from symalloc.pool.native_pool import NativePool
    from symalloc.relax.run.runner import Runner

    at = require_binding("binding", binding)
    how = RunOptions(plan=plan, check=check, function=function, seed=seed, repeat=repeat, workers=workers)
    if not isinstance(pool, NativePool | None):
        raise UsageError(f"pool is {shown(pool)}; it must be a symalloc.Pool")
    loaded, lowering, chosen = _loaded(module, "run", module_name, options)
    runner = Runner(
        loaded,
        function=how.function,
        target=lowering.target,
        pipeline=lowering.pipeline,
        options=chosen,
        plan=how.plan,
        pool=pool,
        workers=how.workers,
    )
    return runner.run(at, check=how.check, seed=how.seed, repeat=how.repeat)


def save_program(program: ExportedProgram, path: str | Path) -> None:
    """Write a program of torch.export to `path`, as torch.export.save does, and the names of its dimensions.

    Torch forgets what `torch.export.Dim` was given.  Here the archive has one more file, which torch's own
    loader passes over: the symbols of a module that is read from `path` have these names.  Raises
    UsageError.
    """
    from symalloc.relax.read.open_model import is_exported_program
    from symalloc.relax.read.torch_program import program_bytes
    from symalloc.session.files import write_file

    if not is_exported_program(program):
        raise UsageError(f"cannot save {type(program).__name__} objects: give a torch.export.ExportedProgram")
    write_file(require_path("path", path), program_bytes(program))


def _loaded(
    model: object, verb: str, module_name: str | None, options: PlanKeywords, **more: Any
) -> tuple[IRModule, ModuleOptions, PlanOptions]:
    """The module that `model` is, describes, or names, and how it is lowered and planned; `more` are further
    options of plans.  Raises SymallocError.
    """
    lowering = made(ModuleOptions, options, PlanKeywords)
    chosen = made(PlanOptions, options, PlanKeywords, **more)
    return _module(model, verb, module_name, trust=lowering.trust), lowering, chosen


def _module(model: object, verb: str, module_name: str | None, *, trust: bool) -> IRModule:
    if module_name is not None:
        require_text("module_name", module_name)
    if isinstance(model, str | Path):
        from symalloc.relax.files.requests import PlanRequest
        from symalloc.session.planning import load_file

        return load_file(PlanRequest(path=Path(model), trust=trust, module=module_name))
    _require_model(model, verb)
    if module_name is not None:
        raise UsageError(
            f"module_name is {shown(module_name)}; it chooses a module of a file, not of a model"
        )
    from symalloc.relax.read.open_model import module_from

    try:
        found: IRModule = module_from(model)
    except UnreadableError as error:
        raise RunError(f"the model {error.sentence}") from None
    return found


def _require_model(value: object, verb: str) -> None:
    from symalloc.relax.read.open_model import KINDS, is_model

    if not is_model(value):
        raise UsageError(f"cannot {verb} {type(value).__name__} objects: give {KINDS}, or a path")


def _sorted_out(target: Any) -> tuple[list[str], list[tuple[str, Any]]]:
    """The paths and the (named) models among the targets; raises UsageError for anything else."""
    several = isinstance(target, list)
    if isinstance(target, tuple):  # a pair may be one model
        from symalloc.relax.read.open_model import is_model

        several = all(isinstance(each, str | Path) for each in target) or not is_model(target)
    targets = list(target) if several else [target]
    if not targets:
        raise UsageError("nothing to lint: give a model, a path, or a list of these")
    paths = [str(t) for t in targets if isinstance(t, str | Path)]
    models = [t for t in targets if not isinstance(t, str | Path)]
    for model in models:
        _require_model(model, "lint")
    names = ["module"] if len(models) == 1 else [f"module{i}" for i in range(1, len(models) + 1)]
    return paths, list(zip(names, models, strict=True))

"""`symalloc.lint`, `prove`, `plan`, `diff` and `run`: the verbs of the command line as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union, get_args

from symalloc.analysis.donation import parse_donation
from symalloc.arguments import (
    require_choice,
    require_flag,
    require_path,
    require_paths,
    require_text,
    require_texts,
    require_whole,
    shown,
)
from symalloc.errors import RunError, UsageError
from symalloc.linter.diagnostic import Report
from symalloc.linter.lint_options import LintOptions, assumption_texts, parse_assumptions
from symalloc.planner.memory_report.runs import MOST_REPEATS, PlanKind, RunResult
from symalloc.planner.planner_options import BoundsUse, EffortName, Flavour, GuardKind, PlanOptions
from symalloc.program.reading import DEFAULT_TIMEOUT, PipelineName, UnreadableError
from symalloc.prover.domain import INT64_MAX, Domain
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Proof
from symalloc.session.amounts import parse_amount
from symalloc.session.executor import lint_on
from symalloc.session.lint_cache import LintCache
from symalloc.session.lint_files import found_files
from symalloc.session.linting import LintElsewhere, LintSession
from symalloc.size.parse import ConditionLike, as_condition, is_sympy

if TYPE_CHECKING:
    from onnx import ModelProto
    from sympy import Symbol
    from torch.export import ExportedProgram
    from tvm.ir import IRModule
    from tvm.relax.frontend.nn import Module as NnModule

    from symalloc.planner.plan_diff.compare_plans import PlanDiff
    from symalloc.planner.plan_diff.plan_record import FunctionRecord
    from symalloc.pool.instrumented_pool import InstrumentedPool
    from symalloc.relax.passes.plan_pass import PlannedModule

Binding: TypeAlias = "Mapping[str, int] | Mapping[Symbol, int]"
Model: TypeAlias = Union["IRModule", "ModelProto", "ExportedProgram", tuple["NnModule", Any], str, Path]
"""What is linted, planned or run: a model in memory, a pair of an nn.Module and its spec, or a path."""


def lint(
    target: Model | Sequence[Model],
    *,
    assume: ConditionLike | Sequence[ConditionLike] = (),
    select: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    rules: str | Path | Sequence[str | Path] = (),
    stage: str = "auto",
    pipeline: PipelineName = "default",
    trust: bool = False,
    strict: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    jobs: int | None = None,
    budget: str | int | None = None,
    cache: str | Path | None = None,
    executor: Executor | None = None,
    baseline: str | Path | None = None,
) -> Report:
    """Lint models in memory, and files, directories or glob patterns given as str or Path.

    A model in memory is an IRModule, an onnx.ModelProto, a torch ExportedProgram, or a pair of a
    tvm.relax.frontend.nn.Module and its spec; it is checked in this process, files are read in worker
    processes.  `assume` holds conditions on
    symbols ("n <= 2048", or sympy's), `select` and `ignore` rule ids, beginnings of ids, or names, `rules`
    folders of further rules. `stage`: `as-is` checks a module as it stands, `planned` what TVM's passes make
    of it, `auto` both where it holds no memory operations, `all` every stage, "VMShapeLower" what that pass
    leaves.
    `pipeline`: "default" is what `relax.build` runs, "target" the target's own.  `trust` lets scripts run
    whatever they hold.  `strict`: what cannot be decided is an error.  `timeout`: seconds for reading one
    file.  `jobs`: the most files that are read at once, None for one per CPU.  `budget`: the most bytes that
    a call of a function may hold at once, such as "512MiB" (SYM402).  `cache`: a folder for the findings of
    files, which are not linted again while nothing changes.  `executor`: a
    concurrent.futures.Executor to lint files on; that of a Dask cluster is Client(address).get_executor().
    `baseline`: a file with findings to leave out, which `symalloc lint --write-baseline` wrote.

    Raises UsageError for an argument that makes no sense.  What cannot be read is a finding (SYM902), not
    an exception.
    """
    options = LintOptions(
        assume=assumption_texts(assume),
        select=require_texts("select", select),
        ignore=require_texts("ignore", ignore),
        rules=require_paths("rules", rules),
        stage=stage,
        pipeline=pipeline,
        trust=trust,
        strict=strict,
        timeout=timeout,
        jobs=jobs,
        budget=parse_amount("budget", budget, least=1),
        baseline=_path_or_none("baseline", baseline),
    )
    paths, modules = _sorted_out(target)
    with ExitStack() as stack:
        folder = _path_or_none("cache", cache)
        kept = None if folder is None else LintCache(folder, options, fixes=True)
        session = stack.enter_context(LintSession(options, cache=kept, elsewhere=_elsewhere(executor)))
        reports = [session.lint_files(found_files(options, paths))] if paths else []
        reports += [session.lint_module(module, name) for name, module in modules]
        return session.without_known(reports[0] if len(reports) == 1 else Report.joined(reports))


def prove(constraint: ConditionLike, *, assume: ConditionLike | Sequence[ConditionLike] = ()) -> Proof:
    """Sort `constraint` ("4*m <= 16") into always-valid, always-invalid or runtime-check.

    A symbol is an integer in [0, 2**63 - 1]; `assume` holds further conditions on symbols.  Conditions are
    texts, sympy relations, joined by sympy's And, Or and Not as may be, or such as a proof holds.  Raises
    UsageError for what is no condition on sizes.
    """
    domain = Domain(assumptions=parse_assumptions(assumption_texts(assume)))
    try:
        claim = as_condition(constraint)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Prover().prove(claim, domain)


def plan(
    module: Model,
    *,
    target: str = "llvm",
    pipeline: PipelineName = "default",
    flavour: Flavour = "auto",
    guards: GuardKind = "assert",
    bounds: BoundsUse = "ignore",
    effort: EffortName = "quick",
    seed: int = 0,
    certificate: str | Path | None = None,
    alias: str | Sequence[str] = (),
    trust: bool = False,
    module_name: str | None = None,
) -> PlannedModule:
    """Lower `module` to the point where memory is planned, and plan it; `.module` builds with any pipeline.

    `module` is a model as `lint` takes it, or the path of one.  `.plans` holds the plan of each
    function.  `pipeline`: "default" is what `relax.build` runs, "target" the target's own; `flavour`:
    tensors at offsets of one "arena", "storages" that they share whole, or "auto",
    the arena where the target can run it; `guards`: what checks the shapes at entry; `bounds`: those that
    functions declare: "ignore" them, "enforce" them by a check at entry, or "reserve" memory for them, at
    constant offsets; `effort` and `seed` are those of the search; `certificate`: a folder for the proof;
    `alias`: inputs that the caller donates, such as "0=weights", each for an output to be written into its
    memory.  A path is read in a process of its own: `trust` lets the file run whatever it holds,
    `module_name` chooses one of its modules.  Raises SymallocError.
    """
    from symalloc.relax.files.plan_file import plan_module
    from symalloc.relax.passes.given_target import require_target

    require_target(target)
    require_choice("pipeline", pipeline, get_args(PipelineName))
    options = PlanOptions(
        effort=effort,
        seed=seed,
        flavour=flavour,
        guards=guards,
        bounds=bounds,
        certificate=_path_or_none("certificate", certificate),
        alias=tuple(map(parse_donation, require_texts("alias", alias))),
    )
    loaded = _loaded(module, "plan", trust=trust, module_name=module_name)
    return plan_module(loaded, target=target, pipeline=pipeline, options=options)


def diff(
    before: Model | PlannedModule,
    after: Model | PlannedModule,
    *,
    bind: Binding | Sequence[Binding] = (),
    target: str = "llvm",
    pipeline: PipelineName = "default",
    flavour: Flavour = "auto",
    guards: GuardKind = "assert",
    bounds: BoundsUse = "ignore",
    effort: EffortName = "quick",
    seed: int = 0,
    alias: str | Sequence[str] = (),
    trust: bool = False,
) -> PlanDiff:
    """Compare what two plans of a model take, function by function: `.grew` is True where one takes more.

    Each is what `plan` returns, the path of JSON of `symalloc plan`, or a model as `plan` takes it, which is
    planned with the other arguments.  `bind`: the sizes at which bytes are shown, by name or
    symbol of sympy.  Raises SymallocError.
    """
    from symalloc.relax.files.plan_file import memory_reports
    from symalloc.relax.files.requests import PlanRequest
    from symalloc.relax.passes.given_target import target_of
    from symalloc.relax.passes.plan_pass import PlannedModule
    from symalloc.session.comparing import diff_plans, plans_in, records_of

    bindings = _bindings(bind)
    target_of(target)
    require_choice("pipeline", pipeline, get_args(PipelineName))
    chosen: dict[str, Any] = {"flavour": flavour, "guards": guards, "bounds": bounds, "effort": effort}
    require_flag("trust", trust)
    options = PlanOptions(
        **chosen, seed=seed, alias=tuple(map(parse_donation, require_texts("alias", alias)))
    )

    def plans(of: Model | PlannedModule) -> tuple[FunctionRecord, ...]:
        if isinstance(of, str | Path):
            request = PlanRequest(
                path=require_path("the file", of), trust=trust, target=target, pipeline=pipeline
            )
            return plans_in(request, options)
        found = of
        if not isinstance(found, PlannedModule):
            found = plan(found, **chosen, target=target, pipeline=pipeline, seed=seed, alias=alias)
        return records_of(memory_reports(found, found.module, target))

    return diff_plans(plans(before), plans(after), bindings)


def run(
    module: Model,
    binding: Binding,
    *,
    function: str | None = None,
    check: bool = False,
    seed: int = 0,
    repeat: int = 1,
    target: str = "llvm",
    pipeline: PipelineName = "default",
    flavour: Flavour = "auto",
    guards: GuardKind = "assert",
    bounds: BoundsUse = "ignore",
    effort: EffortName = "quick",
    plan: PlanKind = "symalloc",
    pool: InstrumentedPool | None = None,
    alias: str | Sequence[str] = (),
    trust: bool = False,
    module_name: str | None = None,
) -> RunResult:
    """Run a function of `module`, planned, on random arguments at `binding`, in this process.

    `module` is a model as `plan` takes it.  `plan` says who plans, as `symalloc run --plan` does; what is
    allocated comes from `pool`, where one is given.  `seed` is that of the arguments.  With `check` it is
    compared bit for bit with the module in which
    every tensor has memory of its own.  Raises SymallocError.
    """
    from symalloc.relax.passes.given_target import require_target
    from symalloc.relax.run.runner import Runner

    at = _binding(binding)
    require_target(target)
    require_choice("pipeline", pipeline, get_args(PipelineName))
    require_choice("plan", plan, get_args(PlanKind))
    require_flag("check", check)
    _require_pool(pool)
    if function is not None:
        require_text("function", function)
    seed, repeat = require_whole("seed", seed, 0), require_whole("repeat", repeat, 1, MOST_REPEATS)
    options = PlanOptions(
        effort=effort,
        flavour=flavour,
        guards=guards,
        bounds=bounds,
        alias=tuple(map(parse_donation, require_texts("alias", alias))),
    )
    loaded = _loaded(module, "run", trust=trust, module_name=module_name)
    runner = Runner(
        loaded, function=function, target=target, pipeline=pipeline, options=options, plan=plan, pool=pool
    )
    return runner.run(at, check=check, seed=seed, repeat=repeat)


def save_program(program: ExportedProgram, path: str | Path) -> None:
    """Write a program of torch.export to `path`, as torch.export.save does, and the names of its dimensions.

    Torch forgets what `torch.export.Dim` was given.  Here the archive has one more file, which torch's own
    loader passes over: the symbols of a module that is read from `path` have these names.  Raises
    UsageError.
    """
    from symalloc.relax.read.python_object import is_exported_program
    from symalloc.relax.read.torch_program import program_bytes
    from symalloc.session.files import write_atomically

    if not is_exported_program(program):
        raise UsageError(f"cannot save {type(program).__name__} objects: give a torch.export.ExportedProgram")
    file = require_path("path", path)
    try:
        write_atomically(file, program_bytes(program))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def _path_or_none(name: str, value: object) -> Path | None:
    return None if value is None else require_path(name, value)


def _loaded(model: object, verb: str, *, trust: bool, module_name: str | None) -> IRModule:
    """The module that `model` is, describes, or names; raises SymallocError."""
    require_flag("trust", trust)
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
    from symalloc.relax.read.python_object import module_from

    try:
        found: IRModule = module_from(model)
    except UnreadableError as error:
        raise RunError(f"the model {error.sentence}") from None
    return found


def _require_model(value: object, verb: str) -> None:
    from symalloc.relax.read.python_object import KINDS, is_model

    if not is_model(value):
        raise UsageError(f"cannot {verb} {type(value).__name__} objects: give {KINDS}, or a path")


def _bindings(value: object) -> list[dict[str, int]]:
    """One binding, or several; raises UsageError."""
    several = value if isinstance(value, list | tuple) else [value]
    return [_binding(each) for each in several]


def _binding(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise UsageError(f"binding is {shown(value)}; it must map symbols to whole numbers")
    return {
        require_text("a symbol of the binding", str(name) if is_sympy(name) else name): require_whole(
            f"the binding of {name!r}", extent, -INT64_MAX, INT64_MAX
        )
        for name, extent in value.items()
    }


def _elsewhere(value: object) -> LintElsewhere | None:
    if value is None:
        return None
    if isinstance(value, Executor):
        return partial(lint_on, value)
    raise UsageError(f"executor is {shown(value)}; it must be a concurrent.futures.Executor")


def _require_pool(value: object) -> None:
    from symalloc.pool.native_pool import NativePool

    if not isinstance(value, NativePool | None):
        raise UsageError(f"pool is {shown(value)}; it must be a symalloc.Pool")


def _sorted_out(target: Any) -> tuple[list[str], list[tuple[str, Any]]]:
    """The paths and the (named) models among the targets; raises UsageError for anything else."""
    targets = list(target) if _is_several(target) else [target]
    if not targets:
        raise UsageError("nothing to lint: give a model, a path, or a list of these")
    paths = [str(t) for t in targets if isinstance(t, str | Path)]
    models = [t for t in targets if not isinstance(t, str | Path)]
    for model in models:
        _require_model(model, "lint")
    names = ["module"] if len(models) == 1 else [f"module{i}" for i in range(1, len(models) + 1)]
    return paths, list(zip(names, models, strict=True))


def _is_several(target: object) -> bool:
    """Return whether `target` is a list of models, and not the pair that is one."""
    if not isinstance(target, tuple):
        return isinstance(target, list)
    if all(isinstance(each, str | Path) for each in target):
        return True
    from symalloc.relax.read.python_object import is_model

    return not is_model(target)

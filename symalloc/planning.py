"""Planning and running put together: what the command line and the Python functions share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from symalloc.errors import SymallocError, UsageError
from symalloc.lint.diagnostic import Report
from symalloc.lint.run import Linter, Settings
from symalloc.plan.summary import Summary, summarise
from symalloc.program.model import Program
from symalloc.prove.prover import Prover
from symalloc.relax.read_result import FileResult
from symalloc.relax.run_isolated import isolated
from symalloc.relax.run_result import PlannedFile, RunError, RunResult
from symalloc.rulebook.book import load_rules

if TYPE_CHECKING:
    from tvm import IRModule

    from symalloc.relax.plan_pass import PlannedModule

__all__ = ["Flavour", "PlannedText", "plan", "plan_path", "run", "run_path"]

Flavour: TypeAlias = Literal["default", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedText:
    """A file's module, planned: the text to write, a summary for each function, what the linter says of
    it.
    """

    text: str
    summaries: tuple[Summary, ...]
    report: Report


def plan(module: IRModule, *, target: str = "llvm", flavour: Flavour = "default") -> PlannedModule:
    """`module` lowered to where memory is planned and planned; `.module` builds with any pipeline.

    `.plans` holds the plan of each function.  Raises SymallocError.
    """
    from symalloc.relax.emit_file import plan_module

    try:
        return plan_module(module, target=target, flavour=flavour)
    except RunError as error:
        raise SymallocError(str(error)) from None


def run(
    module: IRModule,
    binding: Mapping[str, int],
    *,
    function: str | None = None,
    check: bool = False,
    seed: int = 0,
    repeat: int = 1,
    target: str = "llvm",
    flavour: Flavour = "default",
) -> RunResult:
    """Runs a function of `module`, planned, on random arguments at `binding`, in this process.

    With `check` it is compared bit for bit with the module in which every tensor has memory of its own.
    Raises SymallocError.
    """
    from symalloc.relax.run import Runner

    try:
        runner = Runner(module, function=function, target=target, flavour=flavour)
        return runner.run(binding, check=check, seed=seed, repeat=repeat)
    except RunError as error:
        raise SymallocError(str(error)) from None


def plan_path(
    path: Path,
    *,
    form: Literal["json", "script"],
    trust: bool = False,
    module: str | None = None,
    target: str = "llvm",
    flavour: Flavour = "default",
) -> PlannedText:
    """Plans the module in the file `path` in a process of its own, and lints what came out.  Raises
    UsageError.
    """
    _require_file(path)
    try:
        found: PlannedFile = isolated(
            "symalloc.relax.emit_file:plan_file",
            path,
            what=f"planning {path}",
            trust=trust,
            module=module,
            target=target,
            flavour=flavour,
            form=form,
        )
    except RunError as error:
        raise UsageError(str(error)) from None
    theirs = found.tvm_bytes or {}
    return PlannedText(
        text=found.text,
        summaries=tuple(summarise(p, theirs.get(name)) for name, p in found.plans.items()),
        report=_linted(found, path),
    )


def run_path(
    path: Path,
    binding: Mapping[str, int],
    *,
    trust: bool = False,
    module: str | None = None,
    function: str | None = None,
    check: bool = False,
    seed: int = 0,
    repeat: int = 1,
    target: str = "llvm",
    flavour: Flavour = "default",
) -> RunResult:
    """`run` on the module in the file `path`, in a process of its own.  Raises UsageError."""
    _require_file(path)
    try:
        found: RunResult = isolated(
            "symalloc.relax.run_file:run_file",
            path,
            binding,
            what=f"running {path}",
            trust=trust,
            module=module,
            function=function,
            check=check,
            seed=seed,
            repeat=repeat,
            target=target,
            flavour=flavour,
        )
    except RunError as error:
        raise UsageError(str(error)) from None
    return found


def _require_file(path: Path) -> None:
    """Raises UsageError where `path` is no file; a process that imports TVM need not be started for that."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory; give one file, TVMScript (.py) or JSON")
    if not path.exists():
        raise UsageError(f"no such file: {path}")
    if not path.is_file():
        raise UsageError(f"{path} is not a regular file")


def _linted(found: PlannedFile, path: Path) -> Report:
    """What the linter says of the planned module; what it said before is told from what planning brought."""
    settings, prover = Settings(rulebook=load_rules(), report_unused=False), Prover()

    def report(*programs: Program) -> Report:
        linter = Linter(settings, prover)
        linter.add(FileResult(file=str(path), programs=programs))
        return linter.report()

    planned = report(found.program)
    return planned if planned.ok else report(found.original, found.program)

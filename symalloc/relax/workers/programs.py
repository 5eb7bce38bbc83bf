"""From an IRModule, or the bytes of a file, to programs: reading, checking, lowering, extracting.

Everything here runs TVM and may take the process down with it: files are read in child processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tvm import IRModule, relax

from symalloc.program.ir import Origin, Program
from symalloc.program.reading import (
    AS_IS,
    FileResult,
    Message,
    ModuleBegun,
    ReadingStep,
    ReadOptions,
    ReadProblem,
    Tell,
    UnreadableError,
    result_of,
)
from symalloc.program.span import Source
from symalloc.relax.extract import extract, extract_numbered
from symalloc.relax.passes.stages import (
    Lowered,
    PassFailedError,
    UnknownPassError,
    WantedStages,
    has_memory_operations,
    lower,
    wanted_stages,
)
from symalloc.relax.read.open_model import ModelFile, open_model
from symalloc.relax.read.python_object import module_from
from symalloc.relax.tvm_error import error_text

_ILL_FORMED_HINT = "TVM would not compile it; it is read as it stands and not lowered"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadModule:
    """A module on its way through the stages; `line` is where it stands in `source`.

    `in_memory`: its programs stay in this process.
    """

    mod: IRModule
    name: str
    file: str
    source: Source | None
    options: ReadOptions
    tell: Tell
    line: int | None = None
    in_memory: bool = False

    def report(self, message: str, *, hint: str | None = None, stage: str | None = None) -> None:
        """Tell of a problem with this module."""
        self.tell(ReadProblem(file=self.file, message=message, hint=hint, module=self.name, stage=stage))


def read_path(
    path: Path, options: ReadOptions, skip: int = 0, data: bytes | None = None, *, tell: Tell
) -> None:
    """Read what `path` names, leaving out its first `skip` modules, and `tell` what is found.

    `data` is the content, where that is not in a file.
    """
    file = str(path)
    tell(ReadingStep("reading"))
    try:
        opened = open_model(path, trust=options.trust, data=data)
        if opened.source is not None:
            tell(opened.source)
        _read_modules(file, opened, options, tell, skip)
    except UnreadableError as error:
        tell(ReadProblem(file=file, message=error.sentence, hint=error.hint, span=error.span))


def _read_modules(file: str, opened: ModelFile, options: ReadOptions, tell: Tell, skip: int) -> None:
    entries = opened.entries
    for number, entry in enumerate(entries[skip:], skip):
        tell(ModuleBegun(entry.name, number, len(entries)))
        tell(ReadingStep("reading"))
        read = opened.read(number)
        for problem in read.problems:
            tell(problem)
        if read.mod is not None:
            taken = _ReadModule(
                mod=read.mod,
                name=entry.name,
                file=file,
                source=opened.source,
                options=options,
                tell=tell,
                line=entry.line,
            )
            _take_checked(taken, checked=entry.checked)


def _take_checked(module: _ReadModule, *, checked: bool) -> None:
    """Read a module from a file: what is ill-formed is read as it stands, but not lowered."""
    module.tell(ReadingStep("checking"))
    fault = _ill_formed(module.mod) if checked else None
    if fault is None:
        _take(module)
        return
    program = _extract(module, module.mod, AS_IS)
    if program is None or not _lacks_symbols(program):  # an undefined symbol has a rule of its own
        module.report(f"the module is ill-formed: {fault}", hint=_ILL_FORMED_HINT)


def _lacks_symbols(program: Program) -> bool:
    return any(Origin.UNDEFINED in function.symbols.values() for function in program.functions.values())


def _ill_formed(mod: IRModule) -> str | None:
    try:
        relax.analysis.well_formed(mod)
    except Exception as error:  # TVM raises several kinds
        return error_text(error, most=2)
    return None


def read_module(model: object, options: ReadOptions = ReadOptions(), *, name: str = "module") -> FileResult:  # noqa: B008
    """Read a model in memory, an IRModule or what one is imported from, in this process.

    A model on which TVM crashes takes the process with it.  The result's file is `<name>`; its programs hold
    the module, to print what is to be shown of it.
    """
    told: list[Message] = []
    file = f"<{name}>"
    try:
        mod = module_from(model)
    except UnreadableError as error:
        told.append(ReadProblem(file=file, message=error.sentence, hint=error.hint, module=name))
        return result_of(file, told)
    module = _ReadModule(
        mod=mod, name=name, file=file, source=None, options=options, tell=told.append, in_memory=True
    )
    _take(module)
    return result_of(file, told)


def _take(module: _ReadModule) -> None:
    as_it_stands, wanted = wanted_stages(module.options.stage, has_memory_operations(module.mod))
    if as_it_stands:
        module.tell(ReadingStep("reading"))
        _extract(module, module.mod, AS_IS)
    if wanted is not None:
        _lower(module, wanted)


def _lower(module: _ReadModule, wanted: WantedStages) -> None:
    def keep(lowered: Lowered) -> None:
        _extract(module, lowered.mod, lowered.stage)

    def entering(name: str) -> None:
        module.tell(ReadingStep(name))

    options = module.options
    try:
        lower(
            module.mod,
            options.target,
            wanted=wanted,
            keep=keep,
            entering=entering,
            trust=options.trust,
            pipeline=options.pipeline,
        )
    except UnknownPassError as error:
        module.report(f"{error}", hint=f"its passes are {', '.join(error.passes)}")
    except PassFailedError as error:
        if not error.stage:
            module.report(f"target {options.target!r} is not understood: {error}")
            return
        message = f"TVM's pass {error.stage} refuses the module: {error}"
        module.report(message, hint="--stage as-is verifies the module as it stands", stage=error.stage)


def _extract(module: _ReadModule, mod: IRModule, stage: str) -> Program | None:
    """Hand on the program that `mod` is; None where it cannot be made."""
    try:
        program = _program(module, mod, stage)
    except Exception as error:  # a fault of ours must not hide what else is found
        message = f"symalloc failed to understand the module: {type(error).__name__}: {error}"
        hint = "this is a fault of symalloc; please report it"
        module.report(message, hint=hint, stage=None if stage == AS_IS else stage)
        return None
    module.tell(program)
    return program


def _program(module: _ReadModule, mod: IRModule, stage: str) -> Program:
    if stage == AS_IS and module.source is not None:
        return extract(mod, name=module.name, stage=stage, source=module.source, line=module.line)
    return extract_numbered(
        mod, name=module.name, stage=stage, file=module.file, pickles=not module.in_memory
    )

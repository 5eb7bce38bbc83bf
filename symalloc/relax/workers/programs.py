"""From an IRModule, or the bytes of a file, to programs: reading, checking, lowering, extracting.

Everything here runs TVM and may take the process down with it: files are read in child processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tvm import IRModule, relax

from symalloc.program.ir import Origin, Program
from symalloc.program.packed_contracts import contracts
from symalloc.program.reading import (
    AS_IS,
    FileResult,
    Message,
    ModuleBegun,
    ReadOptions,
    ReadProblem,
    Tell,
    UnreadableError,
    result_of,
)
from symalloc.program.span import Source
from symalloc.program.types import no_collections
from symalloc.relax.extract import extract, extract_numbered
from symalloc.relax.ir_types import error_text
from symalloc.relax.passes.stages import (
    PassFailedError,
    UnknownPassError,
    WantedStages,
    has_memory_operations,
    lower,
    wanted_stages,
)
from symalloc.relax.read.open_model import module_from, open_model

_ILL_FORMED_HINT = "TVM would not compile it; it is read as it stands and not lowered"


@no_collections()
def read_path(
    path: Path, options: ReadOptions, skip: int = 0, data: bytes | None = None, *, tell: Tell
) -> None:
    """Read what `path` names, leaving out its first `skip` modules, and `tell` what is found.

    `data` is the content, where that is not in a file.
    """
    file = str(path)
    tell("reading")
    try:
        with contracts(options.packed):
            opened = open_model(path, trust=options.trust, data=data)
            if opened.source is not None:
                tell(opened.source)
            entries = opened.entries()
            for number, entry in enumerate(entries[skip:], skip):
                tell(ModuleBegun(entry.name, number, len(entries)))
                tell("reading")
                read = entry.read()
                if isinstance(read, tuple):
                    for problem in read:
                        tell(problem)
                    continue
                reader = _ModuleReader(
                    mod=read,
                    name=entry.name,
                    file=file,
                    source=opened.source,
                    options=options,
                    tell=tell,
                    line=entry.line,
                )
                reader.read_checked(checked=entry.checked)
    except UnreadableError as error:
        tell(ReadProblem(file=file, message=error.sentence, hint=error.hint, span=error.span))


@no_collections()
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
    reader = _ModuleReader(
        mod=mod, name=name, file=file, source=None, options=options, tell=told.append, in_memory=True
    )
    with contracts(options.packed):
        reader.read()
    return result_of(file, told)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModuleReader:
    """Takes a module through the stages; `line` is where it stands in `source`.

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

    def read_checked(self, *, checked: bool) -> None:
        """Read a module from a file: what is ill-formed is read as it stands, but not lowered."""
        self.tell("checking")
        try:
            if checked:
                relax.analysis.well_formed(self.mod)
        except Exception as error:  # TVM raises several kinds
            program = self.extract(self.mod, AS_IS)
            functions = () if program is None else program.functions.values()
            # an undefined symbol has a rule of its own
            if not any(Origin.UNDEFINED in function.symbols.values() for function in functions):
                fault = error_text(error, most=2)
                self.report(f"the module is ill-formed: {fault}", hint=_ILL_FORMED_HINT)
            return
        self.read()

    def read(self) -> None:
        """Read the module as it stands, and behind the passes that are wanted."""
        as_it_stands, wanted = wanted_stages(self.options.stage, has_memory_operations(self.mod))
        if as_it_stands:
            self.tell("reading")
            self.extract(self.mod, AS_IS)
        if wanted is not None:
            self.lower(wanted)

    def lower(self, wanted: WantedStages) -> None:
        options = self.options
        try:
            lower(
                self.mod,
                options.target,
                wanted=wanted,
                keep=lambda lowered: self.extract(lowered.mod, lowered.stage),
                entering=self.tell,
                trust=options.trust,
                pipeline=options.pipeline,
            )
        except UnknownPassError as error:
            self.report(f"{error}", hint=f"its passes are {', '.join(error.passes)}")
        except PassFailedError as error:
            if not error.stage:
                self.report(f"target {options.target!r} is not understood: {error}")
                return
            message = f"TVM's pass {error.stage} refuses the module: {error}"
            self.report(message, hint="--stage as-is verifies the module as it stands", stage=error.stage)

    def extract(self, mod: IRModule, stage: str) -> Program | None:
        """Hand on the program that `mod` is; None where it cannot be made."""
        try:
            if stage == AS_IS and self.source is not None:
                program = extract(mod, name=self.name, stage=stage, source=self.source, line=self.line)
            else:
                pickles, given = not self.in_memory, self.mod
                program = extract_numbered(
                    mod, name=self.name, stage=stage, file=self.file, pickles=pickles, given=given
                )
        except Exception as error:  # a fault of ours must not hide what else is found
            message = f"symalloc failed to understand the module: {type(error).__name__}: {error}"
            hint = "this is a fault of symalloc; please report it"
            self.report(message, hint=hint, stage=None if stage == AS_IS else stage)
            return None
        self.tell(program)
        return program

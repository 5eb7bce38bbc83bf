"""From an IRModule, or the bytes of a file, to programs: reading, checking, lowering, extracting.

Everything here runs TVM and may take the process down with it; `worker` runs it in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tvm import IRModule, relax

from symalloc.program.model import Origin, Program
from symalloc.program.reading import AS_IS, ReadOptions, ReadProblem
from symalloc.program.span import Source
from symalloc.relax.extract import extract, locate
from symalloc.relax.passes.stages import (
    Lowered,
    PassFailedError,
    has_memory_operations,
    lower,
    wanted_stages,
)
from symalloc.relax.read.json import JsonError, load_module
from symalloc.relax.read.script import ModuleRead, ScriptReader
from symalloc.relax.read.script_file import ScriptError, decode, parse_text, read_bytes
from symalloc.relax.read.script_trust import TrustedCodeError
from symalloc.relax.tvm_error import error_text

_ILL_FORMED_HINT = "TVM would not compile it; it is read as it stands and not lowered"


class Sink(Protocol):
    """Takes what reading finds, as it is found."""

    def step(self, text: str) -> None:
        """What is about to be done: `reading`, `checking`, or the name of a pass."""

    def module(self, name: str, number: int, count: int) -> None:
        """Module `number` (from 0) of `count` in the file is about to be read."""

    def source(self, source: Source) -> None:
        """The text of the file."""

    def program(self, program: Program) -> None:
        """One program."""

    def problem(self, problem: ReadProblem) -> None:
        """One problem."""


class Collected:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.problems: list[ReadProblem] = []
        self.text: Source | None = None

    def step(self, text: str) -> None:
        """Not kept."""

    def module(self, name: str, number: int, count: int) -> None:
        """Not kept."""

    def source(self, source: Source) -> None:
        """Keep the text."""
        self.text = source

    def program(self, program: Program) -> None:
        """Keep the program."""
        self.programs.append(program)

    def problem(self, problem: ReadProblem) -> None:
        """Keep the problem."""
        self.problems.append(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Module:
    """A module on its way through the stages; `line` is where it stands in `source`."""

    mod: IRModule
    name: str
    file: str
    source: Source | None
    options: ReadOptions
    sink: Sink
    line: int | None = None


def read_path(path: Path, options: ReadOptions, sink: Sink, skip: int = 0) -> None:
    """Read the file `path`, leaving out its first `skip` modules, and tell `sink` what is found."""
    file = str(path)
    try:
        data = read_bytes(path)
        if path.suffix == ".py":
            _read_script(Source(file=file, text=decode(data)), options, sink, skip)
        else:
            _read_json(file, data, options, sink, skip)
    except ScriptError as error:
        problem = ReadProblem(file=file, message=f"cannot be read: {error}", hint=error.hint, span=error.span)
        sink.problem(problem)
    except JsonError as error:
        sink.problem(ReadProblem(file=file, message=f"cannot be read: {error}", hint=error.hint))
    except TrustedCodeError as error:
        sink.problem(ReadProblem(file=file, message=f"cannot be read: {error}"))


def _read_script(source: Source, options: ReadOptions, sink: Sink, skip: int) -> None:
    sink.source(source)
    script = parse_text(source.file, source.text)
    if not script.modules:
        raise ScriptError(
            "it holds no Relax module",
            hint="a module is a class decorated with @I.ir_module, or a function decorated with @R.function",
        )
    sink.step("reading")
    reader = ScriptReader(script, trust=options.trust)
    for number, module in enumerate(script.modules[skip:], skip):
        sink.module(module.name, number, len(script.modules))
        sink.step("reading")
        _take_module(reader.read(module), source, options, sink)


def _take_module(read: ModuleRead, source: Source, options: ReadOptions, sink: Sink) -> None:
    for problem in read.problems:
        sink.problem(problem)
    if read.mod is None:
        return
    module = _Module(
        mod=read.mod,
        name=read.name,
        file=source.file,
        source=source,
        options=options,
        sink=sink,
        line=read.line,
    )
    _take_checked(module, checked=read.checked)


def _read_json(file: str, data: bytes, options: ReadOptions, sink: Sink, skip: int) -> None:
    if skip:
        return
    name = Path(file).name.removesuffix(".gz").removesuffix(".json")
    sink.module(name, 0, 1)
    sink.step("reading")
    module = _Module(
        mod=load_module(data, trust=options.trust),
        name=name,
        file=file,
        source=None,
        options=options,
        sink=sink,
    )
    _take_checked(module, checked=True)


def _take_checked(module: _Module, *, checked: bool) -> None:
    """Read a module from a file: what is ill-formed is read as it stands, but not lowered."""
    module.sink.step("checking")
    fault = _ill_formed(module.mod) if checked else None
    if fault is None:
        _take(module)
        return
    program = _extract(module, module.mod, AS_IS)
    if program is None or not _lacks_symbols(program):  # an undefined symbol has a rule of its own
        message = f"the module is ill-formed: {fault}"
        module.sink.problem(
            ReadProblem(file=module.file, message=message, module=module.name, hint=_ILL_FORMED_HINT)
        )


def _lacks_symbols(program: Program) -> bool:
    return any(Origin.UNDEFINED in function.symbols.values() for function in program.functions.values())


def _ill_formed(mod: IRModule) -> str | None:
    try:
        relax.analysis.well_formed(mod)
    except Exception as error:  # TVM raises several kinds
        return error_text(error, most=2)
    return None


def programs_of(
    mod: IRModule, name: str, file: str, source: Source | None, options: ReadOptions, sink: Sink
) -> None:
    """Tell `sink` the programs that `mod` is at the stages which `options` asks for."""
    _take(_Module(mod=mod, name=name, file=file, source=source, options=options, sink=sink))


def _take(module: _Module) -> None:
    as_it_stands, wanted = wanted_stages(module.options.stage, has_memory_operations(module.mod))
    if as_it_stands:
        module.sink.step("reading")
        _extract(module, module.mod, AS_IS)
    if wanted is not None:
        _lower(module, wanted)


def _lower(module: _Module, wanted: Callable[[str], bool]) -> None:
    def keep(lowered: Lowered) -> None:
        _extract(module, lowered.mod, lowered.stage)

    options = module.options
    try:
        lower(
            module.mod,
            options.target,
            wanted=wanted,
            keep=keep,
            entering=module.sink.step,
            trust=options.trust,
        )
    except PassFailedError as error:
        module.sink.problem(_pass_problem(module, error))


def _pass_problem(module: _Module, error: PassFailedError) -> ReadProblem:
    if not error.stage:
        message = f"target {module.options.target!r} is not understood: {error}"
        return ReadProblem(file=module.file, message=message, module=module.name)
    return ReadProblem(
        file=module.file,
        message=f"TVM's pass {error.stage} refuses the module: {error}",
        hint="--stage as-is verifies the module as it stands",
        module=module.name,
        stage=error.stage,
    )


def _extract(module: _Module, mod: IRModule, stage: str) -> Program | None:
    """Hand on the program that `mod` is; None where it cannot be made."""
    try:
        program = _program(module, mod, stage)
    except Exception as error:  # a fault of ours must not hide what else is found
        message = f"symalloc failed to understand the module: {type(error).__name__}: {error}"
        problem = ReadProblem(
            file=module.file,
            message=message,
            hint="this is a fault of symalloc; please report it",
            module=module.name,
            stage=None if stage == AS_IS else stage,
        )
        module.sink.problem(problem)
        return None
    module.sink.program(program)
    return program


def _program(module: _Module, mod: IRModule, stage: str) -> Program:
    if stage == AS_IS and module.source is not None:
        return extract(mod, name=module.name, stage=stage, source=module.source, line=module.line)
    if not module.options.locate:
        return extract(mod, name=module.name, stage=stage)
    return locate(mod, name=module.name, stage=stage, file=module.file)

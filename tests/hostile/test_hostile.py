"""Every hostile program is reported by the rule that fits, its twin is clean, a run shows that it is real."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import product
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Literal, NamedTuple, get_args

import pytest
import tvm

from symalloc.linter.diagnostic import Diagnostic, Severity
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import Linter
from symalloc.program.reading import FileResult, Message, ReadOptions, result_of
from symalloc.relax.read.script import parse_module
from symalloc.relax.workers.programs import read_module, read_path
from symalloc.rulebook.rule import StageName
from tests.hostile import areas
from tests.hostile.machine import Machine
from tests.hostile.program import HostileProgram, ModuleSource
from tests.pool.processes import died
from tests.scale import tries

pytestmark = pytest.mark.slow

Kind = Literal["module", "twin"]
HEAD = "from tvm.script import ir as I, relax as R, tirx as T\n\n"


class Hostile(NamedTuple):
    """A program and the area that it belongs to."""

    area: str
    program: HostileProgram

    @property
    def name(self) -> str:
        """The name of the test."""
        return f"{self.area}: {self.program.what}"

    def source(self, kind: Kind) -> ModuleSource:
        """The program itself, or its twin; a text without the kernels that nobody calls."""
        source = self.program.module if kind == "module" else self.program.twin
        return HEAD + _spoken_of(source) if isinstance(source, str) else source


Of = tuple[str, Kind]


class Checked(NamedTuple):
    """The modules of programs and of their twins, each read once, and the findings in them."""

    modules: Mapping[Of, tvm.IRModule]
    findings: Mapping[Of, list[Diagnostic]]


def _spoken_of(text: str) -> str:
    """Leave the kernels out that are not called: reading them is most of the time that all this takes."""
    head, *functions = re.split(r"^(?=    @)", text, flags=re.MULTILINE)
    called = set(re.findall(r"\.(\w+)", text))
    kept = (
        one for one in functions if "T.prim_func" not in one or re.findall(r"def (\w+)", one)[0] in called
    )
    return head + "".join(kept)


def _programs() -> Iterator[Hostile]:
    for area in sorted(found.name for found in iter_modules(areas.__path__)):
        module = import_module(f"{areas.__name__}.{area}")
        yield from (Hostile(area, program) for program in module.PROGRAMS)


EVERY = tuple(_programs())
# that a program does what it says does not change with symalloc: every run shows some, the nightly run all
SHOWN = [one for one in EVERY if one.program.shows][:: tries(20, 1)]
every_program = pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)


@pytest.fixture(scope="module")
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """The programs that are asked for, and their twins."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    asked = (None if call is None else call.params.get("one") for call in calls)
    wanted = {one.name for one in asked if isinstance(one, Hostile)}
    modules: dict[Of, tvm.IRModule] = {}
    found: dict[Of, list[Diagnostic]] = {}
    linters = {stage: Linter(LintOptions(stage=stage)) for stage in get_args(StageName)}
    for (number, one), kind in product(enumerate(EVERY), get_args(Kind)):
        if one.name not in wanted:
            continue
        source, linter = one.source(kind), linters[one.program.stage]
        file = tmp_path_factory.getbasetemp() / f"program{number}.{kind}.py"
        reading, modules[one.name, kind] = _read(source, file, linter.options.stage)
        found[one.name, kind] = list(linter.lint(reading).report)
    return Checked(modules, found)


def _read(source: ModuleSource, file: Path, stage: StageName) -> tuple[FileResult, tvm.IRModule]:
    """What is read of a module; of a text, from a file."""
    options = ReadOptions(stage=stage)
    if not isinstance(source, str):
        module = source()
        return read_module(module, options), module
    file.write_text(source)
    told: list[Message] = []
    with pytest.MonkeyPatch.context() as patch:
        kept: list[tvm.IRModule] = []

        def keep(*given: Any) -> tvm.IRModule:
            found = parse_module(*given)
            assert isinstance(found, tvm.IRModule), found
            kept.append(found)
            return found

        patch.setattr("symalloc.relax.read.open_model.parse_module", keep)
        read_path(file, options, tell=told.append)
    return result_of(str(file), told), kept[0]


@every_program
def test_found_by_the_fitting_rule(one: Hostile, checked: Checked) -> None:
    program, found = one.program, checked.findings[one.name, "module"]
    fitting = [d for d in found if d.rule == program.rule]
    assert fitting, found
    assert {str(d.severity) for d in fitting} == {program.severity}, fitting
    if program.verdict is not None:
        assert program.verdict in {d.verdict for d in fitting}, fitting
    if program.counterexample is not None:
        assert program.counterexample in [d.counterexample for d in fitting], fitting
    if program.on_line is not None:
        lines = enumerate(str(one.source("module")).split("\n"), start=1)
        wanted = {number for number, line in lines if program.on_line in line}
        assert wanted & {d.span.line for d in fitting if d.span}, (wanted, fitting)
    errors = {d.rule for d in found if d.severity is Severity.ERROR}
    assert errors <= {program.rule} | program.also, found


@every_program
def test_twin_is_clean(one: Hostile, checked: Checked) -> None:
    found = checked.findings[one.name, "twin"]
    assert not [d for d in found if d.rule == one.program.rule or d.severity is Severity.ERROR], found


@pytest.mark.parametrize("one", SHOWN, ids=lambda one: one.name)
def test_shown_by_a_run(one: Hostile, checked: Checked) -> None:
    machines = [Machine(checked.modules[one.name, kind]) for kind in get_args(Kind)]
    for machine in machines:
        with suppress(Exception):  # what cannot be built is seen when it runs
            machine.prepare()

    def show() -> None:
        assert one.program.shows is not None
        assert one.program.shows(*machines) is True

    status, said = died(show)
    assert status == -(one.program.signal or 0), said[-3000:]


def test_names_are_unique() -> None:
    assert not [name for name, times in Counter(one.name for one in EVERY).items() if times > 1]

"""The table of options: the command line, Python and pyproject.toml take the same, with the same messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import symalloc
from symalloc.cli.budget import budget_command
from symalloc.cli.lint import lint_command
from symalloc.cli.main import main
from symalloc.cli.pack import pack_command
from symalloc.cli.plan import plan_command
from symalloc.cli.replay import replay_command
from symalloc.cli.run import run_command
from symalloc.editor.language_server import ServerOptions, read_options
from symalloc.linter.lint_options import LintKeywords, LintOptions
from symalloc.options import options_of
from symalloc.planner.memory_plan import PackOptions, PlanChoices, PlanOptions
from symalloc.planner.memory_report.device_budget import BudgetOptions
from symalloc.planner.memory_report.runs import RunOptions
from symalloc.pool.pool_options import PoolOptions
from symalloc.program.reading import ModuleOptions
from symalloc.session.api import PlanKeywords
from symalloc.session.config import load_config
from tests.relax.built import MODULES

DOCUMENT = Path(__file__).parent.parent / "docs" / "options.md"
CALLED = "`symalloc.plan`, `run`, `diff` and `pipeline`"
SECTIONS = (
    ("Linting", "`symalloc lint`, `symalloc.lint` and `[tool.symalloc]` take", LintOptions, lint_command),
    ("Planning", f"`symalloc plan`, `run`, `diff` and `report`, {CALLED} take", PlanOptions, plan_command),
    ("Budgets", "`symalloc budget` and `symalloc.budget` take", BudgetOptions, budget_command),
    ("Running", "`symalloc run` and `symalloc.run` take", RunOptions, run_command),
    ("Packing", "`symalloc pack` and `symalloc.pack` take", PackOptions, pack_command),
    ("Pools", "`symalloc.Pool` takes, `symalloc replay` and `report` some of", PoolOptions, replay_command),
    ("Lowering", "The same verbs, and `symalloc lint`, take", ModuleOptions, plan_command),
    ("Editors", "As `initializationOptions` the language server takes", ServerOptions, None),
)


def _document() -> str:
    parts = [DOCUMENT.read_text(encoding="utf-8").partition("## ")[0].rstrip() + "\n"]
    for title, who, record, command in SECTIONS:
        rows = "\n".join(_rows(record, command))
        parts.append(f"## {title}\n\n{who}:\n\n{rows}\n")
    return "\n".join(parts)


def _rows(record: type, command: click.Command | None) -> Iterator[str]:
    yield "| option | command line | pyproject.toml | default | meaning |\n|---|---|---|---|---|"
    flags = {param.name: ", ".join(param.opts) for param in command.params} if command else {}
    for name, option in options_of(record).items():
        here = record is not LintOptions or name not in options_of(ModuleOptions)
        if here:
            flag = f"`{flags[name]}`" if name in flags else ""
            key = f"`{name.replace('_', '-')}`" if option.in_file and command else ""
            default = "" if option.default in (None, (), {}) else f"`{option.default}`"
            yield f"| `{name}` | {flag} | {key} | {default} | {option.help.replace('|', chr(92) + '|')} |"


def test_the_document_lists_them(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        DOCUMENT.write_text(_document(), encoding="utf-8")
    assert DOCUMENT.read_text(encoding="utf-8") == _document()


def test_keyword_arguments_are_those_of_the_records() -> None:
    module, plan, lint = (set(options_of(each)) for each in (ModuleOptions, PlanOptions, LintOptions))
    assert set(LintKeywords.__annotations__) == lint - {"target", "cache"}, "which `lint` has as arguments"
    assert set(PlanChoices.__annotations__) == plan - {"seed", "certificate"}, "not all functions have these"
    assert set(PlanKeywords.__annotations__) == module | set(PlanChoices.__annotations__)


def test_an_unknown_keyword_argument_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'selct'; did you mean 'select'\?"):
        symalloc.lint(MODULES.Chain, selct="SYM1")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'certificate'"):
        symalloc.pipeline(certificate="proofs")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("jobs", 0, "it must be a whole number of at least 1"),
        ("budget", "1XiB", "`1XiB` is no amount of memory; write bytes, or 64KiB, 512MiB, 1.5GiB, 10KB"),
        ("stage", "plannd", "or the name of a pass; did you mean 'planned'?"),
        ("baseline", "", "an empty path was given"),
    ],
)
def test_a_wrong_value_gets_one_message(
    name: str, value: object, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def in_python() -> None:
        symalloc.lint(MODULES.Chain, **{name: value})  # type: ignore[arg-type]

    def in_a_file() -> None:
        file = tmp_path / "pyproject.toml"
        file.write_text(f"[tool.symalloc]\n{name} = {value!r}\n")
        load_config(file)

    assert said in _refusal(in_python) and said in _refusal(in_a_file)
    with pytest.raises(SystemExit):
        main(["lint", "x.py", f"--{name}", str(value)])
    assert f"--{name}" in (err := capsys.readouterr().err) and said in err


def test_an_editor_gets_the_same() -> None:
    said = "it must be a number of seconds of at least 0.001"
    assert said in _refusal(lambda: read_options({"timeout": 0}))
    assert said in _refusal(lambda: symalloc.lint(MODULES.Chain, timeout=0))


def _refusal(action: Callable[[], object]) -> str:
    with pytest.raises(symalloc.UsageError) as refused:
        action()
    return str(refused.value)

"""Options of the command line, made from the table of options (`symalloc.options`) and beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from symalloc.cli.bindings import parse_bindings
from symalloc.cli.output import Command
from symalloc.errors import UsageError, require_path
from symalloc.linter.lint_options import LintOptions
from symalloc.options import FLAG, PATH, TEXT, Kind, Option, choice, options_of
from symalloc.planner.memory_plan import PlanOptions
from symalloc.pool.pool_options import PoolOptions
from symalloc.program.reading import ModuleOptions
from symalloc.session.config import plan_options
from symalloc.session.files import require_folder_of

if TYPE_CHECKING:
    from symalloc.relax.files.requests import PlanRequest

_MODULE_OPTIONS = ("module", "target", "pipeline", "trust")
PLANNER_OPTIONS = (
    *("flavour", "guards", "bounds", "effort", "max_buffer", "alias", "arena", "results"),
    *("order", "shrink", "max_arena", "chunks"),
)
MODEL_OPTIONS = (*PLANNER_OPTIONS, *_MODULE_OPTIONS)
REPLAY_OPTIONS = ("soft_limit", "limit", "page")


class Word(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """A word that is read as Python reads the same argument, with the same messages."""

    def __init__(self, kind: Kind) -> None:
        self._kind, self.name = kind, kind.metavar

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return what stands for a value in help."""
        return self._kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value, or the values of one word where an option may be given several times."""
        try:
            return self._kind.read(_flag(param), self._kind.parse(value) if isinstance(value, str) else value)
        except UsageError as error:
            raise click.UsageError(str(error), ctx) from None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the words that a shell completes to; the shell itself knows names of files."""
        if self.name in ("PATH", "FILE"):
            return [CompletionItem(incomplete, type="file")]
        words = self.name.strip("[]").split("|") if "|" in self.name else []
        return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def written(*endings: str) -> Kind:
    """A file to write in a folder that is there; its name ends in one of `endings`, which say how."""
    return Kind(read=partial(_written, endings=endings), metavar="FILE")


def _written(name: str, value: object, endings: tuple[str, ...]) -> Path:
    path = require_path(name, value)
    if path.is_dir():
        raise UsageError(f"{name}: '{path}' is a directory")
    if endings and path.suffix not in endings:
        raise UsageError(f"{path}: the name must end in {' or '.join(endings)}")
    require_folder_of(path)
    return path


def given_as(*names: str, kind: Kind, **more: Any) -> Callable[[Command], Command]:
    """An option of one verb, with values of `kind`; `more` is that of click."""
    return click.option(*names, type=Word(kind), **more)


def path_argument(name: str, **more: Any) -> Callable[[Command], Command]:
    """An argument that is a path; `more` is that of click."""
    return click.argument(name, type=Word(PATH), **{"metavar": name.upper(), **more})


def from_table(record: type, *names: str) -> Callable[[Command], Command]:
    """The options `names` of a class of records.  Those that a file may set are None where not given."""
    table = options_of(record)
    made = [_made(name, table[name]) for name in names]
    return lambda command: reduce(lambda before, add: add(before), reversed(made), command)


def _made(name: str, known: Option) -> Callable[[Command], Command]:
    names = (f"--{name.rstrip('_').replace('_', '-')}", *known.short, name)
    if known.kind is FLAG:
        return click.option(*names, is_flag=True, help=known.help)
    more: dict[str, Any] = {} if known.in_file or known.default in (None, ()) else {"default": known.default}
    return click.option(
        *names,
        type=Word(known.kind),
        multiple=known.kind.several,
        callback=_joined if known.kind.several else None,
        metavar=known.metavar or None,
        show_default=bool(more),
        help=known.help,
        **more,
    )


def _joined(_: click.Context, __: click.Parameter, values: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(chain.from_iterable(values))


rules_option = from_table(LintOptions, "rules")
_planner_options = from_table(PlanOptions, *PLANNER_OPTIONS)
replay_options = from_table(PoolOptions, *REPLAY_OPTIONS)
_lowering_options = from_table(ModuleOptions, *_MODULE_OPTIONS[1:])
_module_option = given_as("--module", kind=TEXT, help="The module to use, if the file has several.")


def model_options(command: Command) -> Command:
    """The options of plans, and --module, --target, --pipeline and --trust."""
    return _planner_options(_module_option(_lowering_options(command)))


def bind_option(
    help: str,  # noqa: A002 - as click has it
    *older: str,
    parse: Callable[[Iterable[str]], Any] = parse_bindings,
) -> Callable[[Command], Command]:
    """--bind: sizes, in all verbs; `older` are further names of it."""
    more: dict[str, Any] = {"metavar": "NAME=N,…", "callback": lambda _, __, texts: parse(texts)}
    return click.option("--bind", *older, "bind", multiple=True, help=help, **more)


def format_option(of: str) -> Callable[[Command], Command]:
    """--format: text or json."""
    kind = choice(("text", "json"))
    return given_as("--format", "form", kind=kind, default="text", help=f"The format of {of}.")


def request_of(file: Path, options: dict[str, Any]) -> PlanRequest:
    """Take the values of `model_options`, and other options of plans, out of `options`; read standard input
    where `file` is `-`.
    """
    from symalloc.relax.files.requests import PlanRequest
    from symalloc.relax.read.find_files import STDIN, STDIN_ARGUMENT, read_standard_input

    wanted = {name: options.pop(name) for name in _MODULE_OPTIONS}
    given = {name: options.pop(name) for name in options_of(PlanOptions) if name in options}
    try:
        plan, packed = plan_options(file, given)
    except UsageError as error:  # says options as Python has them
        keyword = r'(\w+)=(?:"(\w+)"|(?=\W))'
        said = re.sub(keyword, lambda one: one.expand(r"--\1 \2").rstrip().replace("_", "-"), f"{error}")
        raise UsageError(said) from None
    data = read_standard_input() if str(file) == STDIN_ARGUMENT else None
    return PlanRequest(path=file if data is None else STDIN, data=data, plan=plan, packed=packed, **wanted)


def pool_options_of(options: dict[str, Any]) -> PoolOptions:
    """Take the values of `replay_options` out of `options`; raises PoolUsageError."""
    return PoolOptions(**{name: options.pop(name) for name in REPLAY_OPTIONS})


def refuse_given(names: Iterable[str], why: str) -> None:
    """Raise UsageError, which ends in `why`, where the command line has one of these options."""
    context = click.get_current_context()
    flags = {param.name: _flag(param) for param in context.command.params}
    given = [flags[n] for n in names if context.get_parameter_source(n) is ParameterSource.COMMANDLINE]
    if given:
        raise UsageError(f"{', '.join(given)} would have no effect: {why}")


def _flag(param: click.Parameter | None) -> str:
    return max(param.opts, key=len) if param is not None else "the value"

"""The `symalloc` command: verbs are imported when they are used, and no traceback reaches a user."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from importlib import import_module
from time import monotonic
from types import FrameType
from typing import Any, NoReturn, Self

import click

from symalloc.cli.output import LogLines, output_options, printing_option
from symalloc.errors import SymallocError, nearest
from symalloc.native.library import cmake_dir, leave_torch_out
from symalloc.shown import version_of

_NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
_GRACE = 1.0  # seconds: whoever passes a signal on may send it twice
_SOON = 0.001  # seconds


class Interruption(ExitStack):
    """While it is entered, a signal that asks for the end raises KeyboardInterrupt, once.

    It is raised again, soon, where it comes while a destructor runs, whose exceptions Python passes over.  A
    second one that comes later ends the process at once.  Signals that are ignored stay so.  `came`: one has
    come, and `number` is that of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.number, self.came, self._at = signal.SIGINT, False, 0.0

    @property
    def status(self) -> int:
        """The exit status that shells give a program which a signal ended."""
        return 128 + self.number

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _NAMES:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self.callback(signal.signal, number, signal.signal(number, self._ended))
            before = signal.signal(signal.SIGALRM, signal.default_int_handler)
            self.callback(signal.signal, signal.SIGALRM, before)
            self.callback(signal.setitimer, signal.ITIMER_REAL, 0)
            self.callback(setattr, sys, "unraisablehook", sys.unraisablehook)
            sys.unraisablehook = partial(self._passed_over, sys.unraisablehook)
        return self

    def _ended(self, number: int, _: FrameType | None) -> None:
        if not self.came:
            self.number, self.came, self._at = signal.Signals(number), True, monotonic()
            raise KeyboardInterrupt
        if monotonic() - self._at > _GRACE:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _passed_over(self, show: Callable[[Any], object], lost: sys.UnraisableHookArgs) -> None:
        """Show what Python passes over; once a signal has come z3 complains of what it had half made."""
        if not self.came:
            show(lost)
        elif isinstance(lost.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _SOON)


TROUBLE = 2
# verb -> what --help says of it, so that no verb need be imported for that
VERBS = {
    "lint": "Verify the memory of Relax modules: bounds, lifetimes, shapes.",
    "prove": "Sort a size constraint into always-valid, always-invalid or runtime-check.",
    "plan": "Plan the memory of a Relax module and write the planned module.",
    "budget": "Say whether weights, states and calls fit a device, and how much of what does.",
    "graph": "Show which calls of a planned module wait for which, fences of the plan among them.",
    "diff": "Compare two plans, or the plans of two modules: what grew, and where.",
    "run": "Run a Relax module at given sizes; show the memory and time it takes.",
    "pack": "Pack buffers of fixed or symbolic sizes into one arena.",
    "replay": "Replay allocation traces on symalloc's pool and on TVM's.",
    "report": "Draw a plan or a trace: a page for a browser.",
    "server": "Serve editors: findings as you type, sizes under the cursor, fixes.",
    "rules": "List the rules.",
    "explain": "Explain one rule, with examples.",
    "schema": "Print the JSON Schema of a document.",
    "help": "Show the help of a verb.",
}


class LazyGroup(click.Group):
    """A group whose commands live in `symalloc/cli/<verb>.py` as `<verb>_command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in the order in which --help shows them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """The command of that name, imported now; an unknown name fails with the nearest one."""
        if cmd_name not in VERBS:
            close = nearest(cmd_name, list(VERBS))
            ctx.fail(f"no such command: `{cmd_name}`" + (f"; did you mean `{close}`?" if close else ""))
        return _verb(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs and their one-line helps without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@cache
def _verb(name: str) -> click.Command:
    if name == "help":
        return output_options(help_command)
    command: click.Command = getattr(import_module(f"symalloc.cli.{name}"), f"{name}_command")
    return output_options(command)


@click.command("help")
@click.argument("verb", required=False)
@click.pass_context
def help_command(context: click.Context, verb: str | None) -> None:
    """Show the help of VERB, or what verbs there are."""
    above = context.find_root()
    if verb is None:
        click.echo(above.get_help())
    else:
        command = cli.get_command(above, verb)
        click.echo(command.get_help(click.Context(command, parent=above, info_name=verb)))


def _versions() -> str:
    tvm = version_of("apache-tvm", "not installed")
    return f"symalloc {version_of('symalloc', '')} (apache-tvm {tvm})\n"


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 for success, 1 for findings or a negative answer, 2 for wrong usage, unreadable "
    "input, or an internal error, 128 and its number for a signal (130 after Ctrl-C).  `symalloc help VERB` "
    "describes each verb.",
)
@output_options
@printing_option("--version", "-V", text=_versions, help="Show the versions of symalloc and TVM.")
@printing_option(
    "--cmake-dir",
    text=lambda: f"{cmake_dir()}\n",
    help="Show the folder of the CMake package of the pool, for find_package(symalloc).",
)
@click.option(
    "--debug",
    is_flag=True,
    help="Say on standard error what is done, with the traceback of an internal error.",
)
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Verified memory planning for dynamic-shape models in Apache TVM's Relax."""
    logger, handler = logging.getLogger("symalloc"), LogLines()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s" if debug else "%(message)s"))
    handler.setLevel(logging.DEBUG if debug else logging.WARNING)
    ctx.call_on_close(partial(logger.setLevel, logger.level))
    ctx.call_on_close(partial(logger.removeHandler, handler))
    logger.addHandler(handler)
    if debug:
        logger.setLevel(logging.DEBUG)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    leave_torch_out()
    with suppress(KeyboardInterrupt), Interruption() as interruption:
        try:
            status = _run(given, interruption)
        except BrokenPipeError:
            status = TROUBLE
            with suppress(OSError):  # Python would complain at exit that nobody reads the output any more
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if interruption.came:
        sys.unraisablehook = lambda _: None
        sys.exit(interruption.status)
    sys.exit(status)


def _run(arguments: list[str], interruption: Interruption) -> int:
    """Run a verb; return the exit status.  Whatever goes wrong ends in a line on standard error."""
    try:
        status = cli.main(args=arguments, prog_name="symalloc", standalone_mode=False)
        if sys.stdout is not None:  # closed by whoever started it
            sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        _complain(_NAMES[interruption.number])
        return interruption.status
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        return _complain(error.format_message())
    except click.ClickException as error:
        text, context = error.format_message(), getattr(error, "ctx", None)
        hint = f"\nTry `{context.command_path} --help`." if context else ""
        return _complain(f"error: {text[:1].lower()}{text[1:]}{hint}")
    except SymallocError as error:
        return _complain(f"error: {error}")
    except (BrokenPipeError, SystemExit):
        raise
    except OSError as error:
        return _complain(f"error: {error.filename or 'output'}: {error.strerror or error}")
    except Exception as error:
        hint = "" if "--debug" in arguments else "; `symalloc --debug …` shows where"
        if not hint:
            traceback.print_exception(error)
        line = traceback.format_exception_only(error)[-1].strip()
        return _complain(f"internal error, please report it: {line}{hint}")
    return status if isinstance(status, int) else 0


def _complain(text: str) -> int:
    with suppress(OSError):  # there may be nowhere to complain to
        click.echo(text, err=True)
    return TROUBLE

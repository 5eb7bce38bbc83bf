"""Options that `symalloc plan` and `symalloc run` share: which module, and how it is planned."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from symalloc.cli.output import OneOf
from symalloc.errors import UsageError
from symalloc.planner.planner_options import BoundsUse, EffortName, Flavour, GuardKind

if TYPE_CHECKING:
    from symalloc.analysis.donation import Donation
    from symalloc.relax.files.requests import PlanRequest

Command = TypeVar("Command", bound=Callable[..., Any])

MODULE_OPTIONS = ("module", "target", "pipeline", "trust")
PLANNER_OPTIONS = ("flavour", "guards", "bounds", "effort", "alias")


def module_options(command: Command) -> Command:
    """--module, --target, --pipeline and --trust."""
    return _together(
        command,
        click.option("--module", help="The module to use, if the file has several."),
        click.option("--target", default="llvm", show_default=True, help="The TVM target to lower for."),
        click.option(
            "--pipeline",
            type=OneOf(("default", "target")),
            default="default",
            help="The pipeline that relax.build runs, or the target's own, which fuses operators.  On a GPU "
            "they are the same.",
        ),
        click.option(
            "--trust",
            is_flag=True,
            help="Run all code of the file. Never use it for code that you have not read.",
        ),
    )


def planner_options(command: Command) -> Command:
    """--flavour, --guards, --bounds, --effort and --alias."""
    return _together(
        command,
        click.option(
            "--flavour",
            type=OneOf(get_args(Flavour)),
            default="auto",
            show_default=True,
            help="arena: tensors lie at offsets of one arena; storages: tensors share whole storages; auto: "
            "an arena, or storages where the target's kernels could not run with an arena.",
        ),
        click.option(
            "--guards",
            type=OneOf(get_args(GuardKind)),
            default="assert",
            show_default=True,
            help="What happens at shapes for which the plan is not proved: an error; the function runs "
            "without the plan; an error that needs no Python; or no check.",
        ),
        click.option(
            "--bounds",
            type=OneOf(get_args(BoundsUse)),
            default="ignore",
            show_default=True,
            help="The bounds that a function declares (tir_var_upper_bound): nothing relies on them; "
            "they are checked at entry, and proofs rely on them; or memory is reserved for them, at "
            "constant offsets.",
        ),
        click.option(
            "--effort",
            type=OneOf(get_args(EffortName)),
            default="quick",
            show_default=True,
            help="The time spent on the search for a better plan.",
        ),
        click.option(
            "--alias",
            multiple=True,
            callback=_donations,
            metavar="[FUNCTION:]OUT=IN",
            help="The caller donates the input IN, and the output OUT is written into its memory; may be "
            "repeated. OUT is a field of the result (0, 1.0), a variable, or `result`. IN is a parameter or "
            "a field of one (caches.0).",
        ),
    )


def request_of(file: Path, options: dict[str, Any]) -> PlanRequest:
    """Takes the values of `module_options` out of `options`; reads standard input where `file` is `-`."""
    from symalloc.relax.files.requests import PlanRequest
    from symalloc.relax.read.find_files import read_standard_input
    from symalloc.relax.read.model_file import STDIN, STDIN_ARGUMENT

    wanted = {name: options.pop(name) for name in MODULE_OPTIONS}
    if str(file) == STDIN_ARGUMENT:
        return PlanRequest(path=STDIN, data=read_standard_input(), **wanted)
    return PlanRequest(path=file, **wanted)


def _donations(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[Donation, ...]:
    from symalloc.analysis.donation import parse_donation

    try:
        return tuple(map(parse_donation, texts))
    except UsageError as error:
        raise click.BadParameter(str(error)) from None


def _together(command: Command, *decorators: Callable[[Command], Command]) -> Command:
    return reduce(lambda made, decorator: decorator(made), reversed(decorators), command)

"""`symalloc run`: run a module, planned, at given sizes, and compare it with the unplanned one."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from symalloc.cli.bindings import parse_binding
from symalloc.cli.plan_options import module_options, planner_options, request_of
from symalloc.plan.options import PlanOptions

if TYPE_CHECKING:
    from symalloc.relax.run_result import RunResult

__all__ = ["run_command"]

EPILOG = """\
Exit status: 0, or 1 when --check finds a difference, 2 for wrong usage, or a module that cannot be read,
planned, built or run.
"""


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--bind", multiple=True, metavar="NAME=N", help="The value of a symbol, such as n=128.")
@click.option("--check", is_flag=True, help="Compare with the unplanned module, bit for bit.")
@click.option("--function", help="The function to run, where there are several.")
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="For the random arguments."
)
@click.option(
    "--repeat", type=click.IntRange(1, 1_000_000), default=1, show_default=True, help="How many calls."
)
@planner_options
@module_options
def run_command(file: Path, bind: tuple[str, ...], **options: Any) -> int:
    """Plan the Relax module in FILE, build it for the CPU and run it on random arguments."""
    from symalloc.planning import run_file

    request = request_of(file, options)
    chosen = PlanOptions(**{name: options.pop(name) for name in ("flavour", "guards", "effort", "alias")})
    result = run_file(request, parse_binding(bind, "--bind"), options=chosen, **options)
    click.echo("".join(f"{line}\n" for line in _described(result)), nl=False)
    return 1 if result.difference is not None else 0


def _described(result: RunResult) -> list[str]:
    at = ", ".join(f"{name} = {value}" for name, value in result.binding.items())
    outputs = ", ".join(f"{o.dtype}{list(o.shape)}" for o in result.outputs) or "nothing"
    lines = [
        f"{result.function}({at}) returns {outputs}",
        _arena(result),
        f"outputs: {result.output_bytes} B",
        f"time: {_microseconds(median(result.seconds))}, median of {len(result.seconds)}",
    ]
    if result.difference is not None:
        lines.append(f"DIFFERENT from the unplanned module: {result.difference}")
    elif result.checked:
        lines.append("the same as the unplanned module, bit for bit")
    return lines


def _arena(result: RunResult) -> str:
    if not result.planned:
        return "arena: none, there was no tensor to plan"
    if result.ratio is None:
        return f"arena: for {result.planned} tensors; its size depends on what becomes known during the run"
    return (
        f"arena: {result.arena_bytes} B for {result.planned} tensors, floor: {result.floor_bytes} B, "
        f"arena / floor: {result.ratio:.3f}"
    )


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs" if seconds < 0.01 else f"{seconds * 1e3:.1f} ms"

"""Shared by the benchmarks: timing in turns, attributes replaced for a while, the Llama-style decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from statistics import median
from time import perf_counter, process_time
from typing import Any, ParamSpec, TypeVar
from unittest.mock import patch

import click

P = ParamSpec("P")
Key = TypeVar("Key")
Value = TypeVar("Value")
layers_option = click.option("--layers", default=32, show_default=True, help="Layers of the decoder.")
rounds_option = click.option("--rounds", default=5, show_default=True, help="Rounds to take the median of.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def timed(action: Callable[P, Value], *args: P.args, **named: P.kwargs) -> tuple[float, Value]:
    """Seconds that `action` took, and its result."""
    start = perf_counter()
    result = action(*args, **named)
    return perf_counter() - start, result


def seconds(action: Callable[P, Any], *args: P.args, **named: P.kwargs) -> Callable[[], float]:
    """A measure for `in_turns`: seconds that `action` takes."""
    return lambda: timed(action, *args, **named)[0]


def cpu_seconds(action: Callable[P, Any], *args: P.args, **named: P.kwargs) -> Callable[[], float]:
    """A measure for `in_turns`: seconds of this process's own time that `action` takes."""

    def measure() -> float:
        started = process_time()
        action(*args, **named)
        return process_time() - started

    return measure


def in_turns(
    rounds: int, measures: Mapping[Key, Callable[[], Value]], once: Key | None = None
) -> dict[Key, list[Value]]:
    """Measure each in every round, one after the other, but `once` in the first round only."""
    found: dict[Key, list[Value]] = {key: [] for key in measures}
    for index in range(rounds):
        for key, measure in measures.items():
            if index == 0 or key != once:
                found[key].append(measure())
    return found


def medians(found: Mapping[Key, list[float]]) -> dict[Key, float]:
    """The median of each list."""
    return {key: median(values) for key, values in found.items()}


def print_table(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print `rows` below the names of their columns; `columns` holds the format of each.

    The last columns of a row may be missing.
    """
    print("".join(format(name, form.partition(".")[0].rstrip(",")) for name, form in columns.items()))
    for row in rows:
        print("".join(format(row[name], form) for name, form in columns.items() if name in row), flush=True)


@contextmanager
def patched(stand_ins: Mapping[str, object]) -> Iterator[None]:
    """Replace attributes, given by their dotted names."""
    with ExitStack() as stack:
        for name, stand_in in stand_ins.items():
            stack.enter_context(patch(name, stand_in))
        yield


def decoder_of(layers: int) -> Any:
    """The Llama-style decoder that linting and planning are timed on."""
    from tests.models.zoo.llama import Shape, decoder

    return decoder(Shape(layers=layers, hidden=64, heads=4, kv_heads=4, inner=128, vocabulary=256))

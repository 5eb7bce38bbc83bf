"""What the benchmarks share: interleaved runs, medians, ratios against a peer, arguments and printing.

What is compared runs in turns, so that what else the computer does hits all alike; medians count.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")
Rounds = dict[str, list[float]]  # one figure a round, by what was measured


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that `action` took, and its result."""
    start = perf_counter()
    result = action()
    return perf_counter() - start, result


def seconds(action: Callable[[], Any]) -> Callable[[], float]:
    """Make a measure of `action`: the seconds that it takes."""
    return lambda: timed(action)[0]


def in_turns(rounds: int, measures: Mapping[str, Callable[[], float]], once: str = "") -> Rounds:
    """Take each of `measures` in every round; the one called `once` in the first round only."""
    found: Rounds = {name: [] for name in measures}
    for index in range(rounds):
        for name, measure in measures.items():
            if index == 0 or name != once:
                found[name].append(measure())
    return found


def medians(found: Rounds) -> dict[str, float]:
    """Return the median of each."""
    return {name: median(values) for name, values in found.items()}


def ratios(found: Rounds, peer: str) -> dict[str, float]:
    """Return the median ratio of each to `peer`, round by round."""
    return {
        name: median(v / p for v, p in zip(values, found[peer], strict=True))
        for name, values in found.items()
    }


def parse_arguments(document: str | None, *files: Mapping[str, Any], **options: Any) -> argparse.Namespace:
    """Read the command line; `document` describes it.

    A number among `options` is the default of `--name`, False is a flag, a sequence holds the choices, the
    default first.  Each of `files` describes a positional argument.  `--json` is always there.
    """
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for file in files:
        parser.add_argument(file["name"], **{k: v for k, v in file.items() if k != "name"})
    for name, value in {**options, "json": False}.items():
        if value is False:
            parser.add_argument(f"--{name}", action="store_true")
        elif isinstance(value, Sequence):
            parser.add_argument(f"--{name}", choices=value, default=value[0])
        else:
            parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()


def print_result(result: Any, as_json: bool, show: Callable[..., None], *more: Any) -> None:
    """Print `result` as JSON, or by `show`."""
    if as_json:
        print(json.dumps(result, default=_plain))
    else:
        show(result, *more)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{value!r} is no JSON")

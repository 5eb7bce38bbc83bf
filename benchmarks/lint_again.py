"""What a second `symalloc lint` of a folder costs: with the findings of the first one kept, and without.

Processor time of the command and of its children, over 100 modules: examples of the rules.  A run that keeps
findings for the first time, one that finds all of them, and one with --no-cache take turns.

    python -m benchmarks.lint_again [--files 100] [--rounds 5] [--json]
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from shutil import rmtree
from statistics import median

import click

from benchmarks.harness import in_turns, json_option, print_table, rounds_option
from symalloc.rulebook.rule import load_rules

LIMIT = 0.25
"""Of the time without a cache."""


def modules() -> Iterator[str]:
    """The example modules of all rules."""
    for rule in load_rules().rules:
        yield from (example.module for example in (*rule.bad, *rule.good))


def lint_seconds(folder: Path, *options: str) -> Callable[[], float]:
    """A measure for `in_turns`: processor time of `symalloc lint` and of the processes that it starts."""
    command = [sys.executable, "-m", "symalloc", "lint", str(folder), "--format", "json", *options]

    def measure() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert status in (0, 1), status
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    return measure


def measure(files: int, rounds: int) -> dict[str, list[float]]:
    """Seconds, one figure a round, of each kind of run."""
    with tempfile.TemporaryDirectory() as place:
        folder, cache = Path(place, "modules"), Path(place, "cache")
        folder.mkdir()
        for number, text in enumerate(islice(modules(), files)):
            (folder / f"{number:03}.py").write_text(text)
        keeping = lint_seconds(folder, "--cache", str(cache))

        def first() -> float:
            rmtree(cache, ignore_errors=True)
            return keeping()

        return in_turns(
            rounds, {"no cache": lint_seconds(folder, "--no-cache"), "first": first, "again": keeping}
        )


@click.command()
@click.option("--files", default=100, show_default=True, help="Modules to lint.")
@rounds_option
@json_option
def main(files: int, rounds: int, as_json: bool) -> None:
    """Measure, print, and fail where a second run takes more than LIMIT of one without a cache."""
    found = {name: median(times) for name, times in measure(files, rounds).items()}
    rows = [
        {"run": name, "CPU s": time, "of no cache": time / found["no cache"]} for name, time in found.items()
    ]
    if as_json:
        print(json.dumps(rows))
    else:
        print_table({"run": "<10", "CPU s": ">8.2f", "of no cache": ">13.3f"}, rows)
    sys.exit(found["again"] > LIMIT * found["no cache"])


if __name__ == "__main__":
    main()

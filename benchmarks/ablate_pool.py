"""Measure what mechanisms and options of the native pool are worth, each left out of a copy of its sources.

    python -m benchmarks.ablate_pool [--rounds N] [NAME ...]

A row has nanoseconds of an allocation and a free together: of 30,000 blocks of 1 to 256 KiB of which one is
replaced at random, of a checkerboard of 30,000, of 8,000 blocks whose pages are written, and of pairs of 4 to
64 KiB; and how many times what was in use is reserved at most in the first two.  Rounds are interleaved,
medians count.  Needs cmake and a C++ compiler.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import click
import tvm
import tvm_ffi.libinfo

from benchmarks.harness import in_turns, medians, print_table, rounds_option

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "ablate"
PATTERNS = {
    "random": ("random", "30000"),
    "checkerboard": ("checkerboard", "30000"),
    "written": ("random", "8000", "2"),
    "pairs": ("pairs", "small"),
}


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What stands in for a line of a file in native/pool, and the files that are there for it alone."""

    file: str
    line: str
    otherwise: str
    code: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        """The lines of its own files."""
        return sum(len((ROOT / "native" / "pool" / name).read_text().splitlines()) for name in self.code)


def _option(name: str, value: str) -> Mechanism:
    text = (ROOT / "native" / "pool" / "options.h").read_text()
    line = next(line for line in text.splitlines() if f" {name} = " in line).partition(";")[0]
    return Mechanism("options.h", line, f"{line.partition('=')[0]}= {value}")


MECHANISMS: Mapping[str, Mechanism] = {
    "blocks that nearly fit": Mechanism(
        "paged_range.h",
        "bool near = !scarce_ && Crowded();",
        "bool near = false;",
        ("near_fit_cache.h", "slack_table.h"),
    ),
    "free intervals by their size alone": Mechanism(
        "size_index.h",
        "kMany = 256;",
        "kMany = int64_t{1} << 60;",
        ("size_index.h", "size_buckets.h", "size_marks.h"),
    ),
    "fresh pages made at once": Mechanism(
        "first_touches.h", "return written && nbytes <= kMost;", "return false;", ("first_touches.h",)
    ),
    "option soft_limit": _option("soft_numerator", "-1"),
    "option bin_largest": _option("bin_largest", "0"),
    "option bin_capacity": _option("bin_capacity", "0"),
    "option page of 64 KiB, not 4": _option("page", "4 << 10"),
    "option huge": _option("huge", "false"),
}


def built(name: str, mechanism: Mechanism | None) -> Path:
    """The program that measures, built from a copy of the sources without `mechanism`."""
    folder = BUILD / name.replace(" ", "_")
    sources = folder / "native"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(ROOT / "native", sources)
    shutil.copy(ROOT / "pyproject.toml", folder)
    if mechanism is not None:
        file = sources / "pool" / mechanism.file
        text = file.read_text()
        if mechanism.line not in text:
            raise click.ClickException(f"{mechanism.file} has no line `{mechanism.line}`")
        file.write_text(text.replace(mechanism.line, mechanism.otherwise))
    configure = ["cmake", "-S", sources, "-B", folder / "build", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (configure, ["cmake", "--build", folder / "build", "--target", "symalloc_bench"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "build" / "symalloc_bench"


def measured(program: Path, what: tuple[str, ...]) -> tuple[float, float]:
    """Nanoseconds of a pair, and reserved to used at most, 1 where it is not said."""
    library = next(Path(tvm.__file__).parent.rglob("libtvm_runtime.so"))
    done = subprocess.run(
        [program, what[0], "pool", library, *what[1:]],
        env={"LD_LIBRARY_PATH": str(Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout), float(done.stderr.rpartition(" ")[2] or 1)


def _time(program: Path, what: tuple[str, ...]) -> float:
    return measured(program, what)[0]


@click.command()
@click.argument("names", nargs=-1)
@rounds_option
def main(names: tuple[str, ...], rounds: int) -> None:
    """Print a row for the pool as it is, and one without each mechanism."""
    chosen = {name: MECHANISMS[name] for name in names or MECHANISMS}
    programs = {name: built(name, mechanism) for name, mechanism in {"-": None, **chosen}.items()}
    measures: dict[tuple[str, str], Callable[[], float]] = {
        (name, title): partial(_time, program, what)
        for name, program in programs.items()
        for title, what in PATTERNS.items()
    }
    times = medians(in_turns(rounds, measures))
    rows = []
    for name, program in programs.items():
        kept = [measured(program, what)[1] for what in PATTERNS.values()]
        row: dict[str, object] = {"without": name, "lines": chosen[name].lines if name in chosen else 0}
        row |= {title: times[name, title] for title in PATTERNS}
        rows.append({**row, "reserved": max(kept), "mean": geometric_mean(kept[:2])})
    forms = dict.fromkeys(PATTERNS, ">14.1f")
    print_table({"without": "38", "lines": ">6", **forms, "reserved": ">10.4f", "mean": ">8.4f"}, rows)


if __name__ == "__main__":
    main()

"""The native pool beside TVM's allocators and malloc: ns of an alloc and a free, and whole traces.

    python benchmarks/pool_native.py [--preload LIBRARY]... [TRACE...]

Rounds are interleaved and the best of each counts; ratios are to ours.  `--preload` measures another malloc,
such as libmimalloc.so.  Traces are replayed with every page written; without any, some are made from a seed.
Needs cmake and a C++ compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from pathlib import Path

import click
import tvm
import tvm_ffi.libinfo

from symalloc.pool.trace import Alloc, Free, Trace, read_trace
from symalloc.pool.workloads import make_trace

ROOT = Path(__file__).parent.parent
ALLOCATORS = ("pool", "tvm-pooled", "tvm-naive", "malloc")
PAIRS = {"4-64 KiB": ("small", "1"), "4-64 KiB, 2 threads": ("small", "2"), "16 KiB-16 MiB": ("large", "1")}
MADE = ("llm", "images", "mixed", "decode")

# a candidate is the name of an allocator and the library that it is preloaded with
Candidate = tuple[str, Path | None]


def _build() -> Path:
    folder = ROOT / "build" / "bench"
    configure = ["cmake", "-S", ROOT / "native", "-B", folder, f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (configure, ["cmake", "--build", folder, "--target", "symalloc_bench"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / "symalloc_bench"


def _measure(program: Path, candidate: Candidate, what: Sequence[str], events: str | None = None) -> float:
    name, preload = candidate
    tvm_library = next(Path(tvm.__file__).parent.rglob("libtvm_runtime.so"))
    variables = {"LD_LIBRARY_PATH": str(Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent)}
    if preload is not None:
        variables["LD_PRELOAD"] = str(preload)
    done = subprocess.run(
        [program, what[0], name, tvm_library, *what[1:]],
        input=events,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def _best(rounds: int, measures: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    return {name: min(values) for name, values in found.items()}


def _events(trace: Trace) -> str:
    lines = [
        f"a {e.block} {max(e.nbytes, 1)}" if isinstance(e, Alloc) else f"f {e.block}"
        for e in trace.events
        if isinstance(e, Alloc | Free)
    ]
    return "\n".join(lines)


def _show(title: str, unit: str, found: Mapping[str, float]) -> None:
    ours = found["pool"]
    click.echo(f"{title}")
    for name, value in found.items():
        click.echo(f"  {name:<28}{value:>12.4g} {unit}   ours / it {ours / value:>8.3f}")


@click.command()
@click.argument("traces", nargs=-1, type=click.Path(path_type=Path))
@click.option("--preload", "preloads", multiple=True, type=click.Path(path_type=Path))
@click.option("--rounds", default=5, show_default=True)
def main(traces: tuple[Path, ...], preloads: tuple[Path, ...], rounds: int) -> None:
    program = _build()
    candidates: dict[str, Candidate] = {name: (name, None) for name in ALLOCATORS}
    candidates |= {f"malloc of {p.name}": ("malloc", p) for p in preloads}
    for title, (sizes, threads) in PAIRS.items():
        measures = {
            n: (lambda c=c, s=sizes, t=threads: _measure(program, c, ("pairs", s, t)))
            for n, c in candidates.items()
        }
        _show(f"alloc and free, {title}", "ns", _best(rounds, measures))
    ratios: dict[str, list[float]] = {name: [] for name in candidates}
    sums = dict.fromkeys(candidates, 0.0)
    for trace in [read_trace(t) for t in traces] or [make_trace(w, 1) for w in MADE]:
        events = _events(trace)
        measures = {
            n: (lambda c=c, e=events: _measure(program, c, ("replay",), e)) for n, c in candidates.items()
        }
        found = _best(max(rounds // 2, 1), measures)
        _show(f"{trace.name}, every page written", "s", found)
        for name, value in found.items():
            ratios[name].append(found["pool"] / value)
            sums[name] += value
    for name, values in ratios.items():
        mean = exp(sum(map(log, values)) / len(values))
        click.echo(f"ours / {name:<26} geometric mean {mean:.3f}, in total {sums['pool'] / sums[name]:.3f}")


if __name__ == "__main__":
    main()

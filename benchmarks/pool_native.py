"""The native pool beside TVM's allocators and other mallocs: an allocation and a free, whole traces, Python.

    python -m benchmarks.pool_native [--allocator NAME=LIBRARY]... [--debian] [--patterns] [TRACE...]

Every figure is taken in a process of its own, into which LIBRARY is loaded by LD_PRELOAD, so that each
malloc serves a whole program, as its authors mean it to; `malloc` is the C library's, `tuned malloc` the
same with its mmap and trim thresholds raised to 4 GiB, which keeps all memory.  They are asked by
plain malloc, which aligns to 16 bytes where ours and TVM's align to 64: some are many times slower when
asked for more.  The pool counts its statistics.  `--debian` takes mimalloc, jemalloc and tcmalloc from
Debian's packages, which are unpacked into the build folder and not installed.

Rounds are interleaved and medians count; ratios are ours to the other's, below 1: ours takes less time.
Traces are replayed with every page written, by TVM's allocator, which may take a minute for one, in the
first round only.  There, and where a pattern writes every page, one and a half times what is live at most is
written as huge pages before, outside of the time: virtual machines return free memory to their host, and the
first to use it again waits for that.  A TRACE is a file, or the name of one that is made from a seed, such as
`decode` and `llm_kv_concat`; nothing else is measured then.  Without any, all of these are, and where PyTorch
can be imported, a pair from Python is measured beside torch.empty, and a tensor beside numpy.empty.  Needs
cmake and a C++ compiler.

`--patterns` measures only programs that are hard on allocators: blocks replaced at random and a checkerboard
of holes, by the process's own time, many pools in turn, `benchmarks.pool_adversaries` and
`benchmarks.pool_wait`.  Exit status 1: the pool took more than TOLERANCE times as long as the best malloc,
kept more than MOST_RESERVED times what was in use, refused a block needlessly, or kept an allocation waiting.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean
from time import process_time
from timeit import Timer
from typing import Any

import click
import numpy
import tvm
import tvm_ffi.libinfo

from benchmarks.harness import in_turns, medians, rounds_option
from benchmarks.kv_concat import kv_concat_trace
from benchmarks.pool_adversaries import needless_refusals
from benchmarks.pool_wait import missed_waits
from symalloc.pool.instrumented_pool import InstrumentedPool
from symalloc.pool.trace import Alloc, Free, Trace, read_trace
from tests.pool.workloads import WORKLOADS, make_trace

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "bench"
OURS, TVM, MALLOC, TUNED = "pool", "tvm-pooled", "malloc", "tuned malloc"
RAISED = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296"
PAIRS = {
    "up to 4 KiB": ("tiny", "1"),
    "4-64 KiB": ("small", "1"),
    "4-64 KiB, 2 threads": ("small", "2"),
    "16 KiB-16 MiB": ("large", "1"),
}
PATTERNS = {
    "30,000 blocks of 1-256 KiB, one replaced at random": ("random", "30000"),
    "8,000 of them, every page written": ("random", "8000", "2"),
    "30,000 blocks of 48 KiB, every second one replaced": ("checkerboard", "30000"),
    "8,000 of them in a checkerboard, every page written": ("checkerboard", "8000", "2"),
    "4 KiB from each of 512 pools in turn (one malloc)": ("pools", "512"),
}
TOLERANCE, MOST_RESERVED = 1.0, 1.12
DEBIAN = {
    "mimalloc": ("libmimalloc2.0", "libmimalloc.so.2"),
    "jemalloc": ("libjemalloc2", "libjemalloc.so.2"),
    "tcmalloc": ("libtcmalloc-minimal4", "libtcmalloc_minimal.so.4"),
}
MADE: dict[str, Callable[[], Trace]] = {name: partial(make_trace, name, 1) for name in WORKLOADS}
MADE["llm_kv_concat"] = kv_concat_trace

# a candidate is the name of an allocator and the library that it is preloaded with
Candidate = tuple[str, Path | None]
Found = dict[str, float]  # by candidate


def _build() -> Path:
    configure = ["cmake", "-S", ROOT / "native", "-B", BUILD, f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (configure, ["cmake", "--build", BUILD, "--target", "symalloc_bench", "symalloc_wait"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return BUILD / "symalloc_bench"


def _unpacked(package: str, library: str) -> Path:
    """`library` of a Debian package, fetched and unpacked where it is not yet."""
    folder = BUILD / package
    if not folder.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", package], cwd=BUILD, check=True, capture_output=True)
        archive = next(BUILD.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg", "-x", archive, folder], check=True)
    return next(folder.rglob(library))


def _output(
    program: Path, candidate: Candidate, what: Sequence[str], events: str | None = None
) -> tuple[float, str]:
    """A figure, and what else is said of it."""
    name, preload = candidate
    tuned = {"GLIBC_TUNABLES": RAISED} if name == TUNED else {}
    tvm_library = next(Path(tvm.__file__).parent.rglob("libtvm_runtime.so"))
    variables = {"LD_LIBRARY_PATH": str(Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent)}
    if preload is not None:
        variables["LD_PRELOAD"] = str(preload)
    done = subprocess.run(
        [program, what[0], MALLOC if tuned else name, tvm_library, *what[1:]],
        input=events,
        env={**os.environ, **variables, **tuned},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout), done.stderr


def _measure(program: Path, candidate: Candidate, what: Sequence[str], events: str | None = None) -> float:
    return _output(program, candidate, what, events)[0]


def _events(trace: Trace) -> str:
    lines = [
        f"a {e.block} {max(e.nbytes, 1)}" if isinstance(e, Alloc) else f"f {e.block}"
        for e in trace.events
        if isinstance(e, Alloc | Free)
    ]
    return "\n".join(lines)


def _show(title: str, unit: str, found: Found) -> None:
    click.echo(title)
    for name, value in found.items():
        click.echo(f"  {name:<12}{value:>12.4g} {unit}   ours / it {found[OURS] / value:>8.3f}")


def _summary(found: Sequence[Found]) -> None:
    """Ratios over all traces; the best malloc is chosen for each trace anew."""
    for name in found[0]:
        ratio = geometric_mean([f[OURS] / f[name] for f in found])
        in_total = sum(f[OURS] for f in found) / sum(f[name] for f in found)
        click.echo(f"ours / {name:<12} geometric mean {ratio:.3f}, in total {in_total:.4f}")
    best = [min(v for name, v in f.items() if name not in (OURS, TVM, TUNED)) for f in found]
    ratio = geometric_mean([f[OURS] / b for f, b in zip(found, best, strict=True)])
    click.echo(f"ours / the best malloc of each trace as it comes: geometric mean {ratio:.3f}")


def _patterns(program: Path, candidates: dict[str, Candidate], rounds: int) -> list[str]:
    """Measure the pool beside the mallocs; return what is missed."""
    missed = []
    mallocs = {name: c for name, c in candidates.items() if name not in (TVM, TUNED)}
    for title, what in PATTERNS.items():
        found = medians(
            in_turns(rounds, {n: partial(_measure, program, c, what) for n, c in mallocs.items()})
        )
        _show(title, "ns", found)
        ratio = found[OURS] / min(value for name, value in found.items() if name != OURS)
        if ratio > TOLERANCE:
            missed.append(f"{title}: {ratio:.2f} of the best malloc's time")
        said = _output(program, candidates[OURS], what)[1].rpartition(" ")[2]
        if said:
            click.echo(f"  reserved / used at most {float(said):.3f}")
        if said and float(said) > MOST_RESERVED:
            missed.append(f"{title}: {float(said):.2f} of what was in use is reserved")
    needless = needless_refusals()
    missed += [f"{needless} blocks refused needlessly"] if needless else []
    return missed + missed_waits(program.with_name("symalloc_wait"), rounds)


def _beside_numpy(rounds: int) -> None:
    """A tensor that is let go of at once; numpy's own costs no page until it is written."""
    names: dict[str, Any] = {"pool": InstrumentedPool(), "numpy": numpy}
    for nbytes in (4096, 2**20):
        statements = {"pool": f"pool.empty(({nbytes},), 'uint8')", "numpy": f"numpy.empty({nbytes}, 'uint8')"}
        timers = {n: Timer(s, globals=names, timer=process_time) for n, s in statements.items()}
        found = medians(in_turns(rounds * 100, {n: partial(t.timeit, 100) for n, t in timers.items()}))
        click.echo(
            f"empty of {nbytes} bytes from Python: {found['pool'] * 1e7:.0f} ns, "
            f"numpy {found['numpy'] * 1e7:.0f} ns, ours / numpy's {found['pool'] / found['numpy']:.2f}"
        )


def _from_python(rounds: int) -> None:
    """An allocation and a free, and a tensor, from Python; each the median of short runs."""
    if find_spec("torch") is None:
        click.echo("from Python: not measured, PyTorch is not installed here")
        return
    import torch

    names: dict[str, Any] = {"pool": InstrumentedPool(), "torch": torch, "f32": torch.float32}
    statements = (
        "torch.empty(1024)",
        "torch.empty((1024,))",
        "torch.empty((32, 32), dtype=f32)",
        "pool.free(pool.alloc(4096))",
        "pool.free(pool.alloc(2**20))",
        "pool.empty((1024,), 'float32')",
        "pool.empty((32, 32), 'float32')",
    )
    timers = {s: Timer(s, globals=names) for s in statements}
    found = medians(in_turns(rounds * 100, {s: partial(t.timeit, 100) for s, t in timers.items()}))
    click.echo("from Python, the result let go of at once")
    for statement, value in found.items():
        ratio = value / found[statements[0]]
        click.echo(f"  {statement:<36}{value * 1e7:>8.0f} ns   it / torch.empty(1024) {ratio:>6.3f}")


def _parsed(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, Path]:
    named = dict(text.split("=", 1) for text in given if "=" in text)
    if len(named) != len(given):
        raise click.BadParameter("expected NAME=LIBRARY, each name once")
    for path in named.values():
        if not Path(path).exists():
            raise click.BadParameter(f"there is no {path}")
    return {name: Path(path) for name, path in named.items()}


@click.command()
@click.argument("traces", nargs=-1)
@click.option("--allocator", "allocators", multiple=True, metavar="NAME=LIBRARY", callback=_parsed)
@click.option("--debian", is_flag=True, help="Measure the mallocs of Debian's packages too.")
@click.option("--patterns", is_flag=True, help="Only the hard patterns.")
@rounds_option
def main(
    traces: tuple[str, ...], allocators: dict[str, Path], debian: bool, patterns: bool, rounds: int
) -> None:
    program = _build()
    candidates: dict[str, Candidate] = {name: (name, None) for name in (OURS, TVM, MALLOC, TUNED)}
    preloaded = {name: _unpacked(*where) for name, where in DEBIAN.items()} if debian else {}
    candidates |= {name: (MALLOC, path) for name, path in {**preloaded, **allocators}.items()}

    if patterns:
        missed = _patterns(program, candidates, rounds)
        click.echo("\n".join(f"MISSED: {each}" for each in missed) or "every limit is held")
        sys.exit(bool(missed))

    def found(what: Sequence[str], events: str | None = None) -> Found:
        measures = {n: partial(_measure, program, c, what, events) for n, c in candidates.items()}
        return medians(in_turns(rounds, measures, once=TVM if events else None))

    if not traces:
        for title, (sizes, threads) in PAIRS.items():
            _show(f"alloc and free, {title}", "ns", found(("pairs", sizes, threads)))
        missed_waits(program.with_name("symalloc_wait"), rounds)
        _beside_numpy(rounds)
        _from_python(rounds)
    click.echo(f"traces: medians of {rounds} rounds; {TVM} in the first one only")
    replayed: list[Found] = []
    for each in traces or MADE:
        trace = MADE[each]() if each in MADE else read_trace(Path(each))
        replayed.append(found(("replay",), _events(trace)))
        _show(f"{trace.name}, every page written", "s", replayed[-1])
    _summary(replayed)


if __name__ == "__main__":
    main()

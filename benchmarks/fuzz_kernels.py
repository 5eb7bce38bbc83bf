"""Lint random kernels and execute them byte by byte: harmful ones must be found, harmless ones be clean.

    python -m benchmarks.fuzz_kernels [--draw elements] [--kernels 5000] [--first 0] [--run 0]

The kernels are those of `tests.kernels.element_kernels`: partial and carried writes, views of other types,
scratch, lanes of vectors, narrow integers, blocks with an initialisation and a predicate; with `--draw
composed` those of `tests.kernels.composed_kernels`, drawn from a grammar, often two in a row.  The oracle is
`tests.kernels.byte_machine`.  `--run`: so many of the kernels that lint finds nothing wrong with are compiled
and run, too, on storages filled with two patterns: the results must be the same.  A kernel that is missed, or
of which something wrong is said, is printed with its number; the exit status is then 1.
"""

from __future__ import annotations

import sys
from collections import Counter
from time import process_time

import click
import numpy as np
from tvm.script import from_source

from benchmarks.harness import print_table
from tests.hostile.machine import Machine, depends_on_storages
from tests.kernels.composed_kernels import composed_kernel
from tests.kernels.element_kernels import ElementKernel, element_kernel
from tests.kernels.element_verdicts import judged

_DRAWS = {"elements": element_kernel, "composed": composed_kernel}


def _run_depends(kernel: ElementKernel) -> bool | None:
    """True if the result of a kernel depends on what its memory held; None where TVM does not compile it."""
    machine = Machine(from_source(kernel.script))
    try:
        machine.prepare()
    except Exception:
        return None
    return depends_on_storages(machine, np.arange(1, 17, dtype=np.float32))


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--draw", type=click.Choice([*_DRAWS]), default="elements", help="Which kernels.")
@click.option("--kernels", default=5_000, help="How many.")
@click.option("--first", default=0, help="The number of the first one.")
@click.option("--run", "runs", default=0, help="How many of the harmless ones to compile and run.")
def main(draw: str, kernels: int, first: int, runs: int) -> None:
    began, tally, bad = process_time(), Counter[str](), 0
    for seed in range(first, first + kernels):
        kernel = _DRAWS[draw](seed)
        found = judged(kernel)
        tally[found.outcome] += 1
        if found.outcome in ("harmful, missed", "harmless, error") or found.wrong:
            bad += 1
            print(f"{seed}: {found.outcome}\n{kernel.script}\n" + "\n".join(found.wrong))
        if (
            found.outcome == "harmless, clean"
            and runs
            and not kernel.symbolic
            and "parallel" not in kernel.script
        ):
            runs -= 1
            again = _run_depends(kernel)
            tally["run" if again is not None else "not compiled"] += 1
            if again:
                bad += 1
                print(f"{seed}: its result depends on what its memory held\n{kernel.script}")
    rows = [{"outcome": outcome, "kernels": count} for outcome, count in sorted(tally.items())]
    print_table({"outcome": "<24", "kernels": ">8,"}, rows)
    print(f"{bad} wrong; {process_time() - began:.0f} s of CPU time")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

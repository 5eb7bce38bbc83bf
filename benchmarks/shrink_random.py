"""Random chains of operators with their kernels shrunk: bits beside those of the kernels as they were.

`python -m benchmarks.shrink_random --chunks 10` makes modules of random chains, fuses them, rewrites the
kernels and runs both on the CPU, with and without instructions that contract a product and a sum.  With
`--faults` wrong kernels are made of the rewritten ones, and each must be refused.  Exit status 1 where a bit
differs or a fault is not refused.
"""

from __future__ import annotations

import sys
from collections import Counter

import click

from symalloc.relax.passes.pipeline import lower
from symalloc.relax.shrink.kernel_stages import same_results
from tests.relax.shrink.compared import different, faulty, shrunk, targets
from tests.relax.shrink.random_chains import Chains, random_chains


@click.command()
@click.option("--chunks", default=10, show_default=True, help="Modules of chains.")
@click.option("--chains", default=12, show_default=True, help="Chains in each.")
@click.option("--seed", default=0, show_default=True, help="Of the first module.")
@click.option("--run/--no-run", default=True, help="Run the kernels, and compare.")
@click.option("--faults", is_flag=True, help="Plant faults.")
def main(chunks: int, chains: int, seed: int, run: bool, faults: bool) -> None:
    """Count kernels that were rewritten and give the same bits, and planted faults that are refused."""
    found: Counter[str] = Counter()
    for number in range(seed, seed + chunks):
        made = random_chains(number, chains)
        for target in targets() if run else ():
            lowered = lower(made.module, target, pipeline="target")
            after = {level: shrunk(lowered, level) for level in ("safe", "full")}
            modules = {level: module for level, (module, _) in after.items()}
            wrong = different(lowered, modules, made.binding, target, made.names)
            found["kernels rewritten and run"] += sum(len(changed) for _, changed in after.values())
            found["functions with other bits"] += len(wrong)
            for one in wrong:
                click.echo(f"seed {number}, {target}: {one}")
        if faults:
            _plant(made, found)
        click.echo(f"seed {number}: {dict(found)}")
    sys.exit(bool(found["functions with other bits"] or found["faults taken for right"]))


def _plant(made: Chains, found: Counter[str]) -> None:
    """Plant faults in the kernels of some chains, and count those that are refused."""
    lowered = lower(made.module, "llvm", pipeline="target")
    after, changed = shrunk(lowered, "full")
    for name in changed:
        for fault, kernel in faulty(after[name]):
            refused = not same_results(lowered[name], kernel)
            found[f"refused: {fault}" if refused else "faults taken for right"] += 1


if __name__ == "__main__":
    main()

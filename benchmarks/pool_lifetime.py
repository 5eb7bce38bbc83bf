"""Pools that come and go, each with a virtual machine: what is left of their memory and their addresses.

    python -m benchmarks.pool_lifetime [--count 1000] [--at-once 200] [--address-space 8GiB]

A model is called on a pool of its own, `count` times in turn; what goes first changes from one to the next:
the pool, the machine or the result.  Then `at-once` pools live together, and go.  Both once more under
`ulimit -v`, where each of the pools that live together has a limit of 16 MiB, as address space is scarce
there.  Exit status 1 where more than 8 MiB of memory or 64 MiB of address space are left at any turn.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from symalloc.errors import require_bytes

ROOT = Path(__file__).parent.parent
MIB = 2**20
ROWS, WIDTH, WARM = 500, 128, 12
MOST_LEFT, MOST_ADDRESSES_LEFT = 8, 64  # MiB


class Held(NamedTuple):
    """MiB that the process holds."""

    resident: int
    addresses: int


def _held() -> Held:
    addresses, resident = Path("/proc/self/statm").read_text("ascii").split()[:2]
    page = resource.getpagesize()
    return Held(int(resident) * page // MIB, int(addresses) * page // MIB)


class _Model:
    """A program, and one call of it on a pool."""

    def __init__(self) -> None:
        import numpy as np
        import tvm
        from tvm import relax

        from examples.attention import Attention

        self.program = relax.build(Attention, "llvm")
        self.inputs = [
            tvm.runtime.tensor(np.ones(shape, "float32")) for shape in ((ROWS, WIDTH), (WIDTH, 64))
        ]

    def call(self, **options: Any) -> list[Any]:
        """A pool, a machine on it and a result, all in use."""
        import tvm
        from tvm import relax

        import symalloc

        pool = symalloc.Pool(**options)
        machine = relax.VirtualMachine(self.program, tvm.cpu(), memory_cfg=symalloc.memory_cfg(pool))
        return [pool, machine, machine["main"](*self.inputs)]


def _measure(count: int, at_once: int, limit: int | None) -> bool:
    """Print what is held; True where it comes back to what it was."""
    model = _Model()
    for _ in range(WARM):  # the libraries' own caches
        model.call()
    before, most = _held(), Held(0, 0)
    for turn in range(count):
        held = model.call()
        while held:
            held.pop(turn % len(held))
        most = Held(*map(max, most, _held()))
    print(f"{count} pools in turn: {before} before, {most} at most after any of them")
    sound = _returned(before, most)
    together = [model.call(limit=limit) for _ in range(at_once)]
    print(f"{at_once} pools at once: {_held()}, {_held().resident - before.resident} MiB for all of them")
    together.clear()
    after = _held()
    print(f"when they are gone: {after}")
    return sound and _returned(before, after)


def _returned(before: Held, after: Held) -> bool:
    return (
        after.resident - before.resident <= MOST_LEFT
        and after.addresses - before.addresses <= MOST_ADDRESSES_LEFT
    )


def _in_address_space(nbytes: int, count: int, at_once: int) -> int:
    """The exit status of this benchmark where the process may have no more address space."""
    command = [sys.executable, "-m", "benchmarks.pool_lifetime", "--count", str(count)]
    command += ["--at-once", str(at_once), "--limit", str(16 * MIB), "--address-space", "0"]

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (nbytes, nbytes))

    return subprocess.run(command, cwd=ROOT, check=False, preexec_fn=bound).returncode


@click.command()
@click.option("--count", default=1000, show_default=True)
@click.option("--at-once", default=200, show_default=True)
@click.option("--address-space", default="8GiB", show_default=True, help="The second run's; 0: none.")
@click.option("--limit", type=int, help="Bytes of each of the pools that live at once.")
def main(count: int, at_once: int, address_space: str, limit: int | None) -> None:
    sound = _measure(count, at_once, limit)
    nbytes = require_bytes("the address space", address_space)
    if nbytes:
        print(f"in {address_space} of address space:", flush=True)
        sound = _in_address_space(nbytes, count, at_once) == 0 and sound
    sys.exit(not sound)


if __name__ == "__main__":
    main()

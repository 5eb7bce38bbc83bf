"""Imported models in an arena that the caller gives: bits, bytes told and touched, one byte less.

Each model is built with `arena="caller"` and called at its bindings, on each path that its conditions allow,
in an arena that holds random bytes.  All arenas lie at one address, in one buffer that the models share.

    bits       calls with the results of the module in which each tensor has memory of its own, to the bit
    told       bytes of MODEL_bytes at the largest binding
    touched    the last byte of the arena that any call at a binding has written, rounded up to 64, over told:
               the smallest of all bindings that take a byte
    less       calls in an arena of one byte less that were refused with the figure

Exit status 1 where a bit differs, a byte beyond is touched, or a smaller arena is taken.

    python -m benchmarks.caller_arena [MODEL ...] [--most 40] [--results] [--lengths 140]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import tvm
from tvm import relax

import symalloc
from benchmarks.harness import print_table
from benchmarks.zoo_models import GROUPS, case_named
from symalloc.planner.memory_plan import PlanOptions
from symalloc.relax.passes.pipeline import finishing_pipeline
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.planned import Variants, calls
from tests.models.planned.call import Call

GUARD = 64
FIGURE = re.compile(r"got (\d+) bytes, needs (\d+)")


@dataclass(slots=True, kw_only=True)
class Row:
    """What was seen of the calls of one model."""

    calls: int = 0
    same: int = 0
    told: int = 0
    least: float = 1.0
    beyond: int = 0
    less: int = 0
    tried: int = 0

    @property
    def ok(self) -> bool:
        return self.same == self.calls and not self.beyond and self.less == self.tried


class NotBuiltError(Exception):
    """TVM cannot build a model that nobody has planned."""


class Model:
    """A model whose functions take their arenas, and the unplanned one."""

    def __init__(self, name: str, *, results: bool) -> None:
        self.variants = Variants(case_named(name))
        self.function = self.variants.case.function
        try:
            unplanned = self.variants.build("unplanned")
        except tvm.error.InternalError as error:
            raise NotBuiltError(name) from error
        self.unplanned = relax.VirtualMachine(unplanned, tvm.cpu())
        options = PlanOptions(arena="caller", results="caller" if results else "own")
        self.planned = plan_lowered(self.variants.lowered, options=options)
        passes = finishing_pipeline("llvm", pipeline=self.variants.case.pipeline)
        built = relax.build(self.planned.module, "llvm", relax_pipeline=passes)
        self.machine = relax.VirtualMachine(built, tvm.cpu())
        self.symbols = [v.name for v in self.planned.module[f"{self.function}_bytes"].params[0].ty.values]

    def needed(self, binding: Any) -> int:
        """The bytes of the arena at a binding, as the compiled function tells them."""
        at = tvm.runtime.ShapeTuple([binding[name] for name in self.symbols])
        return int(self.machine[f"{self.function}_bytes"](at))

    def results(self, binding: Any, arguments: Sequence[Any]) -> list[Any]:
        """A tensor for each result that the caller gives."""
        seen = self.planned.program.functions[self.function].params[len(arguments) :]
        return [
            tvm.runtime.empty([e.evaluate(binding) for e in p.type.shape], p.type.dtype.name) for p in seen
        ]

    def run(self, call: Call, arena: Any) -> Any:
        arguments = call.arguments()
        return self.machine[self.function](*arguments, *self.results(call.binding, arguments), arena)


def measured(model: Model, buffer: symalloc.ReservedBuffer) -> Row:
    """All calls of a model."""
    row, source = Row(), np.random.default_rng(0)
    for binding in model.variants.case.bindings:
        nbytes, last = model.needed(binding), 0
        row.told = max(row.told, nbytes)
        for call in calls(model.variants, binding):
            filled = source.integers(0, 256, nbytes + GUARD, dtype=np.uint8)
            memory = np.from_dlpack(buffer.tensor(nbytes + GUARD))
            memory[:] = filled
            found = _arrays(model.run(call, _first(memory, nbytes)))
            expected = _arrays(model.unplanned[model.function](*call.arguments()))
            row.calls += 1
            row.same += len(found) == len(expected) and all(
                a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True)
            )
            written = np.flatnonzero(memory != filled)
            if written.size:
                last = max(last, int(written[-1]) + 1)
            row.beyond += int((written >= nbytes).sum())
            if nbytes:
                row.tried += 1
                row.less += _refused(model, call, _first(memory, nbytes - 1), nbytes)
        if nbytes:
            row.least = min(row.least, (last + 63) // 64 * 64 / nbytes)
    return row


def _first(memory: np.ndarray, nbytes: int) -> Any:
    return tvm.runtime.from_dlpack(memory[:nbytes])


def _refused(model: Model, call: Call, arena: Any, nbytes: int) -> bool:
    try:
        model.run(call, arena)
    except AssertionError as error:
        found = FIGURE.search(str(error))
        return found is not None and found.groups() == (str(nbytes - 1), str(nbytes))
    return False


def _arrays(value: Any) -> list[np.ndarray]:
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    if isinstance(value, int | float | tvm.runtime.ShapeTuple):
        return [np.array(value)]
    return [array for item in value for array in _arrays(item)]


def resident(buffer: symalloc.ReservedBuffer) -> int:
    """The resident bytes of the mapping that the buffer begins, as the kernel of the system counts them."""
    inside = False
    for line in Path("/proc/self/smaps").read_text("ascii").splitlines():
        begins = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if begins:
            inside = int(begins[1], 16) <= buffer.address < int(begins[2], 16)
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1]) << 10
    return 0


def over_lengths(count: int) -> Iterator[tuple[int, int, int, bool]]:
    """Length, bytes told, bytes resident, and whether the address is the first one, for two models that take
    turns in one buffer.
    """
    names = ("torch_llama", "torch_gru")
    first, second = (Model(name, results=False) for name in names)
    symbol, other = first.symbols[0], second.symbols[0]
    bindings = [{**first.variants.case.bindings[0], symbol: n} for n in range(1, count // 2 + 1)]
    buffer = symalloc.ReservedBuffer(
        first.needed(bindings[-1]) + second.needed({**second.variants.case.bindings[0], other: count})
    )
    address = buffer.address
    for binding in (*bindings, *reversed(bindings)):
        for model, at in ((second, second.variants.case.bindings[0]), (first, binding)):
            nbytes = model.needed(at)
            memory = np.from_dlpack(buffer.tensor(nbytes))
            memory[:] = 0xA5
            call = calls(model.variants, at)[0]
            found, expected = (
                _arrays(model.run(call, _first(memory, nbytes))),
                _arrays(model.unplanned[model.function](*call.arguments())),
            )
            same = all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))
        yield binding[symbol], nbytes, resident(buffer), same and buffer.address == address


@click.command()
@click.argument("models", nargs=-1)
@click.option("--most", default=40, show_default=True, help="So many of the imported models that TVM builds.")
@click.option("--results", is_flag=True, help="The caller also gives the results.")
@click.option("--lengths", default=0, help="Also so many lengths of two models in one buffer.")
def main(models: tuple[str, ...], most: int, results: bool, lengths: int) -> None:
    """Run models in arenas of their caller."""
    columns = {"model": "<34", "calls": ">6", "same": ">6", "told": ">14,", "touched": ">9.3f"}
    columns |= {"beyond": ">8", "less": ">8"}
    rows: list[dict[str, Any]] = []
    ok, buffer = True, symalloc.ReservedBuffer("4GiB")

    left: list[str] = []

    def each() -> Iterator[dict[str, Any]]:
        nonlocal ok
        for name in models or GROUPS["imported"]:
            if len(rows) == most:
                break
            try:
                model = Model(name, results=results)
            except NotBuiltError:
                left.append(name)
                continue
            found = measured(model, buffer)
            ok &= found.ok
            rows.append({"same": found.same, "calls": found.calls})
            yield {
                "model": name, "calls": found.calls, "same": found.same, "told": found.told,
                "touched": found.least, "beyond": found.beyond, "less": f"{found.less}/{found.tried}",
            }  # fmt: skip

    print_table(columns, each())
    if left:
        print(f"TVM generates no code for {', '.join(left)}: planned or not")
    print(f"{len(rows)} models, {sum(r['calls'] for r in rows)} calls, {sum(r['same'] for r in rows)} same")
    if lengths:
        found = list(over_lengths(lengths))
        follow = [held - nbytes for _, nbytes, held, _ in found]
        ok &= all(same for *_, same in found) and max(follow) <= 2 * 4096
        told = [nbytes for _, nbytes, _, _ in found]
        print(
            f"{len(found)} lengths, {min(told):,} to {max(told):,} bytes: one address and the same bits in "
            f"{sum(same for *_, same in found)}, resident less told {min(follow):,} to {max(follow):,} bytes"
        )
    sys.exit(not ok)


if __name__ == "__main__":
    main()

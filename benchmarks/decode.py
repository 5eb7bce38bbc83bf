"""A decoding step on dense caches of 16 MiB: the bytes of a call, and tokens a second, beside those of today.

`python -m benchmarks.decode` plans the step as it is, where each token copies all caches, and with caches
that have room for more rows (`--alias 1=k0[rows]`), where it writes the new ones.  It counts what a call
takes beside its arguments (arena, results, TVM's workspace pool), with TVM's plan, ours, and ours in place;
results are compared bit for bit with the unplanned module's, up to the last row, and what is behind that must
be refused.  Times are of this process, in turns.  Transposes are fused into products (TVM's
FuseTransposeMatmul), as compilers of language models do, or left where they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import click
import numpy as np
import tvm
from tvm import relax

from benchmarks.harness import in_turns, print_table, rounds_option
from benchmarks.workspace_calls import is_counted, most_workspace, run_counted
from symalloc.analysis.donation import parse_donation
from symalloc.planner.memory_plan import PlanOptions
from symalloc.program.reading import PipelineName
from symalloc.relax.passes.pipeline import finishing_pipeline, lower, pipeline
from tests.models.execution import random_inputs
from tests.models.measure import ALLOCATOR, load, measured
from tests.models.planned.networks import decode_step
from tests.models.zoo.llama import Shape

ROWS = 1024
CACHES = "k0", "v0", "k1", "v1"
ALIAS = tuple(parse_donation(f"{number}={name}[rows]") for number, name in enumerate(CACHES, 1))


class Step(NamedTuple):
    """A decoding step of two layers; its caches are `batch` times heads times ROWS times head."""

    name: str
    shape: Shape
    batch: int
    fused: bool
    pipeline: PipelineName


def steps() -> Iterator[Step]:
    """Yield the steps that are measured."""
    narrow = Shape(layers=2, hidden=64, heads=4, kv_heads=4, inner=160, vocabulary=96)
    wide = Shape(layers=2, hidden=512, heads=8, kv_heads=8, inner=1408, vocabulary=512)
    for name, shape, batch in (("4 heads of 16", narrow, 16), ("8 heads of 64", wide, 2)):
        for fused in (True, False):
            for one in ("default", "target"):
                yield Step(name, shape, batch, fused, one)


@click.command()
@click.option("--memory/--no-memory", default=True, help="Count bytes, and compare results.")
@click.option("--time/--no-time", default=True, help="Time calls.")
@rounds_option
def main(memory: bool, time: bool, rounds: int) -> None:
    """Measure the step; exit status 1 where a result differs in a bit."""
    if is_counted():
        load()
        sys.exit(_print_memory())
    status = run_counted("benchmarks.decode", ["--no-time"]) if memory else 0
    if time:
        columns = {"step": "15", "fused": "6", "pipeline": "9", "tokens/s TVM": ">12.0f", "safe": ">8.0f"}
        rows = (_timed(step, rounds) for step in steps())
        print_table({**columns, "in place": ">9.0f", "in place/TVM": ">12.2f"}, rows)
    sys.exit(status)


def _built(step: Step) -> Mapping[str, Any]:
    """The step built in each way, and its module."""
    module = decode_step(step.shape)
    if step.fused:
        module = relax.transform.FuseTransposeMatmul()(module)
    stock = "default" if step.pipeline == "default" else relax.get_default_pipeline(tvm.target.Target("llvm"))
    made = {"TVM": relax.build(module, "llvm", relax_pipeline=stock)}
    for name, alias in (("safe", ()), ("in place", ALIAS)):
        options = PlanOptions(shrink="safe", alias=alias)
        planning = pipeline("llvm", pipeline=step.pipeline, options=options)
        made[name] = relax.build(module, "llvm", relax_pipeline=planning)
    lowered = lower(module, "llvm", pipeline=step.pipeline)
    finishing = finishing_pipeline("llvm", pipeline=step.pipeline)
    return {**made, "unplanned": relax.build(lowered, "llvm", relax_pipeline=finishing), "module": module}


def _arguments(module: tvm.IRModule, step: Step, n: int) -> tuple[list[Any], list[Any]]:
    """The arguments at `n` rows, and the same where caches have room for ROWS."""
    given = random_inputs(module["forward"], {"b": step.batch, "p": n}, 0)
    roomy = [*given]
    for index in range(1, 1 + len(CACHES)):
        rows = given[index].numpy()
        room = np.full((step.batch, step.shape.heads, ROWS, rows.shape[-1]), np.nan, "float32")
        room[:, :, :n] = rows
        roomy[index] = tvm.runtime.tensor(room)
    return given, [*roomy, tvm.runtime.ShapeTuple([n])]


def _print_memory() -> int:
    bits = set[str]()

    def rows() -> Iterator[dict[str, Any]]:
        for step in steps():
            row = _counted(step)
            bits.add(row["bits"])
            yield row

    columns = {"step": "15", "fused": "6", "pipeline": "9", "TVM": ">12,", "safe": ">12,", "in place": ">12,"}
    print_table({**columns, "in place/TVM": ">12.4f", "bits": ">7"}, rows())
    return int(bits != {"same"})


def _counted(step: Step) -> dict[str, Any]:
    """The bytes of a call at the last row, and whether results are the same at each of some lengths."""
    built, row, bits = _built(step), _named(step), "same"
    for name in ("TVM", "safe", "in place", "unplanned"):
        machine = relax.VirtualMachine(built[name], tvm.cpu(), memory_cfg={tvm.cpu(): ALLOCATOR})
        for n in (0, 1, 7, 500, ROWS - 1):
            given, roomy = _arguments(built["module"], step, n)
            arguments = roomy if name == "in place" else given
            most_workspace()
            found, usage = measured(partial(machine["forward"], *arguments))
            row[name] = usage.total + most_workspace()
            if name != "unplanned":
                other = relax.VirtualMachine(built["unplanned"], tvm.cpu())
                bits = bits if _same(found, other["forward"](*given), n) else f"n = {n}"
    try:
        full = relax.VirtualMachine(built["in place"], tvm.cpu())
        full["forward"](*roomy[:-1], tvm.runtime.ShapeTuple([ROWS]))
        bits = "not refused"
    except AssertionError as error:
        assert "does not fit into" in str(error)
    return {**row, "in place/TVM": row["in place"] / row["TVM"], "bits": bits}


def _same(found: Any, expected: Any, n: int) -> bool:
    pairs = [*zip(found, expected, strict=True)]
    answers, *caches = ((one.numpy(), other.numpy()) for one, other in pairs)
    alike = [answers, *((one[:, :, : n + 1], other) for one, other in caches)]
    return all(np.ascontiguousarray(one).tobytes() == other.tobytes() for one, other in alike)


def _named(step: Step) -> dict[str, Any]:
    return {"step": step.name, "fused": "yes" if step.fused else "no", "pipeline": step.pipeline}


def _timed(step: Step, rounds: int) -> dict[str, Any]:
    """Tokens a second at the last row."""
    built = _built(step)
    given, roomy = _arguments(built["module"], step, ROWS - 1)

    def turn(function: Any, arguments: list[Any]) -> float:
        begun = process_time()
        for _ in range(10):
            function(*arguments)
        return (process_time() - begun) / 10

    turns = {}
    for name in ("TVM", "safe", "in place"):
        function = relax.VirtualMachine(built[name], tvm.cpu())["forward"]
        turns[name] = partial(turn, function, roomy if name == "in place" else given)
        turns[name]()
    taken = in_turns(3 * rounds, turns)
    speed = {name: step.batch / median(times) for name, times in taken.items()}
    ratio = median(one / other for one, other in zip(taken["TVM"], taken["in place"], strict=True))
    return {
        **_named(step),
        "tokens/s TVM": speed["TVM"],
        "safe": speed["safe"],
        "in place": speed["in place"],
        "in place/TVM": ratio,
    }


if __name__ == "__main__":
    main()

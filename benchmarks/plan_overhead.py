"""What a call costs on the virtual machine: modules planned by symalloc beside TVM's own plan.

Small kernels, so that what the machine does around them counts.  Each model is built with
StaticPlanBlockMemory and with PlanMemory in the same pipeline; calls are timed in turns, and the ratio of
each turn is taken, so that what else the computer does hits both.

    python -m benchmarks.plan_overhead [--rounds 25] [--calls 200] [--json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import click
import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax.frontend import nn

from benchmarks.harness import in_turns, json_option, medians, print_table, timed
from symalloc.program.reading import PipelineName
from symalloc.relax.passes.pipeline import pipeline
from tests.models.zoo.llama import Layer, Shape

LIMIT = 1.00
WIDTH = 8
TARGET = "llvm"


# -- models --------------------------------------------------------------------------------------------------


def elementwise(dynamic: bool) -> tvm.IRModule:
    """Twelve elementwise operations, each reading the two results before it."""
    builder = relax.BlockBuilder()
    rows = tirx.Var("n", "int64") if dynamic else 4
    x = relax.Var("x", relax.TensorType((rows, WIDTH), "float32"))
    operators = (relax.op.add, relax.op.multiply, relax.op.subtract)
    with builder.function("forward", [x]):
        with builder.dataflow():
            new = old = x
            for i in range(12):
                new, old = builder.emit(operators[i % 3](new, old)), new
            result = builder.emit_output(relax.op.exp(new))
        builder.emit_func_output(result)
    return builder.finalize()


class Layers(nn.Module):
    """Six linear layers, each with a bias and a rectifier."""

    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(6)])

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        for layer in self.layers:
            x = nn.relu(layer(x))
        return x


def perceptron(dynamic: bool) -> tvm.IRModule:
    """A multilayer perceptron at one row."""
    module, _ = Layers().export_tvm(
        {"forward": {"x": nn.spec.Tensor(["n" if dynamic else 1, WIDTH], "float32")}}
    )
    return module


def transformer(dynamic: bool) -> tvm.IRModule:
    """One Llama-style block at one token."""
    shape = Shape(hidden=16, heads=2, kv_heads=2, inner=16)
    x = nn.spec.Tensor([1, "n" if dynamic else 1, shape.hidden], "float32")
    module, _ = Layer(shape).export_tvm({"forward": {"x": x}})
    return module


MODELS: Mapping[str, Callable[[bool], tvm.IRModule]] = {
    "elementwise": elementwise,
    "perceptron": perceptron,
    "transformer": transformer,
}

# -- measuring -----------------------------------------------------------------------------------------------


def arguments(module: tvm.IRModule) -> list[Any]:
    """Random tensors for `forward`, every symbol 1."""
    source = np.random.default_rng(0)
    shapes = (
        [int(e) if isinstance(e, tirx.IntImm) else 1 for e in p.ty.shape] for p in module["forward"].params
    )
    return [tvm.runtime.tensor(source.random(shape, dtype="float32")) for shape in shapes]


def machines(module: tvm.IRModule, base: PipelineName) -> dict[str, relax.VirtualMachine]:
    """The module built by TVM's planner, and by ours."""
    theirs = "default" if base == "default" else relax.get_default_pipeline(tvm.target.Target(TARGET))
    built = {
        "tvm": relax.build(module, TARGET, relax_pipeline=theirs),
        "ours": relax.build(module, TARGET, relax_pipeline=pipeline(TARGET, pipeline=base)),
    }
    return {name: relax.VirtualMachine(executable, tvm.cpu()) for name, executable in built.items()}


def call_us(function: Callable[..., Any], given: Sequence[Any], calls: int) -> float:
    """Microseconds a call."""

    def all_calls() -> None:
        for _ in range(calls):
            function(*given)

    return timed(all_calls)[0] / calls * 1e6


def measured(name: str, dynamic: bool, base: PipelineName, rounds: int, calls: int) -> dict[str, Any]:
    """The figures of one model: medians of a call, and of the ratios of one turn's time to TVM's in it."""
    module = MODELS[name](dynamic)
    given = arguments(module)
    measures = {
        key: partial(call_us, machine["forward"], given, calls)
        for key, machine in machines(module, base).items()
    }
    in_turns(1, measures)
    found = in_turns(rounds, measures)
    return {
        "model": f"{name}, {'dynamic' if dynamic else 'static'}",
        "pipeline": base,
        **{f"{key}_us": middle for key, middle in medians(found).items()},
        "ratio": median(ours / tvm for ours, tvm in zip(found["ours"], found["tvm"], strict=True)),
    }


COLUMNS = {
    "model": "<24",
    "pipeline": "<10",
    "tvm_us": ">9.2f",
    "ours_us": ">9.2f",
    "ratio": ">7.2f",
}


def show(results: Sequence[dict[str, Any]]) -> None:
    """Print the table."""
    print_table(COLUMNS, results)
    print(f"worst ratio {max(r['ratio'] for r in results):.2f}, wanted at most {LIMIT:.2f}")


@click.command()
@click.option("--rounds", default=25, show_default=True)
@click.option("--calls", default=200, show_default=True)
@json_option
def main(rounds: int, calls: int, as_json: bool) -> None:
    """Exit with 1 where a call of a planned module takes longer than one of TVM's."""
    results = [
        measured(name, dynamic, base, rounds, calls)
        for base in ("default", "target")
        for name in MODELS
        for dynamic in (True, False)
    ]
    print(json.dumps(results, indent=2)) if as_json else show(results)
    sys.exit(max(r["ratio"] for r in results) > LIMIT)


if __name__ == "__main__":
    main()

"""What the passes behind the planner are worth: the time of calls, and the bytes that these hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import tvm

from benchmarks.harness import cpu_seconds, in_turns, patched
from benchmarks.mechanism import Mechanism
from benchmarks.zoo_models import case_named
from tests.models.measure import load
from tests.models.planned import Variants, calls
from tests.models.planned.case import Binding


@tvm.transform.module_pass(opt_level=0, name="Nothing")
class _Nothing:
    """The pass that stands in for another."""

    def transform_module(self, module: tvm.IRModule, _context: object) -> tvm.IRModule:
        """The module as it is."""
        return module


def _pass(name: str, *code: str) -> Mechanism:
    """A pass, and the parts of `symalloc.relax.passes` that make it up."""
    where = "symalloc.relax.passes"
    return Mechanism(
        stand_ins={f"{where}.pipeline.{name}": _Nothing}, code=[f"{where}.{part}" for part in code]
    )


PASSES: Mapping[str, Mechanism] = {
    "GatherSizes": _pass("GatherSizes", "sizes_and_guards._gathered", "sizes_and_guards._SizeReader"),
    "LowerGuards": _pass("LowerGuards", "sizes_and_guards.lower_guards", "sizes_and_guards._asserted"),
    "KillOnPaths": _pass("KillOnPaths", "pipeline.KillOnPaths", "pipeline._KillWriter"),
    "PromiseNoAlias": _pass("PromiseNoAlias", "pipeline.PromiseNoAlias"),
}
"""The passes behind the planner."""

PASS_MODELS = (
    *("model/mlp_dynamic_batch", "model/llama_static", "model/reshape_heads", "model/onnx_cnn"),
    *("model/branches_of_different_size", "model/nested_branches", "torch_op_cond"),
)
PASS_COLUMNS = {
    "without": "36",
    "lines": ">7",
    "worse": ">7",
    **dict.fromkeys(("time", "median", "held"), ">8.3f"),
}


def pass_rows(rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each pass: how many models are worse without it, by how much a call then takes longer, at
    worst and in the median, and how much more it then holds at worst.
    """
    load()
    times: dict[str, list[float]] = {name: [] for name in PASSES}
    held: dict[str, list[float]] = {name: [] for name in PASSES}
    for model in PASS_MODELS:
        machines = _machines(model)
        binding = machines["-"].case.bindings[0]
        found = _call_times(machines, binding, rounds)
        taken = {name: _held(variants, binding) for name, variants in machines.items()}
        for name in PASSES:
            times[name].append(median(a / b for a, b in zip(found[name], found["-"], strict=True)))
            held[name].append(max(a / b for a, b in zip(taken[name], taken["-"], strict=True)))
    for name, of in times.items():
        yield {
            "without": name,
            "lines": PASSES[name].lines,
            "worse": sum(max(pair) > 1.02 for pair in zip(of, held[name], strict=True)),
            "time": max(of),
            "median": median(of),
            "held": max(held[name]),
        }


def _machines(model: str) -> dict[str, Variants]:
    """The model built with all passes (`-`) and without each."""
    found = {}
    for name, mechanism in {"-": Mechanism(stand_ins={}), **PASSES}.items():
        found[name] = Variants(case_named(model))
        with patched(mechanism.stand_ins):
            found[name].machine("ours")
    return found


def _call_times(machines: Mapping[str, Variants], binding: Binding, rounds: int) -> dict[str, list[float]]:
    """Seconds of calls with memory of TVM's pool, in turns."""
    measures: dict[str, Callable[[], float]] = {}
    for name, variants in machines.items():
        function = variants.machine("ours", "pooled")[variants.case.function]
        measures[name] = cpu_seconds(_calls, function, calls(variants, binding)[0].arguments())
    in_turns(1, measures)
    return in_turns(3 * rounds, measures)


def _calls(function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    for _ in range(20):
        function(*arguments)


def _held(variants: Variants, binding: Binding) -> list[int]:
    """The bytes that a call on each path holds at most."""
    return [call.on(variants.ours).usage.total for call in calls(variants, binding)]

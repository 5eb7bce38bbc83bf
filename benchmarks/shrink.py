"""The memory and the time of a call with kernels shrunk, where that is free and in full, beside TVM's.

`python -m benchmarks.shrink [MODEL ...]` runs each model at its bindings, counts what the machine allocates
(arena and results) and what kernels take from TVM's workspace pool at the most, and prints the sum as a share
of that of the better of TVM's plans.  Results are compared bit for bit with the unplanned module's.  Times
are of this process, in turns, as a share of the call with TVM's plan.  By default six networks behind both
pipelines, and twenty models of the zoo.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import geometric_mean, median
from time import process_time
from typing import Any, TypeVar, get_args

import click
import tvm

from benchmarks.harness import in_turns, print_table, rounds_option
from benchmarks.workspace_calls import is_counted, most_workspace, run_counted
from benchmarks.zoo_models import case_named
from symalloc.program.reading import PipelineName
from tests.models.measure import load
from tests.models.planned import CASES, Call, Case, Kind, Variants, calls, difference

NETWORKS = ("llama_prefill", "llama_decode", "bert", "resnet50", "unet", "branchy")
ZOO = (
    *("onnx_attention", "onnx_inception", "onnx_residual_image", "torch_autoencoder", "torch_bert"),
    *(
        "torch_clip_vision",
        "torch_convnext",
        "torch_efficientnet",
        "torch_gemma",
        "torch_gpt2",
        "torch_llama",
    ),
    *("torch_mobilenet", "torch_opt", "torch_phi", "torch_qwen3", "torch_resnet", "torch_super_resolution"),
    *("torch_t5_encoder", "torch_unet", "torch_whisper_encoder"),
)
LEVELS: tuple[Kind, ...] = ("ours", "safe", "full")
T = TypeVar("T")
TURN = 0.02  # seconds of calls that are timed together


@click.command()
@click.argument("models", nargs=-1)
@click.option("--level", "levels", type=click.Choice(LEVELS), multiple=True, default=LEVELS)
@click.option("--memory/--no-memory", default=True, help="Count bytes, and compare results.")
@click.option("--time/--no-time", default=True, help="Time calls.")
@rounds_option
def main(models: tuple[str, ...], levels: tuple[Kind, ...], memory: bool, time: bool, rounds: int) -> None:
    """Measure MODELS with kernels as they are (ours), shrunk where that is free (safe), and in full; exit
    status 1 where a result differs in a bit.
    """
    chosen = [case for name in models or (*NETWORKS, *ZOO) for case in _cases(name)]
    if is_counted():
        load()
        sys.exit(_print_memory(chosen, levels))
    named = [word for level in levels for word in ("--level", level)]
    status = run_counted("benchmarks.shrink", [*models, *named, "--no-time"]) if memory else 0
    if time:
        load()
        _print_times(chosen, levels, rounds)
    sys.exit(status)


def _cases(name: str) -> list[Case]:
    case = CASES.get(name) or case_named(name)
    return [replace(case, pipeline=one) for one in get_args(PipelineName)] if name in NETWORKS else [case]


def _each(chosen: Sequence[Case], measure: Callable[[Case], T]) -> Iterator[T]:
    """What is measured of each of the models that TVM builds without a plan, too."""
    for case in chosen:
        try:
            yield measure(case)
        except tvm.error.InternalError:  # with TVM 0.27 what is killed must not be a constant
            print(f"{case.name}: TVM cannot build it without a plan")


def _print_memory(chosen: Sequence[Case], levels: Sequence[Kind]) -> int:
    shares: dict[Kind, list[list[float]]] = {level: [] for level in levels}
    bits = set[str]()

    def measured() -> Iterator[dict[str, Any]]:
        for row, found in _each(chosen, partial(_bytes, levels=levels)):
            for level in levels:
                shares[level].append(found[level])
            bits.add(row["bits"])
            yield row

    worst = {f"{level} worst": ">11.3f" for level in levels}
    pools = {"pool TVM": ">12,", **{f"pool {level}": ">12," for level in levels}}
    columns = {
        "model": "24",
        "pipeline": "9",
        "TVM": ">13,",
        **dict.fromkeys(levels, ">7.3f"),
        **worst,
        **pools,
    }
    print_table({**columns, "bits": ">7"}, measured())
    for level, of in shares.items():
        mean, most = geometric_mean(map(geometric_mean, of)), max(map(max, of))
        worst_model = max(map(geometric_mean, of))
        print(
            f"{level}: geometric mean {mean:.3f}, of the worst model {worst_model:.3f}, at worst {most:.3f}"
        )
    return int(bits != {"same"})


def _bytes(case: Case, levels: Sequence[Kind]) -> tuple[dict[str, Any], dict[Kind, list[float]]]:
    """The bytes of a call of TVM's plan at the largest binding, and the shares that ours takes at each."""
    variants = Variants(case)
    shares: dict[Kind, list[float]] = {level: [] for level in levels}
    pools: dict[str, int] = {}
    total, bits = 0, "same"
    for binding in case.bindings:
        call = calls(variants, binding)[0]
        expected = call.on(variants.unplanned)
        total, pools["pool TVM"] = _theirs(call)
        for level in levels:
            most_workspace()
            found = call.on(variants.machine(level))
            pools[f"pool {level}"] = taken = most_workspace()
            bits = difference(found, expected) or bits
            shares[level].append((found.usage.total + taken) / total)
    means = {level: geometric_mean(ratios) for level, ratios in shares.items()}
    worst = {f"{level} worst": max(ratios) for level, ratios in shares.items()}
    row = {
        "model": case.name,
        "pipeline": case.pipeline,
        "TVM": total,
        **means,
        **worst,
        **pools,
        "bits": bits,
    }
    return row, shares


def _theirs(call: Call) -> tuple[int, int]:
    """The bytes of a call with the better of TVM's plans, and those of its workspace pool."""
    case = call.variants.case
    bounded = bool(case.declared) and not case.beyond(call.binding)
    kinds: tuple[Kind, ...] = ("tvm without bounds", "tvm") if bounded else ("tvm without bounds",)
    found = []
    for kind in kinds:
        most_workspace()
        total = call.on(call.variants.machine(kind)).usage.total
        taken = most_workspace()
        found.append((total + taken, taken))
    return min(found)


def _print_times(chosen: Sequence[Case], levels: Sequence[Kind], rounds: int) -> None:
    ratios: dict[Kind, list[float]] = {level: [] for level in levels}

    def timed() -> Iterator[dict[str, Any]]:
        for row in _each(chosen, partial(_timed, levels=levels, rounds=rounds)):
            for level in levels:
                ratios[level].append(row[level])
            yield row

    print_table({"model": "24", "pipeline": "9", **dict.fromkeys(levels, ">8.3f"), "ms": ">9.3f"}, timed())
    for level, of in ratios.items():
        print(f"{level}: time of a call over TVM's, median {median(of):.3f}, at worst {max(of):.3f}")


def _timed(case: Case, levels: Sequence[Kind], rounds: int) -> dict[str, Any]:
    """The time of a call at the largest binding, as shares of that with TVM's plan."""
    variants, theirs = Variants(case), "tvm without bounds"
    arguments = calls(variants, case.bindings[-1])[0].arguments()
    kinds: tuple[Kind, ...] = (*levels, theirs)
    functions = {kind: variants.machine(kind, "pooled")[case.function] for kind in kinds}
    for function in functions.values():
        function(*arguments)
    started = process_time()
    for function in functions.values():
        function(*arguments)
    count = max(1, round(TURN * len(kinds) / (process_time() - started)))

    def turn(function: Any) -> float:
        begun = process_time()
        for _ in range(count):
            function(*arguments)
        return (process_time() - begun) / count

    taken = in_turns(3 * rounds, {kind: partial(turn, one) for kind, one in functions.items()})
    ratio = {kind: median(t / o for t, o in zip(taken[kind], taken[theirs], strict=True)) for kind in levels}
    return {"model": case.name, "pipeline": case.pipeline, **ratio, "ms": 1000 * median(taken[theirs])}


if __name__ == "__main__":
    main()

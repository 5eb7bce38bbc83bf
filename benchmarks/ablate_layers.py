"""What it is worth that equal layers are stacked alike: models of a few layers, made as deep as large ones.

Of each model the arena with the most buffers is taken, its buffers one behind the other as often as told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from time import process_time
from typing import Any
from unittest.mock import patch

from benchmarks.harness import patched
from benchmarks.zoo_models import case_named
from symalloc.planner import plan_functions, stack
from symalloc.planner.memory_plan import Buffer
from symalloc.relax.passes.pipeline import lower
from symalloc.relax.passes.plan_pass import plan_lowered
from tests.models.planned import CASES

LAYERED = ("torch_qwen3", "torch_t5_encoder", "torch_gemma")
TIMES = 32
WITHOUT: Mapping[str, Mapping[str, object]] = {
    "-": {},
    "folded layers": {f"{stack.__name__}.folded": lambda _buffers: None},
}
LAYER_COLUMNS = {
    "model": "20",
    "without": "16",
    "buffers": ">9",
    "worst": ">8.3f",
    "mean": ">8.3f",
    "seconds": ">9.2f",
}


def layer_rows(target: Any) -> Iterator[dict[str, Any]]:
    """A row for each model with layers that are folded, and one without: height over floor."""
    for model in LAYERED:
        asked: list[tuple[Any, ...]] = []

        def noted(*given: Any, known: list[tuple[Any, ...]] = asked) -> Any:
            known.append(given)
            return stack.search(*given)

        with patch.object(plan_functions, "search", noted):
            plan_lowered(lower((CASES.get(model) or case_named(model)).build(), target))
        buffers, ranges, budget, _, *shapes = max(asked, key=lambda given: len(given[0]))
        deep = repeated(buffers, TIMES)
        for without, stand_ins in WITHOUT.items():
            with patched(stand_ins):
                started = process_time()
                found = stack.search(deep, ranges, budget, None, *shapes).score
            row = {"model": model, "without": without, "buffers": len(deep)}
            yield {**row, "worst": found.worst, "mean": found.mean, "seconds": process_time() - started}


def repeated(buffers: Sequence[Buffer], times: int) -> list[Buffer]:
    """The buffers, so many times one behind the other."""
    end = 1 + max(live[1] for one in buffers for live in one.live)
    return [
        replace(one, live=tuple((begin + end * i, last + end * i) for begin, last in one.live))
        for i in range(times)
        for one in buffers
    ]

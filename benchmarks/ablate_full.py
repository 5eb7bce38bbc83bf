"""What it is worth that paddings stay in front of short sums with `--shrink full`: the time of calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from time import process_time
from typing import Any

from benchmarks.harness import in_turns, patched
from benchmarks.zoo_models import case_named
from symalloc.relax.shrink import shrink_kernels
from tests.models.planned import Variants, calls

PADDED = ("onnx_residual_image", "torch_super_resolution", "torch_resnet", "torch_unet")
"""Models with convolutions behind paddings."""
RULE = "_is_unrolled"
FULL_COLUMNS = {"model": "28", "lines": ">7", "time": ">8.3f"}


def full_rows(rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each model: what a call takes longer where short sums read through paddings, too."""
    lines = len(inspect.getsource(getattr(shrink_kernels, RULE)).splitlines())
    for model in PADDED:
        case = case_named(model)
        variants = Variants(case)
        usual = variants.machine("full", "naive")[case.function]
        with patched({f"{shrink_kernels.__name__}.{RULE}": lambda _: False}):
            other = Variants(case).machine("full", "naive")[case.function]
        arguments = calls(variants, case.bindings[-1])[0].arguments()

        def once(function: Any, given: Sequence[Any] = arguments) -> float:
            started = process_time()
            for _ in range(20):
                function(*given)
            return process_time() - started

        found = in_turns(2 * rounds, {"with": partial(once, usual), "without": partial(once, other)})
        ratio = median(b / a for a, b in zip(found["with"], found["without"], strict=True))
        yield {"model": model, "lines": lines, "time": ratio}

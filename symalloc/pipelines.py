"""TVM's compilation pipelines with memory planned by symalloc: by function, and by name.

`relax_pipeline="symalloc"` is known to TVM whichever of the two is imported first.  `import symalloc` imports
no TVM: TVM calls the entry points of the group `tvm.backends` when it is imported, and `register_pipelines`
is one (pyproject.toml).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, get_args

from symalloc.errors import require_choice

if TYPE_CHECKING:
    from tvm.ir.transform import Pass
    from tvm.target import Target

    from symalloc.planner.planner_options import BoundsUse, EffortName, Flavour, GuardKind
    from symalloc.program.reading import PipelineName

PIPELINES: dict[str, PipelineName] = {"symalloc": "default", "symalloc-target": "target"}


def pipeline(
    target: str | Target | None = None,
    *,
    pipeline: PipelineName | Pass = "default",
    flavour: Flavour = "auto",
    guards: GuardKind = "assert",
    bounds: BoundsUse = "ignore",
    effort: EffortName = "quick",
    seed: int = 0,
    alias: str | Sequence[str] = (),
) -> Pass:
    """A pipeline for `relax.build(mod, target, relax_pipeline=…)` that plans memory with symalloc.

    `pipeline`: "default" is what `relax.build` runs for the target, "target" the target's own, which fuses
    operators (on a GPU both are that one); or any pipeline with StaticPlanBlockMemory in it.  Without
    `target` it serves the target that is built for.  The rest is as for
    `symalloc.plan`.  Raises UsageError for a choice that there is not.
    """
    from symalloc.analysis.donation import parse_donation
    from symalloc.planner.planner_options import PlanOptions
    from symalloc.program.reading import PipelineName
    from symalloc.relax.passes.pipeline import pipeline as make

    if isinstance(pipeline, str):
        require_choice("pipeline", pipeline, get_args(PipelineName))
    donations = tuple(map(parse_donation, [alias] if isinstance(alias, str) else alias))
    options = PlanOptions(
        flavour=flavour, guards=guards, bounds=bounds, effort=effort, seed=seed, alias=donations
    )
    return make(target, pipeline=pipeline, options=options)


def register_pipelines() -> None:
    """Enter the pipelines named in PIPELINES into TVM's table, where TVM has been imported.

    "symalloc" stands for TVM's "default", "symalloc-target" for the target's own pipeline.  Both take the
    options of a plan: `relax.get_pipeline("symalloc", guards="native")`.
    """
    module = sys.modules.get("tvm.relax.pipeline")
    known = getattr(module, "PIPELINE_MAP", None)
    for name, base in PIPELINES.items():
        if module is not None and known is not None and name not in known:
            module.register_pipeline(name)(partial(pipeline, pipeline=base))

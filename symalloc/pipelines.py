"""TVM's compilation pipelines with memory planned by symalloc: by function, and by name.

`relax_pipeline="symalloc"` is known to TVM whichever of the two is imported first.  `import symalloc` imports
no TVM: TVM calls the entry points of the group `tvm.backends` when it is imported, and `register_pipelines`
is one (pyproject.toml).  With SYMALLOC_REPLACE_TVM_PLANNER=1 it also lets PlanMemory stand for TVM's planner
everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from symalloc.errors import require_choice, require_flag
from symalloc.options import made

if TYPE_CHECKING:
    from tvm.ir.transform import Pass
    from tvm.target import Target

    from symalloc.planner.memory_plan import PlanChoices
    from symalloc.program.reading import PipelineName

REPLACE = "SYMALLOC_REPLACE_TVM_PLANNER"
PIPELINES: dict[str, dict[str, Any]] = {
    "symalloc": {"pipeline": "default"},
    "symalloc-target": {"pipeline": "target"},
    "symalloc-named": {"names": True},
}
"""What `pipeline` is given for each of the names."""


def pipeline(
    target: str | Target | None = None,
    *,
    pipeline: PipelineName | Pass = "default",
    seed: int = 0,
    names: bool = False,
    **options: Unpack[PlanChoices],
) -> Pass:
    """A pipeline for `relax.build(mod, target, relax_pipeline=…)` that plans memory with symalloc.

    `pipeline`: "default" is what `relax.build` runs for the target, "target" the target's own, which fuses
    operators (on a GPU both are that one); or any pipeline with StaticPlanBlockMemory in it.  Without
    `target` it serves the target that is built for.  `names`: NameTensors stands in it, and the program runs
    on machines of `memory_cfg`.  The rest is as for `symalloc.plan`.  Raises UsageError for a choice that
    there is not.
    """
    from symalloc.planner.memory_plan import PlanChoices, PlanOptions
    from symalloc.relax.passes.pipeline import pipeline as make
    from symalloc.relax.passes.stages import require_pipeline, target_of

    require_pipeline(pipeline)
    require_flag("names", names)
    chosen = made(PlanOptions, options, PlanChoices, seed=seed)
    built_for = None if target is None else target_of(target)
    return make(built_for, pipeline=pipeline, options=chosen, names=names)


def replace_tvm_planner(
    *, seed: int = 0, names: bool = False, **options: Unpack[PlanChoices]
) -> AbstractContextManager[Mapping[str, str]]:
    """A context in which pipelines that make StaticPlanBlockMemory themselves plan with symalloc.

        with symalloc.replace_tvm_planner() as picked:
            executable = relax.build(module, target, relax_pipeline=pipeline)

    The options are those of `pipeline`, but that `bounds` is "auto": as TVM's planner does, memory is
    reserved for the bounds that a function declares.  `picked` says of each function what was done and why,
    as does the logger "symalloc".  Names are without the places of the model.  It holds in the thread
    that enters it, the innermost of several counts, and what symalloc itself runs of TVM's planner, to
    compare with it, stays.  The variable SYMALLOC_REPLACE_TVM_PLANNER=1 does the same for a whole process.
    Raises UsageError.
    """
    from symalloc.planner.memory_plan import PlanChoices, PlanOptions
    from symalloc.relax.passes.pipeline import replace_planner

    require_flag("names", names)
    chosen = made(PlanOptions, {"bounds": "auto", **options}, PlanChoices, seed=seed)
    return replace_planner(chosen, names=names)


def register_pipelines() -> None:
    """Enter the pipelines named in PIPELINES into TVM's table, where TVM has been imported.

    "symalloc" stands for TVM's "default", "symalloc-target" for the target's own pipeline, "symalloc-named"
    for "default" with the names of tensors.  All take the options of `pipeline`:
    `relax.get_pipeline("symalloc", guards="native")`.  Raises UsageError for a value of
    SYMALLOC_REPLACE_TVM_PLANNER that is neither 0 nor 1.
    """
    module = sys.modules.get("tvm.relax.pipeline")
    known = getattr(module, "PIPELINE_MAP", None)
    for name, given in PIPELINES.items():
        if module is not None and known is not None and name not in known:
            module.register_pipeline(name)(partial(pipeline, **given))
    replaces = require_choice(REPLACE, os.environ.get(REPLACE, "") or "0", ("0", "1"))
    if known is not None and replaces == "1":
        from symalloc.planner.memory_plan import PlanOptions
        from symalloc.relax.passes.pipeline import replace_planner_everywhere

        replace_planner_everywhere(PlanOptions(bounds="auto"))

"""A fault is found at every stage of the build, from the file alone, and as it was found before."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import pytest
import tvm

import symalloc
from symalloc.linter.diagnostic import Diagnostic
from symalloc.program.reading import PipelineName
from symalloc.relax.passes.stages import Lowered
from tests.models.zoo import MODELS
from tests.relax.passes.staged import FAULTS, PLANNED, stages_of
from tests.scale import pairs

PIPELINES: tuple[PipelineName, ...] = get_args(PipelineName)


@cache
def stages(pipeline: PipelineName) -> list[Lowered]:
    return stages_of(PLANNED, pipeline)


def reports(folder: Path, modules: dict[str, Any]) -> dict[str, list[Diagnostic]]:
    """What `symalloc lint --stage as-is` says of each module, given as a file; of equal ones, given once."""
    texts = {name: tvm.ir.save_json(module) for name, module in modules.items()}
    files = {text: folder / f"{name}.json" for name, text in texts.items()}
    for text, file in files.items():
        file.write_text(text)
    found = symalloc.lint(list(files.values()), stage="as-is")
    return {name: [d for d in found if d.file == str(files[text])] for name, text in texts.items()}


def told(found: Any) -> list[str]:
    """The findings, but for the places and the words of a dialect, and for what TVM itself refuses."""
    shown = attrgetter("rule", "severity", "verdict", "counterexample", "binds", "precondition")
    return sorted(str(shown(d)) for d in found if d.rule != "SYM902")


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_a_sound_module_is_clean_at_every_stage(
    pipeline: PipelineName, tmp_path: Path, warm_workers: None
) -> None:
    found = reports(tmp_path, {stage.stage: stage.mod for stage in stages(pipeline)})
    assert len(found) >= 15
    assert {name: told(report) for name, report in found.items() if len(report)} == {}


@pytest.mark.parametrize(("fault", "pipeline"), pairs(FAULTS, PIPELINES))
def test_a_planted_fault_is_found_at_every_stage(
    fault: str, pipeline: PipelineName, tmp_path: Path, warm_workers: None
) -> None:
    rule, plant = FAULTS[fault]
    found = reports(tmp_path, {stage.stage: plant(stage.mod) for stage in stages(pipeline)})
    first, *later = found.values()
    assert rule in {d.rule for d in first if d.severity == "error"}
    assert [told(report) for report in later] == [told(first)] * len(later), list(found)


@pytest.mark.parametrize(
    ("name", "pipeline"),
    pairs(["branches", "nested_branches", "append_to_cache", "scalar_parameter"], PIPELINES),
)
def test_what_tvm_plans_is_judged_alike_at_every_later_stage(name: str, pipeline: PipelineName) -> None:
    """The module is not planned when it comes: faults are TVM's own."""
    kept = stages_of(MODELS[name].build(), pipeline, first="KillAfterLastUse")
    first, *later = (told(symalloc.lint(stage.mod, stage="as-is")) for stage in kept)
    assert len(later) >= 4
    assert later == [first] * len(later)


MODELS_PLANNED = ("branches", "nested_branches", "tuple_through_function", "recursion", "unique", "inplace")
FLAVOURS: dict[str, dict[str, Any]] = {
    "arena": {},
    "storages": {"flavour": "storages"},
    "fallback": {"guards": "fallback"},
    "native": {"guards": "native"},
}


@pytest.mark.parametrize(("name", "flavour"), pairs(MODELS_PLANNED, FLAVOURS))
def test_what_we_plan_is_clean_at_every_later_stage(name: str, flavour: str) -> None:
    with tvm.transform.PassContext(instruments=[symalloc.VerifyMemory()]):
        last = symalloc.pipeline("llvm", **FLAVOURS[flavour])(MODELS[name].build())
    assert not [d for d in symalloc.lint(last, stage="as-is") if d.severity != "note"]

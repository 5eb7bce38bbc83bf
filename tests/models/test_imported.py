"""Models imported from torch.export and ONNX: no error that is not a real fault, plans that run alike, and
the memory of whole calls as the report reckons it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import tvm

import symalloc
from symalloc.analysis.timeline import Timeline
from symalloc.planner.planned_program import planned_program
from tests.models.imported import IMPORTED, load_imported
from tests.models.measure import compiler, load
from tests.models.planned import Kind, Variants, calls, difference, imported_case, within_limit
from tests.scale import NIGHTLY, tries

# torch's importer leaves the symbol of 2*Dim undefined: no machine can run these
UNDEFINED: Mapping[str, frozenset[str]] = {
    "torch_image_any_size": frozenset({"SYM903"}),
    "torch_op_halves": frozenset({"SYM903"}),
}
UNBUILT = frozenset(UNDEFINED) | {"torch_op_concat_slice"}
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})
LONG = frozenset({"torch_efficientnet", "torch_mobilenet", "torch_segformer", "torch_qwen2", "torch_qwen3"})
CHOSEN = IMPORTED if NIGHTLY else tuple(name for name in IMPORTED if name not in LONG)[::6]


@pytest.mark.parametrize("name", CHOSEN)
def test_no_error_but_on_what_cannot_run(name: str) -> None:
    errors = [d for d in symalloc.lint(load_imported(name)) if d.severity == "error"]
    assert {d.rule for d in errors} == UNDEFINED.get(name, frozenset()), [d.message for d in errors]


def test_there_are_enough() -> None:
    assert len(IMPORTED) >= 66
    assert set(UNDEFINED) | LONG <= set(IMPORTED)


KINDS: tuple[Kind, ...] = ("ours", "unplanned")
RUN = ("torch_decode_step", "torch_op_cond", "onnx_branch")
PLANNED = IMPORTED if NIGHTLY else tuple(name for name in IMPORTED if name not in LONG)[1::8]


def reckoned(variants: Variants) -> dict[str, Timeline]:
    """What a call holds as planned by us, and as it was."""
    planned, function = variants.planned, variants.case.function
    return {
        "ours": Timeline.of(planned_program(planned.program, planned.plans).program, function),
        "unplanned": Timeline.of(planned.given, function),
    }


@pytest.mark.parametrize("name", PLANNED)
def test_a_planned_call_holds_no_more_than_an_unplanned_one(name: str) -> None:
    variants = Variants(imported_case(name), TARGET)
    memory = reckoned(variants)
    for binding in variants.case.bindings:
        ours, unplanned = (memory[kind].peak(binding) for kind in ("ours", "unplanned"))
        if unplanned is None:  # it depends on data
            assert ours is None or name in UNBUILT
        else:
            assert ours is not None
            assert ours <= within_limit(unplanned), binding


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPORTED if NIGHTLY else RUN)
def test_a_planned_call_gives_the_same_and_holds_what_is_reported(name: str) -> None:
    if name in UNBUILT:
        pytest.skip("TVM cannot build it")
    if compiler() is None:
        pytest.skip("measuring needs a C++ compiler")
    load()
    variants = Variants(imported_case(name), TARGET)
    memory = reckoned(variants)
    for binding in variants.case.bindings[1 :: tries(4, 2)]:
        made = calls(variants, binding)
        found = {kind: [call.on(variants.machine(kind)) for call in made] for kind in KINDS}
        for ours, unplanned in zip(*found.values(), strict=True):
            assert difference(ours, unplanned) is None
        for kind, results in found.items():
            peak = memory[kind].peak(binding)
            held = max(one.usage.total for one in results)
            assert peak in (None, held), (kind, binding)

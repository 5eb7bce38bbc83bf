"""Ordinary models yield no error that is not a real fault; what else is reported is listed and explained."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Mapping
from functools import cache

import pytest

import symalloc
from symalloc.linter.diagnostic import Report
from tests.models.zoo import MODELS, Model
from tests.scale import part

# model -> (rule, severity) -> how many; with the reason for each
EXPECTED: Mapping[str, Mapping[tuple[str, str], int]] = {
    # the real fault of TVM's own plan: a storage of the then-branch is used in the else-branch
    "branches": {("SYM204", "error"): 2},
    "nested_branches": {("SYM204", "error"): 1, ("SYM205", "note"): 2},
    "branch_on_shape": {("SYM204", "error"): 1},
    # KillAfterLastUse never kills what crosses an If: it lives until the call returns
    "branch_then_only": {("SYM205", "note"): 2},
    # the mask's length t is a symbol of its own, and nothing in the model says that it is p + n
    "llama_decode_masked": {("SYM302", "warning"): 2},
    # of one row x[1:] is empty, and TVM's sum over no rows writes nothing: the result is what was there
    "slice_rows": {("SYM208", "warning"): 1, ("SYM309", "warning"): 1},
    # a sum, a mean or a largest element of nothing is what was there
    **{
        model: {("SYM309", "note"): 1}
        for model in (
            "bert",
            "embedding_pool",
            "nested_tuples",
            "nonzero",
            "resnet_any_image",
            "several_functions",
        )
    },
    "several_functions": {("SYM208", "note"): 1, ("SYM309", "note"): 1},
    "branches_of_different_size": {("SYM309", "note"): 2},
    # of a vocabulary of two words nobody gets the best three
    "top_k": {("SYM309", "warning"): 1},
    # what a tensor holds may be negative, and nothing checks that before it is an extent
    "shape_from_tensor": {("SYM103", "note"): 2},
    # n // 64 rows of 64 hold all n elements only for multiples of 64
    "reshape_divides": {("SYM302", "warning"): 1},
    # TVM drops the match_cast that would check t == p + n; the kernel that adds the mask checks it in the end
    "append_to_cache": {("SYM303", "warning"): 1, ("SYM310", "warning"): 1},
}


def _build(model: Model) -> object:
    if model.needs and importlib.util.find_spec(model.needs) is None:
        pytest.skip(f"{model.needs} is not installed")
    return model.build()


@cache
def _report(name: str) -> Report:
    return symalloc.lint(_build(MODELS[name]))


@pytest.mark.parametrize("name", part(MODELS, 5))
def test_only_what_is_expected(name: str) -> None:
    report = _report(name)
    found = Counter((d.rule, str(d.severity)) for d in report)
    assert found == Counter(EXPECTED.get(name, {})), [(d.rule, d.message, d.reason) for d in report]


@pytest.mark.parametrize("name", MODELS)
def test_errors_are_real_faults(name: str) -> None:
    rules = EXPECTED.get(name, {})
    assert any(severity == "error" for _, severity in rules) == (MODELS[name].fault is not None)


def test_nothing_is_left_undecided() -> None:
    names = ("llama_prefill", "bert", "gru", "resnet_any_image", "slice_rows", "mixture_of_experts")
    assert [_report(n).summary.unknown for n in names] == [0] * len(names)


def test_there_are_enough_models() -> None:
    assert len(MODELS) >= 36
    assert set(EXPECTED) <= set(MODELS)

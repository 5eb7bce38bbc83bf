"""Models imported from torch.export and ONNX yield no error that is not a real fault."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import symalloc
from tests.models.imported import IMPORTED, load_imported
from tests.scale import NIGHTLY

# torch's importer leaves the symbol of 2*Dim undefined: no machine can run these
UNDEFINED: Mapping[str, frozenset[str]] = {
    "torch_image_any_size": frozenset({"SYM903"}),
    "torch_op_halves": frozenset({"SYM903"}),
}
LONG = frozenset({"torch_efficientnet", "torch_mobilenet", "torch_segformer", "torch_qwen2", "torch_qwen3"})
CHOSEN = IMPORTED if NIGHTLY else tuple(name for name in IMPORTED if name not in LONG)[::3]


@pytest.mark.parametrize("name", CHOSEN)
def test_no_error_but_on_what_cannot_run(name: str) -> None:
    errors = [d for d in symalloc.lint(load_imported(name)) if d.severity == "error"]
    assert {d.rule for d in errors} == UNDEFINED.get(name, frozenset()), [d.message for d in errors]


def test_there_are_enough() -> None:
    assert len(IMPORTED) >= 55
    assert set(UNDEFINED) | LONG <= set(IMPORTED)

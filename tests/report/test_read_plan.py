from __future__ import annotations

import json
from pathlib import Path

import pytest

from symalloc.errors import UsageError
from symalloc.report.plan_json import read_plan

GOLDEN = Path(__file__).parent / "golden" / "plan.json"


@pytest.mark.parametrize("field", ["callee", "operator", "name"])
def test_a_tensor_is_called_by_text(field: str) -> None:
    document = json.loads(GOLDEN.read_text())
    tensor = next(t for f in document["functions"] for arena in f["arenas"] for t in arena["buffers"])
    tensor[field] = ["a", "list"]
    with pytest.raises(UsageError, match="not understood"):
        read_plan("plan.json", json.dumps(document))

"""The schemas of documents, and what is refused when one is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from symalloc.errors import UsageError
from symalloc.report.document import KINDS, schema_text
from symalloc.report.plan_json import read_plan

GOLDEN = Path(__file__).parent / "golden"
DOCUMENTS = {"lint": "report.json", "plan": "plan.json"}


@pytest.mark.parametrize("name", KINDS)
def test_a_schema_describes_each_part_and_allows_nothing_else(name: str) -> None:
    schema = json.loads(schema_text(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:symalloc:{name}:1"
    assert all("\n" not in part["description"] for part in schema["$defs"].values())
    records = [part for part in schema["$defs"].values() if part.get("type") == "object"]
    assert sum(part.get("additionalProperties") is False for part in records) >= len(records) // 2
    assert not jsonschema.Draft202012Validator(schema).is_valid({"other": 1})


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_fits_its_schema_with_all_its_fields_and_no_other(name: str) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema_text(name)))
    document = json.loads((GOLDEN / DOCUMENTS[name]).read_text())
    validator.validate(document)
    for where in (
        "version",
        "functions.0.arenas",
        "functions.0.arenas.0.bytes",
        "functions.1.kernels.0.calls",
        "functions.0.guards.0.check",
        "diagnostics.0.guarded",
        "summary.known",
    ):
        *path, field = where.split(".")
        inner: Any = document
        for step in path:
            inner = inner[int(step)] if step.isdigit() else inner.get(step, [{}] * 2)
        if field in inner:
            kept = inner.pop(field)
            assert not validator.is_valid(document), where
            inner[field] = kept
            inner["colour"] = "red"
            assert not validator.is_valid(document), where
            del inner["colour"]
    validator.validate(document)


@pytest.mark.parametrize("field", ["variable", "operator", "name", "offset"])
def test_a_plan_is_read_by_the_types_of_its_fields(field: str) -> None:
    document = json.loads((GOLDEN / "plan.json").read_text())
    document["functions"].pop()
    assert len(read_plan("plan.json", json.dumps(document))) == 1
    tensor = next(t for f in document["functions"] for arena in f["arenas"] for t in arena["buffers"])
    tensor[field] = ["a", "list"]
    with pytest.raises(UsageError, match=rf"not understood: .* at `\$.functions\[0\].*\.{field}`"):
        read_plan("plan.json", json.dumps(document))

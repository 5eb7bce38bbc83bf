"""The schemas of documents, and what is refused when one is read."""

from __future__ import annotations

import json

import jsonschema
import pytest

from symalloc.report.document import KINDS, schema_text


@pytest.mark.parametrize("name", KINDS)
def test_a_schema_describes_each_part_and_allows_nothing_else(name: str) -> None:
    schema = json.loads(schema_text(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:symalloc:{name}:1"
    assert all("\n" not in part["description"] for part in schema["$defs"].values())
    records = [part for part in schema["$defs"].values() if part.get("type") == "object"]
    assert sum(part.get("additionalProperties") is False for part in records) >= len(records) // 2
    assert not jsonschema.Draft202012Validator(schema).is_valid({"other": 1})

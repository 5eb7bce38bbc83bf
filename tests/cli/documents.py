"""Modules that verbs are given, and documents in JSON that they print."""

from __future__ import annotations

import json
from typing import Any

import jsonschema

from symalloc.report.document import schema_text

HEAD = """\
from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
"""
"""What stands in front of the functions of a module in a file."""


def read_as(kind: str, text: str) -> Any:
    """The document in a text, which fits the schema of its kind."""
    document, schema = json.loads(text), json.loads(schema_text(kind))
    jsonschema.Draft202012Validator(schema).validate(document)
    return document

"""Documents in JSON: records whose types are their schemas."""

from __future__ import annotations

import json
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from symalloc.size.expr import Expr
from symalloc.size.parse import parse_expr

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

KINDS = {
    "baseline": "symalloc.linter.suppressions.BaselineDocument",
    "budget": "symalloc.planner.memory_report.device_budget.DeviceBudget",
    "certificate": "symalloc.planner.check.plan_certificate.Certificate",
    "diff": "symalloc.report.plan_diff.PlanDiff",
    "graph": "symalloc.planner.memory_report.call_moments.GraphDocument",
    "lint": "symalloc.report.formats.LintDocument",
    "pack": "symalloc.report.pack_text.PackDocuments",
    "pack-problem": "symalloc.planner.packing.packing_problem.ProblemDocument",
    "plan": "symalloc.report.plan_json.PlanDocument",
    "pool": "symalloc.report.pool_use.PoolDocument",
    "prove": "symalloc.prover.batch.ProofRows",
    "replay": "symalloc.report.pool_use.ReplayDocument",
    "run": "symalloc.report.run_text.RunDocument",
}
"""The documents that commands write and read, by the name under which `symalloc schema` shows them."""


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a document; its fields are those of the JSON, and no other is allowed."""


SIZE = {"type": "string", "description": "A Python expression over the function's symbols, in bytes."}
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Binding: TypeAlias = dict[str, int]


def about(text: str) -> msgspec.Meta:
    """Return the description of a field."""
    return msgspec.Meta(description=text)


def record(kind: type[S], *sources: object, **given: Any) -> S:
    """Return a document: a field is as given, an attribute of the first source that has it, or its default.

    The attributes of sources are converted at every depth.  Empty text is null, and where a source is None so
    is what no other source has.  Raises AttributeError for a field that nothing gives.
    """
    default: Any = None if None in sources else msgspec.NODEFAULT
    values = {}
    for field in msgspec.structs.fields(kind):
        found = (getattr(one, field.name) for one in sources if hasattr(one, field.name))
        value = given[field.name] if field.name in given else next(found, field.default)
        value = default if value is msgspec.NODEFAULT else value
        if value is msgspec.NODEFAULT:
            raise AttributeError(f"nothing gives {kind.__name__}.{field.name}")
        if value is not msgspec.UNSET:
            values[field.encode_name] = None if value == "" else value
    return msgspec.convert(values, kind, from_attributes=True)


def as_json(document: object, indent: int = 2) -> str:
    """Return a document as text: sizes are Python expressions."""
    plain = msgspec.to_builtins(document, enc_hook=str)
    return json.dumps(plain, indent=indent, ensure_ascii=False) + "\n"  # keeps file names that are no UTF-8


def from_json(data: str | bytes, kind: type[T]) -> T:
    """Read a document; raises msgspec.DecodeError, or msgspec.ValidationError with the place at fault."""
    return msgspec.json.decode(data, type=kind, dec_hook=_size)


def schema_text(name: str) -> str:
    """Return the JSON Schema of one of the documents in `KINDS`."""
    module, _, kind = KINDS[name].rpartition(".")
    root = getattr(import_module(module), kind)
    (reference,), parts = msgspec.json.schema_components(
        [root], schema_hook=lambda _: SIZE, ref_template="#/$defs/{name}"
    )
    for part in parts.values():
        part["description"] = " ".join(cleandoc(part["description"]).split())
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:symalloc:{name}:1",
        "title": f"symalloc {name}, version 1",
        **reference,
        "$defs": parts,
    }
    return as_json(schema)


def _size(_: type, text: Any) -> Expr:
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no text")
    return parse_expr(text)

"""Reads the JSON of plans back, as far as plans are compared by it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from symalloc.errors import UsageError
from symalloc.planner.plan_diff.plan_record import FunctionRecord, TensorRecord
from symalloc.report.plan_json import VERSION
from symalloc.size.choice import maximum
from symalloc.size.expr import ZERO, Expr
from symalloc.size.parse import SizeSyntaxError, parse_expr


def is_plan_report(data: bytes) -> bool:
    """Return whether a file is the JSON of `symalloc plan`, and not that of a module."""
    if data.lstrip()[:1] != b"{":
        return False
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "version" in document and "functions" in document


def read_plan(name: str, data: str | bytes) -> tuple[FunctionRecord, ...]:
    """Return the plans in the JSON `data`; raises UsageError, which names `name`."""
    document = json.loads(data)
    if document["version"] != VERSION:
        raise UsageError(f"{name}: a plan report of version {document['version']!r}, only {VERSION} is known")
    try:
        found = tuple(_function(one) for one in document["functions"])
    except KeyError as error:
        raise UsageError(
            f"{name}: the plan report has no {error}; write it again with this symalloc"
        ) from None
    except (AttributeError, SizeSyntaxError, TypeError, ValueError) as error:
        raise UsageError(f"{name}: the plan report is not understood: {error}") from None
    twice = [one for one, count in Counter(record.name for record in found).items() if count > 1]
    if twice:
        raise UsageError(f"{name}: the plan report has several functions called `{twice[0]}`")
    return found


def _function(document: Mapping[str, Any]) -> FunctionRecord:
    held, reserved = document["held"], document["reserved"]
    return FunctionRecord(
        name=_text(document["function"]),
        sums={
            "call": None if held is None else _sums(held),
            "arenas": None if reserved is None else _sums(reserved),
            "floor": _floor([_sums(one["sums"]) for one in document["floor"]]),
            "results": _results(document["returned"]),
        },
        tensors=tuple(_tensors(document["arenas"])),
        guards=tuple(_text(guard["condition"]) for guard in document["guards"]),
        bounds={_text(name): _bounds(found) for name, found in document["bounds"].items()},
        signed=frozenset(map(_text, document["signed"])),
        samples=tuple(_binding(sample["binding"]) for sample in document["samples"]),
    )


def _tensors(arenas: Iterable[Mapping[str, Any]]) -> list[TensorRecord]:
    """Return the tensors of all arenas in the order of allocation."""
    buffers = sorted((buffer for arena in arenas for buffer in arena["buffers"]), key=lambda one: one["id"])
    return [
        TensorRecord(
            name=_text(one["name"]),
            operator=_text_or_none(one["operator"]),
            callee=_text_or_none(one["callee"]),
            size=parse_expr(one["bytes"]),
            offset=parse_expr(one["offset"]),
        )
        for one in buffers
    ]


def _results(sizes: Sequence[str | None]) -> tuple[Expr, ...] | None:
    known = [parse_expr(size) for size in sizes if size is not None]
    return (sum(known, start=ZERO),) if len(known) == len(sizes) else None


def _sums(texts: Sequence[str]) -> tuple[Expr, ...]:
    return tuple(map(parse_expr, texts))


def _floor(places: Sequence[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    """Return sums of which the floor of all devices and scopes is the largest."""
    if len(places) == 1:
        return places[0]
    return (sum((maximum(*sums) for sums in places if sums), start=ZERO),)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _binding(found: Mapping[str, Any]) -> dict[str, int]:
    return {name: _whole(value) for name, value in found.items()}


def _bounds(found: Sequence[Any]) -> tuple[int | None, int | None]:
    least, most = (None if bound is None else _whole(bound) for bound in found)
    return least, most

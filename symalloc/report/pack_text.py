"""Answers of `symalloc pack`: a table for a person, JSON, and MiniMalloc's CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from symalloc.planner.packing.pack_problem import Packing
from symalloc.report.quantities import columns
from symalloc.size.notation import PIECEWISE

HEADINGS = ("problem", "buffers", "worst", "mean", "proved", "seconds", "arena (bytes)")
LONGEST = 60  # characters of an arena's formula in the table


def packings_as_text(packings: Sequence[Packing]) -> str:
    """One row for each packing; ratios are arena over floor."""
    lines = columns([HEADINGS, *map(_row, packings)], left=(0, len(HEADINGS) - 1))
    return "".join(f"{line}\n" for line in lines)


def packing_as_document(packing: Packing) -> dict[str, object]:
    """The answer as JSON holds it; bytes are expressions in Python syntax."""
    return {
        "arena": packing.arena.text(PIECEWISE),
        "offsets": {id_: offset.text(PIECEWISE) for id_, offset in packing.offsets.items()},
        "ratios": [
            {"binding": dict(r.binding), "bytes": r.bytes, "floor": r.floor, "ratio": r.ratio}
            for r in packing.ratios
        ],
        "worst_ratio": packing.worst_ratio,
        "mean_ratio": packing.mean_ratio,
        "proved": True,  # what cannot be proved is refused before it comes here
        "seconds": round(packing.seconds, 6),
    }


def packings_as_json(packings: Sequence[Packing]) -> str:
    """One packing as an object; several as a list of objects, each with the problem's name in front."""
    documents = [packing_as_document(p) for p in packings]
    named = [{"name": p.problem.name, **d} for p, d in zip(packings, documents, strict=True)]
    return json.dumps(documents[0] if len(documents) == 1 else named, indent=1) + "\n"


def packing_as_csv(packing: Packing) -> str:
    """The problem's table with a column `offset`; a problem from JSON gets MiniMalloc's columns.

    Sizes must have no symbols: CSV holds numbers.
    """
    header, *rows = packing.problem.table or _table(packing)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*header, "offset"))
    for row in rows:
        writer.writerow((*row, packing.offsets[row[header.index("id")]]))
    return out.getvalue()


def overrun_text(packing: Packing, capacity: int) -> str:
    """Return in one line why `packing` does not fit `capacity` bytes."""
    point = packing.overrun or {}
    at = ", ".join(f"{name} = {value}" for name, value in sorted(point.items()))
    where = f" at {at}" if at else ""
    missing = packing.arena.symbols - point.keys()
    need = "may need more than it" if missing else f"needs {packing.arena.evaluate(point)} bytes{where}"
    return f"{packing.problem.name}: does not fit the capacity of {capacity} bytes: {need}"


def _row(packing: Packing) -> tuple[str, ...]:
    arena = packing.arena.text(PIECEWISE)
    return (
        packing.problem.name,
        str(len(packing.offsets)),
        f"{packing.worst_ratio:.4f}",
        f"{packing.mean_ratio:.4f}",
        "yes",
        f"{packing.seconds:.3f}",
        arena if len(arena) <= LONGEST else f"{arena[: LONGEST - 1]}…",
    )


def _table(packing: Packing) -> tuple[tuple[str, ...], ...]:
    rows = ((b.name, *map(str, (*b.live[0], b.size, b.alignment))) for b in packing.problem.buffers)
    return (("id", "lower", "upper", "size", "alignment"), *rows)

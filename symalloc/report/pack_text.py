"""Answers of `symalloc pack`: a table for a person, JSON, and MiniMalloc's CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, TypeAlias

import msgspec

from symalloc.planner.memory_plan import Buffer
from symalloc.planner.packing.packing_problem import FloorRatio, Packing
from symalloc.report.document import Document, about, as_json, record
from symalloc.report.quantities import at_binding, columns, cut

HEADINGS = ("problem", "buffers", "worst", "mean", "proved", "seconds", "arena (bytes)")
LONGEST = 60  # characters of an arena's formula in the table


def packings_as_text(packings: Sequence[Packing]) -> str:
    """One row for each packing; ratios are arena over floor."""
    lines = columns([HEADINGS, *map(_row, packings)], left=(0, len(HEADINGS) - 1))
    return "".join(f"{line}\n" for line in lines)


class PackDocument(Document, frozen=True, kw_only=True):
    """A packing; the arena and the offset of each buffer by its id are expressions in sympy's syntax.

    Of several problems there is a list of packings, each with the problem's name.
    """

    name: str | msgspec.UnsetType = msgspec.UNSET
    arena: str
    offsets: dict[str, str]
    ratios: tuple[FloorRatio, ...]
    worst_ratio: float
    mean_ratio: float
    proved: Annotated[bool, about("No two buffers that are live together overlap, at any values.")]
    seconds: float


PackDocuments: TypeAlias = PackDocument | list[PackDocument]


def packings_as_json(packings: Sequence[Packing]) -> str:
    """One packing as an object; several as a list of objects, each with the problem's name in front."""
    several = len(packings) > 1
    documents = [
        record(
            PackDocument,
            packing,
            name=packing.problem.name if several else msgspec.UNSET,
            arena=str(packing.arena._sympy_()),
            offsets={id_: str(offset._sympy_()) for id_, offset in packing.offsets.items()},
            proved=True,  # what cannot be proved is refused before it comes here
            seconds=round(packing.seconds, 6),
        )
        for packing in packings
    ]
    return as_json(documents if several else documents[0], indent=1)


def packing_as_csv(packing: Packing) -> str:
    """The problem's table with the offsets as its last column; a problem from JSON gets MiniMalloc's columns.

    Sizes must have no symbols: CSV holds numbers.
    """
    buffers = packing.problem.buffers
    header, *rows = packing.problem.table or (
        ("id", "lower", "upper", "size", "alignment", "gaps"),
        *(
            (b.name, str(b.live[0][0]), str(b.live[-1][1]), str(b.size), str(b.alignment), _gaps(b))
            for b in buffers
        ),
    )
    dropped = {"offset"} if any(len(b.live) > 1 for b in buffers) or packing.problem.table else {"gaps"}
    kept = [place for place, column in enumerate(header) if column not in dropped]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*(header[place] for place in kept), "offset"))
    for row, buffer in zip(rows, buffers, strict=True):
        writer.writerow((*(row[place] for place in kept), packing.offsets[buffer.name]))
    return out.getvalue()


def _gaps(buffer: Buffer) -> str:
    return " ".join(f"{end}-{begin}" for (_, end), (begin, _) in pairwise(buffer.live))


def overrun_text(packing: Packing, capacity: int) -> str:
    """Return in one line why `packing` does not fit `capacity` bytes."""
    point = packing.overrun or {}
    where = at_binding(dict(sorted(point.items())))
    missing = packing.arena.symbols - point.keys()
    need = "may need more than it" if missing else f"needs {packing.arena.evaluate(point)} bytes{where}"
    return f"{packing.problem.name}: does not fit the capacity of {capacity} bytes: {need}"


def _row(packing: Packing) -> tuple[str, ...]:
    return (
        packing.problem.name,
        str(len(packing.offsets)),
        f"{packing.worst_ratio:.4f}",
        f"{packing.mean_ratio:.4f}",
        "yes",
        f"{packing.seconds:.3f}",
        cut(str(packing.arena), LONGEST),
    )

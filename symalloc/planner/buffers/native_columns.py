"""The columns of a call for the native library, in flat arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from symalloc.native.flat_lists import lists_of, records_of
from symalloc.native.native_functions import arena_functions
from symalloc.planner.buffers.call_columns import CallColumns
from symalloc.planner.buffers.tenant import Tenant
from symalloc.program.control_flow import BlockNesting

if TYPE_CHECKING:
    from symalloc.native.native_functions import ColumnsObject

KEPT, LOOSE, GROUNDED, FIXED = 1, 2, 4, 8
LARGEST = 2**63 - 1  # bytes


def native_columns(columns: CallColumns) -> ColumnsObject | None:
    """Return the columns for the library, made once."""
    if columns.native is None:
        columns.native = _made(columns)
    return columns.native


def _made(columns: CallColumns) -> ColumnsObject:
    """Return the columns without what the library does not ask for."""
    straight, tenants = columns.straight, columns.tenants
    return arena_functions.columns(
        len(columns),
        straight,
        columns.all_known,
        columns.alike,
        columns.late,
        array("q", chain.from_iterable(_fields(columns))).tobytes(),
        records_of(columns.held, 3),
        records_of([] if columns.alike else [t.live for t in tenants], 2),
        records_of([] if straight else [list(_blocks(columns.nesting, t.made)) for t in tenants], 3),
        array("i", chain.from_iterable(_whole(columns, path) for path in columns.paths)).tobytes(),
        lists_of([() if straight else columns.steps[path] for path in columns.paths]),
    )


def _fields(columns: CallColumns) -> Iterator[Sequence[int]]:
    """Yield the columns and the points of allocations, the points of sizes, bytes where they are constant and
    at the least extents, and flags.
    """
    tenants = columns.tenants
    yield columns.made
    yield [t.made for t in tenants]
    if columns.all_known:  # and nobody asks for the rest
        yield from ([0] * len(tenants) for _ in range(3))
        yield [t.kept for t in tenants]
        return
    yield [t.known for t in tenants]
    yield [min(t.size.as_constant or 0, LARGEST) for t in tenants]
    yield [min(t.least, LARGEST - 1) for t in tenants]
    yield [_flags(t, loose=i in columns.loose) for i, t in enumerate(tenants)]


def _flags(tenant: Tenant, *, loose: bool) -> int:
    return KEPT * tenant.kept | LOOSE * loose | GROUNDED * tenant.grounded | FIXED * tenant.fixed


def _whole(columns: CallColumns, path: int) -> tuple[int, int, int]:
    return path, columns.offsets[path], columns.offsets[path + 1]


def _blocks(nesting: BlockNesting, point: int) -> Iterator[tuple[int, int, int]]:
    for branch, (begin, end) in nesting.around(point):
        yield branch, begin, end

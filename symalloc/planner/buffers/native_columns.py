"""The columns of a call for the native library, in flat arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from symalloc.native.flat_lists import lists_of, records_of
from symalloc.native.library import has_native
from symalloc.native.native_functions import arena_functions
from symalloc.planner.buffers.call_columns import CallColumns, Tenant
from symalloc.program.block_nesting import BlockNesting

if TYPE_CHECKING:
    from symalloc.native.native_functions import ColumnsObject

KEPT, LOOSE, GROUNDED, FIXED = 1, 2, 4, 8
LARGEST = 2**63 - 1  # bytes


def native_columns(columns: CallColumns) -> ColumnsObject | None:
    """Return the columns for the library, made once; None where that is missing."""
    if columns.native is None and has_native("symalloc.arenas.columns"):
        columns.native = _made(columns)
    return columns.native


def _made(columns: CallColumns) -> ColumnsObject:
    """Return the columns without what the library does not ask for."""
    straight, paths = columns.straight, columns.paths
    tenants = list(enumerate(columns.tenants))
    return arena_functions.columns(
        len(columns),
        straight,
        columns.all_known,
        columns.alike,
        columns.late,
        array("q", chain.from_iterable(_tenant(columns, i, t) for i, t in tenants)).tobytes(),
        records_of(columns.held),
        records_of([] if columns.alike else [t.live for _, t in tenants]),
        records_of([] if straight else [list(_blocks(columns.nesting, t.made)) for _, t in tenants]),
        array("i", paths).tobytes(),
        array("i", [columns.offsets[path] for path in paths]).tobytes(),
        lists_of([() if straight else columns.steps[path] for path in paths]),
    )


def _tenant(columns: CallColumns, i: int, tenant: Tenant) -> tuple[int, ...]:
    """The column and point of its allocation, the point of its size, bytes where that is constant and at the
    least extents, and flags.
    """
    kind = (
        KEPT * tenant.kept | LOOSE * (i in columns.loose) | GROUNDED * tenant.grounded | FIXED * tenant.fixed
    )
    constant = min(tenant.size.as_constant or 0, LARGEST)
    return columns.made[i], tenant.made, tenant.known, constant, min(tenant.least, LARGEST - 1), kind


def _blocks(nesting: BlockNesting, point: int) -> Iterator[tuple[int, int, int]]:
    for branch, (begin, end) in nesting.around(point):
        yield branch, begin, end

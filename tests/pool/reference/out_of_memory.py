"""The report on an allocation that does not fit; the native core says the same, word for word."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemoryReport:
    """The reason why a block does not fit under the limit, all free pages given back; sizes in bytes.

    `size` is that of the block, rounded up; `in_use` is held by blocks; `missing` is to be backed at the best
    place for the block, `piece` is the largest free piece within pages that are backed.
    """

    size: int
    limit: int
    in_use: int
    reserved: int
    missing: int
    piece: int

    def text(self) -> str:
        """The missing bytes, and on a second line a way to help."""
        spare = self.reserved - self.in_use
        text = (
            f"{_bytes(self.size)} do not fit under the limit of {self.limit}: {self.in_use} are in use, "
            f"{self.reserved} reserved"
        )
        if spare:
            text += (
                f", {spare} are free within pages that are in use, at most {self.piece} of them in one piece"
            )
        lacking = self.reserved + self.missing - self.limit
        help_ = f"raise the limit by {_bytes(lacking)}, or free as much, or run at smaller shapes"
        return f"{text}\n  help: {help_}"


def no_address_space(size: int, piece: int, capacity: int) -> str:
    """The message for `size` bytes in a range of `capacity`; `piece` is the largest free interval."""
    return (
        f"no {_bytes(size)} of address space are free in one piece: the largest has {_bytes(piece)} of "
        f"{capacity}\n  help: a larger capacity would help"
    )


def _bytes(count: int) -> str:
    return f"{count} byte" if count == 1 else f"{count} bytes"

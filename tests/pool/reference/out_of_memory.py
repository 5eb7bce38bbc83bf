"""The report on an allocation that does not fit; the native core says the same, word for word."""

from __future__ import annotations


def does_not_fit(*, size: int, limit: int, in_use: int, reserved: int, missing: int, piece: int) -> str:
    """The missing bytes of a block under the limit, all free pages given back, and on a second line a way to
    help; sizes in bytes.

    `size` is that of the block, rounded up; `in_use` is held by blocks; `missing` is to be backed at the best
    place for the block, `piece` is the largest free piece within pages that are backed.
    """
    text = f"{_bytes(size)} do not fit under the limit of {limit}: {in_use} are in use, {reserved} reserved"
    if spare := reserved - in_use:
        text += f", {spare} are free within pages that are in use, at most {piece} of them in one piece"
    lacking = _bytes(reserved + missing - limit)
    return f"{text}\n  help: raise the limit by {lacking}, or free as much, or run at smaller shapes"


def no_address_space(size: int, piece: int, capacity: int) -> str:
    """The message for `size` bytes in a range of `capacity`; `piece` is the largest free interval."""
    return (
        f"no {_bytes(size)} of address space are free in one piece: the largest has {_bytes(piece)} of "
        f"{capacity}\n  help: a larger capacity would help"
    )


def _bytes(count: int) -> str:
    return f"{count} byte" if count == 1 else f"{count} bytes"

"""Handles: what an allocation answers with."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, Self
from weakref import finalize

import numpy as np

from symalloc.arguments import shown
from symalloc.native.native_functions import pool_functions
from symalloc.pool.pool_errors import BoundsError, PoolUsageError

if TYPE_CHECKING:
    import numpy.typing as npt
    from numpy.typing import DTypeLike

    from symalloc.native.native_functions import PoolObject


class HandleOwner(Protocol):
    """A pool, as far as its handles use it; `NativePool` documents it."""

    object: PoolObject

    def free(self, handle: int) -> None:
        """Let go of a handle once; raises BadFreeError."""


class MemoryBytes:
    """Bytes of memory for NumPy; keeps their `owner`."""

    def __init__(self, pointer: int, nbytes: int, owner: object = None) -> None:
        self.owner = owner
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
        }


class BlockHandle(int):
    """A block of a pool; as an integer, the number by which the native core knows it.

        with pool.alloc(4096, tag="scratch") as block:
            use(block.pointer, block.nbytes)

    The end of the `with` frees it, and so does `free`.  Every use after that raises BadFreeError, which says
    that the block has been freed.  A handle that is dropped keeps its block: its pointer may be in use,
    and `leaks` of the pool shows it.
    """

    pool: HandleOwner

    def free(self) -> None:
        """Let go of the block once; raises BadFreeError where it has been freed."""
        self.pool.free(self)

    @property
    def pointer(self) -> int:
        """The machine address; raises BadFreeError."""
        return pool_functions.pointer(self.pool.object, self)

    @property
    def nbytes(self) -> int:
        """The bytes that were asked for; raises BadFreeError."""
        return int(pool_functions.held(self.pool.object, self)[0])

    @property
    def tag(self) -> str:
        """The tag that it was allocated with; raises BadFreeError."""
        return str(pool_functions.held(self.pool.object, self)[1])

    def view(self, dtype: DTypeLike = "uint8", shape: int | Sequence[int] | None = None) -> npt.NDArray[Any]:
        """An array of NumPy on the block's memory, by default of one axis over all of it.

        The array and all made from it hold the block once more: its memory is free again when they are gone,
        too.  Raises BadFreeError where the block has been freed, BoundsError where the array would be larger
        than the block, PoolUsageError for what is no dtype or shape.
        """
        kind = _dtype(dtype)
        nbytes = self.nbytes
        axes = (nbytes // kind.itemsize,) if shape is None else _axes(shape)
        if prod(axes) * kind.itemsize > nbytes:
            raise BoundsError(
                f"{prod(axes)} elements of {kind} need more than the {nbytes} bytes of the block"
            )
        held = MemoryBytes(self.pointer, nbytes)
        pool_functions.retain(self.pool.object, self)
        finalize(held, self.pool.free, int(self)).atexit = False
        memory = np.asarray(held)
        return memory[: prod(axes) * kind.itemsize].view(kind).reshape(axes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Free the block."""
        self.free()


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except Exception:  # NumPy raises several kinds
        raise PoolUsageError(f"{shown(dtype)} is no dtype of NumPy") from None
    if kind.hasobject or kind.itemsize == 0:
        raise PoolUsageError(f"memory of a pool holds no elements of {kind!r}")
    return kind


def _axes(shape: int | Sequence[int]) -> tuple[int, ...]:
    given: object = shape
    several = given if isinstance(given, Sequence) and not isinstance(given, str | bytes) else (given,)
    try:
        axes = tuple(map(index, several))
    except TypeError:
        raise PoolUsageError(f"a shape is a number of elements, or several, not {shown(shape)}") from None
    if min(axes, default=0) < 0:
        raise PoolUsageError(f"a shape has no negative extents, as {shape!r} does")
    return axes

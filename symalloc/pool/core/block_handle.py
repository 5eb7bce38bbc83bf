"""Handles: what an allocation answers with."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from symalloc.native.native_functions import pool_functions

if TYPE_CHECKING:
    from symalloc.native.native_functions import PoolObject


class HandleOwner(Protocol):
    """A pool, as far as its handles use it; `NativePool` documents it."""

    object: PoolObject

    def free(self, handle: int) -> None:
        """Let go of a handle once; raises BadFreeError."""


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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free the block."""
        self.free()

"""The pool's native core: real memory, any thread, the decisions of `policy.py`.

The library is part of an installed package.  Where it is missing, for want of a C++ compiler when symalloc
was installed, `NativeMissingError` says so; the policy and `symalloc replay` work without it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

import tvm_ffi

from symalloc.pool.calls import native_function, native_function_or_none
from symalloc.pool.counters import Statistics
from symalloc.pool.errors import (
    BadFreeError,
    BoundsError,
    OutOfMemoryError,
    OverrunError,
    PoolError,
    PoolUsageError,
)
from symalloc.pool.observed import Observed
from symalloc.pool.policy import ALIGNMENT, Options

__all__ = ["NativeMissingError", "NativePool", "installed_library", "load_library"]

LIBRARY = "libsymalloc_pool.so"


class NativeMissingError(PoolError, ImportError):
    """The native core is not installed, or cannot be loaded."""


def installed_library() -> Path | None:
    """Where the library lies in the installed package, if it does."""
    spec = find_spec("symalloc.pool")
    folders = spec.submodule_search_locations if spec is not None else None
    return next((f for folder in folders or () if (f := Path(folder) / LIBRARY).exists()), None)


@cache
def load_library(path: Path | None = None) -> None:
    """Loads the library at `path`, by default the installed one; raises NativeMissingError."""
    if path is None and native_function_or_none("create") is not None:
        return
    file = path or installed_library()
    if file is None:
        raise NativeMissingError(
            "the pool's native core is not installed: symalloc was installed without a C++ compiler; "
            "reinstall it with one"
        )
    try:
        ctypes.CDLL(str(file), ctypes.RTLD_LOCAL)
    except OSError as said:
        raise NativeMissingError(f"the pool's native core cannot be loaded: {said}") from None
    for error in (BadFreeError, BoundsError, OutOfMemoryError, OverrunError):
        tvm_ffi.register_error(error.__name__, error)


class Choices(TypedDict, total=False):
    """The fields of `Options`, one by one."""

    soft_limit: Fraction | int | None
    limit: int | None
    page: int
    apart: bool
    bin_largest: int
    bin_capacity: int
    capacity: int


class NativePool(Observed):
    """A pool of real memory on the CPU.  Thread-safe.

        pool = symalloc.Pool(limit=2**30)

    Blocks are named by handles, which are counted and know when they are stale.  `huge`: blocks of 2 MiB
    and more may lie on huge pages.  `guard`: every block has pages of its own, see `check`; that finds
    faults, and is slow.  `choices` are fields of `Options`, sizes in bytes; they go before those of
    `options`.

    Raises NativeMissingError where the native core is not installed, PoolUsageError for options that make
    no sense, OutOfMemoryError where there is no address space.
    """

    __slots__ = ("_address", "_free", "_pointer", "_statistics", "options")

    def __init__(
        self,
        options: Options | None = None,
        *,
        huge: bool = True,
        guard: bool = False,
        **choices: Unpack[Choices],
    ) -> None:
        load_library()
        self.options = replace(options or Options(), **choices)
        super().__init__(_create(self.options, huge, guard))
        self._alloc = _bound("alloc", self.object)
        self._free = _bound("free", self.object)
        self._empty = _bound("empty", self.object)
        self._address = native_function("address")
        self._pointer = native_function("pointer")
        self._statistics = native_function("statistics")

    def alloc(self, nbytes: int, align: int = ALIGNMENT, escapes: bool = False, tag: str = "") -> int:
        """A handle of `nbytes` bytes at a multiple of `align`, a power of two, held once; `tag` says what
        for.  Raises OutOfMemoryError, which names the tags that hold most.
        """
        handle: int  # parameters that are keywords only would cost more than the allocation
        if align == ALIGNMENT and not escapes and not tag:
            handle = self._alloc(nbytes)
            return handle
        if align < 1 or align & (align - 1):
            raise PoolUsageError(f"the alignment must be a power of two, not {align}")
        handle = self._alloc(nbytes, align, escapes, tag)
        return handle

    def free(self, handle: int) -> None:
        """Lets go of `handle` once; raises BadFreeError where it is stale, or of another pool."""
        self._free(handle)

    def retain(self, handle: int) -> None:
        """Holds `handle` once more; raises BadFreeError."""
        native_function("retain")(self.object, handle)

    def pointer(self, handle: int) -> int:
        """The machine address of the block; raises BadFreeError."""
        pointer: int = self._pointer(self.object, handle)
        return pointer

    def address(self, handle: int) -> int:
        """What `PagedPool.alloc` would have returned: range * capacity + offset; raises BadFreeError."""
        address: int = self._address(self.object, handle)
        return address

    def empty(self, shape: tuple[int, ...], dtype: str, tag: str = "") -> Any:
        """A tvm-ffi tensor (DLPack) of the pool's memory, which returns there with its last reference.

        `tag` is what guard mode calls it.  Raises OutOfMemoryError, BoundsError for a shape that cannot be.
        """
        if tag:
            return self._empty(_DTYPES[dtype], *shape, tag)
        return self._empty(_DTYPES[dtype], *shape)

    def check(self) -> None:
        """Raises OverrunError where memory beside a block was written, with a line for each such block.

        In guard mode a block ends in front of a protected page.  Where its size is no multiple of its
        alignment a few bytes stand between, with a pattern that is checked when the block is freed, and here.
        What is found when a tensor goes is said on the standard error stream, and raised by the next
        allocation or check.  A program that runs into a protected page, or uses a freed block, ends by
        SIGSEGV, having named the block and the byte on that stream.  In front of a block it is the same.
        Fresh memory is NaN in every floating type.  Blocks have no `address`.

        Without guard mode nothing is found.
        """
        damage = str(native_function("damage")(self.object))
        if damage:
            raise OverrunError(damage)

    def trim(self) -> int:
        """Gives every free page back, having emptied the bins of all threads; the bytes given back."""
        given: int = native_function("trim")(self.object)
        return given

    def statistics(self) -> Statistics:
        """What is counted of the pool, now."""
        return Statistics(**{str(name): int(count) for name, count in self._statistics(self.object).items()})

    @property
    def reserved(self) -> int:
        """Bytes of the pages backed now."""
        reserved: int = native_function("reserved")(self.object)
        return reserved


class _Dtypes(dict[str, Any]):
    """The dtypes of tvm-ffi by name, each made once."""

    def __missing__(self, name: str) -> Any:
        self[name] = tvm_ffi.dtype(name)
        return self[name]


_DTYPES = _Dtypes()


def _bound(name: str, native: Any) -> Callable[..., Any]:
    """The function of that name for one pool.  It runs too briefly to let go of Python's lock meanwhile."""
    function = native_function(f"bind_{name}")(native)
    function.release_gil = False
    return cast(Callable[..., Any], function)


def _create(options: Options, huge: bool, guard: bool) -> Any:
    soft = options.soft_limit
    numerator, denominator = (
        (-1, 1) if soft is None else soft.as_integer_ratio() if isinstance(soft, Fraction) else (soft, 0)
    )
    return native_function("create")(
        numerator,
        denominator,
        -1 if options.limit is None else options.limit,
        options.page,
        options.bin_largest,
        options.bin_capacity,
        options.capacity,
        options.apart,
        huge,
        guard,
    )

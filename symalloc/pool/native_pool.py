"""The pool of real memory on the CPU, for any thread."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import count
from math import inf, prod
from operator import index
from threading import main_thread
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypedDict, TypeVar, Unpack
from weakref import WeakValueDictionary, finalize, ref

import numpy as np
import tvm_ffi

from symalloc.errors import meant, require_bytes, require_flag, shown
from symalloc.native.native_functions import pool_functions
from symalloc.pool.pool_errors import (
    BadFreeError,
    BoundsError,
    OutOfMemoryError,
    OverrunError,
    PoolError,
    PoolUsageError,
    checked,
)
from symalloc.pool.pool_options import ALIGNMENT, PoolOptions, read_seconds, require_name

if TYPE_CHECKING:
    import numpy.typing as npt
    from numpy.typing import DTypeLike

    from symalloc.native.native_functions import NativeDtype, NativeTensor, PoolObject


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """A pool at one moment; sizes in bytes.

    `live` bytes were asked for and not freed; `used` were handed out by the range, rounded up, to callers
    or to the caches of `threads` threads; `reserved` bytes are backed by pages.  `peak_used` and
    `peak_reserved` are the most of them at a time.  `committed` and `decommitted` are the bytes of `commits`
    and `decommits` operations.  `refused` counts allocations that failed.
    """

    live: int
    allocs: int
    frees: int
    used: int
    peak_used: int
    reserved: int
    peak_reserved: int
    commits: int
    committed: int
    decommits: int
    decommitted: int
    threads: int
    refused: int = 0


P = ParamSpec("P")
Answer = TypeVar("Answer")

_NO_TAG = ""  # the one empty text that there is; another one would take the way of tags
# by id; without a lock, which a fork or a signal may find taken
_living: WeakValueDictionary[int, NativePool] = WeakValueDictionary()


class OptionFields(TypedDict, total=False):
    """The fields of `PoolOptions`, one by one."""

    soft_limit: Fraction | float | str | None
    limit: float | str | None
    page: float | str
    bin_largest: float | str
    bin_capacity: float | str
    capacity: float | str | None
    decay: float | None


class NativePool:
    """A pool of real memory on the CPU.  Thread-safe.

        pool = symalloc.Pool("1GiB")

    Blocks are named by handles, which are counted and known to be stale once freed.  `huge`: blocks of 2 MiB
    and more may lie on huge pages.  `guard`: every block has pages of its own, see `check`; that finds
    faults, and is slow.  `options` is a limit (bytes, or text), or PoolOptions; `fields` are fields of
    those, sizes in bytes, and override them.  The attribute `options` holds what the system has granted:
    without a limit the memory that the process can have (of the machine, its control group, RLIMIT_DATA),
    the address space of a range, and pages of at least the system's.

    An allocation that does not fit waits up to `wait` seconds for memory, those of virtual machines too,
    before it fails; `alloc` says more.

    The pool lives as long as this object, the virtual machines that were given it, and its blocks.

    Raises NativeMissingError where the native library is not installed, PoolUsageError for options that make
    no sense, OutOfMemoryError where there is no address space.
    """

    __slots__ = ("__weakref__", "_alloc", "_callbacks", "_empty", "_free", "_use", "object", "options")

    def __init__(
        self,
        options: PoolOptions | float | str | None = None,
        *,
        huge: bool = True,
        guard: bool = False,
        wait: float = 0,
        **fields: Unpack[OptionFields],
    ) -> None:
        _load()
        wanted = _with_fields(options, fields)
        for name, flag in (("huge", huge), ("guard", guard)):
            checked(require_flag, name, flag)
        patience = _nanoseconds("wait", wait)
        self.object = _create(wanted, huge, guard, patience)
        capacity, page, limit = pool_functions.granted(self.object)
        self.options = replace(wanted, capacity=capacity, page=page, limit=limit)
        self._callbacks = CallbackTable()
        self._use: object = pool_functions.use(self.object)
        self._alloc = pool_functions.bind_alloc(self.object)
        self._free = pool_functions.bind_free(self.object)
        self._empty = pool_functions.bind_empty(self.object)
        for function in (self._alloc, self._free, self._empty):
            # most run too briefly; who waits lets others go on
            function.release_gil = patience > 0 and function is not self._free
        _living[id(self)] = self

    def alloc(
        self, nbytes: int, align: int = ALIGNMENT, tag: str = "", timeout: float | None = None
    ) -> BlockHandle:
        """Allocate `nbytes` bytes at a multiple of `align`, a power of two, and return a handle, held once.

        `tag` says what the block is for.  Where it does not fit, and `on_oom` does not help, the allocation
        waits up to `timeout` seconds until others free memory, by default as long as the pool's `wait`.
        Those that wait are served in the order of their arrival.  What fits at once passes them, until the
        first has waited for half its time.  At the end of its time each tries once more, whoever is in
        front.  Python's lock is free meanwhile, and Ctrl-C ends the wait.

        Raises OutOfMemoryError, which names the tags that hold most and how long it has waited, and
        PoolUsageError for arguments that make no sense, or where the pool is closed meanwhile.
        """
        # keyword-only parameters would cost more than the allocation, and so would a look at each of them
        try:
            if timeout is not None:
                ns = _nanoseconds("timeout", timeout)
                _require_tag(tag)
                self._require_open()
                number = pool_functions.alloc_waiting(self.object, ns, nbytes, align, tag)
            elif align == ALIGNMENT and tag is _NO_TAG:
                number = self._alloc(nbytes)
            else:
                _require_tag(tag)
                number = self._alloc(nbytes, align, tag)
        except (TypeError, ValueError) as error:
            raise _as_usage(error) from None
        handle = BlockHandle(number)
        handle.pool = self
        return handle

    def free(self, handle: int) -> None:
        """Let go of `handle` once; raises BadFreeError where it is stale, or of another pool."""
        try:
            self._free(handle)
        except (TypeError, UnicodeError):
            what = f"what `alloc` answers with names a block; {shown(handle)} does not"
            raise BadFreeError(what) from None

    def empty(
        self, shape: Sequence[int], dtype: str, tag: str = "", timeout: float | None = None
    ) -> NativeTensor:
        """A tvm-ffi tensor (DLPack) of the pool's memory, which returns there with its last reference.

        `tag` names it in errors and reports; `timeout` is as for `alloc`.  Raises OutOfMemoryError,
        BoundsError for an impossible shape, PoolUsageError for what is no shape or dtype.
        """
        try:
            if timeout is None and tag is _NO_TAG:
                if type(shape) is tuple and shape and not isinstance(shape[-1], str):  # which would be a tag
                    # unpacking behind another argument makes a list first
                    arguments: tuple[Any, ...] = (_DTYPES[dtype],)
                    return self._empty(*(arguments + shape))
                return self._empty(_DTYPES[dtype], *_extents(shape))
            _require_tag(tag)  # an integer would be an extent
            if timeout is None:
                return self._empty(_DTYPES[dtype], *_extents(shape), tag)
            ns = _nanoseconds("timeout", timeout)
            self._require_open()
            return pool_functions.empty_waiting(self.object, ns, _DTYPES[dtype], *_extents(shape), tag)
        except (TypeError, ValueError) as error:
            raise _as_usage(error, "a tensor has a shape, a dtype and perhaps a tag: ") from None

    def check(self) -> None:
        """Raise OverrunError where memory beside a block was written, with a line for each such block.

        In guard mode a block ends in front of a protected page.  Where its size is no multiple of its
        alignment a few bytes stand between, with a pattern that is checked when the block is freed, and here.
        Damage found when a tensor goes is printed to the standard error stream, and raised by the next
        allocation or check.  A program that runs into a protected page, or uses a freed block, ends by
        SIGSEGV, having named the block and the byte on that stream.  In front of a block it is the same.
        Fresh memory is NaN in every floating type.  Blocks have no `address`.

        Without guard mode nothing is found.
        """
        damage = str(pool_functions.damage(self.object))
        if damage:
            raise OverrunError(damage)

    def trim(self, *, max_seconds: float | None = None) -> int:
        """Empty the caches of all threads and give every free page back; return the bytes given back.

        Other threads go on meanwhile: an allocation waits for a few mebibytes at most.  With `max_seconds` it
        stops once that time has passed; the highest pages go first, at least a few mebibytes of them.
        """
        seconds = inf if max_seconds is None else read_seconds("max_seconds", max_seconds)
        return pool_functions.trim(self.object, seconds)

    def statistics(self) -> PoolStatistics:
        """The counters of the pool, now."""
        counters = pool_functions.statistics(self.object)
        return PoolStatistics(**{str(name): int(count) for name, count in counters.items()})

    def _require_open(self) -> None:
        if self.closed:
            raise PoolUsageError("the pool is closed")

    @property
    def closed(self) -> bool:
        """True once the pool has been closed."""
        return self._use is None

    @property
    def reserved(self) -> int:
        """Bytes of the pages backed now."""
        return self.statistics().reserved


def living_pools() -> tuple[NativePool, ...]:
    """All native pools of this process that are referred to, in no order."""
    return tuple(pool for known in _living.valuerefs() if (pool := known()) is not None)


def _nanoseconds(name: str, seconds: object) -> int:
    return int(read_seconds(name, seconds) * 10**9)


def _require_tag(tag: object) -> None:
    require_name(tag, "a tag")


def _extents(shape: Sequence[int]) -> Sequence[int]:
    """`shape`, where it is a sequence of whole numbers: the native core takes a text for a tag."""
    if isinstance(shape, str | bytes) or not isinstance(shape, Sequence):
        raise PoolUsageError(f"a shape is a tuple of extents, not {shown(shape)}")
    if any(isinstance(extent, str) for extent in shape):
        raise PoolUsageError(f"an extent is an integer, and {shown(shape)} has others")
    return shape


def _as_usage(error: Exception, where: str = "") -> Exception:
    """PoolUsageError with what Python or tvm-ffi says of an argument; errors of the pool as they are."""
    return error if isinstance(error, PoolError) else PoolUsageError(f"{where}{error}")


class _Dtypes(dict[str, "NativeDtype"]):
    """The dtypes of tvm-ffi by name, each made once."""

    def __missing__(self, name: str) -> NativeDtype:
        try:
            found = tvm_ffi.dtype(name)
        except Exception:  # tvm-ffi raises several kinds
            found = None
        if found is None or found.bits == 0:
            raise PoolUsageError(f"{shown(name)} is no dtype, such as float32, int8 or bool")
        self[name] = found
        return found  # type: ignore[no-any-return]


_DTYPES = _Dtypes()


@cache
def _load() -> None:
    pool_functions.trim.release_gil = True
    pool_functions.set_main_thread(main_thread().ident or 0)
    for error in (
        BadFreeError,
        BoundsError,
        OutOfMemoryError,
        OverrunError,
        PoolUsageError,
        CallbackInterruptError,
    ):
        tvm_ffi.register_error(error.__name__, error)
    tvm_ffi.register_global_func("symalloc.pool.deliver_interrupt", deliver_interrupt)


def _with_fields(options: PoolOptions | float | str | None, fields: OptionFields) -> PoolOptions:
    if isinstance(options, str | int | float):
        if "limit" in fields:
            raise PoolUsageError(f"two limits are given: {options!r}, and `limit={fields['limit']!r}`")
        options, fields = None, {"limit": options, **fields}
    if options is not None and not isinstance(options, PoolOptions):
        raise PoolUsageError(
            f"the options of a pool are a limit, PoolOptions, or keywords, not {shown(options)}"
        )
    known = sorted(OptionFields.__annotations__)
    for name in fields:
        if name not in known:
            raise PoolUsageError(f"a pool has no option `{name}`{meant(name, known)}")
    return replace(options or PoolOptions(), **fields)  # type: ignore[arg-type]  # it reads them


def _create(options: PoolOptions, huge: bool, guard: bool, wait: int) -> PoolObject:
    soft = options.soft_limit
    numerator, denominator = (
        (-1, 1) if soft is None else soft.as_integer_ratio() if isinstance(soft, Fraction) else (soft, 0)
    )
    return pool_functions.create(
        numerator,
        denominator,
        -1 if options.limit is None else options.limit,
        options.page,
        options.bin_largest,
        options.bin_capacity,
        options.capacity or 0,
        huge,
        guard,
        wait,
        options.decay or 0.0,
    )


# -- handles: what an allocation answers with ---------------------------------------------------------------


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

    pool: NativePool

    def free(self) -> None:
        """Let go of the block once; raises BadFreeError where it has been freed."""
        self.pool.free(self)

    @property
    def pointer(self) -> int:
        """The machine address; raises BadFreeError."""
        return pool_functions.pointer(self.pool.object, self)

    @property
    def address(self) -> int:
        """The offset in the pool's address space; raises BadFreeError."""
        return pool_functions.address(self.pool.object, self)

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


# -- callbacks that live as long as the Python object of their pool ----------------------------------------


OOM = 0  # the number of the callback for want of memory


class CallbackTable:
    """The callbacks of one pool.

    Native code gets a function that finds them here and does not keep them: what a callback refers to, its
    own pool too, is then seen by Python's garbage collector.
    """

    __slots__ = ("__weakref__", "_callbacks", "_numbers")

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[..., Any]] = {}
        self._numbers = count(1)

    def add(
        self, callback: Callable[..., Any], otherwise: object, number: int | None = None
    ) -> tuple[int, Callable[..., Any]]:
        """Keep `callback`, in place of what had its number; the number, and the function that calls it.
        Once it is gone, that answers `otherwise`.
        """
        table = ref(self)
        key = next(self._numbers) if number is None else number
        self._callbacks[key] = callback

        def call(*arguments: object) -> object:
            here = table()
            found = None if here is None else here._callbacks.get(key)
            return otherwise if found is None else found(*arguments)

        return key, call

    def remove(self, number: int) -> None:
        """Let go of a callback, if it is there."""
        self._callbacks.pop(number, None)

    def clear(self) -> None:
        """Let go of all."""
        self._callbacks.clear()


# -- what is no Exception, such as KeyboardInterrupt, carried from a callback through native code ----------


_carried: dict[str, BaseException] = {}
_tickets = count(1)


class CallbackInterruptError(Exception):
    """The carrier that tvm-ffi takes in place of an error that it does not know, and turns back into it.

    Native code sees the name of this class and a ticket.  Called with the ticket, the class makes the error
    that was handed in.
    """

    def __new__(cls, ticket: str) -> BaseException:  # type: ignore[misc]
        """The error that was handed in for `ticket`."""
        return _carried.pop(ticket)

    @classmethod
    def carry(cls, error: BaseException) -> CallbackInterruptError:
        """Hand `error` in."""
        ticket = str(next(_tickets))
        _carried[ticket] = error
        carrier = Exception.__new__(cls, ticket)
        carrier.args = (ticket,)
        return carrier


def deliver_interrupt(ticket: str) -> bool:
    """Take what was handed in for `ticket` where it cannot be raised: native code is in a destructor.

    True where it is KeyboardInterrupt: native code has it come in the main thread then, as if Ctrl-C had been
    pressed now.  Anything else is printed.
    """
    error = _carried.pop(ticket)
    if isinstance(error, KeyboardInterrupt):
        return True
    print("symalloc: a callback that the end of a tensor has called raised:", file=sys.stderr)
    traceback.print_exception(error)
    return False


def carrying_interrupts(callback: Callable[P, Answer]) -> Callable[P, Answer]:
    """`callback`, but what it raises beside Exceptions comes out of the native call that has called it."""

    def call(*args: P.args, **named: P.kwargs) -> Answer:
        try:
            return callback(*args, **named)
        except Exception:
            raise
        except BaseException as error:
            raise CallbackInterruptError.carry(error) from None

    return call


# -- a buffer of one address -------------------------------------------------------------------------------


PAGE = 4096


class ReservedBuffer:
    """Addresses for `most` bytes, and pages for as many as were asked for last, for one call at a time.

        buffer = symalloc.ReservedBuffer("1GiB")
        result = machine["main"](x, buffer.tensor(machine["main_bytes"](shape)))

    It is a pool with one block.  Tensors of it keep the addresses; one of before that is larger than the last
    reads 0 past its end.  Raises PoolUsageError for what is no number of bytes, OutOfMemoryError where there
    is no address space.
    """

    def __init__(self, most: float | str) -> None:
        self.most = checked(require_bytes, "most", most, least=1)
        self.nbytes = 0
        room = -(-self.most // PAGE) * PAGE
        self._pool = NativePool(
            capacity=room, limit=room, page=PAGE, soft_limit=None, bin_capacity=0, huge=False
        )
        self._block = self._pool.alloc(1)
        self.address = self._block.pointer

    def __repr__(self) -> str:
        return f"<ReservedBuffer: {self.nbytes} of {self.most} bytes at {self.address:#x}>"

    @property
    def reserved(self) -> int:
        """The bytes of its pages."""
        return self._pool.reserved

    def tensor(self, nbytes: int) -> NativeTensor:
        """A tensor of `nbytes` bytes, uint8 of one axis, at the address; pages behind it are given back.

        Raises BoundsError for more bytes than there are addresses for.
        """
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
            raise PoolUsageError(f"nbytes is {shown(nbytes)}; it must be a number of bytes")
        if nbytes > self.most:
            raise BoundsError(f"{nbytes} bytes do not fit into a buffer of at most {self.most}")
        if nbytes != self.nbytes:
            self._block.free()
            self._block = self._pool.alloc(max(nbytes, 1))
            if nbytes < self.nbytes:
                self._pool.trim()
            self.nbytes = nbytes
        made: NativeTensor = tvm_ffi.from_dlpack(np.asarray(MemoryBytes(self.address, nbytes, self)))
        return made

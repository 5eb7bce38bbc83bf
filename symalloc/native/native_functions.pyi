"""Types of the functions that native/bindings registers with tvm-ffi.  Sizes are bytes.

A test compares their names with the library's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, overload

class NativeTensor(Protocol):
    """A tensor of tvm-ffi."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __dlpack__(self, *, stream: None = None) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class NativeDtype:
    """A DLPack dtype of tvm-ffi."""

class PoolObject:
    """A pool, `symalloc.Pool` of tvm-ffi; lives as long as something refers to it."""

class SessionObject:
    """A session of a pool, `symalloc.Session` of tvm-ffi."""

class Module(Protocol):
    """A module of tvm-ffi, such as a virtual machine."""

class SearchObject:
    """An exact search, `symalloc.packer.Search` of tvm-ffi."""

class FirstFitObject:
    """Buffers that are put one after the other, `symalloc.packer.FirstFit` of tvm-ffi."""

class GraphObject:
    """An interference graph of buffers, `symalloc.packer.Graph` of tvm-ffi."""

class BoundAlloc(Protocol):
    """`alloc` of one pool: a handle; raises OutOfMemoryError."""

    release_gil: bool
    @overload
    def __call__(self, nbytes: int, /) -> int: ...
    @overload
    def __call__(self, nbytes: int, align: int, tag: str, /) -> int: ...

class BoundFree(Protocol):
    """`free` of one pool; raises BadFreeError."""

    release_gil: bool
    def __call__(self, handle: int, /) -> None: ...

class BoundEmpty(Protocol):
    """`empty` of one pool: extents, and a tag in the end or none; raises OutOfMemoryError, BoundsError."""

    release_gil: bool
    def __call__(self, dtype: NativeDtype, /, *extents_and_tag: int | str) -> NativeTensor: ...

class _Trim(Protocol):
    """Gives free pages back, until a number of seconds has passed; the bytes."""

    release_gil: bool
    def __call__(self, pool: PoolObject, max_seconds: float, /) -> int: ...

class _PoolFunctions:
    def set_main_thread(self, thread: int, /) -> None:
        """Say which thread handles signals, by its `ident`."""

    def create(
        self,
        soft_numerator: int,
        soft_denominator: int,
        limit: int,
        page: int,
        bin_largest: int,
        bin_capacity: int,
        capacity: int,
        huge: bool,
        guard: bool,
        wait: int,
        decay: float,
        /,
    ) -> PoolObject: ...
    def bind_alloc(self, pool: PoolObject, /) -> BoundAlloc: ...
    def bind_free(self, pool: PoolObject, /) -> BoundFree: ...
    def bind_empty(self, pool: PoolObject, /) -> BoundEmpty: ...
    def alloc_waiting(self, pool: PoolObject, wait: int, nbytes: int, align: int, tag: str, /) -> int:
        """As BoundAlloc, having waited for memory up to `wait` ns."""

    def empty_waiting(
        self, pool: PoolObject, wait: int, dtype: NativeDtype, /, *extents_and_tag: int | str
    ) -> NativeTensor: ...
    def end_waits(self, pool: PoolObject, /) -> None: ...
    def open_session(self, pool: PoolObject, name: str, limit: int, paged: bool, /) -> SessionObject: ...
    def enter_session(self, session: SessionObject, /) -> None: ...
    def leave_session(self, session: SessionObject, /) -> None: ...
    def set_session_limit(self, session: SessionObject, limit: int, /) -> None: ...
    def read_session(self, session: SessionObject, /) -> Sequence[int]:
        """Limit (-1: none), live, peak live, allocs, frees, refused."""

    def session_holdings(self, session: SessionObject, /) -> Sequence[int | str]:
        """Tag, blocks and bytes, one tag after the other."""

    def retain(self, pool: PoolObject, handle: int, /) -> None: ...
    def address(self, pool: PoolObject, handle: int, /) -> int: ...
    def pointer(self, pool: PoolObject, handle: int, /) -> int: ...
    def held(self, pool: PoolObject, handle: int, /) -> Sequence[str | int]:
        """Bytes and tag of a block; raises BadFreeError."""

    @property
    def trim(self) -> _Trim: ...
    def decay_at(self, pool: PoolObject, now: float, /) -> int:
        """What the pool's background thread does at a time in seconds; the bytes given back."""

    def damage(self, pool: PoolObject, /) -> str: ...
    def statistics(self, pool: PoolObject, /) -> Mapping[str, int]: ...
    def holders(self, pool: PoolObject, /) -> Sequence[str | int]:
        """Tag, address and bytes of one block after the other."""

    def layout(self, pool: PoolObject, /) -> bytes:
        """int64: for each range two counts, then start and end of free intervals and of backed runs."""

    def record(self, pool: PoolObject, most: int, /) -> None:
        """The events that are kept; 0: nothing is recorded any more."""

    def recorded(self, pool: PoolObject, /) -> Sequence[bytes | int | str]:
        """Events, six int64 each; how many were dropped; then block and tag, one pair after the other."""

    def begin_call(self, pool: PoolObject, /) -> int: ...
    def end_call(self, pool: PoolObject, call: int, /) -> None: ...
    def open_scope(self, pool: PoolObject, /) -> int: ...
    def read_scope(self, pool: PoolObject, scope: int, /) -> Sequence[int | str]:
        """Four figures, then a tag and six figures for each tag."""

    def close_scope(self, pool: PoolObject, scope: int, /) -> None: ...
    def reset_peak(self, pool: PoolObject, /) -> None: ...
    def limit(self, pool: PoolObject, /) -> int:
        """Bytes; -1: none."""

    def set_limit(self, pool: PoolObject, limit: int, /) -> None: ...
    def add_watermark(
        self, pool: PoolObject, high: bool, at: int, rearm: int, callback: Callable[[int], object], /
    ) -> int: ...
    def remove_watermark(self, pool: PoolObject, number: int, /) -> None: ...
    def on_oom(
        self, pool: PoolObject, callback: Callable[[int, int, str], bool], retries: int, /
    ) -> None: ...
    def clear_on_oom(self, pool: PoolObject, /) -> None: ...
    def clear_callbacks(self, pool: PoolObject, /) -> None: ...
    def granted(self, pool: PoolObject, /) -> Sequence[int]:
        """Capacity of a range, page, limit."""

    def use(self, pool: PoolObject, /) -> Module:
        """Counts among the users of the pool, which is closed when the last one goes."""

    def vm_type(self, pool: PoolObject, /) -> int: ...
    def keep_pool(self, machine: Module, pool: PoolObject, /) -> None: ...
    def storage_fault(self, storage: object, vm_type: int, nbytes: int, /) -> str: ...
    def reserved_for(self, storage: object, /) -> int: ...

class _PackerFunctions:
    def create(
        self,
        capacity: int,
        sizes: bytes,
        alignments: bytes,
        lowest: bytes,
        highest: bytes,
        cliques: bytes,
        members: bytes,
        neighbours: bytes,
        /,
    ) -> SearchObject:
        """The first four are int64, one for each buffer, in units; the others int32: the number of lists,
        where each list starts, where the last one ends, all items.
        """

    def begin(self, search: SearchObject, priorities: bytes, rule: int, share: float, /) -> None: ...
    def go(self, search: SearchObject, steps: int, /) -> int: ...
    def steps(self, search: SearchObject, /) -> int: ...
    def offsets(self, search: SearchObject, /) -> bytes: ...
    def first_fit(self, sizes: bytes, alignments: bytes, lives: bytes, /) -> FirstFitObject:
        """The first two are int64; `lives` lists as for `create`: begin and end of one interval after the
        other.
        """

    def lay(self, first_fit: FirstFitObject, buffer: int, offset: int, /) -> None: ...
    def put(self, first_fit: FirstFitObject, order: bytes, smallest: bool, /) -> bytes:
        """`order` is int32; the answer int64: how many were looked at so far, and the offset of each."""

    def graph(self, neighbours: bytes, begins: bytes, ends: bytes, /) -> GraphObject:
        """Lists as for `create`: the neighbours of each buffer, and what begins and ends to live at each
        position where something does.
        """

    def place(self, graph: GraphObject, order: bytes, sizes: bytes, best_fit: bool, /) -> bytes:
        """`order` is int32, `sizes` and the offsets int64."""

    def pile(
        self, graph: GraphObject, order: bytes, kinds: bytes, values: bytes, points: int, /
    ) -> Sequence[bytes]:
        """`order` and `kinds` are int32, `values` a row of float64 for each kind.  First int32: on how many
        buffers each lies, and on which; then the height at each of `points`, float64.
        """

    def improve(
        self,
        graph: GraphObject,
        order: bytes,
        columns: bytes,
        target: float,
        steps: int,
        seed: int,
        once: int,
        left: float,
        /,
    ) -> bytes:
        """`order` is int32, `columns` a float64 for each buffer at one point after the other; the answer
        int64: the steps taken, the work, an order.
        """

    def strips(
        self,
        begins: bytes,
        ends: bytes,
        allowed: bytes,
        kinds: bytes,
        sizes: bytes,
        rooms: bytes,
        untils: bytes,
        heights: bytes,
        fixed: bytes,
        weights: bytes,
        most: int,
        /,
    ) -> bytes:
        """Bytes are float64, a column for each binding; all else is int32.  The strip of each buffer, or
        nothing: see native/packer/strips.h.
        """

pool_functions: _PoolFunctions
packer_functions: _PackerFunctions

class _Unpack(Protocol):
    """Calls a function of tvm-ffi with the elements of an array."""

    release_gil: bool
    def __call__(self, function: object, array: object, /) -> None: ...

class _ArrayFunctions:
    @property
    def unpack(self) -> _Unpack: ...

array_functions: _ArrayFunctions

def lists_of(lists: Sequence[Sequence[int]]) -> bytes: ...

"""Two parameters of a kernel in one memory: whether an element is overwritten that is still to be read.

What a kernel does to each is told by its loads and stores: where they lie, and which is executed first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, TypeAlias

from symalloc.analysis.call_expansion import arguments_of, bind_kernel
from symalloc.program.ir import CallKernel, CallTIR, Kernel, KernelAccess, KernelBuffer, KernelLoop
from symalloc.size.condition import Condition, conjunction, eq, lt, negate
from symalloc.size.expr import ZERO, Expr, symbol

Conditions: TypeAlias = tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelArgument:
    """A tensor handed to a kernel as its parameter number `position`.

    It lies `offset` bytes behind the start of a root that both arguments lie in; `shape` are its extents,
    `itemsize` the bytes of an element.
    """

    position: int
    offset: Expr
    shape: tuple[Expr, ...]
    itemsize: int


def is_known(kernel: Kernel, position: int, kind: Literal["load", "store"]) -> bool:
    """True if the body of a kernel loads from its parameter number `position`, or stores to it.

    A bare pointer, and a buffer whose pointer is handed on, count as read and written, and may be neither.
    """
    parameter = kernel.parameters[position]
    if not isinstance(parameter, KernelBuffer) or parameter.dtype is None:
        return False
    if not kernel.accesses:
        return parameter.reads if kind == "load" else parameter.writes
    own = (a for a in kernel.accesses if a.parameter == position and a.kind == kind)
    return any(access.exact or any(index is not None for index in access.indices) for access in own)


def symbol_values(kernel: Kernel, call: CallKernel | CallTIR) -> Mapping[str, Expr]:
    """The values of the kernel's symbols at a call; those that nothing binds stand for themselves."""
    free = frozenset[str]().union(
        *(c.symbols for access in kernel.accesses for c in access.domain),
        *(i.symbols for access in kernel.accesses for i in access.indices if i is not None),
    )
    return {**{name: symbol(f"{name}'") for name in free}, **bind_kernel(kernel, arguments_of(call))}


def clashes(
    kernel: Kernel,
    bound: Mapping[str, Expr],
    first: KernelArgument,
    second: KernelArgument,
    others: Sequence[KernelArgument] = (),
) -> Iterator[Conditions]:
    """Sets of conditions, over loop counters, too: where one can hold, the kernel loses content.

    Either one of the arguments is stored to before the other is loaded from at the same place, or both are
    stored to there.  `bound` are the values of the kernel's symbols.  An index that is not known may be any,
    and what is done to an argument that no access names may be anything.  `others` lie in the same root.
    """
    arguments = {first.position: first, second.position: second}
    numbered = [(n, a) for n, a in enumerate(kernel.accesses) if a.parameter in arguments]
    if {a.parameter for _, a in numbered} != arguments.keys():
        yield ()
    pairs = _Pairs(bound, arguments, {one.position: one for one in (*others, first, second)})
    for number, store in numbered:
        for later, access in numbered:
            if store.kind == "store" and access.parameter != store.parameter:
                if access.kind == "load":
                    yield from pairs.ordered(store, access, store_first=number < later)
                elif access.kind == "store" and number < later:
                    yield pairs.at_one_place(store, access)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of an access that comes first and one that comes later, whose loops count apart."""

    bound: Mapping[str, Expr]
    arguments: Mapping[int, KernelArgument]
    placed: Mapping[int, KernelArgument]

    def ordered(self, store: KernelAccess, load: KernelAccess, *, store_first: bool) -> Iterator[Conditions]:
        """The ways in which `store` may be executed before `load`; `store_first` within one pass."""
        alike: Conditions = ()
        place = (*self.at_one_place(store, load), *self.changes(store))
        pairs = zip(store.loops, load.loops, strict=False)
        for loop, _ in takewhile(lambda pair: pair[0].symbol == pair[1].symbol, pairs):  # around both
            before, after = (_counter(loop, later=later) for later in (False, True))
            one_pass = eq(before, after)
            if one_pass not in place:
                yield (*place, *alike, lt(before, after))
                if loop.parallel:
                    yield (*place, *alike, lt(after, before))
            alike = (*alike, one_pass)
        if store_first:
            yield (*place, *alike)

    def changes(self, store: KernelAccess) -> Iterator[Condition]:
        """Conditions under which `store` does not put back what it has read at the very same place."""
        begin = _address(self.placed[store.parameter], self.executed(store))
        for copied in store.copies:
            argument, load = self.placed.get(copied.parameter), self.executed(copied, store.loops)
            source = None if argument is None else _address(argument, load)
            if argument is None or source is None or begin is None:
                continue
            if argument.itemsize == self.placed[store.parameter].itemsize:
                yield negate(conjunction((*load.domain, eq(begin, source))))

    def at_one_place(self, store: KernelAccess, other: KernelAccess) -> Conditions:
        """Both are executed, and share a byte."""
        here, there = self.executed(store), self.executed(other, later=True)
        return (*here.domain, *there.domain, *self.same_place(here, there))

    def same_place(self, here: KernelAccess, there: KernelAccess) -> Conditions:
        one, two = self.arguments[here.parameter], self.arguments[there.parameter]
        same = (one.offset, one.shape, one.itemsize) == (two.offset, two.shape, two.itemsize)
        if same and len(here.indices) == len(there.indices) == len(one.shape):
            pairs = zip(here.indices, there.indices, strict=True)
            return tuple(eq(a, b) for a, b in pairs if a is not None and b is not None)
        begin, other_begin = _address(one, here), _address(two, there)
        if begin is None or other_begin is None:
            return ()
        return lt(begin, other_begin + two.itemsize), lt(other_begin, begin + one.itemsize)

    def executed(
        self, access: KernelAccess, loops: Sequence[KernelLoop] = (), *, later: bool = False
    ) -> KernelAccess:
        """An access at a pass of its loops, or of `loops`."""
        counters = {loop.symbol: _counter(loop, later=later) for loop in (*loops, *access.loops)}
        return access.substitute({**self.bound, **counters})


def _counter(loop: KernelLoop, *, later: bool) -> Expr:
    """The counter of a loop at one of the two accesses; no symbol of a program has such a name."""
    return symbol(f"{loop.symbol}'{2 if later else 1}")


def _address(argument: KernelArgument, access: KernelAccess) -> Expr | None:
    """The byte at which an element begins; None where an index is not known."""
    if len(access.indices) != len(argument.shape):
        return None
    number = ZERO
    for index, extent in zip(access.indices, argument.shape, strict=True):
        if index is None:
            return None
        number = number * extent + index
    return argument.offset + number * argument.itemsize

"""Loads and stores of kernels, at which elements, at which points, in which order; layouts of buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from symalloc.size.condition import Condition
from symalloc.size.expr import Expr


class BufferLayout(NamedTuple):
    """The place of a buffer's elements in memory, where it is declared: the first one lies `elem_offset`
    elements behind the pointer (None: the caller says where), and `strides` are in elements, over the
    kernel's symbols (None: row-major; a stride that is None, or a symbol of its own, is the caller's).
    """

    elem_offset: int | None
    strides: tuple[Expr | None, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLoop:
    """A loop of a kernel's body: `symbol` counts its passes, from 0 up to `passes` (not included).

    Each loop of a kernel has a symbol of its own.  `passes` is None where it is not understood.  `parallel`:
    the passes run side by side (threads, lanes of a vector), in no order.
    """

    symbol: str
    passes: Expr | None
    parallel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAccess:
    """A load or a store of the body of a PrimFunc, to its parameter number `parameter`.

    `indices` are in elements, one for each dimension of the parameter, over the symbols of the kernel and of
    `loops`, the loops around it from the outside in; None stands for an index that depends on data or was not
    understood.  `domain` holds at each pass that gets there: the ranges of the loops, and the guards that
    were understood.  `exact`: it is executed at every point of the domain (provided that no assertion stops
    the kernel).  `handed`: it is what a callee does that was handed the pointer.  `copies`, of a store: loads
    whose value it stores, each where its own domain holds.  Two accesses follow each other within each pass
    of the loops that they share, which is where their `loops` begin alike.
    """

    parameter: int
    kind: Literal["load", "store"]
    indices: tuple[Expr | None, ...]
    domain: tuple[Condition, ...] = ()
    exact: bool = True
    loops: tuple[KernelLoop, ...] = ()
    handed: bool = False
    copies: tuple[KernelAccess, ...] = ()

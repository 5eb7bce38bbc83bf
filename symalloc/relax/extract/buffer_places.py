"""The buffers of a PrimFunc's body that are (parts of) the memory of its parameters, under other names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tvm import ir
from tvm.tirx.buffer import BufferType

from symalloc.program.ir import KernelBuffer
from symalloc.relax.extract.covers import constant_extent, same_extent
from symalloc.relax.extract.type_conversion import to_dtype
from symalloc.relax.ir_types import Node, TypeNode, elements
from symalloc.size.expr import ZERO, Expr, floordiv, mod, product

Indices: TypeAlias = tuple[Expr | None, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A buffer on the memory of a parameter, and its indices as those of the parameter."""

    parameter: int
    type: TypeNode
    translate: Callable[[Indices], Indices]


class BufferPlaces:
    """Tells which buffers lie on which parameter; `expr` gives the exact form of an extent or an index.

    Buffers of the kernel's own are numbered behind the parameters; `own` holds them.
    """

    def __init__(self, params: Node, expr: Callable[[Node], Expr | None]) -> None:
        self._expr = expr
        self._parameters = len(params)
        self.own: list[KernelBuffer] = []
        self._ranks: dict[int, int] = {}
        self._places: dict[int, _Place] = {}
        for number, param in enumerate(elements(params)):
            type_ = param.ty
            if type(type_) is BufferType:
                self._ranks[number] = len(type_.shape)
                self._places[param.__chandle__()] = _Place(number, type_, lambda indices: indices)
            elif type(type_) is not ir.PrimType:
                self._ranks[number] = 1
                self._places[param.__chandle__()] = _Place(number, type_, lambda _: (None,))

    def has(self, buffer: Node) -> bool:
        """Return whether `buffer` lies on a parameter."""
        return buffer.__chandle__() in self._places

    def parameter(self, buffer: Node) -> int:
        """The number of the parameter that `buffer` lies on."""
        return self._places[buffer.__chandle__()].parameter

    def is_own(self, parameter: int) -> bool:
        """Return whether a number stands for a buffer of the kernel's own."""
        return parameter >= self._parameters

    def allocate(self, buffer: Node) -> None:
        """Note a buffer that the kernel allocates here."""
        number, type_ = self._parameters + len(self.own), buffer.ty
        extents = tuple(self._expr(extent) for extent in elements(type_.shape))
        known = tuple(extent for extent in extents if extent is not None)
        shape = known if len(known) == len(extents) else None
        self.own.append(KernelBuffer(name=buffer.name, shape=shape, dtype=to_dtype(type_.dtype.dtype)))
        self._ranks[number] = len(extents)
        self._places[buffer.__chandle__()] = _Place(number, type_, lambda indices: indices)

    def no_indices(self, parameter: int) -> Indices:
        """Indices of a parameter of which nothing is known."""
        return (None,) * self._ranks[parameter]

    def indices(self, buffer: Node, indices: Indices) -> Indices:
        """`indices` of `buffer` as those of the parameter that it lies on."""
        place = self._places[buffer.__chandle__()]
        found = place.translate(indices)
        rank = self._ranks[place.parameter]
        return found if len(found) == rank else (None,) * rank

    def alias(self, var: Node, value: Node) -> bool:
        """Note that a pointer is another name of a parameter's; False where `value` is none."""
        source = self._source(value)
        if source is not None:
            self._places[var.__chandle__()] = source
        return source is not None

    def declare(self, buffer: Node, data: Node) -> bool:
        """Note a buffer that is declared on a pointer; False where that is not a parameter's."""
        source = self._source(data)
        if source is not None:
            translate = self._between(buffer.ty, source)
            self._places[buffer.__chandle__()] = _Place(source.parameter, source.type, translate)
        return source is not None

    def match(self, buffer: Node, region: Node) -> None:
        """Note a buffer that stands for a region of another."""
        source = self._places.get(region.source.__chandle__())
        if source is None:
            return
        firsts = tuple(self._expr(part.min) for part in elements(region.region))
        extents = [constant_extent(part.extent) for part in elements(region.region)]
        missing = len(firsts) - len(buffer.ty.shape)
        fits = missing >= 0 and all(extent == 1 for extent in extents[:missing])

        def translate(indices: Indices) -> Indices:
            if not fits or len(indices) + missing != len(firsts):
                return source.translate((None,) * len(firsts))
            moved = zip(firsts, (*(ZERO,) * missing, *indices), strict=True)
            return source.translate(tuple(None if a is None or b is None else a + b for a, b in moved))

        self._places[buffer.__chandle__()] = _Place(source.parameter, source.type, translate)

    def _source(self, data: Node) -> _Place | None:
        if type(data) is ir.Call and getattr(data.op, "name", None) == "tirx.buffer_data":
            data = data.args[0]
        return self._places.get(data.__chandle__()) if type(data) is ir.Var else None

    def _between(self, type_: TypeNode, source: _Place) -> Callable[[Indices], Indices]:
        """The way from indices of a buffer of `type_` to those of the parameter, from the same pointer."""
        rank, target = self._ranks[source.parameter], source.type
        if type(target) is not BufferType or target.dtype != type_.dtype:
            return lambda _: (None,) * rank
        if not (_is_compact(type_) and _is_compact(target)):
            return lambda _: (None,) * rank
        if len(type_.shape) == rank and all(map(same_extent, type_.shape, target.shape)):
            return lambda indices: indices
        inner = [self._expr(extent) for extent in list(type_.shape)[1:]]
        outer = [self._expr(extent) for extent in list(target.shape)[1:]]
        return lambda indices: _unfolded(_folded(indices, inner), outer)


def _is_compact(type_: TypeNode) -> bool:
    """Return whether a buffer is row-major from its pointer on."""
    return not len(type_.strides) and constant_extent(type_.elem_offset) == 0


def _folded(indices: Indices, inner: list[Expr | None]) -> Expr | None:
    """The number of the element at `indices` of a buffer with the `inner` extents behind the first one."""
    if len(indices) != len(inner) + 1:
        return ZERO if not indices else None
    found = indices[0]
    for index, extent in zip(indices[1:], inner, strict=True):
        if found is None or index is None or extent is None:
            return None
        found = found * extent + index
    return found


def _unfolded(number: Expr | None, inner: list[Expr | None]) -> Indices:
    """The indices of element `number`, where the divisions by extents are plain."""
    known = [extent for extent in inner if extent is not None and (extent.as_constant or 0) >= 1]
    if number is None or len(known) != len(inner):
        return (None,) * (len(inner) + 1)
    sizes = [product(known[axis:]) for axis in range(len(known) + 1)]
    first = floordiv(number, sizes[0])
    return first, *(floordiv(mod(number, sizes[i]), sizes[i + 1]) for i in range(len(known)))

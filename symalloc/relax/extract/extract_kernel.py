"""A PrimFunc as its callers see it: its parameters, and the buffers that its body reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache, partial

from tvm import ir, s_tir, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.buffer import BufferType

from symalloc.program.ir import BufferLayout, Kernel, KernelBuffer, KernelScalar, Origin
from symalloc.program.record import DeferredTuple
from symalloc.program.types import DType
from symalloc.relax.extract.buffer_accesses import BufferAccesses, buffer_accesses
from symalloc.relax.extract.covers import constant_extent, covered
from symalloc.relax.extract.kernel_accesses import kernel_accesses
from symalloc.relax.extract.symbols import Symbols
from symalloc.relax.extract.tir_form import NotASizeError, TirForm
from symalloc.relax.extract.type_conversion import to_dtype
from symalloc.relax.ir_types import Node, TypeNode, VarNode, elements
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr


def extract_kernel(name: str, function: Node) -> Kernel:
    """The kernel; extents and indices are expressions over the kernel's own symbols.

    A bare pointer parameter has neither shape nor dtype, and counts as read and written.  A PrimFunc is read
    once, however many stages of a module hold it; its accesses, which take most of that and which no plan
    needs, when they are asked for.
    """
    return _read(_Text(function), name)


class _Text:
    """The text of a kernel, its attributes aside: the same where body and parameters are the same objects."""

    __slots__ = ("function", "key")

    def __init__(self, function: Node) -> None:
        nodes = (function.body, *elements(function.params))
        self.function, self.key = function, tuple([node.__chandle__() for node in nodes])

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Text) and self.key == other.key


@lru_cache(maxsize=1024)
def _read(text: _Text, name: str) -> Kernel:
    function = text.function
    symbols = Symbols()
    form = TirForm(symbols.resolve, nonnegative=symbols.is_size)
    params = elements(function.params)
    for param in params:
        _define(param, symbols)
    accesses = buffer_accesses(function.body)
    covering = accesses.stores and not accesses.leaves_early
    in_full = covered(function.body) if covering else set[int]()
    parameters = tuple(_parameter(param, form, symbols, accesses, in_full) for param in params)
    asserts = tuple(_asserted(function.body, form))
    undefined = frozenset(n for n, origin in symbols.origins.items() if origin is Origin.UNDEFINED)
    body = cache(partial(kernel_accesses, function, symbols))
    return Kernel(
        name=name,
        parameters=parameters,
        undefined=undefined,
        asserts=asserts,
        accesses=DeferredTuple(lambda: body().of_parameters),
        own_buffers=DeferredTuple(lambda: body().own),
        own_accesses=DeferredTuple(lambda: body().of_own),
        negates=_negates(function.body, params),
    )


def _negates(body: Node, params: list[Node]) -> tuple[int, int] | None:
    """The numbers of two flags, if a kernel only stores the negation of the first in the second."""
    if len(params) != 2 or any(type(p.ty) is not BufferType or len(p.ty.shape) for p in params):
        return None
    while type(body) is s_tir.SBlockRealize:
        body = body.block.body
    if type(body) is not tirx.BufferStore or type(body.value) is not prim.Not:
        return None
    if type(body.value.a) is not ir.TensorLoad:
        return None
    loaded, stored = body.value.a.source, body.buffer
    found = [n for buffer in (loaded, stored) for n, p in enumerate(params) if buffer.same_as(p)]
    return (found[0], found[1]) if len(found) == 2 and found[0] != found[1] else None


def _asserted(body: Node, form: TirForm) -> Iterator[Condition]:
    """The conditions of assertions that stand at the top of the body, where those are about sizes."""
    for statement in body.seq if type(body) is tirx.SeqStmt else (body,):
        if type(statement) is tirx.AssertStmt:
            try:
                yield form.condition(statement.condition)
            except NotASizeError:
                continue


def _define(param: Node, symbols: Symbols) -> None:
    type_ = param.ty
    if type(type_) is ir.PrimType:
        symbols.define(param, Origin.SCALAR)
    elif type(type_) is BufferType:
        for extent in elements(type_.shape):
            if type(extent) is ir.Var:
                symbols.define(extent, Origin.DIMENSION)


def _parameter(
    param: Node, form: TirForm, symbols: Symbols, accesses: BufferAccesses, in_full: set[int]
) -> KernelBuffer | KernelScalar:
    type_ = param.ty
    if type(type_) is ir.PrimType:
        return KernelScalar(name=symbols.resolve(param).as_symbol or param.name)
    if type(type_) is not BufferType:
        return KernelBuffer(name=param.name, shape=None, dtype=None)
    reads, writes = accesses.of(param)
    written_only = writes and not reads
    return KernelBuffer(
        name=param.name,
        shape=_extents(type_.shape, form),
        dtype=_buffer_dtype(type_.dtype),
        reads=reads,
        writes=writes,
        must_def=written_only and param.__chandle__() in in_full,
        offset_factor=_offset_factor(type_),
        layout=_layout(type_, symbols),
    )


def _extents(shape: Node, form: TirForm) -> tuple[Expr, ...] | None:
    try:
        return tuple(form.expr(extent) for extent in elements(shape))
    except NotASizeError:
        return None


def _buffer_dtype(type_: TypeNode) -> DType | None:
    return to_dtype(type_.dtype)


def _offset_factor(type_: TypeNode) -> int | None:
    """None for a buffer that must start at byte 0 of its allocation; a free offset is bound by the caller."""
    return max(int(type_.offset_factor), 1) if type(type_.elem_offset) is ir.Var else None


def _layout(type_: TypeNode, symbols: Symbols) -> BufferLayout | None:
    """The layout of a buffer that says more than that it is row-major."""

    def known(var: VarNode) -> Expr:
        found = symbols.known(var)
        if found is None:
            raise NotASizeError(f"`{var.name}` is what the caller brings")
        return found

    form = TirForm(known)
    offset = None if type(type_.elem_offset) is ir.Var else constant_extent(type_.elem_offset)
    if not len(type_.strides) and (offset == 0 or type(type_.elem_offset) is ir.Var):
        return None
    strides = tuple(map(form.expr_or_none, elements(type_.strides))) if len(type_.strides) else None
    return BufferLayout(elem_offset=offset, strides=strides)

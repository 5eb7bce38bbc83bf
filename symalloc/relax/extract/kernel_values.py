"""The scalar values, the tests and the buffers of a kernel's body, at the place that a walk has got to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from tvm import ir, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.buffer import BufferType

from symalloc.program.ir import KernelBuffer, KernelLoop
from symalloc.relax.extract.tir_to_expr import (
    TRANSPARENT,
    NotASizeError,
    NumberRanges,
    Symbols,
    TirToExpr,
    all_known,
    to_dtype,
    truth_value,
)
from symalloc.relax.ir_types import (
    Node,
    TypeNode,
    VarNode,
    constant_extent,
    elements,
    nodes_in,
    same_extent,
    visit,
)
from symalloc.size.choice import maximum
from symalloc.size.condition import FALSE, Condition, conjunction, disjunction, ge, lt, negate
from symalloc.size.expr import ZERO, Expr, floordiv, mod, product, symbol

Indices: TypeAlias = tuple[Expr | None, ...]


class KernelScope(NamedTuple):
    """The place of a statement in a kernel: what holds there, whether that is all, the loops around it.

    `unread`: it is not all because of what has no exact form although no data is in it.
    """

    domain: tuple[Condition, ...] = ()
    exact: bool = True
    loops: tuple[KernelLoop, ...] = ()
    unread: bool = False

    def where(self, guards: Sequence[Condition], exact: bool, unread: bool = False) -> KernelScope:
        """The scope under further conditions."""
        held = tuple(part for guard in guards for part in guard.conjuncts)
        known, doubt = self.exact and exact, self.unread or unread
        return self._replace(domain=(*self.domain, *held), exact=known, unread=doubt)

    def inside(self, loop: KernelLoop) -> KernelScope:
        """The scope inside a loop."""
        count = symbol(loop.symbol)
        ends = () if loop.passes is None else (lt(count, loop.passes),)
        within = self.where((ge(count, 0), *ends), loop.passes is not None)
        return within._replace(loops=(*self.loops, loop))

    @property
    def unreached(self) -> KernelScope:
        """The scope behind a statement that nothing follows."""
        return self._replace(domain=(*self.domain, FALSE))

    @property
    def is_unreached(self) -> bool:
        """True if nothing is executed here."""
        return FALSE in self.domain

    def beyond(self, outer: KernelScope) -> Condition:
        """The conditions that hold here in addition to `outer`, which this scope was made from."""
        return conjunction(self.domain[len(outer.domain) :])

    def behind(self, then: KernelScope, otherwise: KernelScope) -> KernelScope:
        """The scope behind two branches that end in these scopes, some of whose passes were left there."""
        for ended, other in ((then, otherwise), (otherwise, then)):
            if ended.is_unreached:
                return other
        either = disjunction((then.beyond(self), otherwise.beyond(self)))
        return self.where((either,), then.exact and otherwise.exact)


class Place(NamedTuple):
    """A buffer on the memory of a parameter, which has `rank` indices, and its own indices as those.

    An element of it is `wide` elements of the parameter, of which the last index is one, or one of the
    `parts` of such an element, whose number stands behind the indices.
    """

    parameter: int
    type: TypeNode
    rank: int
    translate: Callable[[Indices], Indices] = lambda indices: indices
    wide: int = 1
    parts: int = 1

    def at(self, indices: Indices = ()) -> tuple[Indices, tuple[Expr, int] | None]:
        """The indices of the parameter for those of the buffer, None for one that is not known; the part."""
        found = self.translate(indices)
        part = found[self.rank] if len(found) == self.rank + 1 and self.parts > 1 else None
        known = len(found) == self.rank + (part is not None)
        indices = found[: self.rank] if known else (None,) * self.rank
        return indices, None if part is None else (part, self.parts)


class BufferPlaces:
    """Tells which buffers lie on which parameter; `expr` gives the exact form of an extent or an index.

    Buffers of the kernel's own are numbered behind the `parameters`, so many; `own` holds them.
    """

    def __init__(self, params: Sequence[Node], expr: Callable[[Node], Expr | None]) -> None:
        self._expr, self.parameters = expr, len(params)
        self.own: list[KernelBuffer] = []
        self._places: dict[int, Place] = {}
        for number, param in enumerate(params):
            type_ = param.ty
            if type(type_) is BufferType:
                self._places[param.__chandle__()] = Place(number, type_, len(type_.shape))
            elif type(type_) is not ir.PrimType:
                self._places[param.__chandle__()] = Place(number, type_, 1, lambda _: ())
        self._roots = {place.parameter: place for place in self._places.values()}

    def of(self, buffer: Node) -> Place | None:
        """The place of `buffer`; None where it lies on no parameter that is known."""
        return self._places.get(buffer.__chandle__())

    def allocate(self, buffer: Node, loops: int) -> None:
        """Note a buffer that the kernel allocates here, inside of so many loops."""
        number, type_ = self.parameters + len(self.own), buffer.ty
        shape = all_known(map(self._expr, elements(type_.shape)))
        kept = str(type_.storage_scope).startswith("shared")
        dtype = to_dtype(type_.dtype.dtype)
        self.own.append(KernelBuffer(name=buffer.name, shape=shape, dtype=dtype, shared=kept, loops=loops))
        place = Place(number, type_, len(type_.shape))
        self._places[buffer.__chandle__()] = self._roots[number] = place

    def name(self, var: Node, pointer: Node, *, declares: bool = False) -> bool:
        """Note that a pointer, or a buffer that is declared on one, is another name of a parameter; False
        where `pointer` is none of a parameter's.
        """
        if type(pointer) is ir.Call and getattr(pointer.op, "name", None) == "tirx.buffer_data":
            pointer = pointer.args[0]
        source = self.of(pointer) if type(pointer) is ir.Var else None
        if source is None:
            return False
        root = self._roots.get(source.parameter, source)
        same = not declares or _same_layout(var.ty, root.type)
        self._places[var.__chandle__()] = root if same else self._declared(root, var.ty)
        return True

    def _declared(self, root: Place, kind: TypeNode) -> Place:
        """A buffer with a layout of its own on the pointer of another."""
        unknown = root._replace(translate=lambda _: ())
        if type(root.type) is not BufferType or not len(root.type.shape) or not _is_compact(root.type):
            return unknown
        own, other = (type_.dtype.dtype.bits * type_.dtype.dtype.lanes for type_ in (kind, root.type))
        extents, offset = all_known(map(self._expr, elements(root.type.shape))), self._expr(kind.elem_offset)
        steps = all_known(map(self._expr, elements(kind.strides) or elements(kind.shape)[1:]))
        if steps is not None and not len(kind.strides):
            steps = tuple([product(steps[axis:]) for axis in range(len(kind.shape))])
        if not own or not other or own % 8 or other % 8 or max(own, other) % min(own, other):
            return unknown
        if extents is None or steps is None or offset is None:
            return unknown
        wide, parts = max(own // other, 1), max(other // own, 1)

        def translate(indices: Indices) -> Indices:
            known = all_known(indices)
            if known is None or len(known) != len(steps) + (wide > 1):
                return ()
            place = sum((i * s for i, s in zip(known, steps, strict=False)), offset)
            place = place * wide + known[-1] if wide > 1 else place
            found = [mod(place, parts)] if parts > 1 else []
            place = floordiv(place, parts)
            for extent in reversed(extents[1:]):
                found.insert(0, mod(place, extent))
                place = floordiv(place, extent)
            return (place, *found)

        return root._replace(type=kind, translate=translate, wide=wide, parts=parts)

    def match(self, buffer: Node, region: Node) -> None:
        """Note a buffer that stands for a region of another."""
        source = self.of(region.source)
        if source is None:
            return
        firsts = tuple(self._expr(part.min) for part in elements(region.region))
        extents = [constant_extent(part.extent) for part in elements(region.region)]
        missing = len(firsts) - len(buffer.ty.shape)
        fits = missing >= 0 and all(extent == 1 for extent in extents[:missing])

        def translate(indices: Indices) -> Indices:
            if not fits or len(indices) + missing != len(firsts):
                return ()
            moved = zip(firsts, (*(ZERO,) * missing, *indices), strict=True)
            return source.translate(tuple(None if a is None or b is None else a + b for a, b in moved))

        self._places[buffer.__chandle__()] = source._replace(translate=translate)


def _same_layout(one: TypeNode, other: TypeNode) -> bool:
    """Return whether the same indices reach the same bytes of two buffers at one pointer."""
    if type(other) is not BufferType or other.dtype != one.dtype or len(one.shape) != len(other.shape):
        return False
    same = all(map(same_extent, list(one.shape)[1:], list(other.shape)[1:]))
    return same and _is_compact(one) and _is_compact(other)


def _is_compact(kind: TypeNode) -> bool:
    """Return whether a buffer is row-major from its pointer on."""
    return not len(kind.strides) and constant_extent(kind.elem_offset) == 0


_ARITHMETIC = TRANSPARENT | {"prim.if_then_else", "tirx.pow"}
_INTEGERS = frozenset({"int32", "int64"})
_MOST_PARTS = 32  # of a number that is kept: sums of products of sums would grow from store to store
_MOST_POWER = 4
_MOST_FACTOR = 1 << 31  # numbers beyond may be no integers of the machine


class _Scalar(NamedTuple):
    """A buffer of one integer: `loops` around its allocation; `private` to the thread that stores it."""

    dtype: str
    loops: int
    private: bool


class KernelValues:
    """The values of variables, and of buffers of one element that a kernel keeps numbers in, at the place
    that a walk has got to, and the exact forms of expressions there.

    TVMScript makes `x: T.int64 = value` such a buffer.  A number is known from its store on, until something
    may have stored another: a loop that stores to the buffer knows none of it when a pass begins, and none
    is known behind it, or behind an If or a block of which it is not plain that it is executed.  Nothing is
    known of a buffer that has another name, or whose address is taken.  Addresses of nodes stand for the
    nodes; `is_private` tells of a buffer whether nothing but loads and stores touches it, `element` what a
    buffer of several integers holds at given indices.
    """

    def __init__(
        self,
        symbols: Symbols,
        is_private: Callable[[int], bool],
        element: Callable[[Node, Indices], Expr | None] = lambda *_: None,
        body: Node | None = None,
        params: Iterable[Node] = (),
    ) -> None:
        self._symbols, self._is_private, self._element = symbols, is_private, element
        self._ranges = NumberRanges(symbols.is_size)
        self._by_data = {param.__chandle__() for param in params if type(param.ty) is BufferType}
        self._body = body  # as long as it is not known what in it hangs on data
        self._scalars: dict[int, _Scalar] = {}
        self._held: dict[int, Expr] = {}

    # -- expressions ----------------------------------------------------------------------------------------

    def _form(self, load: Callable[[Node], Expr] | None) -> TirToExpr:
        """A form for what is known here: one that was kept would be garbage that only the collector finds."""
        return TirToExpr(self._value, self._symbols.resolve_flag, self._symbols.is_size, load, self._ranges)

    def counts(self, counter: str, passes: Expr | None) -> None:
        """Note that a symbol counts passes from 0 on."""
        if passes is not None:
            self._ranges.greatest[counter] = max(self._ranges.of(passes)[1] - 1, 0)

    def hangs_on_data(self, node: Node) -> bool:
        """Return whether the value of an expression, which has no exact form, hangs on what tensors hold."""
        if self._body is not None:
            body, self._body = self._body, None
            self._spread(body)
        found: list[bool] = []
        visit(
            node,
            (ir.TensorLoad, lambda load: found.append(not self._is_private(load.source.__chandle__()))),
            (ir.Var, lambda var: found.append(var.__chandle__() in self._by_data)),  # buffers, too
            (ir.Call, lambda call: found.append(getattr(call.op, "name", None) not in _ARITHMETIC)),
        )
        return any(found)

    def _spread(self, body: Node) -> None:
        """Note the variables and buffers that a body gives values that hang on data, or where such decide."""
        given = [(one.buffer, one.value) for one in nodes_in([body], tirx.BufferStore)]
        given += ((one.var, one.value) for one in nodes_in([body], tirx.Bind))
        ways = [(one.extent, one) for one in nodes_in([body], tirx.For)]
        ways += ((one.condition, one) for one in nodes_in([body], tirx.IfThenElse, tirx.While))
        known = -1
        while known < len(self._by_data):
            known = len(self._by_data)
            self._by_data.update(to.__chandle__() for to, value in given if self.hangs_on_data(value))
            for test, way in ways:
                if self.hangs_on_data(test):
                    stores = nodes_in([way], tirx.BufferStore)
                    self._by_data.update(store.buffer.__chandle__() for store in stores)

    def expr_or_none(self, node: Node) -> Expr | None:
        """The exact form of an integer expression; None where it has none."""
        return self._form(self._load).expr_or_none(node.value if type(node) is prim.Broadcast else node)

    def number(self, node: Node) -> Expr | None:
        """As `expr_or_none`, also of a truth value."""
        if str(node.ty.dtype) != "bool":
            return self.expr_or_none(node)
        known, exact = self.guard(node, holds=True)
        return truth_value(conjunction(known)) if exact else None

    def extent(self, node: Node) -> Expr | None:
        """As `expr_or_none`, of what is evaluated where a buffer is used: what scalars hold by then is not
        known.
        """
        return self._form(None).expr_or_none(node)

    def guard(self, test: Node, holds: bool) -> tuple[tuple[Condition, ...], bool]:
        """The conditions that hold where `test` is true, or is not; and whether they say all that it says."""
        kind = type(test)
        if kind is prim.Not:
            return self.guard(test.a, not holds)
        if kind is (prim.And if holds else prim.Or):
            left, right = self.guard(test.a, holds), self.guard(test.b, holds)
            return (*left[0], *right[0]), left[1] and right[1]
        try:
            known = self._form(self._load).condition(test)
        except NotASizeError:
            return (), False
        return (known if holds else negate(known),), True

    def _value(self, var: VarNode) -> Expr:
        value = self._symbols.known(var)
        if value is None:
            raise NotASizeError(f"the value of `{var.name}` depends on data")
        return value

    def _load(self, node: Node) -> Expr:
        value = self._held.get(node.source.__chandle__()) if _is_plain(node) else None
        if value is None and getattr(node, "predicate", None) is None:
            value = self._element(node.source, tuple(map(self.expr_or_none, elements(node.indices))))
        if value is None:
            raise NotASizeError(f"what `{node.source.name}` holds depends on data")
        return value

    # -- variables ------------------------------------------------------------------------------------------

    def bind(self, var: VarNode, value: Expr | None, given: Node | None = None) -> None:
        """The variable `var` stands for `value` from here on; None for what is not known of `given`."""
        self._symbols.bind(var, value)
        if value is None and given is not None and self.hangs_on_data(given):
            self._by_data.add(var.__chandle__())

    def let(self, var: VarNode, value: Node) -> None:
        """The variable `var`, a number or a truth value, stands for the expression `value`."""
        if type(var.ty) is ir.PrimType and str(var.ty.dtype) == "bool":
            known, exact = self.guard(value, holds=True)
            if exact and len(known) == 1:
                self._symbols.bind_flag(var, known[0])
        else:
            self.bind(var, self.expr_or_none(value), value)

    # -- buffers --------------------------------------------------------------------------------------------

    def allocate(self, buffer: Node, scope: KernelScope) -> None:
        """Note a buffer that the kernel allocates."""
        key, type_ = buffer.__chandle__(), buffer.ty
        dtype = str(type_.dtype.dtype)
        single = all(constant_extent(extent) == 1 for extent in elements(type_.shape))
        if single and dtype in _INTEGERS and self._is_private(key):
            private = str(type_.storage_scope) == "local"
            self._scalars[key] = _Scalar(dtype=dtype, loops=len(scope.loops), private=private)
            self._held.pop(key, None)

    def store(self, node: Node, scope: KernelScope) -> None:
        """Note a store."""
        key = node.buffer.__chandle__()
        scalar = self._scalars.get(key)
        if scalar is None:
            return
        value = self.expr_or_none(node.value)
        self._held.pop(key, None)
        alone = not any(loop.parallel for loop in scope.loops[scalar.loops if scalar.private else 0 :])
        fits = _is_plain(node) and str(node.value.ty.dtype) == scalar.dtype
        if value is not None and alone and fits and _is_small(value):
            self._held[key] = value

    def counted(self, body: Node) -> dict[int, tuple[Expr, int]]:
        """The numbers kept in buffers to which each pass of a loop with this body does nothing but add a
        constant, at the end of its ways: what they are in front of the loop, and what is added.
        """
        parts = elements(body.seq) if type(body) is tirx.SeqStmt else (body,)
        found: dict[int, tuple[Expr, int]] = {}
        if not self._held or nodes_in([body], tirx.Break, tirx.Continue, tirx.Return, tirx.stmt.Evaluate):
            return found
        stored = Counter(store.buffer.__chandle__() for store in nodes_in([body], tirx.BufferStore))
        for one in parts:
            key = one.buffer.__chandle__() if type(one) is tirx.BufferStore else None
            if key in self._held and stored[key] == 1:
                more = self._added(one)
                found.update({} if more is None else {key: (self._held[key], more)})
        return found

    def _added(self, store: Node) -> int | None:
        """The constant that a store adds to what its one element holds; None for any other store."""
        value = store.value
        if type(value) not in (prim.Add, prim.Sub) or not _is_plain(store):
            return None
        own = type(value.a) is ir.TensorLoad and value.a.source.same_as(store.buffer) and _is_plain(value.a)
        more = int(value.b.value) if own and type(value.b) is prim.IntImm else None
        return -more if more is not None and type(value) is prim.Sub else more

    def hold(self, counted: Mapping[int, tuple[Expr, int]], passes: Expr | None) -> None:
        """The numbers that a loop counts hold what they do behind so many passes."""
        if passes is not None and self._ranges.of(passes)[0] < 0:
            passes = maximum(passes, 0)
        for key, (first, more) in counted.items():
            if passes is not None and key in self._scalars and _is_small(first + passes * more):
                self._held[key] = first + passes * more

    @contextmanager
    def perhaps(self, node: Node) -> Iterator[None]:
        """A statement that may not be executed, or several times: what it stores is known inside only."""
        self.forget_stored(node)
        yield
        self.forget_stored(node)

    @contextmanager
    def branch(self) -> Iterator[None]:
        """One of several ways, each of which begins with what is known here."""
        held = dict(self._held)
        yield
        self._held = held

    def forget_stored(self, node: Node) -> None:
        """Forget what the statement `node` stores."""
        for store in nodes_in([node], tirx.BufferStore) if self._held else ():
            self._held.pop(store.buffer.__chandle__(), None)

    def forget(self) -> None:
        """Forget everything."""
        self._held.clear()


def _is_plain(access: Node) -> bool:
    """Return whether a load or a store goes for the one element."""
    indices = elements(access.indices)
    return getattr(access, "predicate", None) is None and all(constant_extent(i) == 0 for i in indices)


def _is_small(value: Expr) -> bool:
    """Return whether a number has few parts, at all depths."""
    parts, waiting = 0, [value]
    while waiting:
        for monomial, factor in waiting.pop().terms.items():
            parts += 1 + len(monomial)
            if abs(factor) >= _MOST_FACTOR or parts > _MOST_PARTS:
                return False
            for atom, power in monomial:
                if power > _MOST_POWER:
                    return False
                waiting += atom.operands
    return True

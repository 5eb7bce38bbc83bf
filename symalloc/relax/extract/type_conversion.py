"""TVM's types to ours, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import tvm_ffi
from tvm import ir, relax, tirx

from symalloc.program.ir import Origin
from symalloc.program.types import (
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
)
from symalloc.relax.extract.tir_to_expr import NotASizeError, Symbols, TirToExpr
from symalloc.relax.ir_types import Node, TypeNode, VarNode, elements
from symalloc.size.expr import Expr

OPAQUE = OpaqueType()
_FUNCTION = FunctionType()
_NOTHING = TupleType(fields=())
_DTYPES: dict[str, DType] = {}


def to_dtype(dtype: Node) -> DType | None:
    """An element type; None for TVM's unknown one (`void`)."""
    name = str(dtype)
    found = _DTYPES.get(name)
    if found is None:
        if not name or name == "void" or dtype.bits == 0:
            return None
        found = _DTYPES[name] = DType(name, dtype.bits, dtype.lanes)
    return found


_MOST_SHOWN = 100  # characters of an extent


class Types:
    """Converts the types of one function; `devices` are the module's virtual devices in order."""

    def __init__(self, form: TirToExpr, symbols: Symbols, devices: Sequence[Node] = ()) -> None:
        self._form = form
        self._symbols = symbols
        self._devices = devices
        self._known: dict[int, tuple[Node, Type]] = {}
        self._shapes: dict[int, tuple[Node, tuple[Expr, ...] | None]] = {}
        self._elements: dict[int, tuple[Node, DType | None]] = {}
        self._extents: dict[tuple[int | tuple[int], ...], tuple[Node, tuple[Expr, ...]]] = {}
        self._tensors: dict[tuple[object, ...], TensorType] = {}

    def of(self, type_: TypeNode) -> Type:
        """Our form of a TVM type; what holds no tensor, shape or scalar is opaque."""
        kind = type(type_)
        if kind is relax.TensorType:
            return self.tensor(type_)  # nearly every variable has one of its own, and equal ones are few
        handle = type_.__chandle__()
        found = self._known.get(handle)
        if found is not None:
            return found[1]
        rule = _RULES.get(kind)
        result = OPAQUE if rule is None else rule(self, type_)
        self._known[handle] = (type_, result)
        return result

    def shape(self, shape: Node) -> tuple[Expr, ...]:
        """The extents of a ShapeExpr, or of a shape variable whose type tells them; raises NotASizeError."""
        handle = shape.__chandle__()
        found = self._shapes.get(handle)
        if found is None:
            found = self._shapes[handle] = (shape, self._convert_shape(shape))
        if found[1] is None:
            raise NotASizeError("a shape whose extents are not known")
        return found[1]

    def know_shape(self, var: VarNode, extents: tuple[Expr, ...] | None) -> None:
        """The shape variable `var` has these extents, whatever its type tells."""
        self._shapes[var.__chandle__()] = (var, extents)

    def shape_or_none(self, shape: Node | None) -> tuple[Expr, ...] | None:
        """As `shape`, None where the extents are unknown or have no exact form."""
        if shape is None:
            return None
        handle = shape.__chandle__()
        found = self._shapes.get(handle)
        if found is None:
            try:
                found = self._shapes[handle] = (shape, self._convert_shape(shape))
            except NotASizeError:
                return None
        return found[1]

    def inexact(self, shape: Node) -> str:
        """The extent of a shape that has no exact form, and why; nothing where there is none."""
        for node in elements(shape.values) if type(shape) is relax.ShapeExpr else ():
            try:
                self._form.expr(node)
            except NotASizeError as reason:
                text = str(node)
                said = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
                return f"`{said}` has no exact form ({reason})"
        return ""

    def _convert_shape(self, shape: Node) -> tuple[Expr, ...] | None:
        values = shape.values if type(shape) is relax.ShapeExpr else getattr(shape.ty, "values", None)
        return None if values is None else self.extents(values)

    def extents(self, values: Node) -> tuple[Expr, ...]:
        """Each extent as an expression; raises NotASizeError.

        Equal lists of integers and variables give one tuple: a layer has the shapes of the one before.
        """
        key = tuple([n.value if type(n) is tirx.IntImm else (n.__chandle__(),) for n in elements(values)])
        found = self._extents.get(key)
        if found is None:
            found = self._extents[key] = (values, tuple(map(self._form.expr, elements(values))))
        return found[1]

    def define(self, type_: TypeNode, origin: Origin) -> frozenset[str]:
        """Defines the symbols that stand alone as an extent in `type_`; returns those not defined before."""
        values: Iterable[Node] = ()
        if type(type_) is relax.TensorType:
            shape = type_.shape
            values = elements(shape.values) if type(shape) is relax.ShapeExpr else ()
        elif type(type_) is relax.ShapeType:
            values = type_.values or ()
        elif type(type_) is ir.TupleType:
            return frozenset().union(*(self.define(field, origin) for field in type_.fields))
        names = {self._symbols.define(v, origin) for v in values if type(v) in (ir.Var, relax.DataflowVar)}
        return frozenset(name for name in names if name is not None)

    # -- one rule a kind of type ----------------------------------------------------------------------------

    def tensor(self, type_: TypeNode) -> TensorType:
        """A TensorType of TVM."""
        element, device = type_.dtype, type_.vdevice
        known = None if element is None else self._elements.get(element.__chandle__())
        dtype = known[1] if known is not None else None if element is None else self._element(element)
        shape = self.shape_or_none(type_.shape)
        ndim = type_.ndim if shape is None else len(shape)
        key = (id(shape), id(dtype), ndim, None if device is None else device.__chandle__())
        found = self._tensors.get(key)
        if found is None:
            found = self._tensors[key] = TensorType(
                shape=shape,
                dtype=dtype,
                ndim=ndim if ndim >= 0 else None,
                device=0 if device is None else self._device_index(device),
                scope="global" if device is None else str(device.memory_scope) or "global",
            )
        return found

    def _element(self, type_: TypeNode) -> DType | None:
        handle = type_.__chandle__()
        found = self._elements.get(handle)
        if found is None:
            found = self._elements[handle] = (type_, to_dtype(type_.dtype))
        return found[1]

    def _device_index(self, device: Node) -> int:
        """The place of a device among the module's; by structure, for VDevice.same_as never returns."""
        return next((i for i, d in enumerate(self._devices) if tvm_ffi.structural_equal(d, device)), 0)

    def _shape_type(self, type_: TypeNode) -> ShapeType:
        values, ndim = type_.values, type_.ndim
        try:
            extents = None if values is None else self.extents(values)
        except NotASizeError:
            extents = None
        return ShapeType(values=extents, ndim=ndim if ndim >= 0 else None)

    def _scalar(self, type_: TypeNode) -> ScalarType:
        return ScalarType(value=None, dtype=self._element(type_))

    def _tuple(self, type_: TypeNode) -> TupleType:
        fields = elements(type_.fields)
        return TupleType(fields=tuple([self.of(field) for field in fields])) if fields else _NOTHING


_RULES: Mapping[type, Callable[[Types, TypeNode], Type]] = {
    relax.ShapeType: Types._shape_type,
    ir.PrimType: Types._scalar,
    ir.TupleType: Types._tuple,
    relax.FuncType: lambda _, type_: _FUNCTION,
}

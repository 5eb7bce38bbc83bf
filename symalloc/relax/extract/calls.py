"""Calls: of operators, kernels, functions, packed functions and closures.

Both dialects of memory operators are here, R.memory.* and R.vm.*, R.builtin.alloc_tensor, and the builtins
that work on the shape heap: what VMShapeLower makes of casts, shapes and scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Literal

import tvm
from tvm import relax

from symalloc.program import ir
from symalloc.program.operands import type_of
from symalloc.program.packed_contracts import NEEDS_ELEMENTS, packed_contract, stated_contract
from symalloc.program.types import (
    DType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    extents_of,
    holds_memory,
    is_open,
    type_leaves,
)
from symalloc.relax.extract.context import VARIABLES, CallSite, CommonFields, Context, Handler, not_a_size
from symalloc.relax.extract.shape_heap import (
    ALLOCATES,
    MAKE_NUMBER,
    MATCH_NUMBER,
    MATCH_SLOT,
    MATCH_STORE,
    UNKNOWN_SLOT,
    WrongSlotError,
    computes_slots,
    extents_of_cast,
    slot_fault,
    store_slots,
)
from symalloc.relax.extract.tir_to_expr import NotASizeError, to_dtype
from symalloc.relax.ir_types import CallNode, Node, elements
from symalloc.size.condition import eq
from symalloc.size.expr import ZERO, Expr, constant, product, symbol

MAKE_PRIM_VALUE = "vm.builtin.make_prim_value"
_SLOT = DType("int64", 64)


def translate_call(context: Context, head: CommonFields, call: CallNode) -> ir.Instruction:
    """The instruction for a call; what has no exact form becomes NotUnderstood."""
    site, callee = CallSite(context, head, call, elements(call.args)), call.op
    field, rule = _CALLEES.get(type(callee), ("", _closure))
    name = context.name_in(callee, field) if field else ""
    try:
        return rule(site, name)
    except NotASizeError as reason:
        what = f"{f'`{name}`' if name else 'a call'} with {reason}"
        return context.not_understood(head, what, site.arguments, slot_fault(reason, name))


# -- by kind of callee -------------------------------------------------------------------------------------


def _closure(site: CallSite, _: str) -> ir.Instruction:
    return site.not_understood("a call of a function value (a closure)", [site.call.op, *site.arguments])


def _global(site: CallSite, name: str) -> ir.Instruction:
    context, module = site.context, site.context.module
    if name in module.kernels:
        return _call_kernel(site, name)
    if name in module.functions:
        operands = site.operands
        context.heaps.forget(operands)
        head = site.head
        if is_open(head["var"].type):
            head = context.known_head(head, context.result_of(name, operands))
        return ir.CallFunction(**head, name=name, arguments=operands)
    symbol = module.externs.get(name)
    if symbol is not None:
        return _packed(site, symbol)
    return not_a_size(f"`{name}`, which the module does not define")


def _operator(site: CallSite, name: str) -> ir.Instruction:
    if site.context.module.planned and not (name in _GENERATED or site.call.op.get_attr("FCallPacked")):
        what = f"`{name}`, which no pass of TVM lowers: it cannot build the module"
        return site.not_understood(what, site.arguments)
    row = _OPERATORS.get(name)
    if row is not None:
        return _handled(site, *row)
    if name.startswith("relax.dist."):
        return site.not_understood(f"the distributed operator `{name}`", site.arguments)
    attrs = site.call.attrs
    given = ((wanted, getattr(attrs, wanted, None)) for wanted in _ATTRIBUTES.get(name, ()))
    attributes = {wanted: str(value) for wanted, value in given if value is not None}
    return ir.CallOperator(**site.head, name=name, arguments=site.operands, attributes=attributes)


def _handled(site: CallSite, least: int, handler: Handler) -> ir.Instruction:
    """The instruction that `handler` makes of a call with at least so many arguments."""
    if len(site.arguments) < least:
        not_a_size(f"{len(site.arguments)} arguments where {least} are needed")
    return handler(site)


def _call_kernel(site: CallSite, name: str) -> ir.Instruction:
    """A call of the PrimFunc `name`; nothing is left of one that computes slots of a heap from others."""
    context, operands = site.context, site.operands
    slots = context.heaps.slots.get(operands[0]) if len(operands) == 1 and context.heaps.slots else None
    if slots is not None and computes_slots(context.module.host[name], len(slots)):
        store_slots(context.module.host[name], slots, context.symbols.is_size)
        return ir.MakeTuple(**site.head, fields=())
    context.heaps.forget(operands)
    by_symbol = type(site.call.op) is relax.ExternFunc
    return ir.CallKernel(**site.head, kernel=name, arguments=operands, by_symbol=by_symbol)


def _packed(site: CallSite, name: str, *, pure: bool = False) -> ir.Instruction:
    """A call of the packed function `name`; raises NotASizeError."""
    row = _PACKED.get(name)
    if row is not None:
        return _handled(site, *row)
    kernel = site.context.module.symbols.get(name)
    if kernel is not None:
        return _call_kernel(site, kernel)
    if name in _CLOSURES:
        return site.not_understood("a call of a closure", site.arguments)
    known, operands = packed_contract(name), site.operands
    site.context.heaps.forget(operands)
    kind = site.var.type
    _require_fit(name, len(operands), len(kind.fields) if isinstance(kind, TupleType) else None)
    returned = known.returns if isinstance(known.returns, tuple) else ()
    ownership = ir.Ownership.UNKNOWN
    if known.returns == "new" or not holds_memory(site.var.type):
        ownership = ir.Ownership.FRESH
    elif returned and max(returned) < len(operands):
        ownership = ir.Ownership.ARGUMENT
    return ir.CallPacked(
        **site.head,
        name=name,
        arguments=operands,
        ownership=ownership,
        pure=pure or known.written == frozenset(),
        writes=known.written or frozenset(),
        may_capture=not pure and known.keeps is None,
        returned=returned if ownership is ir.Ownership.ARGUMENT else (),
        stated=stated_contract(name),
    )


def _require_fit(name: str, given: int, results: int | None) -> None:
    """Raises NotASizeError where a user's contract of `name` is about what such a call does not have."""
    stated = stated_contract(name)
    misfit = "" if stated is None else stated.misfit(given, results)
    if misfit:
        not_a_size(f"a contract of `{name}` that {misfit}")


_CALLEES: Mapping[type, tuple[str, Callable[[CallSite, str], ir.Instruction]]] = {
    tvm.ir.Op: ("name", _operator),
    tvm.ir.GlobalVar: ("name_hint", _global),
    relax.ExternFunc: ("global_symbol", _packed),
}
"""The field that holds the name of a callee, and what makes a call of it an instruction."""

# -- operators that call ------------------------------------------------------------------------------------


def _call_tir(site: CallSite) -> ir.Instruction:
    return ir.CallTIR(
        **site.head,
        kernel=_named(site, site.context.module.kernels, "a callee that is no PrimFunc of the module"),
        inputs=_literal_tuple(site, 1),
        outputs=_outputs(site),
        inplace=_inplace(site.call),
    )


def _named(site: CallSite, among: Container[str], otherwise: str) -> str:
    """The name of the first argument, which must be a function that is `among` those."""
    callee = site.arguments[0]
    if type(callee) is not tvm.ir.GlobalVar or callee.name_hint not in among:
        not_a_size(otherwise)
    return str(callee.name_hint)


def _outputs(site: CallSite) -> tuple[TensorType, ...]:
    declared = site.call.ty_args[0]
    fields = declared.fields if type(declared) is tvm.ir.TupleType else (declared,)
    outputs = tuple(site.context.types.of(field) for field in fields)
    known = tuple(output for output in outputs if isinstance(output, TensorType))
    return known if len(known) == len(outputs) else not_a_size("a result that is no tensor")


def _literal_tuple(site: CallSite, index: int) -> tuple[ir.Operand, ...]:
    packed = site.arguments[index]
    if type(packed) is not tvm.ir.Tuple:
        not_a_size("arguments that are no tuple literal")
    return site.context.operands(elements(packed.fields))


def _inplace(call: CallNode) -> tuple[int | None, ...]:
    """The argument that each output of an in-place call lies in; empty for a call that has none."""
    places = getattr(call.attrs, "inplace_indices", None) if call.attrs is not None else None
    return () if places is None else tuple(int(i) if int(i) >= 0 else None for i in places)


def _call_kernel_dynamically(site: CallSite) -> ir.Instruction:
    """R.vm.call_tir_dyn(kernel, (tensors…, shape)): the extents of the last argument become scalars."""
    packed = site.arguments[1]
    if type(packed) is not tvm.ir.Tuple or len(packed.fields) == 0:
        not_a_size("R.vm.call_tir_dyn with arguments that are no tuple literal")
    *tensors, shape = elements(packed.fields)
    scalars = tuple(ir.Scalar(extent) for extent in site.context.types.shape(shape))
    no_kernel = "R.vm.call_tir_dyn of a function that is no PrimFunc of the module"
    kernel = _named(site, site.context.module.kernels, no_kernel)
    return ir.CallKernel(**site.head, kernel=kernel, arguments=site.context.operands(tensors) + scalars)


def _packed_name(site: CallSite) -> str:
    callee = site.arguments[0]
    if type(callee) is not relax.ExternFunc:
        not_a_size("a callee that is no packed function")
    return str(callee.global_symbol)


def _pure_packed(site: CallSite) -> ir.Instruction:
    return _packed(replace(site, arguments=site.arguments[1:]), _packed_name(site), pure=True)


def _inplace_packed(site: CallSite) -> ir.Instruction:
    inplace, name = _inplace(site.call), _packed_name(site)
    return ir.CallPacked(
        **site.head,
        name=name,
        arguments=site.operands[1:],
        ownership=ir.Ownership.ARGUMENT,
        pure=False,
        writes=frozenset(i for i in inplace if i is not None),
        inplace=inplace,
        stated=stated_contract(name),
    )


def _destination_passing(site: CallSite) -> ir.Instruction:
    """The call with its results as further arguments, of which the contract speaks, too."""
    name, arguments = _packed_name(site), _literal_tuple(site, 1)
    made = sum(1 for _ in type_leaves(site.var.type))
    _require_fit(name, len(arguments) + made, None if made == 1 else made)
    return ir.CallPacked(
        **site.head,
        name=name,
        arguments=arguments,
        ownership=ir.Ownership.FRESH,
        pure=True,
        writes=frozenset(i for i in packed_contract(name).written or () if i < len(arguments)),
        stated=stated_contract(name),
    )


def _with_context(site: CallSite) -> ir.Instruction:
    packed = site.arguments[1]
    inner = elements(packed.fields) if type(packed) is tvm.ir.Tuple else [packed]
    return _packed(replace(site, arguments=inner), _packed_name(site))


def _python_function(site: CallSite) -> ir.Instruction:
    name = str(getattr(site.arguments[0], "value", "a Python function"))
    arguments = _literal_tuple(site, 1)
    return ir.CallPacked(
        **site.head, name=name, arguments=arguments, ownership=ir.Ownership.UNKNOWN, pure=False
    )


def _replayed(*, kept: bool) -> Handler:
    """A CUDA graph over (function, tuple of its arguments, …): the function, called with them; `kept`: what
    it allocates, without arguments, from the first call on.
    """

    def called(site: CallSite) -> ir.Instruction:
        functions = site.context.module.functions
        name = _named(site, functions, "a callee that is no function of the module")
        arguments = () if kept else _literal_tuple(site, 1)
        return ir.CallFunction(**site.head, name=name, arguments=arguments, kept=kept)

    return called


# -- memory --------------------------------------------------------------------------------------------------


def _storage(dialect: Literal["memory", "vm"], *, device: int, scope: int, dtype: int) -> Handler:
    """A storage, with the positions of the arguments behind its size; the R.vm dialect counts that in
    elements of `dtype`, R.memory in bytes.
    """

    def allocated(site: CallSite) -> ir.Instruction:
        element = to_dtype(site.context.dtype_of(site.arguments[dtype]))
        extents = site.context.types.shape_or_none(site.arguments[0])
        total: Expr | None = None if extents is None else product(extents)
        if total is not None and dialect == "vm":
            total = None if element is None else total * element.itemsize
        return ir.AllocStorage(
            **site.context.storage_head(site.head),
            size=total,
            device=site.constant(device, "a device index"),
            scope=site.context.text(site.arguments[scope], "a memory scope"),
            dtype=element,
            dialect=dialect,
        )

    return allocated


def _place_tensor(site: CallSite) -> ir.Instruction:
    """A tensor on a storage: (storage, offset, shape, dtype, device = 0)."""
    types = site.context.types
    take = types.shape_or_none if site.context.module.open_shapes else types.shape
    shape, dtype, head = take(site.arguments[2]), _known_dtype(site, 3), site.head
    if is_open(head["var"].type):
        head = site.context.known_head(head, TensorType(shape=shape, dtype=dtype))
    return ir.AllocTensor(
        **head,
        storage=site.operand(0),
        offset=site.context.form.expr(site.arguments[1]),
        shape=shape,
        dtype=dtype,
        device=site.constant(4, "a device index") if len(site.arguments) > 4 else 0,
    )


def _known_dtype(site: CallSite, index: int) -> DType:
    found = to_dtype(site.context.dtype_of(site.arguments[index]))
    return not_a_size("a tensor of unknown dtype") if found is None else found


def _fresh_tensor(site: CallSite) -> ir.Instruction:
    """R.builtin.alloc_tensor: (shape, dtype, device, scope = "global")."""
    context, arguments = site.context, site.arguments
    shape = context.types.shape_or_none(arguments[0])
    return ir.AllocFresh(
        **site.head,
        shape=shape,
        dtype=_known_dtype(site, 1),
        device=site.constant(2, "a device index"),
        scope=context.text(arguments[3], "a memory scope") if len(arguments) > 3 else "global",
        inexact=context.types.inexact(arguments[0]) if shape is None else "",
    )


def _kill(kind: Literal["tensor", "storage", "object"]) -> Handler:
    return lambda site: ir.Kill(**site.head, target=site.operand(0), kind=kind)


def _take_view(site: CallSite) -> ir.Instruction:
    """R.memory.view(data, shape, dtype, relative_byte_offset); what is left out stays as in the source."""
    context, arguments = site.context, site.arguments
    shape, dtype, offset = (
        None if i >= len(arguments) or context.is_absent(arguments[i]) else arguments[i] for i in (1, 2, 3)
    )
    return ir.View(
        **site.head,
        source=site.operand(0),
        shape=context.known_extents(site.var) if shape is None else context.types.shape(shape),
        dtype=_result_dtype(site) if dtype is None else to_dtype(context.dtype_of(dtype)),
        offset=ZERO if offset is None else context.form.expr(offset),
        kind="view",
    )


def _result_dtype(site: CallSite) -> DType | None:
    return site.var.type.dtype if isinstance(site.var.type, TensorType) else None


def _ensure_zero_offset(site: CallSite) -> ir.Instruction:
    """The same bytes where the offset is a multiple of 64, else a copy."""
    return _same_bytes(site, site.context.known_extents(site.var), "ensure_zero_offset")


def _view_reshaped(site: CallSite) -> ir.Instruction:
    """vm.builtin.reshape, or R.reshape once operators are lowered: other extents, the same elements."""
    return _same_bytes(site, site.context.types.shape(site.arguments[1]), "reshape")


def _same_bytes(
    site: CallSite, shape: tuple[Expr, ...] | None, kind: Literal["reshape", "ensure_zero_offset"]
) -> ir.Instruction:
    source, dtype = site.operand(0), _result_dtype(site)
    return ir.View(**site.head, source=source, shape=shape, dtype=dtype, offset=ZERO, kind=kind)


def _reshape(site: CallSite) -> ir.Instruction:
    if site.context.module.lowered:
        return _handled(site, 2, _view_reshaped)
    return ir.CallOperator(**site.head, name="relax.reshape", arguments=site.operands)


# -- values --------------------------------------------------------------------------------------------------


def _assertion(site: CallSite) -> ir.Instruction:
    """R.assert_op and relax.run.assert_op: the first argument holds afterwards, the others are printed."""
    reads = [a for a in site.arguments if type(a) in VARIABLES and not isinstance(a.ty, tvm.ir.PrimType)]
    condition = site.context.condition(site.arguments[0])
    return ir.Assert(**site.head, condition=condition, reads=site.context.operands(reads))


# -- the shape heap -----------------------------------------------------------------------------------------


def _alloc_heap(site: CallSite) -> ir.Instruction:
    """(number of slots): a heap of which nothing is known."""
    count = site.constant(0, "a number of slots")
    var = ir.Var(site.var.name, TensorType(shape=(constant(count),), dtype=_SLOT))
    site.context.heaps.make(var, count)
    return ir.Alias(**CommonFields({**site.head, "var": var}), source=ir.TextLiteral("shape heap"))


def _match_shape(site: CallSite) -> ir.Instruction:
    """(tensor or shape, heap, number of extents, (code, number or slot)…, text of an error)."""
    heaps, value, heap = site.context.heaps, site.arguments[0], site.operand(1)
    heaps.lowered = True
    source, name = site.context.operand(value), getattr(value, "name", "extent")
    kind, cast = type_of(source), extents_of_cast(heaps.next_cast(value, site.arguments[-1]))
    told = [*zip_longest(cast, extents_of(kind))]
    pairs = _pairs(site.context, site.arguments[3:-1], site.constant(2, "a number of extents"))
    extents, defines, wrong = list[Expr](), frozenset[str](), list[WrongSlotError]()
    for axis, (code, number) in enumerate(pairs):
        found = constant(number) if code == MATCH_NUMBER else None
        try:
            found = heaps.load(heap, number) if code == MATCH_SLOT else found
        except WrongSlotError as reason:
            wrong.append(reason)
        if found is None:
            named, given = told[axis] if axis < len(told) else (None, None)
            found, new = _matched(site.context, source, named, given, f"{name}_{axis}")
            defines |= new
        if code == MATCH_STORE:
            heaps.store(heap, number, found)
        extents.append(found)
    if wrong:
        raise wrong[-1]
    target: Type = ShapeType(values=tuple(extents), ndim=len(extents))
    if isinstance(kind, TensorType):
        target = TensorType(shape=tuple(extents), dtype=None, ndim=len(extents))
    return ir.MatchCast(**site.head, source=source, target=target, defines=defines, returns=False)


def _matched(
    context: Context, source: ir.Operand, named: Node | None, given: Expr | None, name: str
) -> tuple[Expr, frozenset[str]]:
    """An extent that no slot tells: a symbol of the R.match_cast that the call stands for, what is `given`,
    or a new symbol; and the symbols that it defines.
    """
    symbols, origin = context.symbols, context.origin_of_cast(source)
    if named is not None and type(named) in VARIABLES and symbols.define(named, origin) is not None:
        found = symbols.resolve(named)
    elif given is not None:
        return given, frozenset()
    else:
        found = symbol(symbols.new(name, origin))
    return found, found.symbols


def _pairs(context: Context, nodes: Sequence[Node], count: int) -> list[tuple[int, int]]:
    """`count` pairs: what to do with an extent, and a number or a slot; raises NotASizeError."""
    numbers = [context.constant(node, "a code or slot") for node in nodes]
    if len(numbers) < 2 * count:
        not_a_size(f"{len(numbers)} numbers where {2 * count} are needed")
    return list(zip(numbers[: 2 * count : 2], numbers[1 : 2 * count : 2], strict=True))


def _match_number(site: CallSite) -> ir.Instruction:
    """(scalar, heap, code, number or slot, text of an error)."""
    source, heap = site.operand(0), site.operand(1)
    value = source.value if isinstance(source, ir.Scalar) else None
    ((code, number),) = _pairs(site.context, site.arguments[2:4], 1)
    if code == MATCH_STORE:
        site.context.heaps.store(heap, number, value)
    wanted = constant(number) if code == MATCH_NUMBER else site.context.heaps.load(heap, number)
    condition = None if value is None or wanted is None else eq(value, wanted)
    return ir.Assert(**site.head, condition=condition)


def _make_shape(site: CallSite) -> ir.Instruction:
    """(heap, number of extents, (code, number or slot)…)."""
    heap, count = site.operand(0), site.constant(1, "a number of extents")
    pairs = _pairs(site.context, site.arguments[2:], count)
    found = [_made(site.context, heap, *pair) for pair in pairs]
    extents = tuple([extent for extent in found if extent is not None])
    if len(extents) < count:
        not_a_size(UNKNOWN_SLOT)
    var = ir.Var(site.var.name, ShapeType(values=extents, ndim=count))
    return ir.Alias(**CommonFields({**site.head, "var": var}), source=ir.ShapeValue(extents))


def _made(context: Context, heap: ir.Operand, code: int, value: int) -> Expr | None:
    return constant(value) if code == MAKE_NUMBER else context.heaps.load(heap, value)


def made_number(context: Context, call: CallNode) -> Expr:
    """The scalar that a call of make_prim_value (heap, code, number or slot) makes; raises NotASizeError."""
    arguments = elements(call.args)
    if len(arguments) != 3:
        not_a_size(f"{len(arguments)} arguments where 3 are needed")
    found = _made(context, context.operand(arguments[0]), *_pairs(context, arguments[1:], 1)[0])
    return not_a_size(UNKNOWN_SLOT) if found is None else found


# -- tables --------------------------------------------------------------------------------------------------

_VM_STORAGE = 4, _storage("vm", device=1, dtype=2, scope=3)
_SAME_VALUE = 1, lambda site: ir.Alias(**site.head, source=site.operand(0))
MEMORY_OPERATORS: Mapping[str, tuple[int, Handler]] = {
    "relax.memory.alloc_storage": (4, _storage("memory", device=1, scope=2, dtype=3)),
    "relax.memory.alloc_tensor": (4, _place_tensor),
    "relax.memory.kill_storage": (1, _kill("storage")),
    "relax.memory.kill_tensor": (1, _kill("tensor")),
    "relax.memory.view": (1, _take_view),
    "relax.memory.ensure_zero_offset": (1, _ensure_zero_offset),
    "relax.vm.alloc_storage": _VM_STORAGE,
    "relax.vm.alloc_tensor": (4, _place_tensor),
    "relax.vm.kill_object": (1, _kill("object")),
    "relax.vm.call_tir_dyn": (2, _call_kernel_dynamically),
    "relax.builtin.alloc_tensor": (3, _fresh_tensor),
}
_OPERATORS: Mapping[str, tuple[int, Handler]] = {
    **MEMORY_OPERATORS,
    "relax.assert_op": (1, _assertion),
    "relax.call_builtin_with_ctx": (2, _with_context),
    "relax.call_dps_packed": (2, _destination_passing),
    "relax.call_inplace_packed": (1, _inplace_packed),
    "relax.call_pure_packed": (1, _pure_packed),
    "relax.call_py_func": (2, _python_function),
    **dict.fromkeys(("relax.call_tir", "relax.call_tir_inplace", "relax.call_tir_with_grad"), (2, _call_tir)),
    **dict.fromkeys(
        ("relax.invoke_closure", "relax.invoke_pure_closure", "relax.make_closure"),
        (0, lambda site: site.not_understood("a closure", site.arguments)),
    ),
    "relax.reshape": (0, _reshape),
    # these mark a value and may hand on its memory
    **dict.fromkeys((f"relax.{n}" for n in ("builtin.stop_lift_params", "hint_on_device")), _SAME_VALUE),
    **dict.fromkeys((f"relax.grad.{name}_checkpoint" for name in ("start", "end")), _SAME_VALUE),
    **dict.fromkeys(("relax.grad.no_grad", "relax.wrap_param"), _SAME_VALUE),
}
# what LowerRuntimeBuiltin, which follows memory planning, and the code generator of TVM's machine know
_LATE = (
    *("call_builtin_with_ctx", "call_py_func", "invoke_closure", "make_closure", "null_value"),
    *("reshape", "shape_of", "tensor_to_shape", "to_vdevice"),
)
_GENERATED = MEMORY_OPERATORS.keys() | {f"relax.{name}" for name in _LATE}
# packed functions that are operations of the program
_PACKED: Mapping[str, tuple[int, Handler]] = {
    "relax.run.assert_op": (1, _assertion),
    "runtime.TVMTensorCreateView": (1, _take_view),
    "symalloc.pool.alloc_storage": _VM_STORAGE,
    "symalloc.pool.alloc_tensor": (4, _place_tensor),
    ALLOCATES: (1, _alloc_heap),
    "vm.builtin.alloc_storage": _VM_STORAGE,
    "vm.builtin.alloc_tensor": (4, _place_tensor),
    "vm.builtin.cuda_graph.get_cached_alloc": (1, _replayed(kept=True)),
    "vm.builtin.cuda_graph.run_or_capture": (2, _replayed(kept=False)),
    "vm.builtin.copy": _SAME_VALUE,  # despite its name it returns its argument
    "vm.builtin.ensure_zero_offset": (1, _ensure_zero_offset),
    "vm.builtin.make_shape": (2, _make_shape),
    "vm.builtin.make_tuple": (0, lambda site: ir.MakeTuple(**site.head, fields=site.operands)),
    "vm.builtin.match_prim_value": (4, _match_number),
    "vm.builtin.match_shape": (4, _match_shape),
    "vm.builtin.reshape": (2, _view_reshaped),
    "vm.builtin.tuple_getitem": (
        2,
        lambda site: ir.TakeField(
            **site.head, source=site.operand(0), index=site.constant(1, "a tuple index")
        ),
    ),
}
_CLOSURES = frozenset({"vm.builtin.invoke_closure", "vm.builtin.make_closure"})
# attributes that rules ask for
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "relax.take": ("axis", "mode"),
    **dict.fromkeys(NEEDS_ELEMENTS, ("axis", "k")),
}

"""ShrinkKernels: kernels that take less memory of their own, and give the same bits.

Stands in front of the planner, and of what schedules kernels.  Stages are written into those behind them
(`inline_stages`), and what is left of buffers lies in outputs (`shared_buffers`).  Kernels that are
scheduled, that call what is not seen, or store where data says are left as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from math import prod

import msgspec
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir import Call, GlobalVar
from tvm.ir.prim import expr as prim
from tvm.tirx.buffer import BufferType

from symalloc.planner.memory_plan import SHRINK, ShrinkChoice
from symalloc.planner.memory_report.non_arena import ShrunkKernel
from symalloc.relax.emit.emit_module import allocated
from symalloc.relax.emit.kernel_offsets import INDEX, accepts_offset
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    VarNode,
    bound,
    constant_extent,
    elements,
    may_divide_by_zero,
    nodes_in,
    same_extent,
    typed_var,
    with_arguments,
    with_parameters,
    with_shape,
    with_variables,
)
from symalloc.relax.rewrite import ModuleDraft, map_bindings, with_functions, without
from symalloc.relax.shrink.kernel_stages import (
    SPATIAL,
    Stage,
    alike,
    promises,
    same_results,
    stages_of,
    without_buffers,
)

NOT_PROVED = "it is not proved that the kernel would give the same without it"
NOT_APART = "the kernel does not promise that no two of its arguments overlap (tirx.noalias)"
NOT_PLAIN = "it is no sequence of plain loops: scheduled, opaque, or stored to where data says"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShrunkModule:
    """A module with its kernels rewritten, as it was `given`, and what became of those that took memory of
    their own, by name.
    """

    module: tvm.IRModule
    given: tvm.IRModule
    kernels: Mapping[str, ShrunkKernel] = field(default_factory=dict)


def shrink_kernels(module: tvm.IRModule, wanted: ShrinkChoice) -> ShrunkModule:
    """`module` with its kernels rewritten, as far as is `wanted`."""
    changed: dict[GlobalVar, tirx.PrimFunc] = {}
    found: dict[str, ShrunkKernel] = {}
    if wanted == "none":
        return ShrunkModule(module=module, given=module)
    for variable, kernel in module.functions_items():
        if not isinstance(kernel, tirx.PrimFunc) or type(kernel.body) is not s_tir.SBlockRealize:
            continue
        name, own = variable.name_hint, [one.name for one in elements(kernel.body.block.alloc_buffers)]
        if not own:
            continue
        if stages_of(kernel) is None or not promises(kernel):
            why = NOT_APART if stages_of(kernel) else NOT_PLAIN
            found[name] = ShrunkKernel(name=name, gone=0, left=dict.fromkeys(own, why))
            continue
        less, left = share_buffers(inline_stages(kernel, into_sums=wanted == "full"))
        if not same_results(kernel, less):
            left = dict.fromkeys(own, NOT_PROVED)
        if len(left) < len(own):
            changed[variable] = less
        found[name] = ShrunkKernel(name=name, gone=len(own) - len(left), left=left)
    return ShrunkModule(module=with_functions(module, changed), given=module, kernels=found)


@tvm.transform.module_pass(opt_level=0, name="ShrinkKernels")
class ShrinkKernels:
    """Rewrites kernels so that they take less memory of their own, and give the same bits.

    Stands behind FuseTIR, in front of what schedules kernels or plans memory.  `level`: "safe" or "full", as
    the option `shrink` has them.  Raises UsageError for another one.
    """

    def __init__(self, level: ShrinkChoice = "safe") -> None:
        self.level: ShrinkChoice = SHRINK.read("level", level)

    def transform_module(self, module: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """The module with its kernels rewritten."""
        return shrink_kernels(module, self.level).module


_UNROLLED = 128  # passes
_CHOICES = frozenset({"prim.if_then_else", "prim.likely"})
_COMPARED = (prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE)
_GROWING = (prim.Add, prim.Sub, prim.Mul, prim.LShift, prim.Cast, ir.Call)
_ROUNDED = frozenset({f"tirx.{n}" for n in ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf")})
"""Functions that neither begin with a sum of their argument nor end in a product."""


def inline_stages(kernel: tirx.PrimFunc, *, into_sums: bool) -> tirx.PrimFunc:
    """`kernel` with stages in those that read what they store.

    Each element is then computed no more often than before, and loops of reductions read no more than they
    did; with `into_sums` these read through copies and paddings, too.
    """
    schedule: s_tir.Schedule | None = None  # it takes its time
    now, stages = kernel, stages_of(kernel) or ()
    for name in [stage.name for stage in stages]:
        at = next((number for number, one in enumerate(stages) if one.name == name), len(stages))
        own = elements(now.body.block.alloc_buffers)
        stacked = [one for one in own if is_kept(one)]
        made = (stage.target for stage in stages[at : at + 1])
        moves = any(one.same_as(buffer) and not is_kept(one) for one in made for buffer in own)
        if moves and _can_go(stages[at], stages[at + 1 :], stacked, into_sums=into_sums):
            schedule = schedule or s_tir.Schedule(kernel, error_render_level="none")
            with suppress(Exception):  # TVM asks for more than is told here
                schedule.compute_inline(schedule.get_sblock(name))
                now = schedule.mod["main"]
                stages = stages_of(now) or ()
    return now.with_attrs(dict(kernel.attrs or {}))


def _can_go(stage: Stage, later: Sequence[Stage], stacked: Sequence[VarNode], *, into_sums: bool) -> bool:
    """Return whether a stage can stand in those behind it that read what it stores; some buffers are
    `stacked`.
    """
    buffer = stage.target
    readers = [one for one in later if one.loads(buffer)]
    if stage.reduces or not readers:
        return False
    if any(load.source.same_as(one.target) for load in stage.loads() for one in later):
        return False  # it would read what was overwritten
    plain = type(stage.value) is ir.TensorLoad
    dtype = buffer.ty.dtype.dtype
    rounded = str(dtype).startswith(("float", "bfloat")) and (dtype.bits < 32 or not stage.loads())
    if not plain and (len(readers) > 1 or rounded):
        return False
    as_often = all(_repeats_nothing(stage, one, plain=plain, into_sums=into_sums) for one in readers)
    divides = not stage.loads() and may_divide_by_zero(stage.value)  # also where a select leaves it out
    if not as_often or divides or _may_wrap(stage.value):
        return False
    return not any(_is_simplified(stage, one, stacked) for one in readers)


def _may_wrap(value: Node) -> bool:
    """Return whether TVM takes an integer for one without bounds, and it may not fit its type."""
    found = [one for one in nodes_in([value], *_GROWING) if one.ty.dtype.is_integer]
    choices = [one for one in found if type(one) is ir.Call and getattr(one.op, "name", None) in _CHOICES]
    return any(
        one.ty.dtype.bits < 32 or nodes_in([one], ir.TensorLoad)
        for one in found
        if one not in choices and type(getattr(one, "value", None)) is not ir.TensorLoad
    )


def _is_simplified(stage: Stage, reader: Stage, stacked: Sequence[VarNode]) -> bool:
    """Return whether TVM makes anything else of `reader` with the stage in it than of each by itself, as if
    nothing were rounded: y of x + y - x.  Or compilers may: whether they contract depends on what is around.
    """
    known, start = tvm.sym.Analyzer(), reader.block.init

    def inlined(load: Node) -> Node:
        places = zip(stage.place, elements(load.indices), strict=False)
        return with_variables(stage.value, [*places]) if load.source.same_as(stage.target) else load

    for value in (reader.value, *([] if start is None else [start.value])):
        whole = tvm_ffi.structural_map(value, (ir.TensorLoad, inlined))
        if not reader.reduces and _contracts(whole, stacked):
            return True
        compared = (nodes_in([one], ir.TensorLoad) for one in nodes_in([whole], *_COMPARED))
        if _is_copy(whole) and not any(compared):
            continue  # places tell what is loaded
        try:
            alone = (ir.TensorLoad, lambda load: known.simplify(inlined(load)))
            apart = tvm_ffi.structural_map(known.simplify(value), alone)
            if not same_extent(known.simplify(whole), apart):
                return True
        except tvm.error.InternalError:  # TVM would fail of it, too
            return True
    return False


def _repeats_nothing(stage: Stage, reader: Stage, *, plain: bool, into_sums: bool) -> bool:
    """Return whether `reader` costs no more with the stage in it."""
    if reader.reduces:
        copied = into_sums and _is_copy(stage.value) and not _is_unrolled(reader)
        return _is_renaming(stage) or (copied and _combines_alike(stage, reader))
    if plain:
        return True
    places = [elements(load.indices) for load in reader.loads(stage.target)]
    axes = [_axis(index, reader.axes) for index in places[0]]
    at_one_place = all(all(map(same_extent, places[0], other)) for other in places[1:])
    return at_one_place and None not in axes and len({*axes}) == len(reader.axes)


def _combines_alike(stage: Stage, reader: Stage) -> bool:
    """Return whether compilers make the same of what `reader` combines with a copy in it: no product of it
    becomes one for several passes, or for one that is chosen; nothing is compared with a chosen number, of
    which they leave one comparison out, also where it is with NaN.
    """
    used = {one.__chandle__() for one in nodes_in([stage.value], ir.Var)}
    factors = [one for one in nodes_in([reader.value], prim.Mul, prim.Div) if not one.ty.dtype.is_integer]
    compared = nodes_in([reader.value], prim.Max, prim.Min, *_COMPARED)
    fixed = nodes_in(factors, prim.FloatImm) or any(nodes_in([one], ir.TensorLoad) for one in compared)
    chosen = type(stage.value) is not ir.TensorLoad
    return not (chosen and fixed) and used.issuperset(one.__chandle__() for one in stage.axes)


def _is_unrolled(reduction: Stage) -> bool:
    """Return whether a stage adds up so few values that compilers unroll it: that runs on vectors, up to six
    times as fast, unless it chooses what to load.
    """
    axes = [one for one in elements(reduction.block.iter_vars) if one.iter_type != SPATIAL]
    extents = [constant_extent(axis.dom.extent) for axis in axes]
    few = None not in extents and prod(one or 0 for one in extents) <= _UNROLLED
    return few and type(reduction.value) is prim.Add


def _axis(index: Node, axes: Sequence[VarNode]) -> int | None:
    """The one axis that an index moves with, step by step, by its address."""
    while type(index) in (prim.Add, prim.Sub) and type(index.b) is prim.IntImm:
        index = index.a
    return index.__chandle__() if any(index.same_as(axis) for axis in axes) else None


def _is_renaming(stage: Stage) -> bool:
    """Return whether a stage copies a buffer as it is."""
    value = stage.value
    as_it_is = type(value) is ir.TensorLoad and alike(value.source, stage.target)
    return as_it_is and all(map(same_extent, elements(value.indices), stage.place))


def _is_copy(value: Node) -> bool:
    """Return whether a value is computed by nothing but choices."""
    if type(value) is ir.Call:
        return getattr(value.op, "name", None) in _CHOICES and all(map(_is_copy, elements(value.args)[1:]))
    return type(value) in (ir.TensorLoad, prim.FloatImm, prim.IntImm)


def _passed_on(value: Node) -> tuple[Node, ...]:
    """The operands of which one is the value, as it is, converted, or times what may be 1."""
    match value:
        case prim.Cast():
            return (value.value,)
        case prim.Select():
            return value.condition, value.true_value, value.false_value
        case prim.Let():
            return value.value, value.body
        case prim.Max() | prim.Min() | prim.Mul() | prim.Div():
            return value.a, value.b
        case ir.Call() if getattr(value.op, "name", None) in _CHOICES:
            return elements(value.args)
    return ()


def _is_product(value: Node, stacked: Sequence[VarNode]) -> bool:
    """Return whether a value may be what a multiplication gives, not yet rounded: compilers load it of no
    buffer that is `stacked`, but take what was stored.
    """
    if type(value) is ir.TensorLoad:
        return any(map(value.source.same_as, stacked))
    passed = _passed_on(value)
    if not passed and type(value) is ir.Call:
        return getattr(value.op, "name", None) not in _ROUNDED
    named = type(value) is ir.Var and not value.ty.dtype.is_integer
    return named or type(value) in (prim.Mul, prim.Div) or any(_is_product(one, stacked) for one in passed)


def _contracts(value: Node, stacked: Sequence[VarNode]) -> bool:
    """Return whether compilers may contract a product and a sum in a value, or in what a call becomes."""
    sums = (one for one in nodes_in([value], prim.Add, prim.Sub) if not one.ty.dtype.is_integer)
    calls = (one for one in nodes_in([value], ir.Call) if nodes_in([one], ir.TensorLoad))
    known = all(getattr(one.op, "name", None) in _ROUNDED | _CHOICES for one in calls)
    return not known or any(_is_product(term, stacked) for one in sums for term in (one.a, one.b))


def share_buffers(kernel: tirx.PrimFunc) -> tuple[tirx.PrimFunc, dict[str, str]]:
    """`kernel` with buffers of its own in its outputs, or in each other, and why others stay, by their names.

    A buffer lies in another one of the same type and shape where the last stage that uses it comes before the
    first that stores to the other, or is that one, and loads each element just where it stores.
    """
    stages = stages_of(kernel) or ()
    groups = [[param] for param in elements(kernel.params) if _is_output(stages, param)]
    pairs: list[tuple[VarNode, VarNode]] = []
    own = sorted(
        elements(kernel.body.block.alloc_buffers), key=lambda one: _uses(stages, one)[:1], reverse=True
    )
    left = {one.name: "TVM keeps it on the stack, or in a wider type" for one in own if is_kept(one)}
    for buffer in (one for one in own if one.name not in left):
        fitting = [group for group in groups if alike(buffer, group[0])]
        home = next((g for g in fitting if all(_dead_before(stages, buffer, one) for one in g)), None)
        if home is not None:
            home.append(buffer)
            pairs.append((buffer, home[0]))
            continue
        left[buffer.name] = "it is in use when they are written" if fitting else "it is as large as no output"
        groups += [[buffer]] if _is_full(stages, buffer) else []
    return _merged(kernel, pairs), left


def _uses(stages: Sequence[Stage], buffer: VarNode) -> list[int]:
    """The numbers of the stages that store to a buffer, or load of it."""
    return [n for n, one in enumerate(stages) if one.target.same_as(buffer) or one.loads(buffer)]


def _is_full(stages: Sequence[Stage], buffer: VarNode) -> bool:
    return all(stage.is_full for stage in stages if stage.target.same_as(buffer))


def _is_output(stages: Sequence[Stage], param: VarNode) -> bool:
    """Return whether a kernel stores to all of a parameter, before it loads anything of it."""
    used = _uses(stages, param)
    if not used or not _is_full(stages, param):
        return False
    first = stages[used[0]]
    return bool(first.target.same_as(param)) and (first.reduces or not first.loads(param))


def _dead_before(stages: Sequence[Stage], buffer: VarNode, other: VarNode) -> bool:
    """Return whether nothing uses an element of `buffer` once that of `other` is stored."""
    last = max(_uses(stages, buffer), default=-1)
    first = min(n for n, stage in enumerate(stages) if stage.target.same_as(other))
    if last != first:
        return last < first
    meeting = stages[last]
    places = (elements(load.indices) for load in meeting.loads(buffer))
    return not meeting.reduces and all(all(map(same_extent, at, meeting.place)) for at in places)


def _merged(kernel: tirx.PrimFunc, pairs: Sequence[tuple[VarNode, VarNode]]) -> tirx.PrimFunc:
    """`kernel` with the second buffer of each pair for the first."""
    if not pairs:
        return kernel
    gone = {old.__chandle__() for old, _ in pairs}
    body = with_variables(without_buffers(kernel.body, gone), pairs)
    return with_parameters(kernel, elements(kernel.params), body)


_ON_STACK = 1024  # bytes: TVM takes what is known to be smaller from the stack
_WIDENED = ("bfloat", "float8", "float6", "float4")  # in buffers of a kernel's own, where it is not rounded
_AS_THEY_ARE = ("tirx.is_scheduled", "global_symbol")  # kernels that others can call by name, too


def plan_workspaces(shrunk: ShrunkModule) -> ShrunkModule:
    """`shrunk`, as CallTIRRewrite leaves it, where callers allocate what its kernels still allocated.

    Kernels that are scheduled or public stay as they are, and so do buffers of a size that some caller does
    not know.
    """
    given, kernels = shrunk.module.functions, dict(shrunk.kernels)
    named = {variable.name_hint: variable for variable in given}
    lifted = {name: one for name in kernels if (one := _lifted(given[named[name]])) is not None}
    while lifted:
        module = _allocating(shrunk.module, lifted)
        functions = (f for f in module.functions.values() if isinstance(f, (relax.Function, tirx.PrimFunc)))
        used = {one.__chandle__() for one in nodes_in((f.body for f in functions), GlobalVar)}
        left = used & {named[name].__chandle__() for name in lifted}
        if not left:
            for name, one in lifted.items():
                buffers = tuple(buffer.name for buffer in one.buffers)
                why = {buffer: why for buffer, why in kernels[name].left.items() if buffer not in buffers}
                kernels[name] = msgspec.structs.replace(kernels[name], planned=buffers, left=why)
            return replace(shrunk, module=module, kernels=kernels)
        lifted = {name: one for name, one in lifted.items() if named[name].__chandle__() not in left}
    return shrunk


def _allocating(module: tvm.IRModule, lifted: Mapping[str, _Lifted]) -> tvm.IRModule:
    """`module` with these kernels, whose buffers those allocate that know how large they are."""
    draft = ModuleDraft(without(module, lifted))
    placed = {name: (draft.add(name, one.kernel), one) for name, one in lifted.items()}
    devices = elements(module.global_infos.get("vdevice", ()))

    def called(_: str, binding: BindingNode) -> list[relax.Binding] | None:
        value = binding.value
        if type(value) is not Call or getattr(value.op, "name_hint", None) not in placed:
            return None
        kernel, one = placed[value.op.name_hint]
        arguments = elements(value.args)
        device = next((a.ty.vdevice for a in arguments if type(a.ty) is relax.TensorType), None)
        made = []
        for buffer, extents in zip(one.buffers, one.shapes(arguments) or (), strict=False):
            kind = relax.TensorType(relax.ShapeExpr(extents), str(buffer.ty.dtype), vdevice=device)
            made.append(allocated(typed_var(f"{kernel.name_hint}_{buffer.name}", kind), devices))
        taken = [*arguments, *(each.var for each in made)]
        return [*made, bound(binding.var, with_arguments(value, taken, kernel))] if made else None

    return map_bindings(draft.finished(), called)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lifted:
    """A kernel with the parameters `buffers` behind those that it was `given`."""

    kernel: tirx.PrimFunc
    given: Sequence[VarNode]
    buffers: Sequence[VarNode]

    def shapes(self, arguments: Sequence[Node]) -> list[list[Node]] | None:
        """The extents of the buffers in a call; None where its arguments do not tell them."""
        known = list(_symbols(self.given, arguments))
        names = {symbol.__chandle__() for symbol, _ in known}
        extents = [elements(buffer.ty.shape) for buffer in self.buffers]
        used = nodes_in(chain.from_iterable(extents), ir.Var)
        if not all(one.__chandle__() in names and one.ty.dtype.is_integer for one in used):
            return None
        return [[_extent(with_variables(extent, known)) for extent in shape] for shape in extents]


def _symbols(params: Sequence[VarNode], arguments: Sequence[Node]) -> Iterator[tuple[VarNode, Node]]:
    """The symbols that a call binds, with their values."""
    for param, argument in zip(params, arguments, strict=False):
        if type(param.ty) is not BufferType:
            yield param, argument
            continue
        shape: Node | None = getattr(argument.ty, "shape", None)
        given = elements(shape.values) if shape is not None and type(shape) is relax.ShapeExpr else ()
        for extent, actual in zip(elements(param.ty.shape), given, strict=False):
            if type(extent) is ir.Var:
                yield extent, actual


def _extent(value: Node) -> Node:
    """An extent as shapes have them: a number where no symbol is left in it."""
    if type(value) is ir.Var:
        return value
    plain = tvm.sym.Analyzer().simplify(value)
    number = constant_extent(plain)
    return plain if number is None else tirx.IntImm("int64", number)


# -- kernels -------------------------------------------------------------------------------------------------


def _lifted(kernel: tirx.PrimFunc) -> _Lifted | None:
    """`kernel` with those of its own buffers as parameters that it takes from the pool outside of loops; None
    where there are none, or it hands them on.
    """
    root, given = kernel.body, elements(kernel.params)
    if type(root) is not s_tir.SBlockRealize or any(one in (kernel.attrs or {}) for one in _AS_THEY_ARE):
        return None
    block = root.block
    own = elements(block.alloc_buffers)
    outside = _used_in_several_parts(block.body) if own else frozenset()
    buffers = [one for one in own if one.__chandle__() in outside and _is_pooled(one)]
    if not buffers or block.init is not None or len(block.match_buffers):
        return None
    if any(loop.kind == tirx.ForKind.THREAD_BINDING for loop in nodes_in([root], tirx.For)):
        return None  # it is one of a GPU
    sizes = {size.__chandle__() for one in given if type(one.ty) is BufferType for size in one.ty.shape}
    shapes = ([_counted(one, sizes) for one in elements(buffer.ty.shape)] for buffer in buffers)
    sized = [
        typed_var(one.name, with_shape(one.ty, shape)) for one, shape in zip(buffers, shapes, strict=True)
    ]
    body = without_buffers(root, {one.__chandle__() for one in buffers})
    body = with_variables(body, [*zip(buffers, sized, strict=True)])
    made = with_parameters(kernel, [*given, *sized], body)
    if not accepts_offset(made).issuperset(range(len(given), len(given) + len(buffers))):
        return None
    return _Lifted(kernel=made, given=given, buffers=sized)


def _counted(extent: Node, sizes: Collection[int]) -> Node:
    """An extent, 0 where it may be negative: TVM takes nothing for it then; none of `sizes` is."""
    told = all(one.__chandle__() in sizes for one in nodes_in([extent], ir.Var))
    may = nodes_in([extent], prim.Sub) or any(one.value < 0 for one in nodes_in([extent], prim.IntImm))
    return extent if told and not may else tirx.max(extent, 0)


def _used_in_several_parts(body: Node) -> frozenset[int]:
    """The addresses of the variables that several of the statements of `body` mention, so that no loop holds
    all that is done with them.
    """
    found = Counter[int]()
    for part in elements(body.seq) if type(body) is tirx.SeqStmt else ():
        found.update({one.__chandle__() for one in nodes_in([part], ir.Var)})
    return frozenset(handle for handle, count in found.items() if count > 1)


def is_kept(buffer: VarNode) -> bool:
    """Return whether TVM takes no memory of its pool for a buffer that is small, or widens what is in it."""
    extents = [constant_extent(one) for one in elements(buffer.ty.shape)]
    known = [one for one in extents if one is not None]
    small = known == extents and prod(known) * buffer.ty.dtype.dtype.itemsize < _ON_STACK
    return small or str(buffer.ty.dtype.dtype).startswith(_WIDENED)


def _is_pooled(buffer: VarNode) -> bool:
    """Return whether TVM takes memory for a buffer from its pool, of a size that a caller can compute."""
    fits = all(constant_extent(one) is not None or one.ty == INDEX for one in elements(buffer.ty.shape))
    return fits and buffer.ty.storage_scope in ("", "global") and not is_kept(buffer)

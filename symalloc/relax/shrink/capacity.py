"""Inputs with room for more rows than they hold, such as a cache that a decoding step appends to.

The parameter gets the capacity in place of its length, and so does the output that is longer: an index means
the same element in both.  Kernels keep their loops, and take the length that the extent told them.  Behind
this the output is as large as the input, and donated it like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import NamedTuple

import tvm
import tvm_ffi
from tvm import relax, tirx

from symalloc.analysis.donation import Donation, Leaf, inputs_of, intermediates_of, outputs_of
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.planner.buffers.candidates import known_symbols
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Guard, GuardKind
from symalloc.program import ir
from symalloc.program.operands import callee_of, operands_of
from symalloc.program.types import extents_of
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import RefusedAliasError, chosen, named_leaf, refused
from symalloc.relax.emit.kernel_offsets import INDEX
from symalloc.relax.emit.prim_builder import GuardWriter, PrimBuilder
from symalloc.relax.ir_types import (
    BindingNode,
    Node,
    TypeNode,
    VarNode,
    bound,
    elements,
    free_name,
    of_type,
    typed_call,
    typed_var,
    with_arguments,
    with_parameters,
)
from symalloc.relax.rewrite import BindingRewriter, ModuleDraft, by_binding, forced_pure
from symalloc.relax.shrink.kernel_parts import Part, restores, stays_inside, with_parts
from symalloc.size.condition import le
from symalloc.size.expr import ZERO, Expr, symbol

_NAMES = (ir.AllocFresh, ir.Alias, ir.MakeTuple, ir.TakeField)


class _Roomy(NamedTuple):
    """An input that holds `length` rows, the output `made` of it, which has `longer`, and both in calls: the
    positions of them in a kernel's arguments, by the variable of the call.
    """

    input: Leaf
    output: Leaf
    made: ir.Instruction | None
    axis: int
    rows: str
    length: Expr
    longer: Expr
    uses: Mapping[ir.Var, Sequence[int]]


def with_capacity(
    module: tvm.IRModule,
    program: ir.Program,
    donations: Sequence[Donation],
    prover: Prover,
    guards: GuardKind,
) -> tvm.IRModule:
    """`module`, as CallTIRRewrite leaves it, whose functions take and give tensors with room for more rows.

    `program` is what was extracted from it.  Lengths that no tensor tells any more are a last argument.
    Raises PlanRefusedError where it is not proved that nothing looks at what is behind the rows.
    """
    analyses, draft = analyse(program), ModuleDraft(module)
    wanted = chosen((one for one in donations if one.capacity is not None), program, analyses)
    for name, given in wanted.items():
        roomy: list[_Roomy] = []
        for one in given:
            with refused(one, name):
                roomy.append(_found(program, analyses[name], one, prover))
        writer = _RoomyFunction(draft=draft, analysis=analyses[name], roomy=roomy)
        variable = module.get_global_var(name)
        draft.functions[variable] = writer.written(module[variable], guards)
    return draft.without_unused()


def _found(program: ir.Program, analysis: FunctionAnalysis, donation: Donation, prover: Prover) -> _Roomy:
    """The input and the output that a donation means; raises RefusedAliasError."""
    points_to, cfg, rows = analysis.points_to, analysis.cfg, str(donation.capacity)
    source = named_leaf(donation.input, inputs_of(points_to), "input")
    output = named_leaf(donation.output, outputs_of(points_to), "output", intermediates_of(points_to))
    own, region = points_to.only_region(source.cell), points_to.only_region(output.cell)
    made = None if region is None else region.instruction
    shapes = tuple(extents_of(source.type)), (isinstance(made, ir.AllocFresh) and made.shape) or ()
    axes = [axis for axis, (one, other) in enumerate(zip(*shapes, strict=False)) if one != other]
    if len(shapes[0]) != len(shapes[1]) or len(axes) != 1 or own is None or region is None:
        said = (f"({', '.join(map(str, shape))})" for shape in shapes)
        why = "do not differ in the extent of one axis alone, or the function allocates no such output"
        raise RefusedAliasError(f"{' and '.join(said)} {why}")
    length, longer = (shape[axes[0]] for shape in shapes)
    plain = all(one.as_constant is not None or one.as_symbol for one in (length, longer - length))
    if not plain or not prover.prove(le(length, longer), known_symbols(cfg).domain, explain=False).holds:
        raise RefusedAliasError(f"{output} has {longer} rows and {source} {length}: not a size, and more")
    if rows in cfg.function.symbols:
        raise RefusedAliasError(f"the function has a size `{rows}`; call the rows otherwise")
    uses: dict[ir.Var, list[int]] = {}
    for one in cfg.definitions.values():
        for position, operand in enumerate((*operands_of(one), one.var)):
            found = points_to.roots(points_to.regions_of(operand))
            if isinstance(one, _NAMES) or found.isdisjoint((own.root, region.root)):
                continue
            who, only = callee_of(one) or one.var.name, points_to.only_region(points_to.value_of(operand))
            if not isinstance(one, ir.CallKernel) or only is None:
                raise RefusedAliasError(f"`{who}` takes {source}, or what is longer, as bytes in a row")
            if not stays_inside(program.kernels[who], position, prover):
                why = f"it is not proved that `{who}` touches nothing behind the rows of its argument"
                raise RefusedAliasError(f"{why} {position}, {source} or what is longer")
            uses.setdefault(one.var, []).append(position)
    return _Roomy(source, output, made, axes[0], rows, length, longer, uses)


def _roomy_kernel(
    name: str, kernel: tirx.PrimFunc, rooms: Mapping[int, _Roomy]
) -> tuple[Node, Sequence[tuple[int, int]]]:
    """`kernel` with room behind the rows of some parameters, by their positions, and whose extent on which
    axis it takes behind its parameters; raises PlanRefusedError where it is not proved that it does the same.
    """
    params, extents, parts = elements(kernel.params), dict[str, VarNode](), dict[int, Part]()
    lengths: dict[VarNode, tuple[int, int]] = {}
    for position, one in rooms.items():
        shape = elements(params[position].ty.shape)
        own, room = shape[one.axis], extents.setdefault(one.rows, typed_var(one.rows, INDEX))
        if type(own) is tvm.ir.Var and not any(map(own.same_as, (*params, *lengths))):
            lengths[own] = position, one.axis
        whole = (room if number == one.axis else None for number in range(len(shape)))
        parts[position] = Part((0,) * len(shape), tuple(whole))
    given = with_parameters(kernel, [*params, *lengths], kernel.body)
    made = with_parts(given, parts)
    if made is None or not restores(given, made, {at: one.offsets for at, one in parts.items()}):
        raise PlanRefusedError(f"`{name}` is not proved to do the same with room behind rows")
    return made, [*lengths.values()]


@dataclass(slots=True, kw_only=True)
class _RoomyFunction(BindingRewriter):
    """Writes one function; `taken` are the new variables by the addresses of the old ones."""

    draft: ModuleDraft
    analysis: FunctionAnalysis
    roomy: Sequence[_Roomy]
    taken: dict[int, VarNode] = field(default_factory=dict)
    kernels: dict[tuple[str, object], tuple[Node, Sequence[tuple[int, int]]]] = field(default_factory=dict)
    rooms: dict[str, VarNode] = field(default_factory=dict)
    instructions: Mapping[int, ir.Instruction] = field(init=False)

    def written(self, function: relax.Function, guards: GuardKind) -> relax.Function:
        """The function."""
        self.instructions = by_binding(self.analysis.cfg)
        given, attributes = elements(function.params), (function.is_pure, function.attrs, function.span)
        params = [*given]
        for one in self.roomy:
            index = one.input.parameter or 0
            kind = self.widened(params[index].ty, one, one.input.path)
            params[index] = typed_var(params[index].name, kind)
        self.taken = {old.__chandle__(): new for old, new in zip(given, params, strict=True)}
        seq = self.sequence(function.body)
        lost = relax.analysis.free_symbolic_vars(relax.Function(params, seq, seq.body.ty))
        if lost:
            name = free_name("lengths", {param.name for param in params})
            params.append(typed_var(name, relax.ShapeType(lost)))
        alike = {(one.rows, one.length, one.longer): one for one in reversed(self.roomy)}
        checks = relax.BindingBlock([self.check(guards, one) for one in alike.values()])
        body = of_type(relax.SeqExpr([checks, *elements(seq.blocks)], seq.body, seq.span), seq.body.ty)
        return forced_pure(relax.Function(params, body, body.ty, *attributes))

    def widened(self, kind: TypeNode, one: _Roomy, path: Sequence[int] = ()) -> TypeNode:
        """The type of a tensor, or of the field at `path` of a tuple, with room for more rows."""
        if path:
            fields = [*elements(kind.fields)]
            fields[path[0]] = self.widened(fields[path[0]], one, path[1:])
            return tvm.ir.TupleType(fields)
        shape = [*elements(kind.shape.values)]
        shape[one.axis] = self.rooms.setdefault(one.rows, typed_var(one.rows, INDEX))
        return relax.TensorType(relax.ShapeExpr(shape), kind.dtype, kind.vdevice)

    def check(self, kind: GuardKind, one: _Roomy) -> BindingNode:
        """The check that there is room, and that what the caller says is a length."""
        function, room, sign = self.analysis.cfg.function, symbol(one.rows), le(ZERO, one.length)
        fits = le(one.length, room - (one.longer - one.length))
        guards = Guard(condition=le(one.longer, room), check=fits), Guard(condition=sign, check=sign)
        prims = PrimBuilder({**function.variables, **self.rooms})
        writer = GuardWriter(kind=kind, function=function.name, prims=prims)
        return writer.fit(guards, str(one.output), str(one.input))

    def value(self, value: Node) -> Node:
        """A value with new variables in it."""
        if type(value) is tvm.ir.Var:
            return self.taken.get(value.__chandle__(), value)
        if isinstance(value, relax.Tuple | relax.TupleGetItem):
            whole = isinstance(value, relax.Tuple)
            old = elements(value.fields) if whole else (value.tuple_value,)
            new = [*map(self.value, old)]
            if not all(map(is_, new, old)):
                made = relax.Tuple(new) if whole else relax.TupleGetItem(*new, value.index)
                return self.builder.normalize(made)
        return value

    def rewrite(self, binding: BindingNode) -> Iterable[relax.Binding]:
        """`binding` with tensors that have room."""
        instruction, old = self.instructions.get(binding.__chandle__()), binding.var
        if isinstance(instruction, ir.CallKernel):
            return [self.called(binding, instruction)]
        found = self.value(binding.value)
        for one in self.roomy:
            if instruction is one.made:
                kind, call = self.widened(old.ty, one), binding.value
                arguments = [kind.shape, *elements(call.args)[1:]]
                found = typed_call(call.op, arguments, kind, [kind], call.span)
        if found is binding.value:
            return BindingRewriter.rewrite(self, binding)
        if tvm_ffi.structural_equal(old.ty, found.ty):
            return [bound(old, found)]
        var = self.taken[old.__chandle__()] = typed_var(old.name, found.ty)
        return [bound(var, found)]

    def called(self, binding: BindingNode, call: ir.CallKernel) -> BindingNode:
        """The call of a kernel with those of its arguments that have room."""
        rooms = {position: one for one in self.roomy for position in one.uses.get(call.var, ())}
        if not rooms:
            return binding
        key = call.kernel, tuple((position, one.axis, one.rows) for position, one in rooms.items())
        if key not in self.kernels:
            made, lengths = _roomy_kernel(call.kernel, self.draft.module[call.kernel], rooms)
            self.kernels[key] = self.draft.add(f"{call.kernel}_with_room", made), lengths
        (kernel, lengths), arguments = self.kernels[key], elements(binding.value.args)
        told = [elements(arguments[position].ty.shape.values)[axis] for position, axis in lengths]
        return bound(binding.var, with_arguments(binding.value, [*map(self.value, arguments), *told], kernel))

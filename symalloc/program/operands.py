"""The operands of instructions, the variables and functions in them, and their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from symalloc.program import ir
from symalloc.program.ir import MatchCast
from symalloc.program.types import OpaqueType, ScalarType, ShapeType, TensorType, TupleType, Type, extents_of
from symalloc.size.condition import Condition, eq
from symalloc.size.expr import Expr

_OPERANDS: dict[type, Callable[[Any], tuple[ir.Operand, ...]]] = {
    ir.AllocTensor: lambda i: (i.storage,),
    ir.Alias: lambda i: (i.source,),
    ir.MatchCast: lambda i: (i.source,),
    ir.View: lambda i: (i.source,),
    ir.TakeField: lambda i: (i.source,),
    ir.MakeTuple: lambda i: i.fields,
    ir.CallKernel: lambda i: i.arguments,
    ir.CallPacked: lambda i: i.arguments,
    ir.CallFunction: lambda i: i.arguments,
    ir.CallOperator: lambda i: i.arguments,
    ir.CallTIR: lambda i: i.inputs,
    ir.Assert: lambda i: i.reads,
    ir.Kill: lambda i: (i.target,),
    ir.If: lambda i: (i.test,),
    ir.NotUnderstood: lambda i: i.reads,
}


def operands_of(instruction: ir.Instruction) -> tuple[ir.Operand, ...]:
    """The operands of `instruction`, in order; of an If its test only (its blocks are steps of their own)."""
    getter = _OPERANDS.get(type(instruction))
    return getter(instruction) if getter is not None else ()


def callee_of(instruction: ir.Instruction | None) -> str | None:
    """The name of the kernel, function or operator that an instruction calls."""
    match instruction:
        case ir.CallKernel(kernel=name) | ir.CallTIR(kernel=name):
            return name
        case ir.CallPacked(name=name) | ir.CallFunction(name=name) | ir.CallOperator(name=name):
            return name
    return None


def inplace_operands(call: ir.CallTIR | ir.CallPacked) -> tuple[ir.Operand, ...]:
    """The operands that an in-place call overwrites, one for each result that lies in one."""
    inputs = call.inputs if isinstance(call, ir.CallTIR) else call.arguments
    return tuple(inputs[i] for i in call.inplace if i is not None and 0 <= i < len(inputs))


def leaves_in(operand: ir.Operand) -> Iterator[ir.Operand]:
    """The operands in `operand` that are no tuple literals, in order."""
    if not isinstance(operand, ir.TupleValue):
        yield operand
        return
    for item in operand.items:
        yield from leaves_in(item)


def variables_in(operand: ir.Operand) -> Iterator[ir.Var]:
    """The variables of `operand`, those inside tuple literals too."""
    return (leaf for leaf in leaves_in(operand) if isinstance(leaf, ir.Var))


def variables_of(instruction: ir.Instruction) -> tuple[ir.Var, ...]:
    """The variables that `instruction` uses, in order."""
    found: list[ir.Var] = []
    for operand in operands_of(instruction):
        if type(operand) is ir.Var:
            found.append(operand)
        elif type(operand) is ir.TupleValue:
            found += variables_in(operand)
    return tuple(found)


def other_names(
    operand: ir.Operand,
    definitions: Mapping[ir.Var, ir.Instruction],
    path: tuple[int, ...] = (),
    *,
    views: bool = False,
) -> Iterator[tuple[ir.Operand, tuple[int, ...]]]:
    """Yield what the field `path` of an operand is another name of, itself first: (operand, path in it).

    With `views` those of all bytes are other names, too.
    """
    while True:
        while isinstance(operand, ir.TupleValue) and path and path[0] < len(operand.items):
            operand, path = operand.items[path[0]], path[1:]
        yield operand, path
        match definitions.get(operand) if isinstance(operand, ir.Var) else None:
            case ir.Alias(source=source) | ir.MatchCast(source=source):
                operand = source
            case ir.View(kind="reshape" | "ensure_zero_offset", source=source) if views:
                operand = source
            case ir.TakeField(source=source, index=index):
                operand, path = source, (index, *path)
            case ir.MakeTuple(fields=items) if path and path[0] < len(items):
                operand, path = items[path[0]], path[1:]
            case _:
                return


def function_references(operands: Iterable[ir.Operand]) -> Iterator[str]:
    """The functions of the module among operands, those inside tuple literals too."""
    leaves = (leaf for operand in operands for leaf in leaves_in(operand))
    return (leaf.name for leaf in leaves if isinstance(leaf, ir.FunctionRef))


def instructions_of(block: ir.Block) -> Iterator[ir.Instruction]:
    """All instructions of `block` in the order of the text; an If stands before those of its two blocks."""
    for instruction in block.instructions:
        yield instruction
        if isinstance(instruction, ir.If):
            yield from instructions_of(instruction.then)
            yield from instructions_of(instruction.otherwise)


def type_of(operand: ir.Operand) -> Type:
    """The type of an operand; opaque for literals that hold no memory."""
    if isinstance(operand, ir.Var) or hasattr(operand, "type"):
        found: Type = operand.type
        return found
    if isinstance(operand, ir.TupleValue):
        return TupleType(fields=tuple(map(type_of, operand.items)))
    if isinstance(operand, ir.Scalar):
        return ScalarType(value=operand.value, dtype=None)
    values = getattr(operand, "values", None)
    return ShapeType(values=values, ndim=len(values)) if values is not None else OpaqueType()


def tensor_type(operand: ir.Operand) -> TensorType | None:
    """The type of an operand that is a tensor; None for anything else."""
    found = type_of(operand)
    return found if isinstance(found, TensorType) else None


def expressions_of(instruction: ir.Instruction) -> Iterator[Expr]:
    """The extents, sizes and offsets that an instruction names."""
    yield from extents_of(instruction.var.type)
    for operand in operands_of(instruction):
        yield from extents_of(type_of(operand))
    for name in ("size", "offset"):
        value = getattr(instruction, name, None)
        if value is not None:
            yield value
    yield from getattr(instruction, "shape", None) or ()


# -- R.match_cast taken apart ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CastReading:
    """`definitions` gives the symbols bound here from known extents; `compared` the other pairs (source,
    target).

    `unchecked` holds the numbers of pairs whose target is a bare symbol with a value already: TVM 0.27's
    KillAfterLastUse takes such an R.match_cast for a definition and drops it, so that nothing compares them
    when the module runs, and behind it the symbol stands for the source.
    """

    definitions: dict[str, Expr] = field(default_factory=dict)
    compared: tuple[tuple[int, Expr, Expr], ...] = ()
    unchecked: frozenset[int] = frozenset()

    @property
    def facts(self) -> tuple[Condition, ...]:
        """The facts behind the cast."""
        checked = (pair for pair in self.compared if pair[0] not in self.unchecked)
        facts = (eq(source, target) for _, source, target in checked)
        return tuple(fact for fact in facts if fact.as_bool is None)


def read_cast(cast: MatchCast) -> CastReading:
    """Take `cast` apart; the number of an extent counts through all tensors of a tuple."""
    pairs = tuple(enumerate(extent_pairs(type_of(cast.source), cast.target)))
    definitions: dict[str, Expr] = {}
    binding: set[int] = set()
    for index, (source, target) in pairs:
        name = target.as_symbol
        if (
            name is not None
            and name in cast.defines
            and name not in definitions
            and name not in source.symbols
        ):
            definitions[name] = source
            binding.add(index)
    compared = tuple(
        (index, source, target.substitute(definitions))
        for index, (source, target) in pairs
        if index not in binding
    )
    named = {None, *definitions}  # what a symbol that is bound here stands for is compared
    bare = frozenset(index for index, (_, target) in pairs if cast.returns and target.as_symbol not in named)
    return CastReading(definitions=definitions, compared=compared, unchecked=bare)


def extent_pairs(source: Type, target: Type) -> Iterator[tuple[Expr, Expr]]:
    """The extents (and scalars) of two types side by side, where both are known."""
    match source, target:
        case TupleType(fields=left), TupleType(fields=right):
            for a, b in zip(left, right, strict=False):
                yield from extent_pairs(a, b)
        case (TensorType(shape=known), TensorType(shape=wanted)) | (
            ShapeType(values=known),
            ShapeType(values=wanted),
        ) if known and wanted and len(known) == len(wanted):
            yield from zip(known, wanted, strict=True)
        case ScalarType(value=a), ScalarType(value=b) if a is not None and b is not None:
            yield a, b

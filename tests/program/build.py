"""Programs written by hand, tersely.

    f = Body()
    s = f.storage(64)
    a = f.tensor(s, "n", offset=0)
    f.call("fill", a)
    program = f.program(a)

Sizes and extents are integers or texts of the constraint language; tensors are of bytes (uint8) unless
said otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from symalloc.program import ir
from symalloc.program.types import DType, OpaqueType, ShapeType, StorageType, TensorType, TupleType, Type
from symalloc.size.expr import Expr, constant
from symalloc.size.parse import parse_condition, parse_expr

Size = int | str | Expr
U8 = DType("uint8", 8)
F32 = DType("float32", 32)
NOTHING = ir.TupleValue(())


def size(value: Size) -> Expr:
    if isinstance(value, str):
        return parse_expr(value)
    return value if isinstance(value, Expr) else constant(value)


def shape(*extents: Size) -> tuple[Expr, ...]:
    return tuple(map(size, extents))


def tensor_of(*extents: Size, dtype: DType = U8) -> TensorType:
    return TensorType(shape=shape(*extents), dtype=dtype, ndim=len(extents))


def buffer(
    name: str, *extents: Size, reads: bool = True, writes: bool = True, **more: Any
) -> ir.KernelBuffer:
    return ir.KernelBuffer(
        name=name, shape=shape(*extents), dtype=more.pop("dtype", U8), reads=reads, writes=writes, **more
    )


KERNELS = {
    kernel.name: kernel
    for kernel in (
        ir.Kernel(name="fill", parameters=(buffer("out", "k", reads=False, must_def=True),)),
        ir.Kernel(name="scatter", parameters=(buffer("out", "k", reads=False),)),
        ir.Kernel(
            name="copy",
            parameters=(buffer("a", "k", writes=False), buffer("out", "j", reads=False, must_def=True)),
        ),
        ir.Kernel(name="update", parameters=(buffer("a", "k"),)),
        ir.Kernel(name="read", parameters=(buffer("a", "k", writes=False),)),
        ir.Kernel(
            name="add",
            parameters=(
                buffer("a", "k", writes=False),
                buffer("b", "k", writes=False),
                buffer("out", "k", reads=False, must_def=True),
            ),
        ),
    )
}


NAMES: Mapping[str, Any] = {"F32": F32, "OPAQUE": OpaqueType(), "IMPURE": False, **ir.Ownership.__members__}


class Body:
    """Builds one function; every method that binds a variable returns it."""

    def __init__(self, *params: ir.Var, name: str = "main") -> None:
        self.name, self.params = name, params
        self.blocks: list[list[ir.Instruction]] = [[]]
        self.count = 0
        self.called: str | None = None  # the name of the variable that is made next
        self.named: dict[str, Any] = {**NAMES, **{one.name: one for one in params}}

    def emit(self, instruction: ir.Instruction) -> ir.Var:
        self.blocks[-1].append(instruction)
        return instruction.var

    def var(self, kind: Type, name: str | None = None) -> ir.Var:
        self.count += 1
        return ir.Var(name or self.called or f"v{self.count}", kind)

    def storage(self, nbytes: Size, name: str | None = None, **more: Any) -> ir.Var:
        return self.emit(ir.AllocStorage(var=self.var(StorageType(), name), size=size(nbytes), **more))

    def tensor(
        self,
        storage: ir.Operand,
        *extents: Size,
        offset: Size = 0,
        dtype: DType = U8,
        name: str | None = None,
        **more: Any,
    ) -> ir.Var:
        var = self.var(tensor_of(*extents, dtype=dtype), name)
        more |= {"storage": storage, "offset": size(offset), "shape": shape(*extents), "dtype": dtype}
        return self.emit(ir.AllocTensor(var=var, **more))

    def fresh(self, *extents: Size, dtype: DType = U8, name: str | None = None, device: int = 0) -> ir.Var:
        """A tensor with memory of its own, as it is before planning."""
        var = self.var(tensor_of(*extents, dtype=dtype), name)
        return self.emit(ir.AllocFresh(var=var, shape=shape(*extents), dtype=dtype, device=device))

    def follow(self, steps: str, **known: Any) -> dict[str, Any]:
        """Take steps such as `copy x a`: a kernel; `part = view a 4 offset=2`: a value that gets this name.

        Return all values that have names: parameters, those of steps before, and `known`.
        """
        self.named |= known
        for step in filter(None, steps.split("; ")):
            name, _, text = step.rpartition(" = ")
            verb, *words = text.split()
            operands, named = list[Any](), dict[str, Any]()
            for word in words:
                key, value = word.split("=") if re.fullmatch(r"\w+=[^=]+", word) else ("", word)
                found = int(value) if value.isdigit() else self.named.get(value, value)
                if key:
                    named[key] = found
                else:
                    operands.append(found)
            if name:
                self.called = name
                self.named[name] = getattr(self, verb)(*operands, **named)
                self.called = None
            else:
                self.call(verb, *operands)
        return self.named

    def call(self, kernel: str, *arguments: ir.Operand) -> None:
        self.emit(ir.CallKernel(var=self.var(TupleType(fields=())), kernel=kernel, arguments=arguments))

    def alias(self, source: ir.Operand, name: str | None = None) -> ir.Var:
        return self.emit(ir.Alias(var=self.var(_type(source), name), source=source))

    def view(
        self, source: ir.Var, *extents: Size, offset: Size | None = 0, kind: str = "view", dtype: DType = U8
    ) -> ir.Var:
        var = self.var(tensor_of(*extents, dtype=dtype))
        where = None if offset is None else size(offset)
        made: Any = ir.View(
            var=var, source=source, shape=shape(*extents), dtype=dtype, offset=where, kind=kind
        )  # type: ignore[arg-type]
        return self.emit(made)

    def reshape(self, source: ir.Var, *extents: Size) -> ir.Var:
        return self.view(source, *extents, kind="reshape")

    def settle(self, source: ir.Var) -> ir.Var:
        """R.memory.ensure_zero_offset."""
        how: Any = {"shape": None, "dtype": None, "offset": None, "kind": "ensure_zero_offset"}
        return self.emit(ir.View(var=self.var(source.type), source=source, **how))

    def tuple(self, *fields: ir.Operand) -> ir.Var:
        return self.emit(
            ir.MakeTuple(var=self.var(TupleType(fields=tuple(map(_type, fields)))), fields=fields)
        )

    def take(self, source: ir.Var, index: int) -> ir.Var:
        kind = source.type.fields[index] if isinstance(source.type, TupleType) else OpaqueType()
        return self.emit(ir.TakeField(var=self.var(kind), source=source, index=index))

    def packed(
        self,
        name: str,
        *arguments: ir.Operand,
        kind: Type | None = None,
        ownership: ir.Ownership = ir.Ownership.UNKNOWN,
        pure: bool = True,
        writes: Sequence[int] = (),
        **more: Any,
    ) -> ir.Var:
        var, written = self.var(kind or _type(arguments[0])), frozenset(writes)
        how = {"ownership": ownership, "pure": pure, "writes": written, **more}
        return self.emit(ir.CallPacked(var=var, name=name, arguments=arguments, **how))

    def argument(self, source: ir.Var) -> ir.Var:
        """What a packed function returns that returns its argument."""
        return self.packed("f", source, ownership=ir.Ownership.ARGUMENT)

    def function(self, name: str, *arguments: ir.Operand, kind: Type) -> ir.Var:
        return self.emit(ir.CallFunction(var=self.var(kind), name=name, arguments=arguments))

    def kill(self, target: ir.Var) -> None:
        kind: Any = "storage" if isinstance(target.type, StorageType) else "tensor"
        self.emit(ir.Kill(var=self.var(TupleType(fields=())), target=target, kind=kind))

    def check(self, condition: str) -> None:
        self.emit(ir.Assert(var=self.var(TupleType(fields=())), condition=parse_condition(condition)))

    def cast(self, source: ir.Var, *extents: Size, defines: Sequence[str] = ()) -> ir.Var:
        var, names = self.var(tensor_of(*extents)), frozenset(defines)
        return self.emit(ir.MatchCast(var=var, source=source, target=tensor_of(*extents), defines=names))

    def branch(
        self,
        then: Callable[[], ir.Operand],
        otherwise: Callable[[], ir.Operand],
        *,
        condition: str | None = None,
        test: ir.Operand | None = None,
        name: str | None = None,
    ) -> ir.Var:
        """An If whose blocks `then` and `otherwise` emit; they return what the blocks yield."""
        first, second = self._block(then), self._block(otherwise)
        known = None if condition is None else parse_condition(condition)
        test = ir.ShapeValue(values=()) if test is None else test
        var = self.var(_type(first.result), name)
        return self.emit(ir.If(var=var, condition=known, test=test, then=first, otherwise=second))

    def sides(self, then: str, otherwise: str, *results: str, test: ir.Operand | None = None) -> ir.Var:
        """An If with steps on both sides; `results` name what they yield, else it is the first parameter."""

        def side(steps: str, result: str) -> Callable[[], ir.Operand]:
            return lambda: self.follow(steps)[result]

        one, other = results or (self.params[0].name,) * 2
        test = ir.TextLiteral("c") if test is None else test
        return self.branch(side(then, one), side(otherwise, other), test=test)

    def _block(self, make: Callable[[], ir.Operand]) -> ir.Block:
        self.blocks.append([])
        result = make()
        return ir.Block(instructions=tuple(self.blocks.pop()), result=result)

    def finish(
        self, result: ir.Operand = NOTHING, *, symbols: Mapping[str, ir.Origin] | None = None, **more: Any
    ) -> ir.Function:
        given = {"n": ir.Origin.DIMENSION, "m": ir.Origin.DIMENSION} if symbols is None else symbols
        return ir.Function(
            name=self.name,
            params=self.params,
            body=ir.Block(instructions=tuple(self.blocks[0]), result=result),
            result_type=_type(result),
            symbols=given,
            **more,
        )

    def program(self, result: ir.Operand = NOTHING, *others: ir.Function, **more: Any) -> ir.Program:
        return program_of(self.finish(result, **more), *others)


def program_of(*functions: ir.Function, kernels: Mapping[str, ir.Kernel] = KERNELS) -> ir.Program:
    return ir.Program(name="Module", functions={f.name: f for f in functions}, kernels=kernels)


def param(name: str, *extents: Size, dtype: DType = U8) -> ir.Var:
    return ir.Var(name, tensor_of(*extents, dtype=dtype))


def scalar_kernel(name: str, *parameters: ir.KernelBuffer | str) -> ir.Kernel:
    """A kernel; texts among its parameters are scalars."""
    return ir.Kernel(
        name=name, parameters=tuple(ir.KernelScalar(name=p) if isinstance(p, str) else p for p in parameters)
    )


def _type(operand: ir.Operand) -> Type:
    if isinstance(operand, ir.TupleValue):
        return TupleType(fields=tuple(map(_type, operand.items)))
    if isinstance(operand, ir.ShapeValue):
        return ShapeType(values=operand.values)
    return getattr(operand, "type", OpaqueType())

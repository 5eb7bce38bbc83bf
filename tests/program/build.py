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

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from symalloc.program.ir import (
    Alias,
    AllocStorage,
    AllocTensor,
    Assert,
    Block,
    CallFunction,
    CallKernel,
    CallPacked,
    Function,
    If,
    Instruction,
    Kernel,
    KernelBuffer,
    KernelScalar,
    Kill,
    MakeTuple,
    MatchCast,
    Operand,
    Origin,
    Ownership,
    Program,
    ShapeValue,
    TakeField,
    TupleValue,
    Var,
    View,
)
from symalloc.program.types import (
    DType,
    OpaqueType,
    ShapeType,
    StorageType,
    TensorType,
    TupleType,
    Type,
)
from symalloc.size.expr import Expr, constant
from symalloc.size.parse import parse_condition, parse_expr

Size = int | str
U8 = DType("uint8", 8)
F32 = DType("float32", 32)
NOTHING = TupleValue(())


def size(value: Size) -> Expr:
    return constant(value) if isinstance(value, int) else parse_expr(value)


def shape(*extents: Size) -> tuple[Expr, ...]:
    return tuple(map(size, extents))


def tensor_of(*extents: Size, dtype: DType = U8) -> TensorType:
    return TensorType(shape=shape(*extents), dtype=dtype, ndim=len(extents))


def buffer(name: str, *extents: Size, reads: bool = True, writes: bool = True, **more: Any) -> KernelBuffer:
    return KernelBuffer(
        name=name, shape=shape(*extents), dtype=more.pop("dtype", U8), reads=reads, writes=writes, **more
    )


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel(name="fill", parameters=(buffer("out", "k", reads=False, must_def=True),)),
        Kernel(name="scatter", parameters=(buffer("out", "k", reads=False),)),
        Kernel(
            name="copy",
            parameters=(buffer("a", "k", writes=False), buffer("out", "j", reads=False, must_def=True)),
        ),
        Kernel(name="update", parameters=(buffer("a", "k"),)),
        Kernel(name="read", parameters=(buffer("a", "k", writes=False),)),
        Kernel(
            name="add",
            parameters=(
                buffer("a", "k", writes=False),
                buffer("b", "k", writes=False),
                buffer("out", "k", reads=False, must_def=True),
            ),
        ),
    )
}


class Body:
    """Builds one function; every method that binds a variable returns it."""

    def __init__(self, *params: Var, name: str = "main") -> None:
        self.name, self.params = name, params
        self.blocks: list[list[Instruction]] = [[]]
        self.count = 0

    def emit(self, instruction: Instruction) -> Var:
        self.blocks[-1].append(instruction)
        return instruction.var

    def var(self, kind: Type, name: str | None = None) -> Var:
        self.count += 1
        return Var(name or f"v{self.count}", kind)

    def storage(self, nbytes: Size, name: str | None = None, **more: Any) -> Var:
        return self.emit(AllocStorage(var=self.var(StorageType(), name), size=size(nbytes), **more))

    def tensor(
        self,
        storage: Operand,
        *extents: Size,
        offset: Size = 0,
        dtype: DType = U8,
        name: str | None = None,
        **more: Any,
    ) -> Var:
        var = self.var(tensor_of(*extents, dtype=dtype), name)
        return self.emit(
            AllocTensor(
                var=var, storage=storage, offset=size(offset), shape=shape(*extents), dtype=dtype, **more
            )
        )

    def follow(self, steps: str, **known: Any) -> dict[str, Any]:
        """Take steps such as `copy x a`: a kernel; `part = view a 4`: a value made of others, by a name."""
        for step in steps.split("; "):
            name, _, text = step.rpartition(" = ")
            verb, *words = text.split()
            operands = [int(word) if word.isdigit() else known.get(word, word) for word in words]
            if name:
                known[name] = getattr(self, verb)(*operands)
            else:
                self.call(verb, *operands)
        return known

    def call(self, kernel: str, *arguments: Operand) -> None:
        self.emit(CallKernel(var=self.var(TupleType(fields=())), kernel=kernel, arguments=arguments))

    def alias(self, source: Operand, name: str | None = None) -> Var:
        return self.emit(Alias(var=self.var(_type(source), name), source=source))

    def view(
        self, source: Var, *extents: Size, offset: Size | None = 0, kind: str = "view", dtype: DType = U8
    ) -> Var:
        var = self.var(tensor_of(*extents, dtype=dtype))
        where = None if offset is None else size(offset)
        made: Any = View(var=var, source=source, shape=shape(*extents), dtype=dtype, offset=where, kind=kind)  # type: ignore[arg-type]
        return self.emit(made)

    def reshape(self, source: Var, *extents: Size) -> Var:
        return self.view(source, *extents, kind="reshape")

    def settle(self, source: Var) -> Var:
        """R.memory.ensure_zero_offset."""
        var = self.var(source.type)
        return self.emit(
            View(var=var, source=source, shape=None, dtype=None, offset=None, kind="ensure_zero_offset")
        )

    def tuple(self, *fields: Operand) -> Var:
        return self.emit(MakeTuple(var=self.var(TupleType(fields=tuple(map(_type, fields)))), fields=fields))

    def take(self, source: Var, index: int) -> Var:
        kind = source.type.fields[index] if isinstance(source.type, TupleType) else OpaqueType()
        return self.emit(TakeField(var=self.var(kind), source=source, index=index))

    def packed(
        self,
        name: str,
        *arguments: Operand,
        kind: Type | None = None,
        ownership: Ownership = Ownership.UNKNOWN,
        pure: bool = True,
        writes: Sequence[int] = (),
    ) -> Var:
        var = self.var(kind or _type(arguments[0]))
        return self.emit(
            CallPacked(
                var=var,
                name=name,
                arguments=arguments,
                ownership=ownership,
                pure=pure,
                writes=frozenset(writes),
            )
        )

    def argument(self, source: Var) -> Var:
        """What a packed function returns that returns its argument."""
        return self.packed("f", source, ownership=Ownership.ARGUMENT)

    def function(self, name: str, *arguments: Operand, kind: Type) -> Var:
        return self.emit(CallFunction(var=self.var(kind), name=name, arguments=arguments))

    def kill(self, target: Var) -> None:
        kind: Any = "storage" if isinstance(target.type, StorageType) else "tensor"
        self.emit(Kill(var=self.var(TupleType(fields=())), target=target, kind=kind))

    def check(self, condition: str) -> None:
        self.emit(Assert(var=self.var(TupleType(fields=())), condition=parse_condition(condition)))

    def cast(self, source: Var, *extents: Size, defines: Sequence[str] = ()) -> Var:
        target = tensor_of(*extents)
        return self.emit(
            MatchCast(var=self.var(target), source=source, target=target, defines=frozenset(defines))
        )

    def branch(
        self,
        then: Callable[[], Operand],
        otherwise: Callable[[], Operand],
        *,
        condition: str | None = None,
        test: Operand | None = None,
        name: str | None = None,
    ) -> Var:
        """An If whose blocks `then` and `otherwise` emit; they return what the blocks yield."""
        first, second = self._block(then), self._block(otherwise)
        return self.emit(
            If(
                var=self.var(_type(first.result), name),
                condition=None if condition is None else parse_condition(condition),
                test=ShapeValue(values=()) if test is None else test,
                then=first,
                otherwise=second,
            )
        )

    def _block(self, make: Callable[[], Operand]) -> Block:
        with self.inside():
            result = make()
            return Block(instructions=tuple(self.blocks[-1]), result=result)

    @contextmanager
    def inside(self) -> Any:
        self.blocks.append([])
        try:
            yield
        finally:
            self.blocks.pop()

    def finish(
        self, result: Operand = NOTHING, *, symbols: Mapping[str, Origin] | None = None, **more: Any
    ) -> Function:
        given = {"n": Origin.DIMENSION, "m": Origin.DIMENSION} if symbols is None else symbols
        return Function(
            name=self.name,
            params=self.params,
            body=Block(instructions=tuple(self.blocks[0]), result=result),
            result_type=_type(result),
            symbols=given,
            **more,
        )

    def program(self, result: Operand = NOTHING, *others: Function, **more: Any) -> Program:
        return program_of(self.finish(result, **more), *others)


def program_of(*functions: Function, kernels: Mapping[str, Kernel] = KERNELS) -> Program:
    return Program(name="Module", functions={f.name: f for f in functions}, kernels=kernels)


def param(name: str, *extents: Size, dtype: DType = U8) -> Var:
    return Var(name, tensor_of(*extents, dtype=dtype))


def scalar_kernel(name: str, *parameters: KernelBuffer | str) -> Kernel:
    """A kernel; texts among its parameters are scalars."""
    return Kernel(
        name=name, parameters=tuple(KernelScalar(name=p) if isinstance(p, str) else p for p in parameters)
    )


def _type(operand: Operand) -> Type:
    if isinstance(operand, TupleValue):
        return TupleType(fields=tuple(map(_type, operand.items)))
    if isinstance(operand, ShapeValue):
        return ShapeType(values=operand.values)
    return getattr(operand, "type", OpaqueType())

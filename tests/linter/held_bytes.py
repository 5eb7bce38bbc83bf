"""A machine that runs the random programs of `call_programs` and counts the bytes that a call holds.

It shares nothing with the analyses: each moment is a tick, and each storage is held from its tick to the last
one at which something in it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import Any

from symalloc.program import ir
from tests.linter.call_programs import StoppedError

_MOST_STEPS = 400


@dataclass(slots=True, eq=False)
class Memory:
    """Some bytes that were reserved at a tick, and the last tick at which they were used."""

    nbytes: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Bytes:
    """A tensor in some memory; None for that of the caller."""

    memory: Memory | None
    nbytes: int


@dataclass(slots=True)
class HeldBytes:
    """Runs a program once; `reserved` is all memory that it took."""

    program: ir.Program
    reserved: list[Memory] = field(default_factory=list)
    tick: int = 0

    def call(self, name: str, arguments: list[Any], binding: Mapping[str, int]) -> Any:
        function = self.program.functions[name]
        values = dict(zip(function.params, arguments, strict=True))
        return self._block(function.body, values, binding)

    def use(self, value: Any) -> None:
        for memory in _memories(value):
            memory.end = self.tick

    @property
    def peak(self) -> int:
        """The most bytes held at one tick; what ends at a tick is still held then."""
        changes = [(one.begin, 0, -(-one.nbytes // 64) * 64) for one in self.reserved]
        changes += [(one.end, 1, -(-one.nbytes // 64) * -64) for one in self.reserved]
        return max(accumulate(change for *_, change in sorted(changes)), default=0)

    def _block(self, block: ir.Block, values: dict[ir.Var, Any], binding: Mapping[str, int]) -> Any:
        for instruction in block.instructions:
            self.tick += 1
            if self.tick > _MOST_STEPS:
                raise StoppedError
            values[instruction.var] = self._step(instruction, values, binding)
        return _of(block.result, values)

    def _step(
        self, instruction: ir.Instruction, values: dict[ir.Var, Any], binding: Mapping[str, int]
    ) -> Any:
        match instruction:
            case ir.AllocStorage(size=size):
                self.reserved.append(Memory(size.evaluate(binding), self.tick, self.tick))
                return self.reserved[-1]
            case ir.AllocTensor(storage=storage, shape=(extent,)):
                memory = _of(storage, values)
                return Bytes(memory, extent.evaluate(binding))
            case ir.View(source=source, offset=offset, shape=(extent,)) if offset is not None:
                return Bytes(_of(source, values).memory, extent.evaluate(binding))
            case ir.Alias(source=source):
                return _of(source, values)
            case ir.TakeField(source=source, index=index):
                return _of(source, values)[index]
            case ir.CallKernel(arguments=arguments):
                self.use(tuple(_of(one, values) for one in arguments))
                return ()
            case ir.If(test=test, then=then, otherwise=otherwise):
                return self._block(then if _of(test, values) else otherwise, values, binding)
            case ir.CallFunction(name=name, arguments=arguments):
                return self._function(name, [_of(one, values) for one in arguments])
        raise AssertionError(f"not in these programs: {instruction!r}")

    def _function(self, name: str, given: list[Any]) -> Any:
        """A caller keeps what it hands over until the call returns."""
        if any(isinstance(one, Bytes) and one.nbytes != given[0].nbytes for one in given):
            raise StoppedError
        result = self.call(name, given, {"p": given[0].nbytes})
        self.tick += 1
        self.use(tuple(given))
        return result


def peaks(program: ir.Program, extent: int) -> list[int]:
    """The most bytes that a call of `main` holds at `extent`, for each values of its flags, if it ends."""
    found = []
    for flags in product((False, True), repeat=3):
        machine = HeldBytes(program)
        try:
            result = machine.call("main", [Bytes(None, extent), *flags], {"n": extent})
        except (StoppedError, RecursionError):
            continue
        machine.tick += 1
        machine.use(result)
        found.append(machine.peak)
    return found


def _of(operand: ir.Operand, values: Mapping[ir.Var, Any]) -> Any:
    if isinstance(operand, ir.TupleValue):
        return tuple(_of(one, values) for one in operand.items)
    return values[operand] if isinstance(operand, ir.Var) else False


def _memories(value: Any) -> Iterator[Memory]:
    if isinstance(value, tuple):
        for one in value:
            yield from _memories(one)
    elif isinstance(value, Bytes) and value.memory is not None:
        yield value.memory
    elif isinstance(value, Memory):
        yield value

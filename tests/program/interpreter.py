"""What the machines of the tests have in common: they differ in what memory is."""

from __future__ import annotations

from typing import Any

from symalloc.program import ir


class Interpreter:
    """Runs the instructions of a call; a subclass says which side an If takes, and what memory is."""

    values: dict[ir.Var, Any]

    def of(self, operand: ir.Operand) -> Any:
        if isinstance(operand, ir.TupleValue):
            return tuple(map(self.of, operand.items))
        return self.values[operand] if isinstance(operand, ir.Var) else ()

    def block(self, block: ir.Block) -> Any:
        for instruction in block.instructions:
            self.values[instruction.var] = self.step(instruction)
        return self.of(block.result)

    def step(self, instruction: ir.Instruction) -> Any:
        match instruction:
            case ir.Alias(source=source):
                return self.of(source)
            case ir.MakeTuple(fields=fields):
                return tuple(map(self.of, fields))
            case ir.TakeField(source=source, index=index):
                return self.of(source)[index]
            case ir.If(then=then, otherwise=otherwise):
                return self.block(then if self.takes(instruction) else otherwise)
        return self.touch(instruction)

    def takes(self, branch: ir.If) -> bool:
        """Whether the first side is taken."""
        raise NotImplementedError

    def touch(self, instruction: ir.Instruction) -> Any:
        raise NotImplementedError(type(instruction))

"""Integers that the tensors of a function hold because constants say so, through kernels and views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from symalloc.program import ir
from symalloc.program.operands import leaves_in, operands_of
from symalloc.program.types import TupleType
from symalloc.relax.extract.kernel_body import follow_kernel
from symalloc.relax.extract.kernel_integers import Integers
from symalloc.relax.ir_types import Node


class KnownIntegers:
    """The integers in the tensors of one function, at the place that its extraction has got to.

    `held` are those in each memory, which is called by the first of its names.
    """

    def __init__(self, kernels: Mapping[str, ir.Kernel], host: Mapping[str, Node]) -> None:
        self._kernels, self._host = kernels, host
        self._read: dict[tuple[str, int], tuple[Sequence[int], Sequence[int], bool]] = {}
        self.held: dict[ir.Operand, Integers] = {}
        self._first: dict[ir.Operand, ir.Operand] = {}
        self._fields: dict[ir.Operand, tuple[ir.Operand, ...]] = {}

    def join(self, other: Mapping[ir.Operand, Integers]) -> None:
        """Keep what is also so behind the `other` side of an If."""
        self.held = {memory: values for memory, values in self.held.items() if other.get(memory) == values}

    def note(self, made: ir.Instruction) -> ir.Instruction:
        """Note what an instruction does; return it with the accesses that known integers tell."""
        match made:
            case ir.CallKernel() | ir.CallTIR():
                return self._called(made)
            case ir.Alias(source=source) | ir.MatchCast(source=source):
                self._first[made.var] = self._memory(source)
            case ir.View(source=source, kind="reshape" | "ensure_zero_offset"):
                self._first[made.var] = self._memory(source)
            case ir.MakeTuple(fields=fields):
                self._fields[made.var] = fields
            case ir.TakeField(source=source, index=index):
                fields = source.items if isinstance(source, ir.TupleValue) else self._fields.get(source, ())
                if index < len(fields):
                    self._first[made.var] = self._memory(fields[index])
            case _ if self.held:
                for operand in operands_of(made):
                    for leaf in leaves_in(operand):
                        self.held.pop(self._memory(leaf), None)
        return made

    def _memory(self, operand: ir.Operand) -> ir.Operand:
        return self._first.get(operand, operand)

    def _called(self, call: ir.CallKernel | ir.CallTIR) -> ir.Instruction:
        """Note what a kernel stores."""
        arguments, first, held = self._arguments(call), self._first, self.held
        read, writes, fresh = self._buffers(call.kernel, len(arguments))
        written = {first.get(arguments[n], arguments[n]): n for n in writes}
        given: list[tuple[int, Integers]] = []
        for number in read:
            memory = first.get(arguments[number], arguments[number])
            values = memory.values if isinstance(memory, ir.ConstantTensor) else held.get(memory)
            if values is not None and memory not in written:
                given.append((number, values))
        followed: tuple[ir.KernelAccess, ...] = ()
        stored: Mapping[int, Integers] = {}
        if given or fresh:
            followed, stored = follow_kernel(self._host[call.kernel], tuple(given))
        for memory, number in written.items():
            held.pop(memory, None)
            if number in stored:
                held[memory] = stored[number]
        return replace(call, followed=followed) if followed else call

    def _buffers(self, kernel: str, given: int) -> tuple[Sequence[int], Sequence[int], bool]:
        """The numbers below `given` of buffers that a kernel only reads, or writes; True if it reads none."""
        if (kernel, given) not in self._read:
            every = enumerate(self._kernels[kernel].parameters[:given])
            buffers = [(n, one) for n, one in every if isinstance(one, ir.KernelBuffer)]
            read, written = ([n for n, one in buffers if one.writes is side] for side in (False, True))
            self._read[kernel, given] = read, written, not any(one.reads for _, one in buffers)
        return self._read[kernel, given]

    def _arguments(self, call: ir.CallKernel | ir.CallTIR) -> tuple[ir.Operand, ...]:
        """The arguments as the PrimFunc sees them; results that are fresh by their variables."""
        if isinstance(call, ir.CallKernel):
            return call.arguments
        results: tuple[ir.Operand, ...] = (call.var,)
        if isinstance(call.var.type, TupleType):
            results = tuple(ir.Var(f"{call.var.name}.{n}", kind) for n, kind in enumerate(call.outputs))
            self._fields[call.var] = results
        places = (*call.inplace, *(None for _ in call.outputs))
        for result, place in zip(results, places, strict=False):
            if place is not None and place < len(call.inputs):
                self._first[result] = self._memory(call.inputs[place])
        fresh = (result for result, place in zip(results, places, strict=False) if place is None)
        return (*call.inputs, *fresh)

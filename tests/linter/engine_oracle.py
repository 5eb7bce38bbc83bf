"""A second opinion on lifetimes: runs small programs byte by byte, on every path, at many sizes.

Each run has two memories: the real one, in which tensors of one storage share its bytes, and an ideal
one, in which every tensor has bytes of its own.  A tensor that reads other bytes than it would in the
ideal memory has lost its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

from symalloc.program import ir
from symalloc.size.expr import product
from tests.program.live_oracle import every_way

SIZES = (0, 1, 2, 3, 5, 8, 13, 21, 34, 80)

MISSING = object()


@dataclass(frozen=True)
class Empty:
    """What a register holds that was killed: nothing, in place of a value."""

    lost: Any


@dataclass(eq=False)
class Storage:
    size: int
    cells: dict[int, int] = field(default_factory=dict)


@dataclass(eq=False)
class Tensor:
    storage: Storage
    offset: int
    nbytes: int
    ideal: dict[int, int] = field(default_factory=dict)

    @property
    def places(self) -> range:
        return range(self.offset, self.offset + self.nbytes)


@dataclass
class Run:
    """One execution: `decide` picks the sides of Ifs, `returns_argument` says what functions of unknown
    ownership do.
    """

    kernels: dict[str, ir.Kernel]
    n: int
    decide: Callable[[int], int]
    returns_argument: bool
    env: dict[ir.Var, Any] = field(default_factory=dict)
    killed: set[ir.Var] = field(default_factory=set)
    registers: dict[ir.Var, ir.Var] = field(default_factory=dict)  # of names of one value the first
    faults: set[str] = field(default_factory=set)
    stamp: int = 0

    def value(self, operand: ir.Operand) -> Any:
        """What an operand holds, for something that needs it."""
        return self.needed(self.held(operand))

    def needed(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self.needed, value))
        if isinstance(value, Empty):
            self.faults.add("SYM201")
            return self.needed(value.lost)
        return value

    def held(self, operand: ir.Operand) -> Any:
        """What an operand holds, which may be nothing."""
        if isinstance(operand, ir.TupleValue):
            return tuple(self.held(item) for item in operand.items)
        if not isinstance(operand, ir.Var):
            return None
        if operand not in self.env:
            self.faults.add("SYM204")
            return MISSING
        gone = self.register(operand) in map(self.register, self.killed)
        return Empty(self.env[operand]) if gone else self.env[operand]

    def register(self, var: ir.Var) -> ir.Var:
        return self.registers.get(var, var)

    def block(self, block: ir.Block) -> Any:
        for instruction in block.instructions:
            self.step(instruction)
        return self.value(block.result)

    def step(self, i: ir.Instruction) -> None:
        if isinstance(i, ir.If):
            self.env[i.var] = self.block((i.then, i.otherwise)[self.decide(2)])
        elif isinstance(i, ir.AllocStorage):
            self.env[i.var] = Storage(self.at(i.size))
        elif isinstance(i, ir.AllocTensor):
            self.allocate(i)
        elif isinstance(i, ir.Alias | ir.View):
            self.env[i.var] = self.value(i.source)
            if isinstance(i, ir.Alias) and isinstance(i.source, ir.Var):
                self.registers[i.var] = self.register(i.source)
        elif isinstance(i, ir.MakeTuple):
            self.env[i.var] = tuple(self.held(f) for f in i.fields)
        elif isinstance(i, ir.TakeField):
            self.env[i.var] = self.field_of(i)
        elif isinstance(i, ir.CallKernel):
            self.call(i)
        elif isinstance(i, ir.CallPacked):
            self.packed(i)
        elif isinstance(i, ir.Kill):
            self.kill(i.target)
        else:
            raise TypeError(type(i))

    def field_of(self, i: ir.TakeField) -> Any:
        """What is taken counts as needed."""
        source = self.held(i.source)
        if isinstance(source, Empty):
            source = self.needed(source)
        return source if source is MISSING else self.needed(source[i.index])

    def kill(self, target: ir.Operand) -> None:
        self.held(target)
        if target in self.killed:
            self.faults.add("SYM202")
        self.killed.add(target)  # type: ignore[arg-type]

    def at(self, expr: Any) -> int:
        return int(expr.evaluate({"n": self.n}))

    def allocate(self, i: ir.AllocTensor) -> None:
        storage = self.value(i.storage)
        if storage is MISSING:
            storage = Storage(10**9)
        made = Tensor(storage, self.at(i.offset), self.at(product(i.shape or ())))
        if made.offset + made.nbytes > storage.size:
            self.faults.add("SYM101")
        if made.offset < 0:
            self.faults.add("SYM102")
        self.env[i.var] = made

    def call(self, i: ir.CallKernel) -> None:
        arguments = [self.value(a) for a in i.arguments]
        buffers = [p for p in self.kernels[i.kernel].parameters if isinstance(p, ir.KernelBuffer)]
        pairs = [(b, a) for b, a in zip(buffers, arguments, strict=True) if isinstance(a, Tensor)]
        reads = [a for b, a in pairs if b.reads]
        writes = [a for b, a in pairs if b.writes]
        for tensor in reads:
            self.read(tensor)
        for (one, a), (other, b) in combinations(pairs, 2):
            if (one.writes or other.writes) and share(a, b):
                self.faults.add("SYM211")
        for tensor in writes:
            self.write(tensor)

    def packed(self, i: ir.CallPacked) -> None:
        arguments = [a for a in map(self.value, i.arguments) if isinstance(a, Tensor)]
        for tensor in arguments:
            self.read(tensor)
        returned = i.ownership is ir.Ownership.ARGUMENT or (
            i.ownership is ir.Ownership.UNKNOWN and self.returns_argument
        )
        if returned and arguments:
            self.env[i.var] = arguments[0]
        else:
            fresh = Tensor(Storage(10**9), 0, 4)
            self.write(fresh)
            self.env[i.var] = fresh

    def read(self, tensor: Tensor) -> None:
        for place, stamp in tensor.ideal.items():
            if tensor.storage.cells.get(place) != stamp:
                self.faults.add("SYM203")

    def read_all(self, value: Any) -> None:
        if isinstance(value, tuple):
            for item in value:
                self.read_all(item)
        elif isinstance(value, Tensor):
            self.read(value)

    def write(self, tensor: Tensor) -> None:
        self.stamp += 1
        for place in tensor.places:
            tensor.storage.cells[place] = tensor.ideal[place] = self.stamp


def share(left: Tensor, right: Tensor) -> bool:
    """Whether a byte of `left` is also `right`'s."""
    return left.storage is right.storage and any(place in right.places for place in left.places)


def runs(program: ir.Program, function: ir.Function, *, returns_argument: bool) -> Iterator[Run]:
    def ran(n: int, decide: Callable[[int], int]) -> Run:
        run = Run(dict(program.kernels), n, decide, returns_argument)
        for param in function.params:
            made = Tensor(Storage(10**9), 0, run.at(param.type.numel))  # type: ignore[union-attr]
            run.write(made)
            run.env[param] = made
        run.read_all(run.block(function.body))
        return run

    return (run for n in SIZES for run in every_way(partial(ran, n)))


def faults(program: ir.Program, *, returns_argument: bool) -> set[str]:
    """The rules that some execution breaks."""
    function = program.functions["main"]
    return set().union(*(run.faults for run in runs(program, function, returns_argument=returns_argument)))

"""A second opinion on live ranges: walks every path of a small program, byte by byte.

Shares nothing with the analyses: on one path every variable stands for one thing, so that no choice, no set
of regions and no summary is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypeVar

from symalloc.program import ir
from symalloc.program.operands import instructions_of
from symalloc.program.types import TensorType, Type
from tests.program.interpreter import Interpreter

T = TypeVar("T")


@dataclass(frozen=True)
class Bytes:
    """A stretch of the memory of one allocation (or parameter, or callee's result)."""

    owner: Any
    begin: int
    end: int

    def cells(self) -> set[tuple[Any, int]]:
        return {(self.owner, i) for i in range(self.begin, self.end)}


@dataclass
class Event:
    reads: set[tuple[Any, int]] = field(default_factory=set)
    writes: set[tuple[Any, int]] = field(default_factory=set)
    covers: set[tuple[Any, int]] = field(default_factory=set)


@dataclass
class Path(Interpreter):
    """One walk.  `decide(n)` picks one of n ways, the same in the same place of the same walk."""

    program: ir.Program
    decide: Callable[[int], int]
    values: dict[ir.Var, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    count: int = 0

    def run(self, name: str, arguments: list[Any]) -> Any:
        function, before = self.program.functions[name], self.values
        self.values = dict(zip(function.params, arguments, strict=True))
        result = self.block(function.body)
        self.values = before
        return result

    def takes(self, branch: ir.If) -> bool:
        return not self.decide(2)

    def fresh(self, owner: Any, kind: Type) -> Bytes:
        assert isinstance(kind, TensorType) and kind.nbytes is not None
        assert kind.nbytes.as_constant is not None
        return Bytes(owner, 0, kind.nbytes.as_constant)

    def touch(self, instruction: ir.Instruction) -> Any:
        match instruction:
            case ir.AllocFresh(var=var):
                return self.fresh(var, var.type)
            case ir.View(source=source, kind="view", offset=offset, shape=shape):
                whole = self.of(source)
                assert offset is not None and offset.as_constant is not None and shape is not None
                begin = whole.begin + offset.as_constant
                return Bytes(whole.owner, begin, begin + (shape[0].as_constant or 0))
            case ir.View(source=source):
                return self.of(source)
            case ir.CallFunction(name=name, arguments=arguments):
                return self.run(name, [self.of(a) for a in arguments])
        event = Event()
        self.events.append(event)
        match instruction:
            case ir.CallKernel(kernel=kernel, arguments=arguments):
                parameters = self.program.kernels[kernel].parameters
                for parameter, argument in zip(parameters, arguments, strict=True):
                    assert isinstance(parameter, ir.KernelBuffer)
                    cells = self.of(argument).cells()
                    event.reads |= cells if parameter.reads else set()
                    event.writes |= cells if parameter.writes else set()
                    event.covers |= cells if parameter.must_def else set()
                return None
            case ir.CallPacked(ownership=ownership, arguments=arguments, var=var):
                given = [self.of(a) for a in arguments]
                event.reads |= {cell for g in given for cell in g.cells()}
                if ownership is ir.Ownership.FRESH:
                    self.count += 1
                    return self.fresh((var, self.count), var.type)
                return given[self.decide(len(given))]
        raise NotImplementedError(type(instruction))

    def finish(self, result: Any) -> None:
        """The caller reads the result."""
        self.events.append(Event(reads={cell for b in leaves(result) for cell in b.cells()}))

    def together(self) -> set[frozenset[ir.Var]]:
        """The allocations that hold, at one moment, bytes that are read later or touched just then."""
        found: set[frozenset[ir.Var]] = set()
        touched: set[tuple[Any, int]] = set()
        needed = self.needed_after()
        for event, later in zip(self.events, needed, strict=True):
            now = event.reads | event.writes
            touched |= now
            owners = {owner for owner, _ in (later & touched) | now if isinstance(owner, ir.Var)}
            found |= {frozenset(pair) for pair in combinations(owners, 2)}
        return found

    def needed_after(self) -> list[set[tuple[Any, int]]]:
        later: set[tuple[Any, int]] = set()
        found = []
        for event in reversed(self.events):
            found.append(set(later))
            later = (later - event.covers) | event.reads
        return found[::-1]


def leaves(found: Any) -> Iterator[Bytes]:
    if isinstance(found, tuple):
        for item in found:
            yield from leaves(item)
    elif found is not None:
        yield found


@dataclass
class Script:
    """The decisions of one walk: those given, then the first way each; `taken` holds (chosen, ways)."""

    given: list[int]
    taken: list[tuple[int, int]] = field(default_factory=list)

    def decide(self, ways: int) -> int:
        place = len(self.taken)
        chosen = self.given[place] if place < len(self.given) else 0
        self.taken.append((chosen, ways))
        return chosen

    def following(self) -> list[int] | None:
        """The decisions of the next walk, counted like an odometer."""
        while self.taken and self.taken[-1][0] + 1 == self.taken[-1][1]:
            self.taken.pop()
        return [*(c for c, _ in self.taken[:-1]), self.taken[-1][0] + 1] if self.taken else None


def every_way(walk: Callable[[Callable[[int], int]], T]) -> Iterator[T]:
    """What `walk` makes of each sequence of decisions that it can ask for."""
    given: list[int] | None = []
    while given is not None:
        script = Script(given)
        yield walk(script.decide)
        given = script.following()


def walks(program: ir.Program, name: str = "main") -> Iterator[Path]:
    """Every path."""
    params = program.functions[name].params

    def walk(decide: Callable[[int], int]) -> Path:
        path = Path(program, decide)
        path.finish(path.run(name, [path.fresh(("given", p), p.type) for p in params]))
        return path

    return every_way(walk)


def live_together(program: ir.Program, name: str = "main") -> set[frozenset[ir.Var]]:
    """The pairs of allocations of a function that are live at one moment of some path.

    Allocations inside callees are left out: they are not the function's own.
    """
    pairs = set[frozenset[ir.Var]]().union(*(path.together() for path in walks(program, name)))
    body = program.functions[name].body
    own = {made.var for made in instructions_of(body) if isinstance(made, ir.AllocFresh)}
    return {pair for pair in pairs if pair <= own}

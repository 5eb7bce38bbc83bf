"""TVM's virtual machine run on sizes: the memory that each register of each frame holds.

The machine keeps a value in a register of its frame, and memory goes with the last register that holds it, be
it within a tuple.  A called function holds its own until it returns; its result is held by the machine
besides, until the next function returns.

One clock counts the moments at which memory is taken.  Paths that part come one after the other on it; where
they meet again with equal things in their registers, they go on as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Literal, TypeAlias

from symalloc.analysis.call_expansion import values_at_call
from symalloc.analysis.register_lifetimes import Kills, Place, RegisterLifetimes, register_lifetimes
from symalloc.program import ir
from symalloc.program.control_flow import EVERY_PATH, PathCondition, control_flow_graph
from symalloc.program.operands import function_references, instructions_of
from symalloc.program.types import (
    ALIGNMENT,
    OpaqueType,
    StorageType,
    TensorType,
    TupleType,
    Type,
    byte_count,
    holds_memory,
    record,
)
from symalloc.size.expr import Expr, round_up

_MOST_STEPS = 100_000
_MOST_PATHS = 64
"""The number of paths that are told apart; where there are more, some are taken together."""

Why: TypeAlias = Literal["storage", "tensor", "result"]
"""The purpose of memory: a storage, a tensor with memory of its own, or what the call returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A function that is under way: `values` gives its symbols in those of the outermost function, `caller`
    is the step at which it was called, None for the outermost.
    """

    name: str
    values: Mapping[str, Expr] = field(default_factory=dict)
    caller: Step | None = None

    @property
    def under_way(self) -> Iterator[Activation]:
        """The functions that are under way, innermost first."""
        frame: Activation | None = self
        while frame is not None:
            yield frame
            frame = None if frame.caller is None else frame.caller.frame


@record()
class Step:
    """A moment at which the instruction that binds `var` takes memory; `path` are the branches that its
    function took to get there.
    """

    frame: Activation
    var: ir.Var
    path: PathCondition = EVERY_PATH

    @property
    def outermost(self) -> Step:
        """The step of the outermost function within which this one is."""
        step = self
        while step.frame.caller is not None:
            step = step.frame.caller
        return step


@record()
class Reservation:
    """Memory of `size` bytes (None where it is not known) that is held from the step `begin` to before `end`.

    `var` is what the instruction binds that takes it, in the function of `frame`, and `path` the branches
    that the outermost function took.  Memory that is held on several paths, or at the same moments of all,
    has one for each.  What is `packed` is made by a packed function or an operator.
    """

    size: Expr | None
    begin: int
    end: int
    path: PathCondition
    why: Why
    var: ir.Var
    frame: Activation
    number: int
    device: int = 0
    packed: bool = False

    @property
    def padded(self) -> Expr | None:
        """The bytes that an allocator gives for it."""
        return None if self.size is None else round_up(self.size, ALIGNMENT)


class UnknownMemoryError(Exception):
    """The memory of a call is no formula in the symbols of its function; the text says why."""


_Value: TypeAlias = "frozenset[int] | tuple[_Value, ...]"
"""The numbers of the memory that a value holds, field by field."""

_NOTHING: frozenset[int] = frozenset()


def _held_by(value: _Value) -> Iterator[int]:
    if isinstance(value, frozenset):
        yield from value
    else:
        for one in value:
            yield from _held_by(one)


@dataclass(slots=True)
class _Registers:
    """The registers of a function that is under way, the branches that it took, and the outcomes of tests."""

    registers: dict[object, _Value] = field(default_factory=dict)
    path: PathCondition = EVERY_PATH
    decided: dict[ir.Operand, bool] = field(default_factory=dict)

    def copy(self) -> _Registers:
        return _Registers(dict(self.registers), self.path, dict(self.decided))


@dataclass(slots=True)
class _State:
    """The machine on a path; `returned` is what it keeps of the last function that returned.

    `holders` counts by memory the registers that hold it.
    """

    frames: list[_Registers] = field(default_factory=list)
    returned: _Value = _NOTHING
    holders: dict[int, int] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State([frame.copy() for frame in self.frames], self.returned, dict(self.holders))

    def hold(self, value: _Value) -> None:
        for number in _held_by(value):
            self.holders[number] = self.holders.get(number, 0) + 1

    def drop(self, value: _Value) -> None:
        """Let go of what one register held."""
        for number in _held_by(value):
            self.holders[number] -= 1
            if not self.holders[number]:
                del self.holders[number]

    def bind(self, register: object, value: _Value) -> None:
        if value:
            self.frames[-1].registers[register] = value
            self.hold(value)

    def join(self, other: _State) -> None:
        """Hold what either holds."""
        mine, theirs = self.frames[-1], other.frames[-1]
        for register, value in theirs.registers.items():
            mine.registers[register] = _either(mine.registers.get(register, _NOTHING), value)
        mine.decided = dict(mine.decided.items() & theirs.decided.items())
        mine.path &= theirs.path
        self.returned = _either(self.returned, other.returned)
        self.holders = {}
        self.hold(self.returned)
        for frame in self.frames:
            for value in frame.registers.values():
                self.hold(value)


def _either(one: _Value, other: _Value) -> _Value:
    """The memory that a value may hold that is one or the other."""
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(_either(a, b) for a, b in zip(one, other, strict=True))
    return one if one == other else frozenset((*_held_by(one), *_held_by(other)))


@dataclass(slots=True)
class _Span:
    """Memory is held from the step `begin` to before `end`."""

    begin: int
    end: int
    path: PathCondition


@dataclass(slots=True)
class _Memory:
    """Memory that a step takes, and when it is held."""

    size: Expr | None
    why: Why
    step: Step
    device: int
    packed: bool
    spans: list[_Span] = field(default_factory=list)


class RegisterMachine:
    """Runs functions on sizes; all that paths take and let go is noted on one clock.

    `decided` tells by their variables the way that Ifs go.  With `same` paths that meet go on as one only
    where they hold the same memory, else also where each holds other memory of the same sizes.  `unseen` are
    functions that take memory for themselves of which nothing is known.
    """

    def __init__(
        self, program: ir.Program, kills: Kills, decided: Mapping[ir.Var, bool], *, same: bool = False
    ) -> None:
        self.program, self.kills, self.decided, self.same = program, kills, decided, same
        self.spare = _MOST_PATHS - 1
        self.doubt: str | None = None
        self.unseen: dict[str, None] = {}
        self.memory: list[_Memory] = []  # each step takes one piece
        self.handed: set[str] = set()
        self.results: tuple[tuple[Reservation, ...], ...] = ()
        self._lifetimes: dict[int, RegisterLifetimes] = {}

    def run(self, function: ir.Function) -> tuple[Reservation, ...]:
        """Run a function; return all that is held.  Raises UnknownMemoryError."""
        ends = self.call(function, Activation(name=function.name), (), _State())
        returned = dict.fromkeys(frozenset(_held_by(end.returned)) for end in ends)
        for number in frozenset().union(*returned):
            self.memory[number].why = "result"
        found = [
            Reservation(
                size=one.size,
                begin=span.begin,
                end=span.end,
                path=span.path,
                why=one.why,
                var=one.step.var,
                frame=one.step.frame,
                number=number,
                device=one.device,
                packed=one.packed,
            )
            for number, one in enumerate(self.memory)
            for span in one.spans
        ]
        last = {one.number: one for one in found}
        self.results = tuple(tuple(last[number] for number in sorted(held)) for held in returned)
        return tuple(sorted(found, key=lambda one: (one.begin, one.number)))

    @property
    def steps(self) -> list[Step]:
        """The moments at which memory is taken, in order."""
        return [one.step for one in self.memory]

    def call(
        self, function: ir.Function, frame: Activation, given: Sequence[_Value], state: _State
    ) -> list[_State]:
        """Run a function; return the states behind it."""
        if id(function) not in self._lifetimes:
            self._lifetimes[id(function)] = register_lifetimes(function, self.kills)
        run = _Run(self, function, frame, self._lifetimes[id(function)])
        state.frames.append(_Registers())
        for param, value in zip(function.params, given, strict=False):
            state.bind(param, value)
        ends = run.block(function.body, 0, state)
        for end in ends:
            before, end.returned = end.returned, run.value(end, function.body.result)
            end.hold(end.returned)
            for value in (before, *end.frames.pop().registers.values()):
                end.drop(value)
        return ends

    def hand(self, *kernels: str) -> None:
        """Note what kernels that are called take by functions that they call."""
        self.handed.update(kernels)
        known = (self.program.kernels[name] for name in kernels if name in self.program.kernels)
        self.unseen.update(dict.fromkeys(name for kernel in known for name in kernel.takers))

    # -- the clock -------------------------------------------------------------------------------------------

    def take(
        self,
        state: _State,
        frame: Activation,
        var: ir.Var,
        size: Expr | None,
        why: Why,
        device: int = 0,
        *,
        packed: bool = False,
    ) -> frozenset[int]:
        """Take memory of a device at a new step."""
        number = len(self.memory)
        if number >= _MOST_STEPS:
            raise UnknownMemoryError("more functions are called than can be followed")
        outer = size if size is None or not frame.values else size.substitute(frame.values)
        step = Step(frame=frame, var=var, path=state.frames[-1].path)
        self.memory.append(_Memory(outer, why, step, device, packed))
        path = state.frames[0].path
        state.holders[number] = 0
        for other in state.holders:
            spans = self.memory[other].spans
            if spans and spans[-1].end == number:
                spans[-1].end = number + 1
                spans[-1].path &= path
            else:
                spans.append(_Span(number, number + 1, path))
        return frozenset((number,))

    # -- paths that meet -------------------------------------------------------------------------------------

    def met(self, ends: list[_State], known: Collection[object], mark: int) -> list[_State]:
        """The states with which paths go on where they meet: equal ones as one, and all as one if too many.

        `known` registers, and memory below `mark`, were there where they parted.
        """
        mark = len(self.memory) if self.same else mark
        first, *others = {_key(self.memory, end, known, mark): end for end in ends}.values()
        if len(others) <= self.spare:
            self.spare -= len(others)
            return [first, *others]
        self.doubt = "the paths are too many to be told apart"
        for other in others:
            first.join(other)
        return [first]


def _key(memory: Sequence[_Memory], state: _State, known: Collection[object], mark: int) -> object:
    """All that the future of a path depends on, memory from `mark` on known by its size.

    What registers hold that are not `known` is held until the function is over.
    """
    frame = state.frames[-1]
    names: dict[int, object] = {}
    named = partial(_named, memory, mark, names)
    seen = [(register, named(value)) for register, value in frame.registers.items() if register in known]
    returned = named(state.returned)
    kept = {n for r, value in frame.registers.items() if r not in known for n in _held_by(value)}
    old = frozenset(names.get(n, n) for n in kept if n < mark or n in names)
    new = Counter((memory[n].size, memory[n].device) for n in kept if n >= mark and n not in names)
    return tuple(seen), returned, old, frozenset(new.items()), frozenset(frame.decided.items())


def _named(memory: Sequence[_Memory], mark: int, names: dict[int, object], value: _Value) -> object:
    """A value with memory from `mark` on named by its size and by when it was first met."""
    if isinstance(value, tuple):
        return tuple(_named(memory, mark, names, one) for one in value)
    kinds = {n: (memory[n].size, memory[n].device) for n in value}
    return frozenset(n if n < mark else names.setdefault(n, (len(names), kinds[n])) for n in sorted(value))


_HOLD_NOTHING = frozenset({ir.CallKernel, ir.Assert})


class _Run:
    """A function that is under way in a frame."""

    def __init__(
        self, machine: RegisterMachine, function: ir.Function, frame: Activation, lifetimes: RegisterLifetimes
    ) -> None:
        self.machine, self.function, self.frame, self.lifetimes = machine, function, frame, lifetimes

    @cached_property
    def branches(self) -> Mapping[ir.Var, int]:
        """The program points of Ifs."""
        return control_flow_graph(self.function).starts

    @cached_property
    def asked_again(self) -> Collection[ir.Operand]:
        """The tests of more than one If: all of them go the same way."""
        tests = Counter(one.test for one in instructions_of(self.function.body) if isinstance(one, ir.If))
        return {test for test, count in tests.items() if count > 1 and isinstance(test, ir.Var)}

    def block(self, block: ir.Block, first: int, state: _State) -> list[_State]:
        """Run a block from its instruction `first` on; return the states behind it."""
        for index in range(first, len(block.instructions)):
            one = block.instructions[index]
            if type(one) is ir.If:
                states = self.branch(one, state)
            elif type(one) is ir.CallFunction:
                states = self.call(one, state)
            else:
                if isinstance(one, ir.CallKernel | ir.CallTIR) and one.kernel not in self.machine.handed:
                    self.machine.hand(one.kernel)
                if type(one) not in _HOLD_NOTHING and one.var not in self.lifetimes.names:
                    state.bind(one.var, self.made(one, state))
                self.leave(state, (one.var, "behind"))
                continue
            if len(states) > 1:
                return [end for each in states for end in self.block(block, index + 1, each)]
            (state,) = states
        return [state]

    def leave(self, state: _State, place: Place) -> None:
        """Empty the registers that nothing needs from a place on."""
        for register in self.lifetimes.emptied.get(place, ()):
            self.empty(state, register)

    def empty(self, state: _State, register: ir.Var) -> None:
        state.drop(state.frames[-1].registers.pop(register, _NOTHING))

    # -- values ----------------------------------------------------------------------------------------------

    def value(self, state: _State, operand: ir.Operand | None) -> _Value:
        """The memory that an operand holds."""
        if isinstance(operand, ir.Var):
            register = self.lifetimes.names.get(operand, operand)
            return state.frames[-1].registers.get(register, _NOTHING)
        if isinstance(operand, ir.TupleValue):
            return tuple(self.value(state, item) for item in operand.items)
        return _NOTHING

    def given(self, state: _State, operands: Iterable[ir.Operand]) -> list[_Value]:
        """The memory that arguments hold; the register of a tuple that is written there is never emptied."""
        values = []
        for operand in operands:
            value = self.value(state, operand)
            if isinstance(operand, ir.TupleValue):
                state.bind(object(), value)
            values.append(value)
        return values

    def made(self, one: ir.Instruction, state: _State) -> _Value:
        """The value that an instruction binds its variable to."""
        match one:
            case ir.AllocStorage(size=size, device=device):
                return self.machine.take(state, self.frame, one.var, size, "storage", device)
            case ir.AllocFresh(shape=shape, dtype=dtype, device=device):
                size = byte_count(shape, dtype)
                return self.machine.take(state, self.frame, one.var, size, "tensor", device)
            case ir.AllocTensor(storage=source) | ir.Alias(source=source) | ir.View(source=source):
                return self.value(state, source)
            case ir.MatchCast(source=source, target=target, returns=True):
                return self.cast(self.value(state, source), target)
            case ir.MakeTuple(fields=items):
                return tuple(self.given(state, items))
            case ir.TakeField(source=source, index=index):
                whole = self.value(state, source)
                return whole[index] if isinstance(whole, tuple) and 0 <= index < len(whole) else whole
            case ir.Kill(target=ir.Var() as target) if not self.lifetimes.anew:
                self.empty(state, self.lifetimes.names.get(target, target))
            case ir.CallTIR(inputs=inputs, outputs=outputs, inplace=inplace):
                return self.outputs(state, one.var, inputs, outputs, inplace)
            case ir.CallPacked() | ir.CallOperator() | ir.NotUnderstood():
                return self.called(one, state)
        return _NOTHING

    def cast(self, value: _Value, target: Type) -> _Value:
        """A value of a type that is told afterwards: what was made without a size has that of it."""
        if isinstance(target, TensorType) and isinstance(value, frozenset) and len(value) == 1:
            (number,) = value
            made = self.machine.memory[number]
            if made.size is None and target.nbytes is not None:
                made.size = target.nbytes.substitute(self.frame.values)
        return value

    def fresh(self, state: _State, var: ir.Var, kind: Type, *, opaque: bool = False) -> _Value:
        """New memory for each tensor of a type; with `opaque` some of unknown size for an object."""
        if isinstance(kind, TupleType):
            return tuple(self.fresh(state, var, one, opaque=opaque) for one in kind.fields)
        if isinstance(kind, TensorType):
            size, device = kind.nbytes, kind.device
            return self.machine.take(state, self.frame, var, size, "tensor", device, packed=True)
        if isinstance(kind, OpaqueType | StorageType) and opaque:
            return self.machine.take(state, self.frame, var, None, "tensor", packed=True)
        return _NOTHING

    def outputs(
        self,
        state: _State,
        var: ir.Var,
        inputs: Sequence[ir.Operand],
        kinds: Sequence[Type],
        inplace: Sequence[int | None],
    ) -> _Value:
        """The results of a call that makes some of them in its inputs."""
        donors = (*inplace, *(None for _ in kinds))
        found = tuple(
            self.fresh(state, var, kind) if donor is None else self.value(state, inputs[donor])
            for kind, donor in zip(kinds, donors, strict=False)
        )
        return found[0] if len(found) == 1 else found

    def called(self, one: ir.CallPacked | ir.CallOperator | ir.NotUnderstood, state: _State) -> _Value:
        """The value that comes back from code that is not seen."""
        kind = one.var.type
        if isinstance(one, ir.CallPacked):
            self.machine.hand(*function_references(one.arguments))
        if isinstance(one, ir.CallPacked) and one.contract.takes in ("state", "unknown"):
            self.machine.unseen[one.name] = None
        elif isinstance(one, ir.NotUnderstood) and one.fault is None:
            self.machine.unseen["a call that is not understood"] = None
        if not holds_memory(kind):
            return _NOTHING
        if isinstance(one, ir.CallPacked) and one.inplace:
            kinds = kind.fields if isinstance(kind, TupleType) else (kind,)
            return self.outputs(state, one.var, one.arguments, kinds, one.inplace)
        given = self.given(state, one.reads if isinstance(one, ir.NotUnderstood) else one.arguments)
        if isinstance(one, ir.CallOperator):
            return self.fresh(state, one.var, kind)
        allocates = not isinstance(one, ir.CallPacked) or one.contract.allocates
        ownership = one.ownership if isinstance(one, ir.CallPacked) else ir.Ownership.UNKNOWN
        if ownership is ir.Ownership.FRESH:
            return self.fresh(state, one.var, kind, opaque=allocates)
        if isinstance(one, ir.CallPacked) and one.returned:
            values = tuple(given[index] for index in one.returned)
            return values if isinstance(kind, TupleType) else values[0]
        held = frozenset(number for value in given for number in _held_by(value))
        if held and isinstance(one, ir.CallPacked) and self.machine.doubt is None:
            self.machine.doubt = f"`{one.name}` may return what it is given"
        if ownership is ir.Ownership.ARGUMENT or not allocates:
            return held
        return held.union(_held_by(self.fresh(state, one.var, kind, opaque=True)))

    # -- control ---------------------------------------------------------------------------------------------

    def call(self, call: ir.CallFunction, state: _State) -> list[_State]:
        """Run the function that is called; return the states behind the call."""
        machine, frame = self.machine, self.frame
        callee = machine.program.functions.get(call.name)
        if callee is None:
            return [state]
        if any(one.name == call.name for one in frame.under_way):
            raise UnknownMemoryError("a call within itself holds more than can be said")
        given = self.given(state, call.arguments)
        values = values_at_call(callee, call)
        inner = Activation(
            name=call.name,
            values={name: value.substitute(frame.values) for name, value in values.items()},
            caller=Step(frame=frame, var=call.var, path=state.frames[-1].path),
        )
        known, mark = set(state.frames[-1].registers), len(machine.memory)
        ends = machine.met(machine.call(callee, inner, given, state), known, mark)
        for end in ends:
            end.bind(call.var, end.returned)
            self.leave(end, (call.var, "behind"))
        return ends

    def branch(self, branch: ir.If, state: _State) -> list[_State]:
        """Run the sides of an If; return the states behind it."""
        machine, test, path = self.machine, branch.test, state.frames[-1].path
        known, mark = {*state.frames[-1].registers, branch.var}, len(machine.memory)
        decided = machine.decided.get(branch.var, state.frames[-1].decided.get(test))
        sides = (True, False) if decided is None else (decided,)
        states = [state.copy() for _ in sides[1:]]
        ends: list[_State] = []
        for side, entered in zip(sides, (state, *states), strict=True):
            ends += self.side(branch, entered, side=side)
        ends = machine.met(ends, known, mark)
        if len(ends) == 1:
            ends[0].frames[-1].path = path
        for end in ends:
            self.leave(end, (branch.var, "behind"))
        return ends

    def side(self, branch: ir.If, state: _State, *, side: bool) -> list[_State]:
        frame = state.frames[-1]
        frame.path |= {(self.branches[branch.var], side)}
        if branch.test in self.asked_again:
            frame.decided[branch.test] = side
        self.leave(state, (branch.var, "then" if side else "else"))
        block = branch.then if side else branch.otherwise
        ends = self.block(block, 0, state)
        for end in ends:
            yielded = self.value(end, block.result)
            if not self.lifetimes.anew:  # a tuple that is written there has a register that is never emptied
                self.given(end, (block.result,))
            end.bind(branch.var, yielded)
            self.leave(end, (branch.var, "yielded by then" if side else "yielded by else"))
        return ends

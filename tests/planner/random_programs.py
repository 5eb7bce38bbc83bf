"""Random memory programs, and an interpreter that runs one on blocks of bytes: with its plan, or with memory
of its own for every tensor.  It shares nothing with the planner: it reads the program and the offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from symalloc.planner.memory_plan import Plan
from symalloc.program import ir
from symalloc.program.types import ScalarType, TensorType
from symalloc.size.expr import Expr, symbol
from tests.program.build import KERNELS, U8, Body, buffer, param, program_of
from tests.program.interpreter import Interpreter

EXTENTS = ("n", "4*n", "64*n", "256*m", "n*m", "n + 3", "max(n - 5, 0)", "1000", "(n + 7)//8")
SCALED = ("max(s, 0)", "max(n + s, 0)", "s + 40", "64*s", "n*s", "s*s")
MIX = "mix"
MIX_KERNEL = ir.Kernel(
    name=MIX,
    parameters=(
        buffer("a", "i", writes=False),
        buffer("b", "j", writes=False),
        buffer("out", "k", reads=False, must_def=True),
    ),
)
UNIT = 64  # bytes that are written and read as one


# -- making programs ---------------------------------------------------------------------------------------


class Maker:
    """Grows one function; `visible` holds the tensors that may be used, by the text of their extent."""

    def __init__(self, random: Random, body: Body, inputs: Mapping[ir.Var, str]) -> None:
        self.random, self.body = random, body
        self.visible: list[tuple[ir.Var, str]] = [(var, text) for var, text in inputs.items()]
        self.extents = list(EXTENTS)
        self.callees: list[ir.Function] = []
        self.depth = 0

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choices(
                (
                    *(self.compute, self.update, self.alias, self.reshape, self.through_tuple),
                    *(self.packed, self.branch, self.cast, self.call),
                ),
                (12, 2, 1, 2, 2, 2, 2 if self.depth < 2 else 0, 0.5 if self.depth == 0 else 0, 2),
            )[0]()

    def pick(self) -> tuple[ir.Var, str]:
        recent = self.visible[-6:] if self.random.random() < 0.8 else self.visible
        return self.random.choice(recent)

    def fresh(self, extent: str) -> ir.Var:
        """A tensor that is allocated and written at once."""
        var = self.body.fresh(extent)
        self.body.call(MIX, self.pick()[0], self.pick()[0], var)
        return var

    def compute(self) -> None:
        extent = self.random.choice(self.extents)
        self.visible.append((self.fresh(extent), extent))

    def update(self) -> None:
        self.body.call("update", self.pick()[0])

    def alias(self) -> None:
        var, extent = self.pick()
        self.visible.append((self.body.alias(var), extent))

    def reshape(self) -> None:
        var, extent = self.pick()
        self.visible.append((self.body.reshape(var, extent), extent))

    def through_tuple(self) -> None:
        fields = [self.pick() for _ in range(2)]
        whole = self.body.tuple(*(var for var, _ in fields))
        index = self.random.randrange(2)
        self.visible.append((self.body.take(whole, index), fields[index][1]))

    def packed(self) -> None:
        var, extent = self.pick()
        ownership = self.random.choice(list(ir.Ownership))
        other = self.pick()[0]
        self.visible.append((self.body.packed("opaque", var, other, ownership=ownership), extent))

    def branch(self) -> None:
        extent = self.random.choice(self.extents)
        found = self.body.branch(lambda: self.side(extent), lambda: self.side(extent))
        self.visible.append((found, extent))

    def side(self, extent: str) -> ir.Var:
        """One side of an If, which yields a tensor of `extent`: its own, or one from outside."""
        before = list(self.visible)
        self.depth += 1
        self.grow(self.random.randint(0, 4))
        self.depth -= 1
        fitting = [var for var, text in self.visible if text == extent]
        own = not fitting or self.random.random() < 0.5
        result = self.fresh(extent) if own else self.random.choice(fitting)
        self.visible = before
        return result

    def cast(self) -> None:
        name = f"k{len(self.extents)}"
        source = self.body.packed("counted", self.pick()[0], kind=TensorType(shape=None, dtype=U8, ndim=1))
        self.visible.append((self.body.cast(source, name, defines=[name]), name))
        self.extents += [name, f"64*{name}"]

    def call(self) -> None:
        """A call of another function, whose only parameter has the extent `p`."""
        if not self.callees:
            return
        callee, (var, _) = self.random.choice(self.callees), self.pick()
        assert isinstance(var.type, TensorType) and var.type.shape is not None
        p = var.type.shape[0]
        result = callee.result_type
        assert isinstance(result, TensorType) and result.shape is not None
        kind = TensorType(shape=tuple(e.substitute({"p": p}) for e in result.shape), dtype=U8, ndim=1)
        found = self.body.emit(ir.CallFunction(var=self.body.var(kind), name=callee.name, arguments=(var,)))
        self.visible.append((found, str(kind.shape[0]) if kind.shape else ""))


def random_program(seed: int) -> ir.Program:
    """`main(x: n, y: m, s)`, where the scalar s may be negative, and up to two helpers of one parameter of
    `p` bytes, one calling the other.
    """
    random = Random(seed)
    helpers: list[ir.Function] = []
    for name in ("helper", "helper2")[: random.randint(0, 2)]:
        given = param("x", "p")
        maker = Maker(random, Body(given, name=name), {given: "p"})
        maker.extents = ["p", "64*p", "p + 100"]
        maker.callees = list(helpers)
        maker.grow(random.randint(1, 5))
        result = maker.fresh("64*p") if random.random() < 0.7 else given
        helpers.append(maker.body.finish(result, symbols={"p": ir.Origin.DIMENSION}, private=True))
    x, y, s = param("x", "n"), param("y", "m"), ir.Var("s", ScalarType(value=symbol("s"), dtype=None))
    maker = Maker(random, Body(x, y, s), {x: "n", y: "m"})
    maker.callees = helpers
    maker.extents += SCALED if seed % 3 == 0 else ()
    maker.grow(random.randint(4, 16))
    symbols = {"n": ir.Origin.DIMENSION, "m": ir.Origin.DIMENSION, "s": ir.Origin.SCALAR}
    symbols |= {e: ir.Origin.CAST for e in maker.extents if e.startswith("k")}
    results = tuple(maker.pick()[0] for _ in range(random.randint(1, 2)))
    result: ir.Operand = results[0] if len(results) == 1 else ir.TupleValue(results)
    main = maker.body.finish(result, symbols=symbols)
    return program_of(main, *helpers, kernels={**KERNELS, MIX: MIX_KERNEL})


# -- running them ------------------------------------------------------------------------------------------


class NegativeError(Exception):
    """A tensor of fewer than no bytes is asked for, which TVM refuses wherever it is to lie."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """Bytes [address, address + nbytes)."""

    address: int
    nbytes: int

    @property
    def blocks(self) -> range:
        return range(self.address // UNIT, -(-(self.address + self.nbytes) // UNIT))


Value = Any  # a Tensor or a tuple of values


@dataclass(slots=True)
class Machine:
    """Runs one program at one binding; `log` holds what every read has seen, and the results at the end.

    Without plans every allocation has memory of its own.  `choices` decides branches, and whether a packed
    function returns its argument.
    """

    program: ir.Program
    plans: Mapping[str, Plan]
    choices: Random
    binding: Mapping[str, int]
    memory: dict[int, int] = field(default_factory=dict)
    log: list[int] = field(default_factory=list)
    reserved: int = 0
    steps: int = 0
    planned: int = 0

    def run(self) -> list[int]:
        arguments: list[Value] = [self.write(self.reserve(self.binding[n]), ()) for n in ("n", "m")]
        try:
            result = self.call("main", [*arguments, ()], self.binding)
        except NegativeError:
            self.log.append(-1)
        else:
            self.log.append(self.read(result))
        return self.log

    def call(self, name: str, arguments: list[Value], binding: Mapping[str, int]) -> Value:
        function = self.program.functions[name]
        frame = Frame(machine=self, binding=dict(binding), plan=self.plans.get(name))
        frame.values.update(zip(function.params, arguments, strict=True))
        return frame.block(function.body)

    def reserve(self, nbytes: int) -> Tensor:
        """Memory that nothing else has."""
        address = self.reserved
        self.reserved += -(-nbytes // UNIT) * UNIT + UNIT
        return Tensor(address, nbytes)

    def read(self, value: Value) -> int:
        if isinstance(value, Tensor):
            return hash(tuple(self.memory.get(block, 0) for block in value.blocks))
        return hash(tuple(map(self.read, value)))

    def write(self, tensor: Tensor, seen: tuple[int, ...]) -> Tensor:
        self.steps += 1
        self.log += seen
        for index, block in enumerate(tensor.blocks):
            self.memory[block] = hash((self.steps, index, seen))
        return tensor


@dataclass(slots=True, kw_only=True)
class Frame(Interpreter):
    """One call under way."""

    machine: Machine
    binding: dict[str, int]
    plan: Plan | None
    values: dict[ir.Var, Value] = field(default_factory=dict)
    homes: dict[ir.Var | None, tuple[int, Expr]] = field(default_factory=dict)
    arenas: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arenas = self.plan.arenas if self.plan else ()
        self.homes = {p.buffer.var: (n, p.offset) for n, arena in enumerate(arenas) for p in arena.placements}

    def takes(self, branch: ir.If) -> bool:
        return self.machine.choices.choice((True, False))

    def touch(self, instruction: ir.Instruction) -> Value:
        match instruction:
            case ir.AllocFresh(var=var, shape=extents):
                assert extents is not None
                return self.place(var, extents[0].evaluate(self.binding))
            case ir.CallKernel(kernel=kernel, arguments=arguments):
                return self.kernel(kernel, [self.of(a) for a in arguments])
            case ir.View(source=source):
                return self.of(source)
            case ir.MatchCast(source=source, defines=defines):
                found = self.of(source)
                self.binding.update(dict.fromkeys(defines, found.nbytes))
                return found
            case ir.CallPacked(name=name, arguments=arguments, ownership=ownership):
                return self.packed(name, [self.of(a) for a in arguments], ownership)
            case ir.CallFunction():
                return self.function(instruction)
        raise AssertionError(f"not in random programs: {instruction!r}")

    def place(self, var: ir.Var, nbytes: int) -> Tensor:
        """The memory of an allocation: where the plan has it, else its own."""
        if nbytes < 0:
            raise NegativeError
        if var not in self.homes:
            return self.machine.reserve(nbytes)
        self.machine.planned += 1
        number, at = self.homes[var]
        arena, offset = self.arena(number), at.evaluate(self.binding)
        assert offset % UNIT == 0
        assert offset >= 0 and offset + nbytes <= arena.nbytes, f"{var.name} leaves its arena"
        return Tensor(arena.address + offset, nbytes)

    def arena(self, number: int) -> Tensor:
        """An arena, reserved where it is first used; a late one not before its time."""
        assert self.plan is not None
        if number not in self.arenas:
            arena = self.plan.arenas[number]
            assert arena.defined_by is None or arena.defined_by in self.values, (
                "an arena is used before it is reserved"
            )
            nbytes = arena.size.evaluate(self.binding)
            assert nbytes >= 0, "an arena of fewer than no bytes"
            self.arenas[number] = self.machine.reserve(nbytes)
        return self.arenas[number]

    def kernel(self, name: str, arguments: list[Value]) -> Value:
        """What is read goes into what is written; a kernel that updates in place reads what it writes."""
        machine = self.machine
        read = arguments if name == "update" else arguments[:-1]
        machine.write(arguments[-1], tuple(map(machine.read, read)))
        return ()

    def packed(self, name: str, arguments: list[Value], ownership: ir.Ownership) -> Value:
        machine = self.machine
        seen = tuple(map(machine.read, arguments))
        if name == "counted":
            return machine.write(machine.reserve(machine.choices.choice((0, 3, 200))), seen)
        own = machine.choices.random() < 0.5
        if ownership is ir.Ownership.ARGUMENT or (ownership is ir.Ownership.UNKNOWN and not own):
            machine.log += seen
            return arguments[0]
        return machine.write(machine.reserve(arguments[0].nbytes), seen)

    def function(self, call: ir.CallFunction) -> Value:
        arguments = [self.of(a) for a in call.arguments]
        return self.machine.call(call.name, arguments, {"p": arguments[0].nbytes})


def logs(program: ir.Program, plans: Mapping[str, Plan], binding: Mapping[str, int], seed: int) -> Machine:
    """The machine after a run with `plans`."""
    machine = Machine(program=program, plans=plans, choices=Random(seed), binding=binding)
    machine.run()
    return machine

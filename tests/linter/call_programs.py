"""Random programs of functions that hand storages and tensors to each other, and a machine that runs them on
bytes: who wrote each byte last, and what was lost by it.  It shares nothing with the analyses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from symalloc.program import ir
from symalloc.program.operands import instructions_of
from symalloc.program.span import Span
from symalloc.program.types import DType, OpaqueType, TensorType, TupleType
from tests.program.build import Body, param, program_of
from tests.program.interpreter import Interpreter

FLAG = TensorType(shape=(), dtype=DType("bool", 1), ndim=0)
STORAGE = OpaqueType()
UNSET = ir.ConstantTensor(type=FLAG, values=(0,))
_OFFSETS = ("0", "0", "8", "16", "{x}", "2*{x}")
_EXTENTS = ("{x}", "8", "16", "2*{x}", "{x} + 8")


class NumberedBody(Body):
    """A body in which every instruction stands on a line of its own, in all functions of a program."""

    lines = 0

    def emit(self, instruction: ir.Instruction) -> ir.Var:
        NumberedBody.lines += 1
        line = NumberedBody.lines
        span = Span(file="module.py", line=line, column=1, end_line=line, end_column=2)
        return super().emit(replace(instruction, span=span))


@dataclass(slots=True)
class Grower:
    """Grows one function; `extent` is the symbol of its sizes."""

    random: Random
    body: NumberedBody
    extent: str
    storages: list[ir.Operand]
    tensors: list[tuple[ir.Var, str]]
    flags: list[ir.Var]
    callees: list[ir.Function] = field(default_factory=list)
    depth: int = 0

    def size(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices).format(x=self.extent)

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choice(_STEPS)(self)

    def storage(self) -> None:
        if self.random.random() < 0.4:
            self.storages.append(self.body.storage(f"64*{self.extent} + 256"))

    def tensor(self) -> None:
        if not self.storages:
            self.storages.append(self.body.storage(f"64*{self.extent} + 256"))
        extent, storage = self.size(_EXTENTS), self.random.choice(self.storages)
        made = self.body.tensor(storage, extent, offset=self.size(_OFFSETS))
        self.tensors.append((made, extent))
        if self.random.random() < 0.7:
            self.body.call("fill", made)

    def write(self) -> None:
        made, _ = self.pick()
        kernel = self.random.choice(("fill", "fill", "update", "scatter", "read"))
        self.body.call(kernel, made)

    def copy(self) -> None:
        self.body.call("copy", self.pick()[0], self.pick()[0])

    def rename(self) -> None:
        made, extent = self.pick()
        if extent == f"2*{self.extent}" and self.random.random() < 0.5:
            self.tensors.append((self.body.view(made, self.extent, offset=self.extent), self.extent))
        else:
            self.tensors.append((self.body.alias(made), extent))

    def branch(self) -> None:
        if self.depth:
            return
        first, extent = self.pick()

        def block() -> ir.Operand:
            inner = replace(
                self,
                depth=1,
                storages=list(self.storages),
                tensors=list(self.tensors),
                flags=list(self.flags),
            )
            inner.grow(self.random.randint(0, 3))
            return self.random.choice([v for v, e in inner.tensors if e == extent] or [first])

        var = self.body.branch(block, block)
        self.body.blocks[-1][-1] = replace(self.body.blocks[-1][-1], test=self.random.choice(self.flags))  # type: ignore[call-arg]
        self.tensors.append((var, extent))

    def call(self) -> None:
        if self.callees:
            self.take(call_of(self, self.random.choice(self.callees)))

    def take(self, result: ir.Var) -> None:
        """Put what a call returned among the values."""
        if isinstance(result.type, TupleType):
            for index in range(len(result.type.fields)):
                self.take(self.body.take(result, index))
        elif isinstance(result.type, TensorType):
            self.tensors.append((result, "?"))
        else:
            self.storages.append(result)

    def pick(self) -> tuple[ir.Var, str]:
        return self.random.choice(self.tensors)

    def any_storage(self) -> ir.Operand:
        if not self.storages or self.random.random() < 0.2:
            self.storages.append(self.body.storage(f"64*{self.extent} + 256"))
        return self.random.choice(self.storages)


_STEPS = (
    *(Grower.storage, Grower.tensor, Grower.tensor, Grower.write, Grower.write, Grower.copy),
    *(Grower.rename, Grower.branch, Grower.call, Grower.call),
)


def call_of(grower: Grower, callee: ir.Function) -> ir.Var:
    """A call of `callee` with what is at hand."""
    arguments: list[ir.Operand] = []
    for given in callee.params:
        if given.type is FLAG:
            arguments.append(grower.random.choice(grower.flags))
        elif isinstance(given.type, TensorType):
            known = [v for v, e in grower.tensors if e != "?"]
            arguments.append(grower.random.choice(known))
        else:
            arguments.append(grower.any_storage())
    kind = callee.result_type
    if isinstance(kind, TensorType):
        kind = replace(kind, shape=None)
    elif isinstance(kind, TupleType):
        kinds = (replace(k, shape=None) if isinstance(k, TensorType) else k for k in kind.fields)
        kind = TupleType(fields=tuple(kinds))
    return grower.body.function(callee.name, *arguments, kind=kind)


def _result(grower: Grower) -> ir.Operand:
    kind = grower.random.random()
    tensor = grower.pick()[0]
    if kind < 0.5 or not grower.storages:
        return tensor
    if kind < 0.7:
        return grower.random.choice(grower.storages)
    return ir.TupleValue(
        (tensor, grower.random.choice((grower.pick()[0], grower.random.choice(grower.storages))))
    )


def _helper(random: Random, name: str, callees: list[ir.Function]) -> ir.Function:
    """A private function of tensors of `p` bytes, up to two storages, four flags; some call themselves."""
    x, flags = param("x", "p"), [ir.Var(name, FLAG) for name in "abcd"]
    storages = [ir.Var(f"s{i}", STORAGE) for i in range(random.randint(0, 2))]
    others = [param("y", "p")] if random.random() < 0.4 else []
    body = NumberedBody(x, *others, *storages, *flags, name=name)
    grower = Grower(
        random, body, "p", list(storages), [(x, "p"), *((y, "p") for y in others)], flags, list(callees)
    )
    grower.grow(random.randint(1, 5))
    result = _result(grower)
    made = body.finish(result, symbols={"p": ir.Origin.DIMENSION}, private=True)
    return _recursive(random, made, body) if random.random() < 0.3 else made


def _recursive(random: Random, made: ir.Function, body: NumberedBody) -> ir.Function:
    """`made` with a call of itself where its first flag is set; the next call has the other flags."""
    if not isinstance(made.result_type, TensorType):
        return made
    *rest, a, b, c, d = made.params
    instructions = list(body.blocks[0])
    place = random.randint(0, len(instructions))
    inner = NumberedBody()
    again = inner.function(made.name, *rest, b, c, d, UNSET, kind=replace(made.result_type, shape=None))
    inner.call("read", again)
    call, read = inner.blocks[0]
    x = made.params[0]
    empty = ir.Block(instructions=(), result=x)
    NumberedBody.lines += 1
    branch = ir.If(
        var=ir.Var("again", x.type),
        condition=None,
        test=a,
        then=ir.Block(instructions=(call, read), result=x),
        otherwise=empty,
    )
    instructions.insert(place, branch)
    return replace(made, body=ir.Block(instructions=tuple(instructions), result=made.body.result))


def random_calls(seed: int) -> ir.Program:
    """A program of `main(x: n bytes, f, g, h)` and up to three private functions, all of them called."""
    random = Random(seed)
    NumberedBody.lines = 0
    helpers: list[ir.Function] = []
    for index in range(random.randint(1, 3)):
        helpers.append(_helper(random, f"helper{index}", helpers))
    x = param("x", "n")
    flags = [ir.Var(name, FLAG) for name in "fgh"]
    body = NumberedBody(x, *flags)
    grower = Grower(random, body, "n", [], [(x, "n")], flags, helpers)
    grower.grow(random.randint(2, 7))
    grower.take(call_of(grower, helpers[-1]))
    grower.grow(random.randint(0, 3))
    main = body.finish(grower.pick()[0], symbols={"n": ir.Origin.DIMENSION})
    every = {f.name: f for f in (*helpers, main)}
    return program_of(*(every[name] for name in _reached(every)))


def _reached(functions: Mapping[str, ir.Function]) -> list[str]:
    found, pending = {"main": None}, ["main"]
    while pending:
        for made in instructions_of(functions[pending.pop()].body):
            if isinstance(made, ir.CallFunction) and made.name not in found:
                found[made.name] = None
                pending.append(made.name)
    return list(found)


# -- running them ------------------------------------------------------------------------------------------


class StoppedError(Exception):
    """A recursion does not end, or a function refuses the size of an argument."""


@dataclass(slots=True, eq=False)
class Instance:
    """One tensor at run time: `start` and `nbytes` on a storage; `since` when it holds what matters."""

    root: int
    start: int
    nbytes: int
    since: int | None = None
    own: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Handle:
    """Some bytes of an instance."""

    instance: Instance
    start: int
    nbytes: int


@dataclass(slots=True)
class ByteMachine:
    """Runs a program; `lost` are the lines of writes behind which something was read that they destroyed.

    `perhaps` are further ones: the tensor that is read had content, though not in these very bytes, or has
    got these anew.
    """

    program: ir.Program
    lost: set[int] = field(default_factory=set)
    perhaps: set[int] = field(default_factory=set)
    log: dict[tuple[int, int], list[tuple[int, Instance, int]]] = field(default_factory=dict)
    time: int = 0
    roots: int = 0
    steps: int = 0

    def run(self, extent: int, flags: tuple[bool, ...]) -> None:
        x = self.fresh(extent)
        try:
            result = self.call("main", [x, *flags], {"n": extent})
        except (StoppedError, RecursionError):
            return
        self.read(result)

    def fresh(self, nbytes: int) -> Handle:
        self.roots += 1
        handle = Handle(Instance(self.roots, 0, nbytes), 0, nbytes)
        self.write(handle, 0, whole=True)
        return handle

    def write(self, handle: Handle, line: int, *, whole: bool) -> None:
        self.time += 1
        one = handle.instance
        for byte in range(handle.start, handle.start + handle.nbytes):
            self.log.setdefault((one.root, byte), []).append((self.time, one, line))
            one.own.add(byte)
        everything = handle.start == one.start and handle.nbytes >= one.nbytes
        if one.since is None or (whole and everything):
            one.since = self.time

    def read(self, value: Any, *, surely: bool = True) -> None:
        """A read; not `surely` of what a function returns, which nobody may look at."""
        if isinstance(value, tuple):
            for item in value:
                self.read(item, surely=surely)
        if not isinstance(value, Handle) or value.instance.since is None:
            return
        one = value.instance
        for byte in range(value.start, value.start + value.nbytes):
            entries = self.log.get((one.root, byte), [])
            self.perhaps |= {line for time, other, line in entries if other is not one and time > one.since}
            if surely and byte in one.own and entries and entries[-1][1] is not one:
                self.lost.add(entries[-1][2])

    def call(self, name: str, arguments: list[Any], binding: Mapping[str, int]) -> Any:
        function = self.program.functions[name]
        values: dict[ir.Var, Any] = dict(zip(function.params, arguments, strict=True))
        result = _Call(self, values, binding).block(function.body)
        self.read(result, surely=False)
        return result


@dataclass(slots=True)
class _Call(Interpreter):
    machine: ByteMachine
    values: dict[ir.Var, Any]
    binding: Mapping[str, int]

    def takes(self, branch: ir.If) -> bool:
        return bool(self.of(branch.test))

    def step(self, instruction: ir.Instruction) -> Any:
        self.machine.steps += 1
        if self.machine.steps > 400:
            raise StoppedError
        return Interpreter.step(self, instruction)

    def touch(self, instruction: ir.Instruction) -> Any:
        match instruction:
            case ir.AllocStorage():
                self.machine.roots += 1
                return self.machine.roots
            case ir.AllocTensor(storage=storage, offset=offset, shape=(extent,)):
                start, nbytes = offset.evaluate(self.binding), extent.evaluate(self.binding)
                return Handle(Instance(self.of(storage), start, nbytes), start, nbytes)
            case ir.View(source=source, offset=offset, shape=(extent,)) if offset is not None:
                whole = self.of(source)
                start = whole.start + offset.evaluate(self.binding)
                return Handle(whole.instance, start, extent.evaluate(self.binding))
            case ir.CallKernel(kernel=kernel, arguments=arguments):
                kind = arguments[-1].type if isinstance(arguments[-1], ir.Var) else None
                whole = isinstance(kind, TensorType) and kind.shape is not None and kernel in ("fill", "copy")
                self.kernel(kernel, [self.of(a) for a in arguments], instruction, whole=whole)
                return ()
            case ir.CallFunction(name=name, arguments=arguments):
                given = [self.of(a) for a in arguments]
                if any(isinstance(one, Handle) and one.nbytes != given[0].nbytes for one in given):
                    raise StoppedError
                return self.machine.call(name, given, {"p": given[0].nbytes})
        raise AssertionError(f"not in these programs: {instruction!r}")

    def kernel(self, name: str, arguments: list[Handle], made: ir.Instruction, *, whole: bool) -> None:
        """Reads come before and after the writes: a kernel goes element by element.

        `whole`: it is known to write all of the tensor.
        """
        assert made.span is not None
        reads = () if name in ("fill", "scatter") else arguments[:1]
        for handle in reads:
            self.machine.read(handle)
        if name != "read":
            self.machine.write(arguments[-1], made.span.line, whole=whole)
        for handle in reads:
            if handle.instance is not arguments[-1].instance:
                self.machine.read(handle)

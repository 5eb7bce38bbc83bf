"""Which outputs inputs may carry: by hand, and random programs that are run with and without the donation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from symalloc.analysis.donation import Donation
from symalloc.analysis.interprocedural import analyse
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Arena, Buffer, Placement, Plan
from symalloc.program.ir import (
    AllocFresh,
    Function,
    Operand,
    Origin,
    Ownership,
    Program,
    TupleValue,
    Var,
)
from symalloc.program.types import DType, TensorType, TupleType
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import DonatedAlias, donated_aliases
from symalloc.size.expr import ZERO
from tests.planner.random_programs import MIX, MIX_KERNEL, Frame, Machine, Maker
from tests.program.build import F32, KERNELS, U8, Body, param, program_of, tensor_of

PROVER = Prover()


def fresh(body: Body, *extents: int | str, dtype: DType = U8, name: str | None = None, **more: object) -> Var:
    kind = tensor_of(*extents, dtype=dtype)
    assert kind.shape is not None
    return body.emit(AllocFresh(var=body.var(kind, name), shape=kind.shape, dtype=dtype, **more))  # type: ignore[arg-type]


def asked(
    body: Body, result: Operand, *wanted: str, in_place: bool = False, **more: object
) -> tuple[DonatedAlias, ...]:
    """What is proved of the aliases `wanted` of a function that returns `result`."""
    return of(body.program(result, **more), *wanted, in_place=in_place)


def of(program: Program, *wanted: str, in_place: bool = False) -> tuple[DonatedAlias, ...]:
    donations = [
        Donation(output=output, input=source) for output, _, source in (w.partition("=") for w in wanted)
    ]
    return donated_aliases(analyse(program)["main"], donations, PROVER, lambda *_: in_place)


def refused(body: Body, result: Operand, *wanted: str, in_place: bool = False, **more: object) -> str:
    with pytest.raises(PlanRefusedError) as refusal:
        asked(body, result, *wanted, in_place=in_place, **more)
    return str(refusal.value).partition(" is refused: ")[2]


def copied(body: Body, source: Var, *extents: int | str, name: str | None = None) -> Var:
    made = fresh(body, *extents, name=name)
    body.call("copy", source, made)
    return made


# -- lifetimes ---------------------------------------------------------------------------------------------


class Given(Body):
    """A function of x and z."""

    def __init__(self) -> None:
        super().__init__(param("x", "n"), param("z", "n"))

    def copied(self, source: Var) -> Var:
        return copied(self, source, "n")

    def output(self, source: Var) -> Var:
        return copied(self, source, "n", name="y")


AFTER = "`{}` uses `x` after `copy` has written `y` over it"
READ = AFTER.format("read")


@pytest.mark.parametrize(
    ("steps", "source", "refusal"),
    [
        ("y = output z; read x", "x", READ),
        ("later = alias x; y = output z; read later", "x", READ),
        ("later = reshape x n 1; y = output z; read later", "x", READ),
        ("pair = tuple z x; later = take pair 1; y = output z; read later", "x", READ),
        ("later = cast x n; y = output z; read later", "x", READ),
        ("later = view x 1; y = output z; read later", "x", READ),
        ("later = argument x; y = output z; read later", "x", READ),
        ("both = tuple x z; y = output z; other = take both 0; read other", "x", READ),
        ("both = tuple x z; t = copied z; y = output t; other = take both 0; read other", "z", None),
        ("y = output z; fill x", "x", AFTER.format("fill")),
        ("y = output z; scatter x", "x", AFTER.format("scatter")),
        ("y = output z; update x", "x", AFTER.format("update")),
        ("update x; y = output z", "x", None),
        ("may = packed unknown z; y = output x; read may", "z", "`unknown` may hold on to `z`"),
    ],
)
def test_what_is_read_or_written_around_the_output(steps: str, source: str, refusal: str | None) -> None:
    body = Given()
    x, z = body.params
    y = body.follow(steps, x=x, z=z)["y"]
    if refusal is None:
        assert asked(body, y, f"y={source}")
    else:
        assert refused(body, y, f"y={source}").startswith(refusal)
    if refusal is READ:
        assert asked(body, y, "y=z", in_place=True)


@pytest.mark.parametrize(("in_place", "accepted"), [(True, True), (False, False)])
def test_a_kernel_that_reads_what_it_overwrites(in_place: bool, accepted: bool) -> None:
    body = Body(param("x", "n"))
    y = copied(body, body.params[0], "n", name="y")
    if not accepted:
        text = refused(body, y, "y=x")
        assert text.startswith("`copy` reads `x` while it writes `y`, and it is not proved")
        return
    (one,) = asked(body, y, "y=x", in_place=in_place)
    ((_, overlay),) = one.over.items()
    assert (overlay.inputs, overlay.output) == ({0}, 1)


# -- which memory ------------------------------------------------------------------------------------------


def test_what_is_returned_besides() -> None:
    body = Body(param("x", "n"), param("z", "n"))
    y = copied(body, body.params[1], "n", name="y")
    both = TupleValue((y, body.params[0]))
    assert refused(body, both, "0=x") == "`x` is returned, too, and `copy` overwrites it with `0`"
    assert "`1` lies in `x` already" in refused(body, both, "1=x")
    assert "`1` is no tensor that the function allocates itself: it is the input `x`" in refused(
        body, both, "1=z"
    )
    assert "`0` is the output `1`, too" in refused(body, TupleValue((y, body.alias(y))), "0=x")


def test_each_memory_is_given_and_taken_once() -> None:
    body = Body(param("x", "n"), param("z", "n"), param("w", "n"))
    y, v = (copied(body, body.params[2], "n") for _ in range(2))
    both = TupleValue((y, v))
    assert len(asked(body, both, "0=x", "1=z")) == 2
    assert "`x` is donated already, to `0`" in refused(body, both, "0=x", "1=x")
    assert "`0` is carried already, by `x`" in refused(body, both, "0=x", "0=z")


def test_names() -> None:
    body = Body(Var("caches", TupleType(fields=(tensor_of("n"), tensor_of("n")))), param("z", "n"))
    y = copied(body, body.params[1], "n", name="y")
    assert asked(body, TupleValue((y, TupleValue((body.alias(y, "again"), y)))) and y, "result=caches.1")
    assert "there is no input `caches`; the inputs are `caches.0`, `caches.1`, `z`" in refused(
        body, y, "y=caches"
    )
    assert "there is no output `u`; the outputs are `result` or `y`" in refused(body, y, "u=z")


def test_what_the_function_does_not_allocate() -> None:
    body = Body(param("x", "n"), param("z", "n"))
    made = body.packed("make", body.params[1], ownership=Ownership.FRESH)
    assert refused(body, made, "result=x").endswith("allocates itself: `make` makes it")


def test_device_scope_and_elements() -> None:
    for more in ({"device": 1}, {"scope": "local"}):
        body = Body(param("x", "n"), param("z", "n"))
        y = fresh(body, "n", name="y", **more)
        body.call("copy", body.params[1], y)
        assert "`y` is wanted on device" in refused(body, y, "y=x")
    nibbles = DType("int4", 4)
    body = Body(param("x", "n", dtype=nibbles), param("z", "n"))
    y = copied(body, body.params[1], "n", name="y")
    assert "the elements of `x`, int4, do not fill whole bytes" in refused(body, y, "y=x")
    body = Body(Var("x", TensorType(shape=None, dtype=U8, ndim=1)), param("z", "n"))
    y = copied(body, body.params[1], "n", name="y")
    assert "no tensor whose shape and element type are known" in refused(body, y, "y=x")


# -- sizes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("have", "want", "guard"),
    [
        (("n",), ("n",), None),
        (("2*n",), ("n",), None),
        (("n", "m"), ("n*m",), None),
        (("n + 1",), ("n",), None),
        (("n",), ("m",), "m - n <= 0"),
        ((64,), ("n",), "n - 64 <= 0"),
        (("n", "n"), ("m",), "m - n**2 <= 0"),
    ],
)
def test_sizes(have: tuple[int | str, ...], want: tuple[int | str, ...], guard: str | None) -> None:
    body = Body(param("x", *have), param("z", *want), param("w", "n"), param("v", "m"))
    y = copied(body, body.params[1], *want, name="y")
    (one,) = asked(body, y, "y=x")
    shown = [g.condition for g in one.guards if g.condition.as_bool is None]
    assert len(shown) == (guard is not None)
    for n in range(12):
        for m in range(12):
            at = {"n": n, "m": m}
            kinds = [one.input.type, y.type]
            room, need = (k.nbytes.evaluate(at) for k in kinds if isinstance(k, TensorType) and k.nbytes)
            assert all(g.check.evaluate(at) for g in one.guards) == (need <= room)


def test_a_size_that_wraps_in_64_bits_is_refused_by_the_guard() -> None:
    body = Body(param("x", "n"), param("z", "n", "m"))
    y = copied(body, body.params[1], "n", "m", name="y")
    (one,) = asked(body, y, "y=x")
    assert not all(g.check.evaluate({"n": 2**32, "m": 2**32}) for g in one.guards)


def test_other_element_types_count_in_bytes() -> None:
    body = Body(param("x", "n"), param("z", "n"))
    y = fresh(body, "n", dtype=F32, name="y")
    body.call("copy", body.params[1], y)
    assert "`y` never fits into `x`: n <= 0 does not hold (n = 1)" in refused(body, y, "y=x")
    body = Body(param("x", "4*n"), param("z", "n"))
    y = fresh(body, "n", dtype=F32, name="y")
    body.call("copy", body.params[1], y)
    assert asked(body, y, "y=x")[0].guards == ()


def test_what_becomes_known_too_late() -> None:
    body = Body(param("x", "n"), param("z", "n"))
    late = body.cast(body.packed("counted", body.params[1], ownership=Ownership.FRESH), "k", defines=["k"])
    y = copied(body, late, "k", name="y")
    symbols = {"n": Origin.DIMENSION, "k": Origin.CAST}
    assert "cannot be checked at entry: `k` becomes known later" in refused(body, y, "y=x", symbols=symbols)


# -- random programs ---------------------------------------------------------------------------------------

SEEDS = range(200)
PATHS = range(24)
SIZES = ({"n": 70, "m": 70}, {"n": 200, "m": 64}, {"n": 64, "m": 300})


class Donating(Machine):
    """A machine whose caller sets aside, for what is planned in main, the memory of one argument."""

    donated: int = 0

    def run(self) -> list[int]:
        arguments = [self.write(self.reserve(self.binding[n]), ()) for n in ("n", "m")]
        function = self.program.functions["main"]
        frame = Frame(machine=self, binding=dict(self.binding), plan=self.plans.get("main"))
        frame.values.update(zip(function.params, arguments, strict=True))
        frame.arenas[0] = arguments[self.donated]
        self.log.append(self.read(frame.block(function.body)))
        return self.log


def log(
    program: Program, plans: Mapping[str, Plan], at: Mapping[str, int], path: int, donated: int
) -> list[int]:
    machine = Donating(program=program, plans=plans, choices=Random(path), binding=at)
    machine.donated = donated
    return machine.run()


class PlainMaker(Maker):
    """No casts; packed functions of one argument, for the machine returns the first of several only."""

    def cast(self) -> None:
        self.compute()

    def packed(self) -> None:
        var, extent = self.pick()
        ownership = self.random.choice(list(Ownership))
        self.visible.append((self.body.packed("opaque", var, ownership=ownership), extent))


def small_program(seed: int) -> Program:
    """`main(x: n, y: m)`, which returns one or two tensors, one of them its own."""
    random = Random(seed)
    x, y = param("x", "n"), param("y", "m")
    maker = PlainMaker(random, Body(x, y), {x: "n", y: "m"})
    maker.extents = ["n", "m", "max(n - 5, 0)"]
    maker.grow(random.randint(1, 6))
    own = maker.fresh(random.choice(("n", "m")))
    maker.grow(random.randint(0, 3))
    result: Operand = own if random.random() < 0.6 else TupleValue((own, maker.pick()[0]))
    return program_of(maker.body.finish(result), kernels={**KERNELS, MIX: MIX_KERNEL})


def lying_on(program: Program, outputs: frozenset[Var], source: int) -> dict[str, Plan]:
    """The plan that puts the tensors `outputs` at the start of parameter `source`."""
    kind = program.functions["main"].params[source].type
    assert isinstance(kind, TensorType) and kind.nbytes is not None
    size = kind.nbytes
    buffers = [Buffer(id=i, name=v.name, size=size, live=(), var=v) for i, v in enumerate(outputs)]
    placements = tuple(Placement(buffer=buffer, offset=ZERO) for buffer in buffers)
    arena = Arena(device=0, scope="global", size=size, placements=placements)
    return {"main": Plan(function="main", arenas=(arena,))}


def fitting(found: DonatedAlias) -> Iterator[dict[str, int]]:
    for at in SIZES:
        if all(guard.check.evaluate(at) for guard in found.guards):
            yield at


def own_result(function: Function) -> frozenset[Var]:
    result = function.body.result
    first = result.items[0] if isinstance(result, TupleValue) else result
    assert isinstance(first, Var)
    return frozenset({first})


def test_donations_that_are_accepted_change_nothing_and_refused_ones_would() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        program = small_program(seed)
        name = "0" if isinstance(program.functions["main"].body.result, TupleValue) else "result"
        for source, given in enumerate("xy"):
            try:
                (found,) = of(program, f"{name}={given}", in_place=True)
            except PlanRefusedError as refusal:
                seen[verdict(program, source, str(refusal))] += 1
                continue
            plans = lying_on(program, found.allocations, source)
            for at in fitting(found):
                seen["run"] += 1
                for path in PATHS[:6]:
                    own, shared = (log(program, p, at, path, source) for p in ({}, plans))
                    assert own == shared, f"program {seed}, {name}={given}, at {at}, path {path}"
    assert seen["run"] > 60 and seen["wrong"] > 60, seen
    assert not seen["right"], seen


def verdict(program: Program, source: int, refusal: str) -> str:
    """Whether a refusal that is sure of itself keeps wrong numbers away, shown by running what it refuses."""
    if not ("after" in refusal or "is returned, too" in refusal) or " may" in refusal:
        return "not provable"
    outputs = own_result(program.functions["main"])
    if not all(isinstance(i, AllocFresh) for i in allocations(program, outputs)):
        return "not provable"
    plans = lying_on(program, outputs, source)
    for at in ({"n": 300, "m": 300},):
        for path in PATHS:
            own, shared = (log(program, p, at, path, source) for p in ({}, plans))
            if own != shared:
                return "wrong"
    return "right"


def allocations(program: Program, outputs: frozenset[Var]) -> list[object]:
    instructions = program.functions["main"].body.instructions
    return [i for i in instructions if i.var in outputs]

"""Which outputs inputs may carry: by hand, and random programs that are run with and without the donation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from symalloc.analysis.donation import Donation
from symalloc.analysis.interprocedural import analyse
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.memory_plan import Plan
from symalloc.program.ir import AllocFresh, Operand, Origin, Ownership, Program, TupleValue, Var
from symalloc.program.types import DType, TensorType, TupleType
from symalloc.prover.prover import Prover
from symalloc.relax.donation.donate import DonatedAlias, donated_aliases
from tests.planner.random_programs import Frame, Machine, Maker
from tests.program.build import U8, Body, param, tensor_of
from tests.relax.donation.steps import Steps, in_one_memory, program_of_maker

PROVER = Prover()


def asked(program: Program, wanted: str, *, in_place: bool = False) -> tuple[DonatedAlias, ...]:
    """What is proved of the aliases `wanted`, such as `y=x`."""
    sides = (one.partition("=") for one in wanted.split())
    donations = [Donation(output=output, input=source) for output, _, source in sides]
    return donated_aliases(analyse(program)["main"], donations, PROVER, lambda *_: in_place)


class Given(Steps):
    """A function of x, z, w and others; `output z` makes y of z."""

    def __init__(self) -> None:
        shapeless = Var("shapeless", TensorType(shape=None, dtype=U8, ndim=1))
        caches = Var("caches", TupleType(fields=(tensor_of("n"), tensor_of("n"))))
        others = param("long", "4*n"), param("nibbles", "n", dtype=DType("int4", 4)), shapeless, caches
        super().__init__(*(param(name, "n") for name in "xzw"), *others)

    def returned(self, source: Var) -> Var:
        return self.packed("make", source, ownership=Ownership.FRESH)

    def elsewhere(self, source: Var) -> Var:
        return self.made(source, device=1, name="y")

    def local(self, source: Var) -> Var:
        return self.made(source, scope="local", name="y")

    def counted(self, source: Var) -> Var:
        """A tensor whose size becomes known behind the entry."""
        late = self.cast(self.packed("counted", source, ownership=Ownership.FRESH), "k", defines=["k"])
        return self.made(late, extents=("k",), name="y")


AFTER = "`{}` uses `x` after `copy` has written `y` over it"
READ = AFTER.format("read")
TWO = "a = made w; b = made w; y = tuple a b"
WITH_X = "made = output z; y = tuple made x"


@pytest.mark.parametrize(
    ("steps", "wanted", "refusal"),
    [
        # what is read or written around the output
        ("y = output z; read x", "y=x", READ),
        ("later = alias x; y = output z; read later", "y=x", READ),
        ("later = reshape x n 1; y = output z; read later", "y=x", READ),
        ("pair = tuple z x; later = take pair 1; y = output z; read later", "y=x", READ),
        ("later = cast x n; y = output z; read later", "y=x", READ),
        ("later = view x 1; y = output z; read later", "y=x", READ),
        ("later = argument x; y = output z; read later", "y=x", READ),
        ("both = tuple x z; y = output z; other = take both 0; read other", "y=x", READ),
        ("both = tuple x z; t = made z; y = output t; other = take both 0; read other", "y=z", None),
        ("y = output z; fill x", "y=x", AFTER.format("fill")),
        ("y = output z; scatter x", "y=x", AFTER.format("scatter")),
        ("y = output z; update x", "y=x", AFTER.format("update")),
        ("update x; y = output z", "y=x", None),
        ("may = packed unknown z; y = output x; read may", "y=z", "`unknown` may hold on to `z`"),
        ("y = output x", "y=x", "`copy` reads `x` while it writes `y`, and it is not proved"),
        # what is returned besides, and what is given or taken twice
        (WITH_X, "0=x", "`x` is returned, too, and `copy` overwrites it with `0`"),
        (WITH_X, "1=x", "`1` lies in `x` already"),
        (WITH_X, "1=z", "`1` is no tensor that the function allocates itself: it is the input `x`"),
        ("a = output z; b = alias a; y = tuple a b", "0=x", "`0` is the output `1`, too"),
        (TWO, "0=x 1=z", None),
        (TWO, "0=x 1=x", "`x` is donated already, to `0`"),
        (TWO, "0=x 0=z", "`0` is carried already, by `x`"),
        # names
        ("y = output z", "result=caches.1", None),
        ("y = output z", "y=caches", "there is no input `caches`; the inputs are `x`, `z`"),
        ("y = output z", "u=z", "there is no output `u`; the outputs are `result` or `y`"),
        # memory of another kind, or none of the function's own
        ("y = returned z", "result=x", "allocates itself: `make` makes it"),
        ("y = elsewhere z", "y=x", "`y` is wanted on device 1 (global)"),
        ("y = local z", "y=x", "`y` is wanted on device 0 (local)"),
        ("y = output z", "y=nibbles", "the elements of `nibbles`, int4, do not fill whole bytes"),
        ("y = output z", "y=shapeless", "no tensor whose shape and element type are known"),
        # sizes, in bytes
        ("y = floats z", "y=x", "`y` never fits into `x`: n <= 0 does not hold (n = 1)"),
        ("y = floats z", "y=long", None),
        ("y = counted z", "y=x", "cannot be checked at entry: `k` becomes known later"),
    ],
)
def test_what_is_donated(steps: str, wanted: str, refusal: str | None) -> None:
    body = Given()
    y = body.follow(steps, **{one.name: one for one in body.params})["y"]
    program = body.program(y, symbols={"n": Origin.DIMENSION, "k": Origin.CAST})
    if refusal is None:
        assert [one.guards for one in asked(program, wanted)] == [()] * len(wanted.split())
        return
    with pytest.raises(PlanRefusedError) as refused:
        asked(program, wanted)
    assert refusal in str(refused.value)
    if refusal is READ:
        assert asked(program, "y=z", in_place=True)


def test_a_kernel_that_reads_what_it_overwrites() -> None:
    body = Given()
    (one,) = asked(body.program(body.output(body.params[0])), "y=x", in_place=True)
    ((_, overlay),) = one.over.items()
    assert (overlay.inputs, overlay.output) == ({0}, 1)


@pytest.mark.parametrize(
    ("have", "want", "guarded"),
    [
        (("n",), ("n",), False),
        (("2*n",), ("n",), False),
        (("n", "m"), ("n*m",), False),
        (("n + 1",), ("n",), False),
        (("n",), ("m",), True),
        ((64,), ("n",), True),
        (("n", "n"), ("m",), True),
    ],
)
def test_sizes(have: tuple[int | str, ...], want: tuple[int | str, ...], guarded: bool) -> None:
    body = Steps(param("x", *have), param("z", *want), param("w", "n"), param("v", "m"))
    y = body.made(body.params[1], extents=want, name="y")
    (one,) = asked(body.program(y), "y=x")
    assert any(g.condition.as_bool is None for g in one.guards) is guarded
    for at in ({"n": n, "m": m} for n in range(12) for m in range(12)):
        kinds = [one.input.type, y.type]
        room, need = (k.nbytes.evaluate(at) for k in kinds if isinstance(k, TensorType) and k.nbytes)
        assert all(g.check.evaluate(at) for g in one.guards) == (need <= room)


def test_a_size_that_wraps_in_64_bits_is_refused_by_the_guard() -> None:
    body = Steps(param("x", "n"), param("z", "n", "m"))
    (one,) = asked(body.program(body.made(body.params[1], extents=("n", "m"), name="y")), "y=x")
    assert not all(g.check.evaluate({"n": 2**32, "m": 2**32}) for g in one.guards)


# -- random programs ---------------------------------------------------------------------------------------

PATHS = 24
SIZES = ({"n": 70, "m": 70}, {"n": 200, "m": 64}, {"n": 64, "m": 300})


class Donating(Machine):
    """A machine whose caller sets aside, for what is planned in main, the memory of one argument."""

    donated: int = 0

    def call(self, name: str, arguments: list[Any], binding: Mapping[str, int]) -> Any:
        function = self.program.functions[name]
        frame = Frame(machine=self, binding=dict(binding), plan=self.plans.get(name))
        frame.values.update(zip(function.params, arguments, strict=True))
        frame.arenas[0] = arguments[self.donated]
        return frame.block(function.body)


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


def small_program(seed: int) -> tuple[Program, Var]:
    """`main(x: n, y: m)`, which returns one or two tensors, and the one that is its own."""
    random = Random(seed)
    x, y = param("x", "n"), param("y", "m")
    maker = PlainMaker(random, Body(x, y, Var("nothing", TupleType(fields=()))), {x: "n", y: "m"})
    maker.extents = ["n", "m", "max(n - 5, 0)"]
    maker.grow(random.randint(1, 6))
    own = maker.fresh(random.choice(("n", "m")))
    maker.grow(random.randint(0, 3))
    result: Operand = own if random.random() < 0.6 else TupleValue((own, maker.pick()[0]))
    return program_of_maker(maker, result), own


def lying_on(program: Program, outputs: list[Var], source: int) -> dict[str, Plan]:
    """The plan that puts the tensors `outputs` at the start of parameter `source`."""
    arena = in_one_memory(outputs, program.functions["main"].params[source])
    return {"main": Plan(function="main", arenas=(arena,))}


def test_donations_that_are_accepted_change_nothing_and_refused_ones_would() -> None:
    seen: Counter[str] = Counter()
    for seed in range(200):
        program, own = small_program(seed)
        name = "0" if isinstance(program.functions["main"].body.result, TupleValue) else "result"
        for source, given in enumerate("xy"):
            try:
                (found,) = asked(program, f"{name}={given}", in_place=True)
            except PlanRefusedError as refusal:
                seen[verdict(program, own, source, str(refusal))] += 1
                continue
            plans = lying_on(program, [*found.allocations], source)
            for at in SIZES:
                if not all(guard.check.evaluate(at) for guard in found.guards):
                    continue
                seen["run"] += 1
                for path in range(6):
                    apart, shared = (log(program, p, at, path, source) for p in ({}, plans))
                    assert apart == shared, f"program {seed}, {name}={given}, at {at}, path {path}"
    assert seen["run"] > 60 and seen["wrong"] > 60, seen
    assert not seen["right"], seen


def verdict(program: Program, own: Var, source: int, refusal: str) -> str:
    """Whether a refusal that is sure of itself keeps wrong numbers away, shown by running what it refuses."""
    if not ("after" in refusal or "is returned, too" in refusal) or " may" in refusal:
        return "not provable"
    made = [i for i in program.functions["main"].body.instructions if i.var == own]
    if not all(isinstance(i, AllocFresh) for i in made):
        return "not provable"
    plans, at = lying_on(program, [own], source), {"n": 300, "m": 300}
    for path in range(PATHS):
        apart, shared = (log(program, p, at, path, source) for p in ({}, plans))
        if apart != shared:
            return "wrong"
    return "right"

"""Live ranges: by hand, and beside an oracle that walks every path of random programs."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import from_source

import symalloc
from symalloc.analysis.effects import Intervals
from symalloc.analysis.interprocedural import analyse
from symalloc.program.ir import AllocFresh, Function, Operand, Ownership, Program, Var
from symalloc.program.types import TupleType
from tests.program.build import NOTHING, Body, param, tensor_of
from tests.program.live_oracle import live_together
from tests.scale import tries

SIZE = 4


def ranges(program: Program, name: str = "main") -> dict[Var, Intervals]:
    analysis = analyse(program)[name]
    made = [i.var for _, i in analysis.cfg.instructions if isinstance(i, AllocFresh)]
    roots = {var: analysis.points_to.allocated(var).number for var in made}
    found = analysis.live_ranges(roots.values())
    return {var: found.of[root].live if root in found.of else () for var, root in roots.items()}


def overlapping(program: Program) -> set[frozenset[Var]]:
    found = ranges(program)
    positions = {var: {m for begin, end in live for m in range(begin, end)} for var, live in found.items()}
    return {frozenset(pair) for pair in combinations(positions, 2) if positions[pair[0]] & positions[pair[1]]}


class Code(Body):
    """A body with memory of its own for each tensor, as it is before planning."""

    def fresh(self, name: str | None = None, *, filled: bool = True) -> Var:
        made = AllocFresh(var=self.var(tensor_of(SIZE), name), shape=tensor_of(SIZE).shape, dtype=U8)
        self.emit(made)
        if filled:
            self.call("fill", made.var)
        return made.var


U8 = tensor_of(1).dtype
assert U8 is not None


def callees() -> tuple[Function, ...]:
    """What a callee may do to its arguments."""
    made: list[Function] = []
    for name in ("reads", "updates", "returns", "chooses", "pairs"):
        a, b = param("a", SIZE), param("b", SIZE)
        body = Code(a, b, name=name)
        result: Operand = a
        match name:
            case "reads":
                inner = body.fresh()
                body.call("add", a, b, inner)
                result = inner
            case "updates":
                body.call("update", a)
                body.call("read", b)
                result = b
            case "chooses":
                result = body.branch(lambda a=a: a, lambda b=b: b)
            case "pairs":
                result = body.tuple(a, b)
        made.append(body.finish(result))
    return tuple(made)


CALLEES = callees()
RESULTS = {f.name: f.result_type for f in CALLEES}


class Writer:
    """Writes a random program; `plain` ones hold what lowered models hold, and no partial writes."""

    def __init__(self, draw: st.DrawFn, *, plain: bool) -> None:
        self.draw, self.plain = draw, plain
        self.body = Code(param("x", SIZE))
        self.left = draw(st.integers(3, 12))

    def pick(self, known: list[Var]) -> Var:
        return self.draw(st.sampled_from(known))

    def block(self, known: list[Var], depth: int) -> Var:
        known = list(known)
        for _ in range(self.draw(st.integers(0, 5))):
            if self.left <= 0:
                break
            self.left -= 1
            self.step(known, depth)
        return self.pick(known)

    def step(self, known: list[Var], depth: int) -> None:
        common = ["new", "new", "alias", "read", "add", "tuple", "call", "reshape"]
        extra = [] if self.plain else ["scatter", "update", "late", "view", "same", "unknown"]
        kind = self.draw(st.sampled_from(common + extra + ["branch"] * 2 * (depth < 2)))
        if kind == "branch":
            known.append(
                self.body.branch(lambda: self.block(known, depth + 1), lambda: self.block(known, depth + 1))
            )
            return
        known += self.simple(kind, known)

    def simple(self, kind: str, known: list[Var]) -> list[Var]:
        body, a, b = self.body, self.pick(known), self.pick(known)
        match kind:
            case "new" | "late":
                return [body.fresh(filled=kind == "new")]
            case "alias":
                return [body.alias(a)]
            case "read" | "scatter" | "update":
                body.call(kind, a)
            case "add":
                made = body.fresh(filled=False)
                body.call("add", a, b, made)
                return [made]
            case "tuple":
                return [body.take(body.tuple(a, b), self.draw(st.integers(0, 1)))]
            case "reshape":
                return [body.reshape(a, SIZE)]
            case "view":
                part = body.view(a, 2, offset=self.draw(st.integers(0, 2)))
                body.call(self.draw(st.sampled_from(["read", "fill"])), part)
            case "same" | "unknown":
                ownership = Ownership.ARGUMENT if kind == "same" else Ownership.UNKNOWN
                return [body.packed("f", a, b, ownership=ownership)]
            case "call":
                return self.call(a, b)
        return []

    def call(self, a: Var, b: Var) -> list[Var]:
        names = ["reads", "returns", "chooses", "pairs"] + ["updates"] * (not self.plain)
        name = self.draw(st.sampled_from(names))
        result = self.body.function(name, a, b, kind=RESULTS[name])
        if isinstance(result.type, TupleType):
            return [self.body.take(result, self.draw(st.integers(0, 1)))]
        return [result]


@st.composite
def programs(draw: st.DrawFn, *, plain: bool) -> Program:
    writer = Writer(draw, plain=plain)
    known = [writer.body.params[0]]
    while writer.left > 0:
        writer.left -= 1
        writer.step(known, 0)
    result = writer.pick(known) if draw(st.booleans()) else NOTHING
    return writer.body.program(result, *CALLEES)


def test_memory_that_is_filled_anew_is_free_in_between() -> None:
    body = Code()
    a = body.fresh()
    for kernel in ("read", "fill", "read"):
        body.fresh()
        body.call(kernel, a)
    assert ranges(body.program(NOTHING))[a] == ((0, 3), (4, 7))


@settings(max_examples=tries(75, 1500))
@given(programs(plain=False))
def test_what_is_live_together_on_some_path_overlaps(program: Program) -> None:
    assert live_together(program) <= overlapping(program)


@settings(max_examples=tries(75, 1500))
@given(programs(plain=True))
def test_in_programs_as_lowering_makes_them_nothing_else_overlaps(program: Program) -> None:
    assert live_together(program) == overlapping(program)


BEHIND_AN_IF = """@I.ir_module
class Module:
    @T.prim_func
    def evens(a: T.handle, b: T.handle, out: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        C = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            if i % 2 == 0:
                C[i] = A[i] + B[i]

    @R.function
    def main(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        cls = Module
        if c:
            then = R.call_tir(cls.evens, (x, x), out_ty=R.Tensor((n,), "float32"))
            y = then
        else:
            other = R.call_tir(cls.evens, (x, x), out_ty=R.Tensor((n,), "float32"))
            y = other
        first = R.call_tir(cls.evens, (y, y), out_ty=R.Tensor((n,), "float32"))
        second = R.call_tir(cls.evens, (first, first), out_ty=R.Tensor((n,), "float32"))
        third = R.call_tir(cls.evens, (second, second), out_ty=R.Tensor((n,), "float32"))
        last = R.call_tir(cls.evens, (third, y), out_ty=R.Tensor((n,), "float32"))
        return last
"""


def test_what_is_written_in_part_is_free_before_whichever_way_an_if_goes() -> None:
    arenas = symalloc.plan(from_source(BEHIND_AN_IF)).plans["main"].arenas
    assert sum(arena.size.evaluate({"n": 16}) for arena in arenas) == 3 * 64

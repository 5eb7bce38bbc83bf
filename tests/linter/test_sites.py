"""Sites of single instructions: kernels, views, reshapes, indices."""

from __future__ import annotations

import pytest

from symalloc.linter.diagnostic import Severity
from symalloc.program import ir
from symalloc.program.types import ScalarType, TupleType
from symalloc.prover.domain import Verdict
from symalloc.size.expr import symbol
from tests.linter.engine_run import findings, run
from tests.program.build import F32, Body, Size, buffer, param, program_of, tensor_of

VOID = TupleType(fields=())


class Steps(Body):
    """A body whose steps also write in other ways than a kernel does."""

    def either(self, one: ir.Var, other: ir.Var) -> ir.Var:
        return self.branch(lambda: one, lambda: other)

    def store(self, target: ir.Var) -> ir.Var:
        return self.packed("f", target, pure=False, writes=[0], ownership=ir.Ownership.FRESH, kind=VOID)

    def keep(self, value: ir.Var) -> ir.Var:
        return self.packed("keep", value, pure=False, kind=VOID)

    def look(self, value: ir.Var, name: str = "tvm.contrib.sort.sort") -> ir.Var:
        return self.packed(name, value, kind=VOID, ownership=ir.Ownership.FRESH)

    def inner(self, *arguments: ir.Var) -> ir.Var:
        return self.function("inner", *arguments, kind=VOID)

    def in_place(self, target: ir.Var) -> ir.Var:
        var, outputs = self.var(tensor_of(8)), (tensor_of(8),)
        call = ir.CallTIR(var=var, kernel="update", inputs=(target,), outputs=outputs, inplace=(0,))
        return self.emit(call)


@pytest.mark.parametrize("scalar_first", [False, True])
def test_extents_are_held_against_a_scalar_that_a_kernel_takes(scalar_first: bool) -> None:
    """TVM checks extents against scalars, also against those that come behind the buffers."""
    turn = -1 if scalar_first else 1
    body = Body(param("x", "n"))
    body.call("f", *(body.params[0], ir.Scalar(symbol("m")))[::turn])
    function = body.finish(symbols={"n": ir.Origin.DIMENSION, "m": ir.Origin.SCALAR})
    kernel = ir.Kernel(name="f", parameters=(buffer("a", "k"), ir.KernelScalar(name="k"))[::turn])
    (found,) = findings(program_of(function, kernels={"f": kernel}), "SYM303")
    assert (found.verdict, found.guarded) == (Verdict.RUNTIME_CHECK, True)
    assert "n against m" in found.message


@pytest.mark.parametrize(
    ("argument", "count", "what"),
    [
        (param("x", 4, dtype=F32), 1, "dtype of `x`"),
        (param("x", 4, 1), 1, "number of dimensions"),
        (param("x", 5), 1, "extent 0"),
        (param("x", 4), 2, "number of arguments differs from what `f` takes: 1 against 2"),
    ],
)
def test_what_a_kernel_refuses(argument: ir.Var, count: int, what: str) -> None:
    kernel = ir.Kernel(name="f", parameters=(buffer("a", 4), buffer("b", 4))[:count])
    body = Body(argument)
    body.call("f", argument)
    (found,) = findings(program_of(body.finish(), kernels={"f": kernel}), "SYM303")
    assert found.verdict is Verdict.ALWAYS_INVALID
    assert what in found.message


@pytest.mark.parametrize(
    "write",
    [
        *("fill copied", "other = alias copied; fill other", "other = reshape copied 8; fill other"),
        *("other = cast copied 8; fill other", "_ = in_place copied", "_ = store copied", "_ = inner copied"),
    ],
)
def test_what_is_written_into_a_copy_and_read_elsewhere_is_an_error(write: str) -> None:
    inner, body = Body(param("p", 8), name="inner"), Steps()
    inner.call("fill", inner.params[0])
    steps = "s = storage 256; arena = tensor s 256; part = view arena 8 offset=4; copied = settle part"
    body.follow(f"{steps}; {write}; again = settle part; read again")
    program = program_of(body.finish(), *([inner.finish()] if "inner" in write else ()))
    found = {d.rule: d.severity for d in findings(program, "SYM110", "SYM203")}
    assert found == {"SYM110": Severity.ERROR}


@pytest.mark.parametrize("offset", [4, "n"])
@pytest.mark.parametrize(
    ("steps", "severity"),
    [
        ("fill copied; read copied", Severity.WARNING),
        ("fill copied; read part", Severity.ERROR),
        ("fill copied; read arena", Severity.ERROR),
        ("fill copied; read before", Severity.ERROR),
        ("_ = keep arena; fill copied; read copied", Severity.ERROR),
        ("pair = tuple copied arena; one = take pair 0; fill one; read one", Severity.WARNING),
        ("pair = tuple copied arena; one = take pair 0; fill one; read arena", Severity.ERROR),
        (
            "pair = tuple copied arena; one = take pair 0; fill one; any = either arena z; read any",
            Severity.ERROR,
        ),
        ("one = either copied copied; fill one; read one", Severity.WARNING),
        ("one = either copied copied; fill one; any = either arena z; read any", Severity.ERROR),
        (
            "part = view z 8 offset=4; copied = settle part; fill copied; read copied",
            Severity.ERROR,
        ),  # the caller
    ],
)
def test_a_copy_that_alone_is_written_and_read_is_no_error(
    steps: str, severity: Severity, offset: Size
) -> None:
    body = Steps(param("x", "n"), param("z", 256))
    made = f"s = storage n+256; arena = tensor s n+256; part = view arena 8 offset={offset}"
    body.follow(f"{made}; before = settle part; copied = settle part; {steps}")
    (found,) = findings(body.program(), "SYM110")
    assert found.severity is severity


def test_a_part_of_what_is_handed_over_may_begin_where_no_copy_is_made() -> None:
    inner, body = Body(param("p", 64), name="inner"), Steps()
    inner.follow("part = view p 8 offset=32; same = settle part; fill same")
    body.follow("s = storage 256; arena = tensor s 256; whole = view arena 64 offset=32; _ = inner whole")
    body.follow("part = view arena 8 offset=64; read part", arena=body.blocks[0][1].var)
    assert not findings(program_of(body.finish(), inner.finish()), "SYM208", "SYM203")


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ("part = view arena 8 offset=4; copied = settle part; read copied", ["SYM108 warning"]),
        ("low = tensor s 8 offset=4; same = settle low", ["SYM104 error"]),  # where it is placed, not again
        ("half = view arena 128 offset=32; part = view half 64 offset=32; same = settle part", []),
    ],
)
def test_offsets_add_up_and_are_reported_once(steps: str, found: list[str]) -> None:
    body = Body()
    body.follow(f"s = storage 256; arena = tensor s 256; {steps}")
    rules = ("SYM104", "SYM108", "SYM110")
    assert [f"{d.rule} {d.severity}" for d in findings(body.program(), *rules)] == found


def callee(*, again: bool = False, private: bool = True) -> ir.Function:
    """It needs at most 16 bytes for its argument; `again` calls itself."""
    body = Steps(param("x", "n"), name="inner")
    body.follow("s = storage 16; t = tensor s n; fill t" + ("; _ = inner x" if again else ""))
    return body.finish(private=private)


def caller(extent: Size, name: str = "main", *, of: str = "inner", check: str = "m >= 0") -> ir.Function:
    body = Body(param("z", extent), name=name)
    body.check(check)
    body.function(of, body.params[0], kind=VOID)
    return body.finish(private=name == "middle")


BOTH = {"inner: SYM101 runtime-check"}


@pytest.mark.parametrize(
    ("functions", "found"),
    [
        ([caller(8), callee()], set()),
        ([caller(8), callee(private=False)], BOTH),
        ([caller(17), caller(8, "other"), callee()], {*BOTH, "main: SYM304 always-invalid"}),
        ([caller("m", check="m <= 16"), callee()], set()),
        ([caller(8), callee(again=True)], BOTH),
        ([caller(8, of="middle"), caller("m", "middle"), callee()], set()),
        (
            [caller(20, of="middle"), caller("m", "middle"), callee()],
            {*BOTH, "middle: SYM304 runtime-check", "main: SYM304 always-invalid"},
        ),
    ],
)
def test_needs_of_private_functions_are_held_against_their_calls(
    functions: list[ir.Function], found: set[str]
) -> None:
    """A call that does not meet a need is reported, and so is the need."""
    result = run(program_of(*functions), "SYM101", "SYM304")
    assert {f"{d.function}: {d.rule} {d.verdict}" for d in result} == found
    assert bool(result.summary.guarded) is not bool(found)


KERNELS = {
    "strict": ir.Kernel(name="strict", parameters=(buffer("a", 8, reads=False),)),
    "lenient": ir.Kernel(name="lenient", parameters=(buffer("a", 8, reads=False, offset_factor=64),)),
}


def placed(body: Body, offset: int | str = 64, storage: ir.Var | None = None) -> ir.Var:
    return body.tensor(storage or body.storage("n + 512"), 8, offset=offset)


def program(body: Body, *others: ir.Function) -> ir.Program:
    return program_of(body.finish(), *others, kernels=KERNELS)


@pytest.mark.parametrize(
    "steps",
    [
        *("_ = look t", "other = alias t; _ = look other", "other = reshape t 2 4; _ = look other"),
        *("other = cast t 8; _ = look other", "pair = tuple t low; _ = look pair"),
        *(
            "pair = tuple t low; one = take pair 0; _ = look one",
            "part = view low 8 offset=64; _ = look part",
        ),
    ],
)
def test_an_offset_is_kept_by_all_that_is_no_fold(steps: str) -> None:
    body = Steps()
    body.follow(steps, t=placed(body), low=placed(body, 0))
    (found,) = findings(program(body), "SYM112")
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("tvm.contrib.sort.argsort", Severity.ERROR),
        ("vm.builtin.tensor_to_shape", Severity.ERROR),
        ("relax.run.nonzero", None),
        ("vm.builtin.to_device", None),
        ("somebody.elses", Severity.WARNING),
    ],
)
def test_packed_functions_are_told_apart(name: str, severity: Severity | None) -> None:
    body = Steps()
    body.look(placed(body), name)
    assert [d.severity for d in findings(program(body), "SYM112")] == ([severity] if severity else [])


@pytest.mark.parametrize(("first", "second", "faulty"), [(64, 128, True), (0, 64, True), (0, 0, False)])
@pytest.mark.parametrize(
    ("use", "rule"),
    [
        *(("_ = look t", "SYM112"), ("strict t", "SYM303")),
        *(("lenient t", ""), ("folded = settle t; strict folded", "")),
    ],
)
def test_both_branches_of_an_if_count(use: str, rule: str, first: int, second: int, faulty: bool) -> None:
    body = Steps()
    storage = body.storage(512)
    t = body.branch(lambda: placed(body, first, storage), lambda: placed(body, second, storage))
    body.follow(use, t=t)
    found = {d.rule for d in findings(program(body), "SYM112", "SYM303")}
    assert found == ({rule} if rule and faulty else set())


@pytest.mark.parametrize(
    ("use", "faulty"), [("strict p", True), ("lenient p", False), ("_ = look p", True), (None, False)]
)
def test_a_callee_hands_its_parameter_on(use: str | None, faulty: bool) -> None:
    inner = Steps(param("p", 8), name="inner")
    if use is not None:
        inner.follow(use)
    middle = Steps(param("a", 8), param("b", 8), name="middle")
    middle.inner(middle.params[1])
    body = Body()
    body.function("middle", placed(body), placed(body, 0), kind=VOID)
    assert not findings(program(body, middle.finish(), inner.finish()), "SYM112")
    body.function("middle", placed(body, 0), placed(body), kind=VOID)
    assert bool(findings(program(body, middle.finish(), inner.finish()), "SYM112")) is faulty


def test_fields_of_a_tuple_parameter_are_told_apart() -> None:
    inner = Body(ir.Var("p", TupleType(fields=(tensor_of(8), tensor_of(8)))), name="inner")
    inner.follow("one = take p 1; strict one")
    body = Steps()
    body.inner(body.tuple(placed(body), placed(body, 0)))
    assert not findings(program(body, inner.finish()), "SYM112")
    body.inner(body.tuple(placed(body, 0), placed(body)))
    assert findings(program(body, inner.finish()), "SYM112")


def test_what_fails_for_numbers_from_1_on_may_hold_for_negative_ones() -> None:
    """At k = -5, m = 1, n = 1 the tensor lies at byte 64 of 256."""
    scalar = ir.Var("k", ScalarType(value=symbol("k"), dtype=None))
    body = Body(param("x", "n", "m"), scalar)
    body.tensor(body.storage("n*4 - m*64 - k*64 - 4"), "4*n", offset="(0 - m - k)//3*64")
    origins = {"n": ir.Origin.DIMENSION, "m": ir.Origin.DIMENSION, "k": ir.Origin.SCALAR}
    (found,) = findings(body.program(symbols=origins), "SYM101")
    assert found.verdict is Verdict.RUNTIME_CHECK

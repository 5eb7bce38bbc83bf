"""The memory that a call holds, compared with a budget (SYM402)."""

from __future__ import annotations

import textwrap

import pytest
from tvm.script import from_source

import symalloc
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.timeline import Timeline
from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Diagnostic
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import check
from symalloc.program.ir import AllocStorage
from symalloc.prover.domain import Verdict
from symalloc.prover.prover import Prover
from symalloc.rulebook.rule import load_rules
from tests.linter.call_programs import random_calls
from tests.scale import tries

RULES = load_rules().select(("SYM402",))
SEEDS = range(tries(25, 2000))
EXTENTS = (1, 2, 7, 16, 100)

HEAD = """@I.ir_module(check_well_formed=False)
class Module:
    @T.prim_func
    def fill(out: T.handle):
        n = T.int64()
        a = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            a[i] = T.float32(1)

"""


def lint(functions: str, budget: int | str) -> list[Diagnostic]:
    module = from_source(HEAD + textwrap.indent(textwrap.dedent(functions), "    "))
    return list(symalloc.lint(module, stage="as-is", select="SYM402", budget=budget))


def told(found: list[Diagnostic]) -> list[tuple[str, str | None, dict[str, int] | None, str | None]]:
    return [
        (d.function, d.verdict, d.counterexample and dict(d.counterexample), d.precondition) for d in found
    ]


def _disagreements(memory: Timeline, budget: int, found: list[Diagnostic]) -> list[str]:
    """Return where findings of one function say otherwise than the numbers."""
    peaks = {n: memory.peak({"n": n}) for n in EXTENTS}
    if not found:
        return [f"silent at n = {n}" for n, peak in peaks.items() if peak is None or peak > budget]
    (one,) = found
    if one.reason is not None:
        return []
    at = one.counterexample or {}
    peak = memory.peak({"n": 1, **at})
    wrong = [] if peak is None or peak > budget else [f"{dict(at)} fits: {peak}"]
    if one.verdict is Verdict.ALWAYS_INVALID:
        wrong += [f"n = {n} fits" for n, held in peaks.items() if held is not None and held <= budget]
    return wrong


def test_verdicts_agree_with_the_numbers() -> None:
    wrong, verdicts = [], set()
    for seed in SEEDS:
        program = random_calls(seed)
        analyses = analyse(program)
        if not any(analysis.cfg.of_type(AllocStorage) for analysis in analyses.values()):
            continue  # nothing is reserved
        for budget in (300, 1000, 4000):
            found = list(check(program, RULES, Prover(), options=LintOptions(budget=budget)))
            verdicts |= {(d.verdict, d.reason is None) for d in found}
            for name, function in program.functions.items():
                own = [d for d in found if d.function == name]
                if not function.private or own:
                    told = _disagreements(Timeline.of(program, name, kills="stock"), budget, own)
                    wrong += [(seed, budget, name, text) for text in told]
    assert not wrong, wrong[:10]
    assert {(Verdict.ALWAYS_INVALID, True), (Verdict.RUNTIME_CHECK, True)} <= verdicts


CACHE = """
@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")) -> R.Object:
    n = T.int64()
    a = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
    Module.fill(a)
    cache = R.call_packed("{name}", a, ty_args=R.Object)
    return cache
"""


@pytest.mark.parametrize("name", ["mylib.make", "vm.builtin.attention_kv_cache_create"])
def test_nothing_is_promised_where_the_memory_of_an_object_is_not_known(name: str) -> None:
    known, unknown = lint(CACHE.format(name=name), 8192)
    assert unknown.reason == "the size of `cache` is not known"
    assert told([known]) == [("main", Verdict.RUNTIME_CHECK, {"n": 2049}, "n <= 2048")]


SIDES = """
@R.function(pure=False)
def main(
    x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")
) -> R.Tensor(dtype="float32", ndim=1):
    n = T.int64()
    m = T.int64()
    if c:
        a = R.builtin.alloc_tensor(R.shape([{then}]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.fill(a)
        z = a
    else:
        b = R.builtin.alloc_tensor(R.shape([{other}]), R.dtype("float32"), R.prim_value(0), R.str("global"))
        Module.fill(b)
        z = b
    return z
"""


RETURNED = """
@R.function(private=True, pure=False)
def make(x: R.Tensor(("n",), "float32")) -> R.Tuple(R.Object, R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    s = R.memory.alloc_storage(R.shape([4 * n]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
    return (s, x)

@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    n = T.int64()
    a = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
    Module.fill(a)
    one = Module.make(a)
    two = Module.make(a)
    R.print(one, two, format="{} {}")
    return x
"""


CALLS = """
@R.function(private=True, pure=False)
def inner(x: R.Tensor(("k",), "float32")) -> R.Tensor((1,), "float32"):
    k = T.int64()
    {guard}
    a = R.builtin.alloc_tensor(R.shape([k]), R.dtype("float32"), R.prim_value(0), R.str("global"))
    Module.fill(a)
    b = R.builtin.alloc_tensor(R.shape([1]), R.dtype("float32"), R.prim_value(0), R.str("global"))
    Module.fill(b)
    return b

@R.function(pure=False)
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor((1,), "float32"):
    n = T.int64()
    a = R.builtin.alloc_tensor(R.shape([n]), R.dtype("float32"), R.prim_value(0), R.str("global"))
    Module.fill(a)
    b = Module.inner(a)
    return b
"""


GUARD = 'R.assert_op(R.prim_value(k <= 1024), format="k is at most 1024")'
RUNTIME = Verdict.RUNTIME_CHECK
FOUND = {
    "what a guard of one path leaves on another": (
        SIDES.format(then="4 * n", other="m"),
        [("main", RUNTIME, {"n": 513}, "n <= 512"), ("main", RUNTIME, {"m": 2049}, "m <= 2048")],
    ),
    "storages that functions return": (RETURNED, [("main", RUNTIME, {"n": 673}, "n <= 672")]),
    "a private function counts with its callers": (
        CALLS.format(guard=""),
        [("main", RUNTIME, {"n": 1025}, "n <= 1024")],
    ),
    "what a callee checks before it takes memory": (
        CALLS.format(guard=GUARD),
        [("main", RUNTIME, {"n": 2049}, "n <= 2048")],  # the tensor of main is taken before the check
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_a_call_holds_is_compared_with_the_budget(name: str) -> None:
    functions, found = FOUND[name]
    assert told(lint(functions, 8192)) == found


def test_a_path_that_exceeds_at_every_shape_goes_before_one_that_holds_more() -> None:
    found = lint(SIDES.format(then="4 * n", other="600"), 2048)
    assert [(d.verdict, d.path) for d in found] == [(Verdict.ALWAYS_INVALID, "`c` is false")]


def test_a_function_that_calls_itself_is_not_judged() -> None:
    (found,) = lint(
        """
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
            a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            Module.fill(a)
            if c:
                y = Module.main(a, c)
            else:
                y = a
            return y
        """,
        2**40,
    )
    assert found.verdict is Verdict.RUNTIME_CHECK
    assert found.reason == "a call within itself holds more than can be said"


def test_operators_are_compared_once_they_reserve_memory() -> None:
    operators = """
        @R.function
        def main(x: R.Tensor(("n", 256), "float32")) -> R.Tensor(("n", 256), "float32"):
            with R.dataflow():
                b = R.exp(x)
                R.output(b)
            return b
        """
    assert lint(operators, 64) == []


@pytest.mark.parametrize("budget", ["much", -1, 0, 1.5, True, "0"])
def test_a_budget_that_is_none_is_refused(budget: object) -> None:
    with pytest.raises(UsageError, match="budget"):
        symalloc.lint("model.py", budget=budget)  # type: ignore[arg-type]

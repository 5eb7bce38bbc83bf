"""What lint, plans and budgets make of packed functions, in the idioms of deployed models."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tvm.script import from_source

import symalloc
from symalloc.analysis.timeline import Timeline
from symalloc.linter.diagnostic import Diagnostic
from symalloc.planner.memory_report.function_report import fit_function
from symalloc.program.packed_contracts import _BY_FILE, contracts, packed_contract
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.relax.extract import extract
from symalloc.relax.extract.calls import _PACKED
from symalloc.relax.files.plan_file import memory_reports, plan_module
from symalloc.relax.passes.pipeline import lower
from tests.scale import tries

MODULE = "@I.ir_module\nclass Module:\n"
APPEND = """
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 64), "float32"), cache: R.Any) -> R.Any:
        with R.dataflow():
            a = R.add(x, x)
            c1 = R.call_pure_packed("{name}", cache, R.prim_value(0), a, ty_args=(R.Any,))
            b = R.multiply(a, x)
            d = R.add(b, x)
            c2 = R.call_pure_packed("{name}", c1, R.prim_value(1), d, ty_args=(R.Any,))
            R.output(c2)
        return c2
"""
LIBRARY = """
    @R.function
    def main(q: R.Tensor(("s", 64), "float16")) -> R.Tensor(("s", 64), "float16"):
        s = T.int64()
        with R.dataflow():
            space = R.builtin.alloc_tensor(R.shape([{shape}]), R.dtype("{dtype}"), R.prim_value(0))
            a = R.add(q, q)
            b = R.call_dps_packed("library", (a, space), out_ty=R.Tensor((s, 64), "float16"))
            c = R.multiply(b, b)
            R.output(c)
        return c
"""
STATE = """
    @R.function
    def main(s: R.Shape(["n"])) -> R.Object:
        n = T.int64()
        with R.dataflow():
            first = R.full((n, 64), R.const(1, "float32"), dtype="float32")
            state = R.call_pure_packed("vm.builtin.{name}", R.prim_value(1), R.prim_value(1), R.prim_value(1),
                (R.str("get"),), (R.str("set"),), (first,), ty_args=(R.Object,))
            R.output(state)
        return state
"""


def lint(text: str, stage: str = "auto") -> list[Diagnostic]:
    return list(symalloc.lint(from_source(MODULE + text), stage=stage))


def rules(text: str, stage: str = "auto") -> set[str]:
    return {found.rule for found in lint(text, stage)}


def test_a_function_that_returns_its_first_argument_returns_no_other() -> None:
    assert not rules(APPEND.format(name="vm.builtin.attention_kv_cache_append_mla_kv"))
    assert "SYM203" in rules(APPEND.format(name="mylib.append"))
    with contracts({}):
        symalloc.packed_function("mylib.append", returns=0, takes="nothing")
        assert not rules(APPEND.format(name="mylib.append"))


def test_a_workspace_needs_no_content_and_other_tensors_do() -> None:
    assert not rules(LIBRARY.format(shape="65536", dtype="uint8"))
    assert rules(LIBRARY.format(shape="65536", dtype="float32"), "as-is") == {"SYM208"}


def test_what_only_allocates_leaves_the_content_to_its_callers() -> None:
    text = """
    @R.function(pure=False)
    def alloc_embedding_tensor({given}) -> R.Tensor((2048, 64), "float16"):
        tensor = R.builtin.alloc_tensor(R.shape([2048, 64]), R.dtype("float16"), R.prim_value(0))
        return tensor
"""
    for stage in ("as-is", "all"):
        assert not rules(text.format(given=""), stage)
    assert rules(text.format(given='x: R.Tensor((2048, 64), "float16")'), "as-is") == {"SYM208"}


def test_what_a_state_keeps_is_not_planned() -> None:
    planned = plan_module(from_source(MODULE + STATE.format(name="rnn_state_create")))
    (plan,) = planned.plans.values()
    assert not plan.arenas
    assert [(u.name, u.reason) for u in plan.unplanned] == [
        ("alloc", "the packed function `vm.builtin.rnn_state_create` may keep or return it")
    ]


def test_memory_that_is_kept_and_taken_again_is_not_verified() -> None:
    text = """
    @R.function(pure=False)
    def main(x: R.Tensor((64,), "float32")) -> R.Tensor((64,), "float32"):
        a = R.add(x, x)
        done = R.call_packed("vm.builtin.tensor_cache.update", R.str("a"), a, ty_args=(R.Tuple(),))
        b = R.multiply(x, x)
        c = R.add(b, x)
        d = R.multiply(c, x)
        return d
"""
    (found,) = lint(text)
    kept = (
        "`vm.builtin.tensor_cache.update` holds on to `alloc`, whose memory `multiply` overwrites afterwards"
    )
    assert (found.rule, found.message, found.stage) == (
        "SYM904",
        f"not verified: {kept}",
        "StaticPlanBlockMemory",
    )


@pytest.mark.parametrize("name", ["mylib.sum", "vm.builtin.rnn_state_create"])
def test_nothing_is_proved_of_a_call_that_takes_memory_which_is_not_known(name: str) -> None:
    text = f"""
    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 64), "float32"):
        with R.dataflow():
            a = R.add(x, x)
            done = R.call_pure_packed("{name}", a, ty_args=(R.Prim("int64"),))
            b = R.multiply(a, x)
            R.output(b)
        return b
"""
    module = from_source(MODULE + text)

    def verdicts() -> tuple[Verdict, Verdict, int | None, bool]:
        lowered = lower(module, "llvm")
        (report,) = memory_reports(plan_module(module), lowered, "llvm", samples=[{"n": 1}])
        fit = fit_function(report, 1 << 40, Prover())
        found = symalloc.lint(module, stage="planned", budget="1TiB", assume=["n <= 64"])
        undecided = any(d.rule == "SYM402" and d.reason is not None for d in found)
        return fit.call.proof.verdict, fit.arenas.proof.verdict, report.samples[0].call, undecided

    runtime = Verdict.RUNTIME_CHECK
    assert verdicts() == (runtime, runtime, None, True)
    with contracts({}):
        symalloc.packed_function(name, takes="nothing")
        assert verdicts()[2:] == (512, False)


def test_many_findings_at_calls_of_one_kernel_are_one_with_a_count() -> None:
    kernel = """
    @T.prim_func
    def fill(out: T.handle):
        n = T.int64()
        a = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            a[-1] = T.float32(1)
"""
    function = """
    @R.function(pure=False)
    def main{number}(x: R.Tensor(("m",), "float32")) -> R.Tuple():
        Module.fill(x)
        return R.tuple()
"""
    for count in (2, 5):
        text = kernel + "".join(function.format(number=number) for number in range(count))
        found = [d for d in lint(text, "as-is") if d.rule == "SYM306"]
        assert len(found) == (2 if count == 2 else 1)
    assert found[0].notes[-1].startswith("4 more calls of this kernel are like it: 1 in `main1`")
    assert not any("only an empty shape" in note for note in found[0].notes)


FORMS = (
    'R.call_packed("{name}", cache, {given}, ty_args=({kind},))',
    'R.call_pure_packed("{name}", cache, {given}, ty_args=({kind},))',
    'R.call_dps_packed("{name}", (cache, {given}), out_ty=R.Tensor((n,), "float32"))',
)
KINDS = (
    'R.Tensor((n,), "float32")',
    "R.Object",
    'R.Prim("int64")',
    "R.Tuple()",
    'R.Tensor(ndim=1, dtype="int8")',
)


def test_no_total_is_known_where_a_contract_leaves_memory_open() -> None:
    names = [name for rows in _BY_FILE.values() for name in rows if name not in _PACKED] + ["mylib.sort"]
    cases = [(name, form, kind) for name in names for form in FORMS for kind in KINDS]
    for chosen in batched(random.Random(5).sample(cases, tries(60, len(cases))), 30):
        text = MODULE
        for number, (name, form, kind) in enumerate(chosen):
            call = form.format(name=name, kind=kind, given=", ".join(["x"] * 8))
            text += f"""
    @R.function(pure=False)
    def main{number}(x: R.Tensor(("n",), "float32"), cache: R.Object) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        y = {call}
        return x
"""
        program = extract(from_source(text, check_well_formed=False), name="module")
        for number, (name, _, _) in enumerate(chosen):
            held = Timeline.of(program, f"main{number}")
            if packed_contract(name).takes in ("state", "unknown"):
                assert held.not_known is not None, name
            known = held.not_known is None
            assert (held.sums() is not None, held.peak({"n": 4}) is not None) == (known, known), name


def batched(cases: list[tuple[str, str, str]], size: int) -> Iterator[list[tuple[str, str, str]]]:
    return (cases[first : first + size] for first in range(0, len(cases), size))

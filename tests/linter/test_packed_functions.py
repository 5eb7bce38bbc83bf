"""What lint, plans and budgets make of packed functions, in the idioms of deployed models."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from tvm.script import from_source

import symalloc
from symalloc.analysis.timeline import Timeline
from symalloc.linter.diagnostic import Diagnostic
from symalloc.planner.memory_report.deployment import Asked, fit_function
from symalloc.program.packed_contracts import contracts, contracts_of_tvm, packed_contract
from symalloc.prover.domain import Verdict
from symalloc.prover.prover import Prover
from symalloc.relax.extract import extract
from symalloc.relax.extract.calls import _PACKED
from symalloc.relax.files.plan_file import module_report, plan_module
from symalloc.report.formats import render_json, render_sarif
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


COPY = """
    @T.prim_func
    def copy(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
        for i in range(64):
            b[i] = a[i]
"""
ON_A_STORAGE = (
    COPY
    + """
    @R.function(pure=False)
    def main(x: R.Tensor((64,), "float32")) -> R.Tensor((64,), "float32"):
        storage = R.memory.alloc_storage(R.shape([256]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
        a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([64]), R.dtype("float32"))
        Module.copy(x, a)
        found = R.call_packed("mylib.pair", a, x, ty_args=({kind},))
        used = {used}
        b = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([64]), R.dtype("float32"))
        Module.copy(x, b)
        c = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0))
        Module.copy(used, c)
        return c
"""
)


@pytest.mark.parametrize(
    ("contract", "used", "expected"),
    [
        ({"returns": [0, 1]}, "found[0]", {"SYM203"}),
        ({"returns": [1, 0]}, "found[0]", set()),
        ({"returns": [1, 0]}, "found[1]", {"SYM203"}),
        ({"returns": 1}, "found", set()),
        ({"returns": 0}, "found", {"SYM203"}),
        ({"returns": [1]}, "found[1]", {"SYM203", "SYM904"}),
        ({"returns": [1, 0]}, "found", {"SYM203", "SYM904"}),
        ({"returns": 7}, "found", {"SYM203", "SYM904"}),
        ({"keeps": [2]}, "found", {"SYM203", "SYM904"}),
        ({"keeps": [1]}, "found", set()),
    ],
)
def test_a_contract_that_does_not_fit_a_call_is_said_and_not_relied_on(
    contract: dict[str, object], used: str, expected: set[str]
) -> None:
    tensor = 'R.Tensor((64,), "float32")'
    kind = f"R.Tuple({tensor}, {tensor})" if "[" in used else tensor
    with contracts({}):
        symalloc.packed_function("mylib.pair", takes="nothing", **contract)
        found = lint(ON_A_STORAGE.format(kind=kind, used=used), "as-is")
    assert {d.rule for d in found} == expected
    said = [d.message for d in found if d.rule == "SYM904"]
    assert all("a contract of `mylib.pair` that " in message for message in said)


def test_a_function_may_keep_and_return_nothing() -> None:
    again = '        again = R.call_packed("mylib.pair", b, x, ty_args=(R.Tuple,))\n        return c'
    text = ON_A_STORAGE.format(kind="R.Tuple", used="x").replace("        return c", again)
    assert rules(text, "as-is") == {"SYM904"}
    with contracts({}):
        symalloc.packed_function("mylib.pair", returns="nothing")
        assert not rules(text, "as-is")


def test_what_a_library_is_known_to_write_is_written_in_any_form_of_its_call() -> None:
    text = f"""{COPY}
    @R.function(pure=False)
    def main(q: R.Tensor((4,), "float16")) -> R.Tensor((64,), "float32"):
        space = R.builtin.alloc_tensor(R.shape([64]), R.dtype("float32"), R.prim_value(0))
        done = R.call_dps_packed("library", (q, space), out_ty=R.Tensor((4,), "float16"))
        y = R.call_tir(Module.copy, (space,), out_ty=R.Tensor((64,), "float32"))
        return y
"""
    for defines, expected in (([1, 2], set()), ([2], {"SYM208"})):
        with contracts({}):
            symalloc.packed_function("library", defines=defines, takes="nothing")
            assert rules(text, "as-is") == expected


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
        planned = plan_module(module)
        whole = module_report(planned, "llvm", samples=[{"n": 1}])
        (report,), (memory,) = whole.reports, whole.deployment.functions
        fit = fit_function(memory, Asked(limit=1 << 40), Prover()).sums
        found = symalloc.lint(module, stage="planned", budget="1TiB", assume=["n <= 64"])
        undecided = any(d.rule == "SYM402" and d.reason is not None for d in found)
        return fit["call"].proof.verdict, fit["again"].proof.verdict, report.samples[0].call, undecided

    runtime = Verdict.RUNTIME_CHECK
    assert verdicts() == (runtime, runtime, None, True)
    with contracts({}):
        symalloc.packed_function(name, takes="nothing")
        assert verdicts()[2:] == (512, False)


UNDECIDED = """        count = T.alloc_buffer((1,), "int32")
        count[0] = 15
        while count[0] > 0:
            a[count[0]] = T.float32(1)
            count[0] = count[0] // 2
"""


@pytest.mark.parametrize(
    ("rule", "body"),
    [("SYM306", "        for i in range(n):\n            a[-1] = T.float32(1)\n"), ("SYM905", UNDECIDED)],
)
def test_many_findings_at_calls_of_one_kernel_are_one_with_a_count(rule: str, body: str) -> None:
    kernel = f"""
    @T.prim_func
    def fill(out: T.handle):
        n = T.int64()
        a = T.match_buffer(out, (n,), "float32")
{body}"""
    function = """
    @R.function(pure=False)
    def main{number}(x: R.Tensor(("m",), "float32")) -> R.Tuple():
        Module.fill(x)
        return R.tuple()
"""
    for count in (2, 5):
        text = kernel + "".join(function.format(number=number) for number in range(count))
        found = [d for d in lint(text, "as-is") if d.rule == rule]
        assert len(found) == (2 if count == 2 else 1)
    assert found[0].notes[-1].startswith("4 more calls of this kernel are like it: 1 in `main1`")
    assert not any("only an empty shape" in note for note in found[0].notes)


def test_findings_that_are_folded_keep_their_places_and_no_other_fault_is_among_them() -> None:
    text = """
    @T.prim_func
    def fill(out: T.handle):
        n = T.int64()
        a = T.match_buffer(out, (n,), "float32")
        for i in range(n):
            a[-1] = T.float32(1)
            a[n] = T.float32(1)

    @T.prim_func
    def at_three(out: T.handle):
        n = T.int64()
        a = T.match_buffer(out, (n,), "float32")
        a[3] = T.float32(1)
"""
    for kernel in ("fill", "at_three"):
        for number, extents in enumerate(('"m", 1', '"m", 1', '"m", 1', '"m", "m + 1"', '"m", "2 * m"')):
            text += f"""
    @R.function(pure=False)
    def {kernel}{number}(x: R.Tensor(({extents}), "float32"), y: R.Tensor(({extents[5:]},), "float32")) -> R.Tuple():
        m = T.int64()
        Module.{kernel}(y)
        return R.tuple()
"""  # noqa: E501
    report = symalloc.lint(from_source(MODULE + text), stage="as-is")
    found = [d for d in report if d.rule == "SYM306"]
    assert [(d.function, d.precondition, [p.function for p in d.dependents]) for d in found] == [
        ("at_three0", None, ["at_three1", "at_three2"]),
        ("at_three3", "m >= 3", []),
        ("at_three4", "m >= 2", []),
        ("fill0", None, [f"fill{number}" for number in range(1, 5)]),
        ("fill0", None, [f"fill{number}" for number in range(1, 5)]),
    ]
    (entry,) = (d for d in json.loads(render_json(report))["diagnostics"] if d["function"] == "at_three0")
    assert [place["function"] for place in entry["places"]] == ["at_three1", "at_three2"]
    results = json.loads(render_sarif(report))["runs"][0]["results"]
    named = [
        [place["logicalLocations"][0]["name"] for place in result.get("relatedLocations", ())]
        for result in results
    ]
    assert ["at_three1", "at_three2"] in named


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
    names = [name for name in contracts_of_tvm() if name not in _PACKED] + ["mylib.sort"]
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

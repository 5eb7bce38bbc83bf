from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
import tvm
import tvm.script
from tvm import relax

import symalloc
from symalloc import Severity, UsageError, Verdict
from symalloc.linter.suppressions import Baseline
from symalloc.report.plan_text import fit_lines, plans_as_text
from symalloc.report.quantities import human_bytes
from symalloc.report.text import render_text
from tests.modules import FAULTY
from tests.pool.processes import ran
from tests.relax.built import graph

pytestmark = pytest.mark.usefixtures("warm_workers")

OUTGROWN = tvm.script.from_source("# script\n" + FAULTY.replace("class Module", "class Faulty"))
SOUND = graph(lambda emit, x: relax.op.add(y := emit(relax.op.nn.relu(x)), y), x=("n", 64))
TWO = tvm.script.from_source(
    """# script
@I.ir_module
class Two:
    @R.function
    def half(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 32), "float32"):
        y = R.strided_slice(x, axes=[1], begin=[0], end=[32])
        return R.add(y, y)

    @R.function
    def twice(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", 128), "float32"):
        y = R.concat([x, x], axis=1)
        return R.add(y, y)
"""
)


def test_a_module_in_memory() -> None:
    report = symalloc.lint(OUTGROWN, select="SYM101")
    (finding,) = report
    assert (finding.rule, finding.severity, finding.function) == ("SYM101", Severity.ERROR, "main")
    assert finding.verdict is Verdict.RUNTIME_CHECK
    assert (finding.counterexample, finding.precondition) == ({"m": 5}, "m <= 4")
    assert not report.ok
    assert (report.summary.functions, len(report)) == (1, 1)


def test_findings_in_memory_are_shown_in_the_printed_script() -> None:
    report = symalloc.lint(OUTGROWN, select="SYM101")
    assert report.diagnostics[0].span is not None
    lines = render_text(report).split("\n")
    carets = next(i for i, line in enumerate(lines) if "^" in line)
    assert lines[carets - 1].index("R.memory.alloc_tensor") == lines[carets].index("^")


def test_an_ordinary_module_is_verified_as_tvm_plans_it() -> None:
    report = symalloc.lint(SOUND)
    assert report.ok
    assert report.summary.constraints > 0
    assert symalloc.lint(SOUND, stage="as-is").summary.constraints < report.summary.constraints


def test_several_modules_make_one_report() -> None:
    both = symalloc.lint([OUTGROWN, SOUND], select="SYM101")
    assert [d.file for d in both] == ["<module1>"]
    assert both.summary.functions == 2
    assert both.files == ("<module1>", "<module2>")


def test_paths_and_modules(tmp_path: Path) -> None:
    path = tmp_path / "faulty.json"
    path.write_text(tvm.ir.save_json(OUTGROWN))
    report = symalloc.lint([path, SOUND], select="SYM101")
    assert [d.file for d in report] == [str(path)]
    assert (
        symalloc.lint(str(path), select="SYM101").diagnostics
        == symalloc.lint(path, select="SYM101").diagnostics
    )


def test_prove_takes_sympy() -> None:
    n, m = sympy.symbols("n m", integer=True)
    assert symalloc.prove(4 * m <= 16, assume=m <= 4).verdict is Verdict.ALWAYS_VALID
    mixed = symalloc.prove(sympy.And(n <= m, sympy.Ne(m, 3)), assume=["m >= 4", sympy.Le(n, 2)])
    assert mixed.verdict is Verdict.ALWAYS_VALID
    assert str(symalloc.prove(sympy.Eq(sympy.Mod(4 * m, 256), 0)).precondition) == "m % 64 == 0"
    assert symalloc.prove(sympy.true).verdict is Verdict.ALWAYS_VALID
    assert symalloc.prove(sympy.floor(n / 4) * 4 <= n).verdict is Verdict.ALWAYS_VALID
    assert symalloc.prove(n / 2 <= m, assume=n <= m).verdict is Verdict.ALWAYS_VALID
    with pytest.raises(UsageError, match=r"not a size expression: n/2 \(a size is a whole number"):
        symalloc.prove(sympy.Max(n / 2, m) <= m)
    with pytest.raises(UsageError, match="syntax error"):
        symalloc.prove("4*m <=")
    with pytest.raises(UsageError, match="not a condition on sizes: n"):
        symalloc.prove(n)
    with pytest.raises(UsageError, match="of type int: 4; give a text"):
        symalloc.prove(4)
    with pytest.raises(UsageError, match="of type int: 7"):
        symalloc.prove("n <= 4", assume=[7])


def test_what_comes_out_is_sympy_too() -> None:
    n, m = symalloc.symbols("n m")
    proof = symalloc.prove("4*m <= 16*n")
    assert sympy.sympify(proof.precondition) == (m <= 4 * n)
    assert symalloc.prove(proof.precondition, assume=[sympy.Eq(m, n)]).holds
    assert sympy.latex(proof.precondition) == r"m \leq 4 n"
    packing = symalloc.pack(
        {
            "symbols": {n: {"min": 1}},
            "buffers": [
                {"id": "a", "size": 4 * n, "lower": 0, "upper": 2},
                {"id": "b", "size": sympy.Max(n, 64), "lower": 1, "upper": 3},
            ],
        }
    )
    arena = sympy.sympify(packing.arena)
    assert arena.free_symbols == {n}
    assert arena.subs(n, 100) == packing.arena.evaluate({"n": 100}) == 548
    assert sympy.lambdify(n, arena)(100) == 548
    with pytest.raises(UsageError, match="not a size expression: n/2"):
        symalloc.pack({"buffers": [{"id": "a", "size": n / 2, "lower": 0, "upper": 1}]})


def test_sympy_for_assumptions_and_bindings() -> None:
    n = symalloc.symbols("n")
    assert symalloc.lint(OUTGROWN, select="SYM101", assume=symalloc.symbols("m") <= 4).ok
    assert symalloc.run(SOUND, {n: sympy.Integer(3)}).binding == {"n": 3}


def test_prove_imports_sympy_for_sympy_only() -> None:
    program = "import sys, symalloc; symalloc.prove('4*m <= 16'); sys.exit('sympy' in sys.modules)"
    assert ran(sys.executable, "-c", program)[0] == 0


def test_plan_and_run_take_what_the_command_line_takes(tmp_path: Path) -> None:
    planned = symalloc.plan(SOUND, flavour="storages", guards="none", certificate=tmp_path / "proofs")
    (plan,) = planned.plans.values()
    assert plan.function == "main" and all(p.offset == 0 for a in plan.arenas for p in a.placements)
    assert (tmp_path / "proofs" / "index.json").exists()
    result = symalloc.run(SOUND, {"n": 3}, check=True, pipeline="target")
    assert result.difference is None and result.checked
    assert (result.output_bytes, result.ratio) == (3 * 64 * 4, 1.0)
    with pytest.raises(symalloc.RunError, match="no value for `n`; add --bind n=128"):
        symalloc.run(SOUND, {})


@pytest.mark.parametrize("sizes", [{"n": 7}, {"n": 2048}])
def test_a_plan_says_what_the_command_line_says(sizes: dict[str, int]) -> None:
    plan = symalloc.plan(SOUND)
    (report,) = plan.report.reports
    assert str(plan) == plans_as_text([report]).rstrip("\n")
    sample, fit = plan.at(**sizes), plan.fits("64KiB")
    assert sample == plan.at({sympy.Symbol("n"): sizes["n"]}, function="main")
    call = 2 * 256 * sizes["n"]
    assert sample.call == call, "what a call takes is counted by hand: y and z"
    assert f"At n = {sizes['n']} a call holds at most {human_bytes(call)}" in str(sample)
    assert str(fit) == "\n".join(fit_lines(fit))
    (largest,) = fit.call.largest
    assert largest.value is not None
    for n, fits in ((largest.value, True), (largest.value + 1, False)):
        held = plan.at(n=n).call
        assert held is not None
        assert (held <= 64 * 1024) is fits is plan.fits("64KiB", n=n).call.holds
    assert not fit.call.holds
    with pytest.raises(TypeError, match=r"call\.holds"):
        bool(fit)


def test_a_function_is_chosen_where_there_are_several() -> None:
    plan = symalloc.plan(TWO)
    assert plan.at(n=3, function="half").call != plan.at(n=3, function="twice").call
    with pytest.raises(UsageError, match="the module has 2 functions: name one of half, twice"):
        plan.at(n=3)
    for ask in (plan.fits, lambda limit, **more: plan.at(n=limit, **more)):
        with pytest.raises(UsageError, match="no function `twise`; did you mean 'twice'"):
            ask(3, function="twise")


WRONG_SIZES: list[tuple[dict[str, object], str]] = [
    ({}, "no size gives no function all that it takes: `main` takes n"),
    ({"m": 1}, "`m` is no symbol of the module's functions; there are n"),
    ({"n": -1}, "`n` is an extent of a tensor and cannot be -1"),
    ({"n": "x"}, "the sizes of 'n' is 'x'; it must be a whole number"),
    ({"n": 1, "function": 3}, "function is 3; it must be a text"),
]


@pytest.mark.parametrize(("given", "says"), WRONG_SIZES)
def test_sizes_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        symalloc.plan(SOUND).at(**given)


def test_a_plan_builds_like_its_module() -> None:
    planned = symalloc.plan(SOUND)
    machine = relax.VirtualMachine(relax.build(planned, "llvm"), tvm.cpu())
    found = machine["main"](tvm.runtime.tensor(np.full((2, 64), -1.5, "float32")))
    assert found.shape == (2, 64) and not found.numpy().any()


def test_what_public_functions_raise_can_be_caught_by_name() -> None:
    documented = (getattr(symalloc, name).__doc__ or "" for name in symalloc.__all__)
    raised = {word for text in documented for word in re.findall(r"\b[A-Z]\w+(?:Error|Warning)\b", text)}
    assert {name for name in raised if not hasattr(builtins, name)} <= set(symalloc.__all__)


def test_the_public_names_are_there_and_documented() -> None:
    for name in symalloc.__all__:
        value = getattr(symalloc, name)
        assert value is not None
        assert name == "__version__" or value.__doc__
        assert find_spec(f"symalloc.{name}") is None, "importing it would hide the function"
    with pytest.raises(AttributeError, match="nothing_such"):
        _ = symalloc.nothing_such


# -- the assertion for tests of other projects --------------------------------------------------------------


def test_a_fault_fails_with_the_findings(assert_memory_safe: Callable[..., symalloc.Report]) -> None:
    with pytest.raises(AssertionError, match="memory faults:") as error:
        assert_memory_safe(OUTGROWN, select="SYM101")
    assert "counterexample: m = 5  ->  20 B > 16 B" in str(error.value)


def test_nothing_to_verify_fails(assert_memory_safe: Callable[..., symalloc.Report], tmp_path: Path) -> None:
    empty, other = tmp_path / "empty.py", tmp_path / "settings.json"
    empty.write_text("x = 1\n")
    other.write_text("{}")
    for target in (empty, str(other), [SOUND, empty], tvm.IRModule({})):
        with pytest.raises(AssertionError, match="nothing to verify"):
            assert_memory_safe(target)


def test_what_is_safe_gives_its_report(assert_memory_safe: Callable[..., symalloc.Report]) -> None:
    assert assert_memory_safe(SOUND).ok
    assert assert_memory_safe(OUTGROWN, select="SYM101", assume="m <= 4").summary.constraints == 1
    assert assert_memory_safe is symalloc.assert_memory_safe


def test_known_findings_are_left_out(
    assert_memory_safe: Callable[..., symalloc.Report], tmp_path: Path
) -> None:
    model, known = tmp_path / "model.py", tmp_path / "known.json"
    model.write_text((Path(__file__).parent.parent / "examples" / "issue_17322.py").read_text())
    known.write_text(Baseline.of(symalloc.lint(model), known).text())
    report = assert_memory_safe(model, baseline=known)
    assert (len(report), report.known, report.stale) == (0, 1, 0)
    with pytest.raises(AssertionError, match="memory faults:"):
        assert_memory_safe(model)

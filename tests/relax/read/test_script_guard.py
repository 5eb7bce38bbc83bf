"""What a script may hold: attacks are refused and do nothing, whatever TVM prints is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

from symalloc.program.reading import ReadProblem
from symalloc.relax.read import script as read_script
from symalloc.relax.read.script import dialect_names, parse_module
from symalloc.relax.read.script_file import Script, decode, parse_text
from symalloc.relax.read.script_guard import refusals
from tests.relax.script_attacks import ATTACKS, HARMLESS, WORKING, written

IMPORTS = "from tvm.script import ir as I, relax as R, tirx as T\n"


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def attack(template: str, mark: Path) -> Script:
    return parse_text(str(mark.parent / "attack.py"), decode(written(template, str(mark)).encode()))


def read_all(script: Script) -> list[tvm.IRModule | tuple[ReadProblem, ...]]:
    return [parse_module(script, module) for module in script.modules]


def refused(text: str) -> list[ReadProblem]:
    """What is refused in the one module of a script."""
    script = parse_text("m.py", IMPORTS + text)
    (module,) = script.modules
    return list(refusals(script, module, dialect_names()))


def body(*statements: str, params: str = 'x: R.Tensor(("n",), "float32")') -> str:
    lines = "".join(f"    {statement}\n" for statement in statements)
    return f"@R.function\ndef main({params}):\n{lines}    return x\n"


@pytest.mark.parametrize(
    ("statement", "what", "hint"),
    [
        ("y = R.reshape(x, R.shape([HEIHGT]))", "does not define `HEIHGT`", "did you mean `HEIGHT`?"),
        ("y = R.reshape(x, R.shape([K]))", "does not define `K`", "define it: `K = 16` outside the module"),
        ("y = kernel(x)", "does not define `kernel`", "is called as `cls.kernel`"),
        ("y = R.reshape(x, R.shape([WIDTH]))", "`WIDTH` is imported", "--trust runs the imports"),
        ("y = R.const(np.zeros(3))", "`np` is imported", "--trust runs the imports"),
    ],
)
def test_a_refused_name_is_reported_once_with_what_to_do(statement: str, what: str, hint: str) -> None:
    [refusal] = refused("from sizes import WIDTH\nimport numpy as np\nHEIGHT = 4\n" + body(statement))
    assert what in refusal.message
    assert refusal.hint is not None and hint in refusal.hint
    assert ("--trust" in refusal.hint) == ("imported" in what)


def test_a_star_import_may_define_a_name() -> None:
    [refusal] = refused("from sizes import *\n" + body("y = R.reshape(x, R.shape([K]))"))
    assert refusal.hint is not None and "`import *` may bind it" in refusal.hint


# -- attacks


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_refused_and_does_nothing(name: str, mark: Path) -> None:
    script = attack(ATTACKS[name], mark)
    results = read_all(script)
    assert all(isinstance(result, tuple) and result for result in results)
    assert all(problem.message.startswith("not evaluated: ") for r in results for problem in r)
    assert not mark.exists()


@pytest.mark.parametrize("name", ATTACKS)
def test_without_the_guard_the_sandbox_still_stops_it(
    name: str, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_script, "refusals", lambda *_: ())
    read_all(attack(ATTACKS[name], mark))
    assert not mark.exists()


@pytest.mark.parametrize("name", WORKING)
def test_with_trust_the_same_attack_works(name: str, mark: Path) -> None:
    """The corpus is real: what the guard stops does run where nothing stops it."""
    script = attack(ATTACKS[name], mark)
    parse_module(script, script.modules[0], read_script.trusted_names(script))
    assert mark.exists()


@pytest.mark.parametrize("name", HARMLESS)
def test_code_outside_the_modules_does_not_run(name: str, mark: Path) -> None:
    results = read_all(attack(HARMLESS[name], mark))
    assert [isinstance(result, tvm.IRModule) for result in results] == [True]
    assert not mark.exists()


def test_refusals_say_where_and_come_in_the_order_of_the_file() -> None:
    text = body("y = R.reshape(x, R.shape([__import__('os')]))", "z = exec('2')")
    spans = [one.span for one in refused(text) if one.span]
    lines = (IMPORTS + text).splitlines()
    assert [lines[s.line - 1][s.column - 1 : s.end_column - 1] for s in spans] == ["__import__", "exec"]


@pytest.mark.parametrize("statement", ["y = " + "-" * 500 + "1", "y = " + "+".join(["1"] * 500)])
def test_deep_nesting_does_not_break_the_guard(statement: str) -> None:
    [what] = refused(body(statement))
    assert what.message == "not evaluated: its expressions are nested too deeply"


# -- what is accepted


@pytest.mark.parametrize(
    "text",
    [
        body("y = R.add(x, x)"),
        body("n = T.int64()", "y = R.reshape(x, R.shape([n * 2 // 4 % 8, max(n, 1), min(3, 4)]))"),
        body("y: R.Tensor((n, 2), 'float32') = R.zeros(R.shape([n, 2]), 'float32')"),
        body("y = R.call_packed('vm.builtin.copy', x, ty_args=(R.Tensor((4,), dtype='float32'),))"),
        body("R.assert_op(R.const(True, 'bool'), [x], format='need n<=4, got n={}')"),
        body("with R.dataflow():", "    y = R.add(x, x)", "    R.output(y)"),
        body("'''compute f(x) and g(y)'''", "y = x"),
        body("y = R.layout_transform(x, index_map=T.index_map(lambda i: (i // 4, i % 4)))"),
        body("y = input", params="x: R.Tensor((2,), 'float32'), input: R.Tensor((2,), 'float32')"),
        body("f: R.Callable(derive_func='tvm.relax.struct_info.infer_view_sinfo') = x"),
        "@T.prim_func(private=True, s_tir=True)\ndef k(a: T.Buffer(('n', 'n * 2'), 'float32')):\n"
        "    n = T.int32()\n    for i, j in T.grid(n, 4):\n        with T.sblock('b'):\n"
        "            v_i, v_j = T.axis.remap('SS', [i, j])\n            T.reads(a[v_i, v_j])\n"
        "            a[v_i, v_j] = T.max(a[v_i, v_j], T.float32(0.0))\n",
    ],
)
def test_scripts_of_the_dialect_are_accepted(text: str) -> None:
    assert refused(text) == []


def test_other_names_for_the_dialect_are_understood() -> None:
    text = (
        "import tvm.script\nfrom tvm.script.parser import relax as rx\nfrom tvm.script.ir import ir_module\n"
        "@ir_module\nclass M:\n    @rx.function\n    def main(x: rx.Tensor((2,), 'float32')):\n"
        "        y = rx.add(x, x)\n        return y\n"
    )
    script = parse_text("m.py", text)
    assert [module.name for module in script.modules] == ["M"]
    [result] = read_all(script)
    assert isinstance(result, tvm.IRModule), result


def test_constants_of_the_file_may_be_used() -> None:
    constants = "N = 4\nDTYPE = 'float32'\nSHAPE = (N, N * 2)\n"
    used = body("y = R.zeros(R.shape(SHAPE), DTYPE)", "z = R.shape([N])")
    [result] = read_all(parse_text("m.py", constants + IMPORTS + used))
    assert isinstance(result, tvm.IRModule), result


def test_every_allowed_name_builds_ir_only() -> None:
    """None of the names is a module, a macro, or reached through a private name."""
    names = dialect_names()
    assert {"R.add", "R.memory.alloc_tensor", "T.Buffer", "T.axis.remap", "I.ir_module"} <= names
    forbidden = ["emit_te", "macro", "inline", "jit", "call_kernel"]
    forbidden += ["pyfunc", "rewriter", "meta_class", "entry", "_"]
    assert [n for n in names if n.split(".")[-1] in forbidden or "._" in n or n.count(".") > 2] == []

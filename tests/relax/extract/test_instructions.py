"""Statements and functions of Relax as instructions; the files in golden/ hold what is made of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from symalloc.program import ir as m
from symalloc.relax.extract import extract
from tests.relax.extract.shown import instruction, lines, text

Read = Callable[[str], m.Program]
Golden = Callable[[str, str], None]
AROUND = """
@T.prim_func
def twice(A: T.handle, k: T.int64, B: T.handle):
    n = T.int64()
    a = T.match_buffer(A, (n,), "float32")
    b = T.match_buffer(B, (n,), "float32")
    for i in range(n):
        b[i] = a[i] + a[i]

@T.prim_func
def check(k: T.int64):
    T.func_attr({{"global_symbol": "other"}})
    T.evaluate(k)

@R.function(pure=False)
def main(x: R.Tensor(("m",), "float32"), o: R.Object, s: R.Shape(["k"]), t: R.Shape(ndim=1)) -> R.Object:
    m = T.int64()
    cls = Module
    y = {}
    return y
"""
FUNCTIONS = """
# parameters and symbols
@R.function
def main(x: R.Tensor(("m", 4), "float16"), s: R.Shape(["k"]), p: R.Prim("int64"), q: R.Prim("float32"),
         t: R.Tuple(R.Tensor(("j",), "int8"), R.Shape(["i"]))) -> R.Tensor(("m", 4), "float16"):
    return x
# declared bounds
@R.function(private=True)
def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
    R.func_attr({"tir_var_upper_bound": {"m": 4}, "tir_var_lower_bound": {"m": 2}})
    R.func_attr({"tir_non_negative_var": ["n"]})
    return x
# a declared bound that is no integer declares nothing
@R.function
def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
    R.func_attr({"tir_var_upper_bound": {"m": [4], "n": 8}, "tir_var_lower_bound": [4]})
    R.func_attr({"tir_non_negative_var": "n"})
    return x
# scalars stand for what they are bound to
@R.function(pure=False)
def main(x: R.Tensor(("m",), "float32"), p: R.Prim("int64")) -> R.Object:
    m = T.int64()
    q: R.Prim("int64") = m * 2 + p
    w: R.Prim("int64") = R.call_packed("f", x, ty_args=R.Prim("int64"))
    s = R.memory.alloc_storage(R.shape([q + w]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
    return s
# conditions on sizes and on data, bound and written in the branch itself
@R.function
def main(x: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("m",), "float32"):
    m = T.int64()
    small: R.Prim("bool") = m < 8
    if small:
        y = R.add(x, x)
    else:
        if c:
            y = R.multiply(x, x)
        else:
            if m > 7:
                y = x
            else:
                y = R.add(x, x)
    return y
# tuples are taken field by field
@R.function
def main(x: R.Tensor(("m",), "int8"), y: R.Tensor(("m",), "int8")) -> R.Tensor(("m",), "int8"):
    t = (x, (y, x))
    u = t[1][0]
    return u
# casts define symbols
@R.function
def main(x: R.Tensor(("m",), "float32"), s: R.Shape(ndim=1)) -> R.Tensor(ndim=1, dtype="float32"):
    m, k = T.int64(), T.int64()
    y = R.match_cast(x, R.Tensor((k,), "float32"))
    z = R.match_cast(y, R.Tensor((m,), "float32"))
    return z
# dataflow blocks are read in order
@R.function
def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
    with R.dataflow():
        a = R.add(x, x)
        b = R.multiply(a, x)
        R.output(b)
    return b
# functions call each other and themselves
@R.function(private=True)
def twice(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
    y = R.add(x, x)
    return y
@R.function
def main(x: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("m",), "float32"):
    if c:
        y = Module.main(x, c)
    else:
        y = Module.twice(x)
    return y
# closures are not understood, and do not capture themselves
@R.function
def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
    @R.function
    def again(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
        z = R.add(y, x)
        return again(z)
    return again(x)
# a storage keeps its type through an alias, and a reshape is a view once operators are lowered
@R.function(pure=False)
def main(x: R.Tensor(("m", 4), "float32")) -> R.Object:
    m = T.int64()
    s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
    t = s
    a = R.reshape(x, R.shape([m * 4]))
    return t
"""


def told(function: m.Function) -> str:
    """The head of a function, and its instructions."""
    params = ", ".join(f"{p.name}: {text(p.type)}" for p in function.params)
    symbols = ", ".join(f"{name} {origin.name}" for name, origin in function.symbols.items())
    bounds = [f"{name} <= {bound}" for name, bound in function.declared_upper.items()]
    bounds += [f"{name} >= {bound}" for name, bound in function.declared_lower.items()]
    head = f"{'private ' if function.private else ''}{function.name}({params}) [{symbols}] {bounds or ''}"
    return "\n".join([head.rstrip(), *lines(function.body, 1)])


def test_statements(program: Read, golden: Golden) -> None:
    """The statements stand in the golden file, each with what is made of it."""
    found = []
    known = (Path(__file__).parent / "golden" / "statements.txt").read_text()
    for statement in (line for line in known.splitlines() if not line.startswith(" ")):
        found.append(statement)
        if not statement.startswith("#"):
            body = program(AROUND.format(statement)).functions["main"].body
            found += [f"    {instruction(made)}" for made in body.instructions]
    golden("statements.txt", "\n".join(found) + "\n")


def test_functions(program: Read, golden: Golden) -> None:
    found = []
    for part in FUNCTIONS.strip().removeprefix("# ").split("\n# "):
        title, _, script = part.partition("\n")
        found += [f"# {title}", *map(told, program(script).functions.values())]
    golden("functions.txt", "\n".join(found) + "\n")


# -- what no script gives ----------------------------------------------------------------------------------


def tensor(name: str, *extents: Any) -> Any:
    return relax.Var(name, relax.TensorType(extents or (4,), "float32"))


def block(*bindings: tuple[Any, Any], result: Any) -> Any:
    bound = [relax.VarBinding(var, value) for var, value in bindings]
    return relax.SeqExpr([relax.BindingBlock(bound)], result)


def function(
    params: list[Any], *bindings: tuple[Any, Any], result: Any, others: Mapping[Any, Any] | None = None
) -> list[str]:
    """The lines of a private function whose body binds variables to values, beside other functions."""
    main = relax.Function(params, block(*bindings, result=result), result.ty, is_pure=False)
    mod = tvm.IRModule({"main": main, **(others or {})})
    return told(extract(mod, name="M").functions["main"]).splitlines()


def test_symbols_that_nothing_binds_and_symbols_of_one_name() -> None:
    n, other = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("n", "int64")
    x = tensor("x", 2 * n, 16)
    assert function([x], result=x) == ["private main(x: float32(2*n, 16)) [n UNDEFINED]", "  -> x"]
    x, y = tensor("x", n), tensor("y", other, n)
    z = tensor("z", other)
    assert function([x, y], (z, relax.op.sum(y, 1)), result=z) == [
        "private main(x: float32(n), y: float32(n_1, n)) [n DIMENSION, n_1 DIMENSION]",
        "  z: float32(n_1) = CallOperator name=relax.sum arguments=(y) attributes={'axis': '(1,)'}",
        "  -> z",
    ]


def test_a_variable_of_the_other_branch_is_the_same_variable() -> None:
    """TVM's planner emits this: what one branch allocates, the other uses."""
    flag, storage = relax.Var("c", relax.TensorType((), "bool")), relax.Var("storage", relax.ObjectType())
    used, other, result = map(tensor, ("used", "other", "result"))

    placed = relax.op.memory.alloc_tensor(storage, 0, relax.ShapeExpr([4]), "float32")
    reserve = relax.op.memory.alloc_storage(relax.ShapeExpr([16]), 0, "global", "uint8")
    fresh = relax.op.builtin.alloc_tensor(relax.ShapeExpr([4]), "float32", 0)
    then = block((used, placed), result=used)
    otherwise = block((storage, reserve), (other, fresh), result=other)
    assert function([flag], (result, relax.If(flag, then, otherwise)), result=result)[1:-1] == [
        "  result: float32(4) = If condition=? test=c",
        "    used: float32(4) = AllocTensor storage=storage offset=0 shape=(4) dtype=float32",
        "    -> used",
        "  else",
        "    storage: opaque = AllocStorage size=16 dtype=uint8",
        "    other: float32(4) = AllocFresh shape=(4) dtype=float32",
        "    -> other",
    ]


def test_what_nothing_defines_is_said() -> None:
    x, y, lost = map(tensor, ("x", "y", "lost"))
    assert function([x], (y, relax.op.add(x, lost)), result=y)[1:-1] == [
        "  lost: float32(4) = NotUnderstood what=the variable `lost`, which nothing defines",
        "  y: float32(4) = CallOperator name=relax.add arguments=(x, lost)",
    ]
    gone = tvm.ir.Call(tvm.ir.GlobalVar("gone"), [x])
    said = "`gone` with `gone`, which the module does not define"
    assert function([x], (y, gone), result=y)[1] == f"  y: float32(4) = NotUnderstood what={said} reads=(x)"


def test_an_extern_function_of_the_module_is_a_packed_call() -> None:
    x, y, shim = tensor("x"), tensor("y"), tvm.ir.GlobalVar("shim")
    others = {shim: relax.ExternFunc("real.name")}
    found = function([x], (y, tvm.ir.Call(shim, [x])), result=y, others=others)
    assert found[1].startswith("  y: float32(4) = CallPacked name=real.name arguments=(x) ownership=UNKN")


def test_a_module_out_of_normal_form_is_read_all_the_same() -> None:
    x, y = tensor("x"), tensor("y")
    nested = relax.op.add(relax.TupleGetItem(relax.Tuple([x, x]), 0), relax.op.negative(x))
    assert function([x], (y, nested), result=y)[1:-1] == [
        "  _: float32(4) = TakeField source=(x, x) index=0",
        "  _: opaque = CallOperator name=relax.negative arguments=(x)",
        "  y: float32(4) = CallOperator name=relax.add arguments=(_, _)",
    ]

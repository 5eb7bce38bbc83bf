"""Blocks, bindings, branches, tuples, scalars, functions."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from symalloc.program import ir as m
from symalloc.program.types import FunctionType, ScalarType, ShapeType, TensorType
from symalloc.relax.extract import extract
from symalloc.size.condition import ge, gt, negate
from symalloc.size.expr import symbol

Read = Callable[[str], m.Program]


def body(program: m.Program, name: str = "main") -> tuple[m.Instruction, ...]:
    return program.functions[name].body.instructions


def of_kind(instructions: tuple[m.Instruction, ...], kind: type) -> list:
    return [i for i in instructions if isinstance(i, kind)]


def test_parameters_and_symbols(program: Read) -> None:
    function = program(
        """
        @R.function
        def main(x: R.Tensor(("m", 4), "float16"), s: R.Shape(["k"]), p: R.Prim("int64"),
                 q: R.Prim("float32"),
                 t: R.Tuple(R.Tensor(("j",), "int8"), R.Shape(["i"]))) -> R.Tensor(("m", 4), "float16"):
            return x
        """
    ).functions["main"]
    assert dict(function.symbols) == {
        "m": m.Origin.DIMENSION,
        "k": m.Origin.DIMENSION,
        "j": m.Origin.DIMENSION,
        "i": m.Origin.DIMENSION,
        "p": m.Origin.SCALAR,
    }
    x, s, p, q, _ = function.params
    assert isinstance(x.type, TensorType)
    assert x.type.shape == (symbol("m"), 4)
    assert x.type.nbytes == symbol("m") * 8
    assert isinstance(s.type, ShapeType)
    assert s.type.values == (symbol("k"),)
    assert isinstance(p.type, ScalarType)
    assert p.type.value == symbol("p")
    assert isinstance(q.type, ScalarType)
    assert q.type.value is None
    assert function.body.result is x
    assert not function.private


def test_private_and_declared_bounds(program: Read) -> None:
    function = program(
        """
        @R.function(private=True)
        def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
            R.func_attr({"tir_var_upper_bound": {"m": 4}, "tir_var_lower_bound": {"m": 2}})
            R.func_attr({"tir_non_negative_var": ["n"]})
            return x
        """
    ).functions["main"]
    assert function.private
    assert function.declared_upper == {"m": 4}
    assert function.declared_lower == {"m": 2, "n": 0}


def test_a_declared_bound_that_is_no_integer_declares_nothing(program: Read) -> None:
    function = program(
        """
        @R.function
        def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
            R.func_attr({"tir_var_upper_bound": {"m": [4], "n": 8}, "tir_var_lower_bound": [4]})
            R.func_attr({"tir_non_negative_var": "n"})
            return x
        """
    ).functions["main"]
    assert function.declared_upper == {"n": 8}
    assert function.declared_lower == {}


def test_a_symbol_that_no_parameter_binds_is_undefined() -> None:
    n = tvm.tirx.Var("s39", "int64")
    x = relax.Var("x", relax.TensorType((2 * n, 16), "float32"))
    mod = tvm.IRModule(
        {"main": relax.Function([x], relax.SeqExpr([], x), relax.TensorType((2 * n, 16), "float32"))}
    )
    function = extract(mod, name="Module").functions["main"]
    assert function.symbols == {"s39": m.Origin.UNDEFINED}
    assert isinstance(function.params[0].type, TensorType)
    assert function.params[0].type.shape == (2 * symbol("s39"), 16)


def test_two_variables_of_one_name_are_two_symbols() -> None:
    first, second = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((first,), "float32"))
    y = relax.Var("y", relax.TensorType((second, first), "float32"))
    body = relax.SeqExpr([], x)
    mod = tvm.IRModule({"main": relax.Function([x, y], body, relax.TensorType((first,), "float32"))})
    function = extract(mod, name="Module").functions["main"]
    assert set(function.symbols) == {"n", "n_1"}
    assert isinstance(function.params[1].type, TensorType)
    assert function.params[1].type.shape == (symbol("n_1"), symbol("n"))


def test_scalars_stand_for_what_they_are_bound_to(program: Read) -> None:
    found = program(
        """
        @R.function(pure=False)
        def main(x: R.Tensor(("m",), "float32"), p: R.Prim("int64")) -> R.Object:
            m = T.int64()
            q: R.Prim("int64") = m * 2 + p
            w: R.Prim("int64") = R.call_packed("f", x, ty_args=R.Prim("int64"))
            s = R.memory.alloc_storage(R.shape([q + w]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            return s
        """
    )
    storage = of_kind(body(found), m.AllocStorage)[0]
    assert storage.size == 2 * symbol("m") + symbol("p") + symbol("w")
    assert found.functions["main"].symbols["w"] is m.Origin.SCALAR
    assert "q" not in found.functions["main"].symbols


def test_nested_branches_and_their_conditions(program: Read) -> None:
    found = program(
        """
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
                    y = x
            return y
        """
    )
    outer = of_kind(body(found), m.If)[0]
    assert outer.condition == negate(ge(symbol("m"), 8))
    assert [type(i) for i in outer.then.instructions] == [m.CallOperator]
    assert outer.then.result is outer.then.instructions[0].var
    inner = outer.otherwise.instructions[0]
    assert isinstance(inner, m.If)
    assert inner.condition is None
    assert inner.test is found.functions["main"].params[1]
    assert inner.otherwise.result is found.functions["main"].params[0]
    assert outer.otherwise.result is inner.var


def test_condition_written_in_the_branch_itself(program: Read) -> None:
    found = program(
        """
        @R.function
        def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
            m = T.int64()
            if m > 7:
                y = R.add(x, x)
            else:
                y = x
            return y
        """
    )
    assert of_kind(body(found), m.If)[0].condition == gt(symbol("m"), 7)


def test_tuples_are_taken_field_by_field(program: Read) -> None:
    found = program(
        """
        @R.function
        def main(x: R.Tensor(("m",), "int8"), y: R.Tensor(("m",), "int8")) -> R.Tensor(("m",), "int8"):
            t = (x, (y, x))
            u = t[1][0]
            return u
        """
    )
    x, y = found.functions["main"].params
    made, outer, inner = body(found)
    assert isinstance(made, m.MakeTuple)
    assert made.fields == (x, m.TupleValue((y, x)))
    assert isinstance(outer, m.TakeField)
    assert (outer.source, outer.index) == (made.var, 1)
    assert isinstance(inner, m.TakeField)
    assert (inner.source, inner.index) == (outer.var, 0)


def test_match_cast_defines_symbols(program: Read) -> None:
    found = program(
        """
        @R.function
        def main(x: R.Tensor(("m",), "float32"), s: R.Shape(ndim=1)) -> R.Tensor(ndim=1, dtype="float32"):
            m = T.int64()
            k = T.int64()
            y = R.match_cast(x, R.Tensor((k,), "float32"))
            z = R.match_cast(y, R.Tensor((m,), "float32"))
            return z
        """
    )
    first, second = of_kind(body(found), m.MatchCast)
    assert first.defines == {"k"}
    assert second.defines == frozenset()
    assert found.functions["main"].symbols["k"] is m.Origin.CAST
    assert second.source is first.var
    assert isinstance(second.target, TensorType)
    assert second.target.shape == (symbol("m"),)


def test_dataflow_blocks_are_read_in_order(program: Read) -> None:
    found = program(
        """
        @R.function
        def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
            with R.dataflow():
                a = R.add(x, x)
                b = R.multiply(a, x)
                R.output(b)
            return b
        """
    )
    add, multiply = body(found)
    assert isinstance(multiply, m.CallOperator)
    assert multiply.arguments == (add.var, found.functions["main"].params[0])


def test_functions_call_each_other_and_themselves(program: Read) -> None:
    found = program(
        """
        @R.function(private=True)
        def twice(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
            y = R.add(x, x)
            return y

        @R.function
        def main(x: R.Tensor(("m",), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(("m",), "float32"):
            cls = Module
            m = T.int64()
            if c:
                y: R.Tensor((m,), "float32") = cls.main(x, c)
            else:
                y = cls.twice(x)
            return y
        """
    )
    branch = of_kind(body(found), m.If)[0]
    recursive, other = branch.then.instructions[0], branch.otherwise.instructions[0]
    assert isinstance(recursive, m.CallFunction)
    assert recursive.name == "main"
    assert isinstance(other, m.CallFunction)
    assert other.name == "twice"
    assert found.functions["twice"].private


def test_closures_are_said_not_to_be_understood(program: Read) -> None:
    found = program(
        """
        @R.function
        def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
            @R.function
            def inner(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
                return R.add(y, x)
            z = inner(x)
            return z
        """
    )
    local, call = body(found)
    x = found.functions["main"].params[0]
    assert isinstance(local, m.NotUnderstood)
    assert "closure" in local.what
    assert local.reads == (x,)
    assert isinstance(local.var.type, FunctionType)
    assert isinstance(call, m.NotUnderstood)
    assert call.reads == (local.var, x)


def test_a_closure_that_calls_itself_does_not_capture_itself(program: Read) -> None:
    found = program(
        """
        @R.function
        def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
            @R.function
            def again(y: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
                z = R.add(y, x)
                return again(z)
            return again(x)
        """
    )
    local = body(found)[0]
    assert isinstance(local, m.NotUnderstood)
    assert local.reads == (found.functions["main"].params[0],)


def test_a_variable_of_the_other_branch_is_the_same_variable() -> None:
    """TVM's planner emits this: what one branch allocates, the other uses."""
    flag = relax.Var("c", relax.TensorType((), "bool"))
    storage = relax.Var("storage", relax.ObjectType())
    used, result = (relax.Var(name, relax.TensorType((4,), "float32")) for name in ("used", "result"))
    place = relax.op.memory.alloc_tensor(storage, 0, relax.ShapeExpr([4]), "float32")
    reserve = relax.op.memory.alloc_storage(relax.ShapeExpr([16]), 0, "global", "uint8")
    then = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(used, place)])], used)
    fresh = relax.op.builtin.alloc_tensor(relax.ShapeExpr([4]), "float32", 0)
    other = relax.Var("other", relax.TensorType((4,), "float32"))
    block = relax.BindingBlock([relax.VarBinding(storage, reserve), relax.VarBinding(other, fresh)])
    branch = relax.If(flag, then, relax.SeqExpr([block], other))
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, branch)])], result)
    function = relax.Function([flag], body, relax.TensorType((4,), "float32"), is_pure=False)
    found = extract(tvm.IRModule({"main": function}), name="M").functions["main"].body.instructions[0]
    assert isinstance(found, m.If)
    placed, reserved = found.then.instructions[0], found.otherwise.instructions[0]
    assert isinstance(placed, m.AllocTensor)
    assert isinstance(reserved, m.AllocStorage)
    assert placed.storage is reserved.var


def test_a_variable_that_nothing_binds_is_said() -> None:
    x, lost = (relax.Var(name, relax.TensorType((4,), "float32")) for name in ("x", "lost"))
    y = relax.Var("y", relax.TensorType((4,), "float32"))
    block = relax.BindingBlock([relax.VarBinding(y, relax.op.add(x, lost))])
    function = relax.Function([x], relax.SeqExpr([block], y), relax.TensorType((4,), "float32"))
    said, add = extract(tvm.IRModule({"main": function}), name="M").functions["main"].body.instructions
    assert isinstance(said, m.NotUnderstood)
    assert "`lost`" in said.what
    assert isinstance(add, m.CallOperator)
    assert add.arguments[1] is said.var


def test_storage_keeps_its_type_through_an_alias(program: Read) -> None:
    found = program(
        """
        @R.function(pure=False)
        def main(x: R.Tensor(("m",), "float32")) -> R.Object:
            s = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            t = s
            return t
        """
    )
    storage, alias = body(found)
    assert isinstance(alias, m.Alias)
    assert alias.source is storage.var
    assert alias.var.type == storage.var.type

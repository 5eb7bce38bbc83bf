"""One activation of a Relax function, walked step by step."""

from __future__ import annotations

from typing import Any

from tvm import relax

from tests.mutation.arithmetic import evaluate
from tests.mutation.kernel_calls import run_kernel
from tests.mutation.machine import (
    KILLED,
    FailedError,
    Machine,
    NotModelledError,
    StopError,
    check_at_pointer,
    fresh,
)
from tests.mutation.memory import Tensor
from tests.mutation.memory_operators import OPERATORS, reshape, view

__all__ = ["Frame"]


class Frame:
    """One activation of a Relax function."""

    def __init__(
        self, machine: Machine, function: relax.Function, arguments: list[Any], symbols: dict[Any, int]
    ) -> None:
        self.machine, self.function, self.symbols = machine, function, symbols
        self.values: dict[Any, Any] = dict(zip(function.params, arguments, strict=True))

    def run(self) -> Any:
        return self.block(self.function.body)

    def block(self, body: Any) -> Any:
        if type(body).__name__ != "SeqExpr":
            return self.value(body)
        for block in body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = found = self.step(binding)
                if isinstance(found, int):
                    self.symbols[binding.var] = found
        return self.value(body.body)

    def step(self, binding: Any) -> Any:
        value = binding.value
        if type(binding).__name__ == "MatchCast":
            return self.match_cast(self.value(value), binding.ty)
        kind = type(value).__name__
        if kind == "If":
            condition = self.branch(value.cond)
            return self.block(value.true_branch if condition else value.false_branch)
        if kind == "Call":
            return self.call(value)
        return self.value(value)

    def branch(self, condition: Any) -> bool:
        """Both branches are walked, one after the other: a tensor's value is not known, unless it is computed
        from what was chosen before, and a condition on sizes may be otherwise for sizes too large to walk
        through.
        """
        test = self.use(condition, "an If") if type(condition).__name__ == "Var" else self.value(condition)
        if isinstance(test, Tensor):
            check_at_pointer(test, "an If")
            return test.stamp.truth.hold(self.machine.choose)
        return self.machine.choose()

    def value(self, expression: Any) -> Any:
        kind = type(expression).__name__
        if kind == "Var" and expression in self.values:
            return self.values[expression]
        if kind == "Var" and expression.name not in self.symbols:
            raise FailedError("not-in-scope", f"{expression.name} is not defined on this path")
        if kind == "Tuple":
            return tuple(self.value(item) for item in expression.fields)
        if kind == "TupleGetItem":
            return self.use(expression.tuple_value, "a tuple field")[expression.index]
        if kind == "ShapeExpr":
            return tuple(evaluate(e, self.symbols) for e in expression.values)
        if kind == "GenericConst":
            return self.constant(expression)
        if kind in ("StringImm", "DataTypeImm", "GlobalVar", "ExternFunc"):
            return expression
        return evaluate(expression, self.symbols)

    def constant(self, expression: Any) -> Any:
        if type(expression.ty).__name__ != "TensorType":
            return expression
        tensor = fresh(tuple(int(e) for e in expression.ty.shape.values), str(expression.ty.dtype.dtype))
        tensor.write()
        return tensor

    def use(self, expression: Any, user: str) -> Any:
        value = self.value(expression)
        if value is KILLED:
            raise FailedError("use-after-kill", f"{user} uses {expression.name}, which was killed")
        return value

    def match_cast(self, value: Any, ty: Any) -> Any:
        actual = value.shape if isinstance(value, Tensor) else value
        wanted = ty.shape.values if type(ty).__name__ == "TensorType" else ty.values
        for extent, expression in zip(actual, wanted, strict=True):
            if type(expression).__name__ == "Var" and expression.name not in self.symbols:
                self.symbols[expression.name] = extent
            elif evaluate(expression, self.symbols) != extent:
                raise StopError
        return value

    # -- calls ---------------------------------------------------------------------------------------------

    def call(self, call: Any) -> Any:
        kind = type(call.op).__name__
        if kind == "GlobalVar":
            return self.call_global(call.op.name_hint, call.args)
        if kind == "ExternFunc":
            return self.call_extern(str(call.op.global_symbol), call)
        handler = OPERATORS.get(call.op.name)
        if handler is None:
            raise NotModelledError(call.op.name)
        return handler(self, call)

    def call_global(self, name: str, operands: Any) -> Any:
        function = self.machine.mod[name]
        arguments = [self.use(a, name) for a in operands]
        if isinstance(function, relax.Function):
            return self.call_relax(function, arguments)
        return run_kernel(name, self.machine.kernels[name], arguments)

    def call_relax(self, function: relax.Function, arguments: list[Any]) -> Any:
        if self.machine.depth >= 4:
            raise StopError
        self.machine.depth += 1
        frame = Frame(self.machine, function, arguments, {})
        for param, argument in zip(function.params, arguments, strict=True):
            frame.bind(param.ty, argument)
        result = frame.run()
        self.machine.depth -= 1
        return result

    def bind(self, ty: Any, value: Any) -> None:
        kind = type(ty).__name__
        if kind == "TupleType":
            for part_ty, part in zip(ty.fields, value, strict=True):
                self.bind(part_ty, part)
        elif kind in ("TensorType", "ShapeType"):
            self.match_cast(value, ty)

    def call_extern(self, name: str, call: Any) -> Any:
        operands = call.args
        if name == "vm.builtin.reshape":
            source, shape = self.use(operands[0], name), self.value(operands[1])
            return reshape(source, shape)
        if name == "runtime.TVMTensorCreateView":
            return view(self, call)
        if name == "relax.run.assert_op":
            if not evaluate(operands[0], self.symbols):
                raise StopError
            return None
        if name in self.machine.kernels:  # exported under its own name
            return run_kernel(name, self.machine.kernels[name], [self.use(a, name) for a in operands])
        raise NotModelledError(name)

"""What a guard becomes in the module: a call that raises, a kernel's own asserts, or nothing.

An assertion names the values of the symbols; it is a Python function of TVM's, looked up when the module is
loaded.  A kernel's asserts need no Python, and their text is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax, tirx
from tvm.ir import Call, StringImm, TupleType

from symalloc.plan.model import Guard
from symalloc.plan.options import GuardKind
from symalloc.relax.tir_emit import PrimBuilder
from symalloc.size.condition import Condition, conjunction

__all__ = ["ASSERT", "Check"]

ASSERT = "relax.run.assert_op"  # what LegalizeOps makes of R.assert_op


@dataclass(slots=True, kw_only=True)
class Check:
    """Writes the guards of the functions of one module.

    `taken` are names that the module's functions have; `kernels` collects, by name, those that are to be
    added to the module.
    """

    kind: GuardKind
    taken: set[str]
    kernels: dict[str, tirx.PrimFunc] = field(default_factory=dict)

    def condition(self, guards: Sequence[Guard], prims: PrimBuilder) -> Any:
        """All `guards` as one scalar condition."""
        return prims.condition(conjunction(g.check for g in guards))

    def call(self, guards: Sequence[Guard], function: str, prims: PrimBuilder) -> Any | None:
        """The call that raises unless all `guards` hold; None where nothing is to be checked.

        A guard that stands behind a match_cast raises in a function with a fallback too: by then it has
        done some of its work.
        """
        if self.kind == "none":
            return None
        if self.kind == "native":
            return self._kernel_call(guards, function, prims)
        names = _symbols(guards)
        values = ", ".join(f"{name} = {{}}" for name in names)
        message = f"{_complaint(function)}: got {values}; need {_wanted(guards)}"
        arguments = [self.condition(guards, prims), StringImm(message), *(prims.variables[n] for n in names)]
        return Call(relax.ExternFunc(ASSERT), arguments, ty_args=[TupleType([])])

    def _kernel_call(self, guards: Sequence[Guard], function: str, prims: PrimBuilder) -> Any:
        """Called by its symbol: a direct call of a kernel without effects would be removed as dead code."""
        names = _symbols(guards)
        symbol = self.free_name(f"{function}_guard")
        params = {name: tirx.Var(name, "int64") for name in names}
        test = self.condition(guards, PrimBuilder(dict(params)))
        message = StringImm(f"{_complaint(function)}; need {_wanted(guards)}")
        body = tirx.AssertStmt(StringImm("ValueError"), test, [message])
        kernel = tirx.PrimFunc([params[n] for n in names], body)
        self.kernels[symbol] = kernel.with_attrs({"global_symbol": symbol, "tirx.is_host_func": True})
        arguments = [prims.variables[name] for name in names]
        return Call(relax.ExternFunc(symbol), arguments, ty_args=[TupleType([])])

    def free_name(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self.taken:
            count += 1
            name = f"{wanted}_{count}"
        self.taken.add(name)
        return name


def _symbols(guards: Sequence[Guard]) -> list[str]:
    conditions: list[Condition] = [g.condition for g in guards]
    return sorted(frozenset().union(*(c.symbols for c in conditions)))


def _complaint(function: str) -> str:
    return f"{function}: these shapes need more bytes than 64 bits count"


def _wanted(guards: Sequence[Guard]) -> str:
    return " and ".join(str(g.condition) for g in guards)

"""Guards in the module: calls that raise, or nothing.

An assertion names the values of the symbols; it is a Python function of TVM's.  It carries a text without
them, too, as an argument that its format does not mention: `lower_guards` takes it for the kernel that it
becomes once the module is written.  A native guard has no other text: its kernel asks no Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.ir import StringImm, TupleType

from symalloc.planner.memory_plan import Guard
from symalloc.planner.planner_options import GuardKind
from symalloc.relax.emit.prim_builder import PrimBuilder
from symalloc.relax.extract.kernel_walk import ASSERT
from symalloc.relax.ir_types import BindingNode, Node, VarNode, bound, elements, typed_call, typed_var
from symalloc.size.condition import Condition, conjunction
from symalloc.size.expr import Expr

NOTHING = TupleType([])
"""The type of what a guard returns."""

_ASSERT = relax.ExternFunc(ASSERT)
_CAPTURED = "relax.rewrite_cuda_graph.capture_symbolic_vars"


@dataclass(slots=True, kw_only=True)
class GuardWriter:
    """Writes the guards of one function: calls on the scalars of `prims`."""

    kind: GuardKind
    function: str
    prims: PrimBuilder

    def call(self, guards: Sequence[Guard], beside: Sequence[VarNode] = ()) -> Node | None:
        """The call that raises unless all `guards` hold; None where nothing is to be checked.

        They are of one kind: declared bounds, or what 64 bits need.  The call also gets the tensors `beside`,
        which it does not look at.

        A guard that stands behind a match_cast raises in a function with a fallback too: by then it has
        done some of its work.
        """
        if self.kind == "none":
            return None
        complaint = "these shapes need more bytes than 64 bits count"
        if guards[0].declared:
            complaint = "these shapes are outside of the bounds that it declares"
        check = conjunction(g.check for g in guards)
        return self._raise(check, check.conjuncts, complaint, beside)

    def each(self, guards: Sequence[Guard], beside: Sequence[VarNode] = ()) -> Iterator[BindingNode]:
        """One check for all `guards` of a kind."""
        for declared in (True, False):
            some = [g for g in guards if g.declared is declared]
            call = self.call(some, beside) if some else None
            if call is not None:
                yield bound(typed_var("guard", NOTHING), call)

    def arena(self, size: Expr, given: VarNode) -> Node:
        """The call that raises unless as many bytes as `given` are enough for an arena; whatever the kind."""
        said, needed = f"{self.function}: its arena is too small for these shapes", self.prims(size)
        texts = StringImm(f"{said}: got {{}} bytes, needs {{}}"), StringImm(f"{said}: needs {size} bytes")
        arguments = [needed <= given, texts[0], given, needed, texts[1]]
        return typed_call(_ASSERT, arguments, NOTHING, [NOTHING])

    def cast(self, claims: Sequence[Condition]) -> Node:
        """The call that raises unless all `claims`, which a match_cast makes, hold; whatever the kind."""
        return self._raise(conjunction(claims), claims, "a match_cast does not hold")

    def fit(self, guards: Sequence[Guard], output: str, source: str) -> Node | None:
        """The call that raises unless `guards` hold, and with them an output fits into an input."""
        if self.kind == "none":
            return None
        complaint = f"{output} does not fit into {source}, which is donated for it"
        claims = [g.condition for g in guards if g.condition.as_bool is None]
        return self._raise(conjunction(g.check for g in guards), claims, complaint)

    def _raise(
        self, test: Condition, claims: Sequence[Condition], complaint: str, beside: Sequence[VarNode] = ()
    ) -> Node:
        names = sorted(frozenset().union(*(c.symbols for c in claims)))
        wanted = " and ".join(map(str, claims))
        values = [self.prims.variables[name] for name in names]
        shown = f"{complaint}: got {', '.join(f'{name} = {{}}' for name in names)}; need {wanted}"
        fixed = StringImm(f"{self.function}: {complaint}; need {wanted}")
        template = fixed if self.kind == "native" else StringImm(f"{self.function}: {shown}")
        given = [self.prims.condition(test), template, *values, fixed, *beside]
        return typed_call(_ASSERT, given, NOTHING, [NOTHING])


def uncaptured(function: relax.Function) -> tuple[VarNode, ...]:
    """The argument that keeps a check of `function` out of CUDA graphs: none where nothing would capture it.

    RewriteCUDAGraph takes a packed call on symbols that it may capture, those that it is told and those of
    weights, for a kernel.  One on a tensor that changes from call to call it leaves where it stands.
    """
    attributes = function.attrs or {}
    given = attributes.get("num_input")
    inputs = len(function.params) if given is None else int(given)
    params = elements(function.params)
    if _CAPTURED not in attributes and not any(
        relax.analysis.tir_vars_in_type(p.ty) for p in params[inputs:]
    ):
        return ()
    return tuple(p for p in params[:inputs] if isinstance(p.ty, relax.TensorType))[:1]

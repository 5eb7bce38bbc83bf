"""Guards in the module: calls that raise, or nothing.

An assertion names the values of the symbols; it is a Python function of TVM's.  It carries a text without
them, too, as an argument that its format does not mention: `lower_guards` takes it for the kernel that it
becomes once the module is written.  A native guard has no other text: its kernel asks no Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm import relax
from tvm.ir import StringImm

from symalloc.planner.memory_plan import Guard
from symalloc.planner.planner_options import GuardKind
from symalloc.relax.emit.prim_builder import PrimBuilder
from symalloc.relax.extract.kernel_walk import ASSERT
from symalloc.relax.ir_types import BindingNode, VarNode, effect, elements
from symalloc.size.condition import Condition, conjunction
from symalloc.size.expr import Expr

_ASSERT = relax.ExternFunc(ASSERT)
_COMPLAINTS = (
    (True, "these shapes are outside of the bounds that it declares"),
    (False, "these shapes need more bytes than 64 bits count"),
)
_CAPTURED = "relax.rewrite_cuda_graph.capture_symbolic_vars"


@dataclass(slots=True, kw_only=True)
class GuardWriter:
    """Writes the guards of one function: calls on the scalars of `prims`."""

    kind: GuardKind
    function: str
    prims: PrimBuilder

    def each(self, guards: Sequence[Guard], beside: Sequence[VarNode] = ()) -> Iterator[BindingNode]:
        """The calls that raise unless `guards` hold: one for declared bounds, one for what 64 bits need.

        They also get the tensors `beside`, which they do not look at.  Behind a match_cast they raise in a
        function with a fallback too: by then it has done some of its work.
        """
        for declared, complaint in _COMPLAINTS:
            check = conjunction(g.check for g in guards if g.declared is declared)
            if check.as_bool is not True and self.kind != "none":
                yield self._raise(check, check.conjuncts, complaint, "guard", beside)

    def arena(self, size: Expr, given: VarNode) -> BindingNode:
        """The call that raises unless as many bytes as `given` are enough for an arena; whatever the kind."""
        said, needed = f"{self.function}: its arena is too small for these shapes", self.prims(size)
        texts = StringImm(f"{said}: got {{}} bytes, needs {{}}"), StringImm(f"{said}: needs {size} bytes")
        return effect(_ASSERT, [needed <= given, texts[0], given, needed, texts[1]], "guard")

    def cast(self, claims: Sequence[Condition]) -> BindingNode:
        """The call that raises unless all `claims`, which a match_cast makes, hold; whatever the kind."""
        return self._raise(conjunction(claims), claims, "a match_cast does not hold", "cast_guard")

    def fit(self, guards: Sequence[Guard], output: str, source: str) -> BindingNode:
        """The call that raises unless `guards` hold, and with them an output fits into an input."""
        complaint = f"{output} does not fit into {source}, which is donated for it"
        claims = [g.condition for g in guards if g.condition.as_bool is None]
        return self._raise(conjunction(g.check for g in guards), claims, complaint, "fits")

    def _raise(
        self,
        test: Condition,
        claims: Sequence[Condition],
        complaint: str,
        name: str,
        beside: Sequence[VarNode] = (),
    ) -> BindingNode:
        names = sorted(frozenset().union(*(c.symbols for c in claims)))
        wanted = " and ".join(map(str, claims))
        values = [self.prims.variables[name] for name in names]
        shown = f"{complaint}: got {', '.join(f'{name} = {{}}' for name in names)}; need {wanted}"
        fixed = StringImm(f"{self.function}: {complaint}; need {wanted}")
        template = fixed if self.kind == "native" else StringImm(f"{self.function}: {shown}")
        return effect(_ASSERT, [self.prims.condition(test), template, *values, fixed, *beside], name)


def uncaptured(function: relax.Function) -> tuple[VarNode, ...]:
    """The argument that keeps a check of `function` out of CUDA graphs: none where nothing would capture it.

    RewriteCUDAGraph takes a packed call on symbols that it may capture, those that it is told and those of
    weights, for a kernel.  One on a tensor that changes from call to call it leaves where it stands.
    """
    attributes, params = function.attrs or {}, elements(function.params)
    inputs = int(attributes.get("num_input", len(params)))
    weights = any(relax.analysis.tir_vars_in_type(p.ty) for p in params[inputs:])
    if _CAPTURED not in attributes and not weights:
        return ()
    return tuple(p for p in params[:inputs] if isinstance(p.ty, relax.TensorType))[:1]

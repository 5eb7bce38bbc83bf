"""Guards in the module: a call that raises, a kernel's own asserts, or nothing.

An assertion names the values of the symbols; it is a Python function of TVM's.  A kernel's asserts need no
Python, and their text is fixed.  An assertion carries that text, too, as an argument that its format does not
mention: `lower_guards` takes it for the kernel that it becomes once the module is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import relax, tirx
from tvm.ir import StringImm, TupleType

from symalloc.planner.memory_plan import Guard
from symalloc.planner.planner_options import GuardKind
from symalloc.relax.emit.prim_builder import PrimBuilder
from symalloc.relax.extract.kernel_walk import ASSERT
from symalloc.relax.ir_types import Node, VarNode, elements, typed_call
from symalloc.relax.rewrite import ModuleDraft
from symalloc.size.condition import Condition, conjunction

NOTHING = TupleType([])
"""The type of what a guard returns."""

_ASSERT = relax.ExternFunc(ASSERT)
_CAPTURED = "relax.rewrite_cuda_graph.capture_symbolic_vars"


@dataclass(slots=True, kw_only=True)
class GuardWriter:
    """Writes the guards of one function: calls on the scalars of `prims`, and kernels in the `draft`."""

    kind: GuardKind
    draft: ModuleDraft
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
        self,
        test: Condition,
        claims: Sequence[Condition],
        complaint: str,
        beside: Sequence[VarNode] = (),
    ) -> Node:
        names = sorted(frozenset().union(*(c.symbols for c in claims)))
        wanted = " and ".join(map(str, claims))
        if self.kind == "native":
            tests = {wanted: test}
            if test == conjunction(claims):
                tests = {str(claim): claim for claim in claims}
            return self._kernel_call(tests, complaint, names, beside)
        values = ", ".join(f"{name} = {{}}" for name in names)
        said = f"{complaint}: got {values}; need {wanted}", f"{complaint}; need {wanted}"
        template, fixed = (StringImm(f"{self.function}: {text}") for text in said)
        given = [template, *(self.prims.variables[name] for name in names), fixed, *beside]
        return typed_call(_ASSERT, [self.prims.condition(test), *given], NOTHING, [NOTHING])

    def _kernel_call(
        self,
        tests: Mapping[str, Condition],
        complaint: str,
        names: Sequence[str],
        beside: Sequence[VarNode],
    ) -> Node:
        """Says what the first test that fails needs.  Called by its symbol: a direct call of a kernel
        without effects would be removed as dead code.
        """
        params = {name: tirx.Var(name, "int64") for name in names}
        builder = PrimBuilder(params)
        asserts = []
        for need, test in tests.items():
            said = StringImm(f"{self.function}: {complaint}; need {need}")
            asserts.append(tirx.AssertStmt(builder.condition(test), StringImm("ValueError"), [said]))
        body = asserts[0] if len(asserts) == 1 else tirx.SeqStmt(asserts)
        unread = [tirx.Var(f"beside{index}", "handle") for index in range(len(beside))]
        kernel = tirx.PrimFunc([*params.values(), *unread], body).with_attr("tirx.is_host_func", True)
        added = self.draft.add(f"{self.function}_guard", kernel, public=True)
        arguments = [*(self.prims.variables[name] for name in names), *beside]
        return typed_call(relax.ExternFunc(added.name_hint), arguments, NOTHING, [NOTHING])


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

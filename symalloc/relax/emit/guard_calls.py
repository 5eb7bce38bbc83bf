"""Guards in the module: a call that raises, a kernel's own asserts, or nothing.

An assertion names the values of the symbols; it is a Python function of TVM's.  A kernel's asserts need no
Python, and their text is fixed.  An assertion carries that text, too, as an argument that its format does not
mention: `lower_guards` takes it for the kernel that it becomes once the module is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm import relax, tirx
from tvm.ir import StringImm, TupleType

from symalloc.planner.memory_plan import Guard
from symalloc.planner.planner_options import GuardKind
from symalloc.prover.domain import INT64_MAX
from symalloc.relax.emit.prim_builder import PrimBuilder
from symalloc.relax.extract.kernel_walk import ASSERT
from symalloc.relax.ir_types import Node, VarNode, elements, typed_call
from symalloc.relax.rewrite import ModuleDraft
from symalloc.size.choice import maximum, minimum
from symalloc.size.condition import Condition, Relation, conjunction
from symalloc.size.expr import Expr, constant, symbol

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
        bounds = _bounds(check)
        if not bounds or self.kind == "native":
            return self._raise(check, check.conjuncts, complaint, beside)
        shown = ", ".join(f"{n} = {{}}{_limited(bounds[n], open_as='{}')}" for n in bounds)
        named = ", ".join(f"{n}{_limited(bounds[n])}" for n in bounds)
        values: list[Node] = []
        for name, limits in bounds.items():
            values.append(self.prims.variables[name])
            values += (self.prims(x) for _, x in limits if x.as_constant is None)
        texts = f"{complaint}: got {shown}", f"{complaint}: got {named}"
        return self._assertion(check, texts, values, beside)

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
        texts = f"{complaint}: got {values}; need {wanted}", f"{complaint}; need {wanted}"
        return self._assertion(test, texts, [self.prims.variables[name] for name in names], beside)

    def _assertion(
        self, test: Condition, texts: tuple[str, str], values: Sequence[Node], beside: Sequence[VarNode]
    ) -> Node:
        """An assertion with two texts: a format for the values, and one without them."""
        template, fixed = (StringImm(f"{self.function}: {text}") for text in texts)
        given = [self.prims.condition(test), template, *values, fixed, *beside]
        return typed_call(_ASSERT, given, NOTHING, [NOTHING])

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


def _bounds(check: Condition) -> Mapping[str, Sequence[tuple[str, Expr]]]:
    """The bounds of each symbol of `check`, given the others: what it must be at least, and at most.

    None where it is no conjunction of bounds.
    """
    found: dict[tuple[str, bool], list[Expr]] = {}
    for conjunct in check.conjuncts:
        bound = _bound(conjunct)
        if bound is None:
            return {}
        found.setdefault(bound[:2], []).append(bound[2])
    kinds = ("at least", False, maximum), ("at most", True, minimum)
    return {
        name: [(words, of(*found[name, upper])) for words, upper, of in kinds if (name, upper) in found]
        for name in sorted(check.symbols)
    }


def _limited(limits: Sequence[tuple[str, Expr]], open_as: str | None = None) -> str:
    """` (at least 3, at most m // 2)`, or `open_as` for bounds that depend on other symbols."""
    shown = ", ".join(f"{words} {x if x.as_constant is not None else open_as or x}" for words, x in limits)
    return f" ({shown})" if limits else ""


def _bound(conjunct: Condition) -> tuple[str, bool, Expr] | None:
    """A symbol, whether it is bounded from above, and the bound.

    Where the symbol occurs in its own bound, `n <= 100 // n`, and is alone there, this is the largest that
    holds.
    """
    if not isinstance(conjunct, Relation) or conjunct.operator != "<=":
        return None
    found = [(name, sign) for name, sign in _alone(conjunct.expr) if sign in (1, -1)]
    for name, sign in found:
        bound = symbol(name) - sign * conjunct.expr
        if name not in bound.symbols:
            return name, sign > 0, bound
    if len(found) != 1 or found[0][1] < 0:
        return None
    name = found[0][0]
    if len(conjunct.symbols) == 1:
        return name, True, constant(_largest(conjunct, name))
    return name, True, symbol(name) - conjunct.expr


def _alone(expr: Expr) -> Iterator[tuple[str, int]]:
    """The symbols that are terms of a sum by themselves, each with its coefficient."""
    for factors, coefficient in expr.terms.items():
        name = Expr({factors: 1}).as_symbol
        if name is not None:
            yield name, coefficient


def _largest(conjunct: Condition, name: str) -> int:
    """The largest extent for which a condition holds that larger ones do not bring back."""
    low, high = 0, INT64_MAX
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if conjunct.evaluate({name: middle}) else (low, middle - 1)
    return low

"""Facts: conditions that hold at a program point, because a check before it stops the program otherwise.

Facts come from asserts, from R.match_cast, from the test of an If on its branches, from kernels that
compare the shapes of their arguments, and from allocations: nobody gets memory of a negative size.  A fact
holds behind the point it comes from, on the branch it comes from; behind the If it holds together with the
test of that branch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symalloc.analysis.argument_binding import arguments_of, asserted, kernel_facts
from symalloc.analysis.branch_tests import NO_TESTS, BranchTests
from symalloc.analysis.dataflow import DataflowProblem, forward
from symalloc.program.casts import read_cast
from symalloc.program.control_flow import ControlFlowGraph
from symalloc.program.ir import (
    AllocFresh,
    AllocStorage,
    AllocTensor,
    Assert,
    CallKernel,
    CallTIR,
    Function,
    If,
    Kernel,
    MatchCast,
    Origin,
)
from symalloc.program.operands import TypeNumbering
from symalloc.program.types import extents_of
from symalloc.size.condition import Condition, conjunction, disjunction, ge, negate
from symalloc.size.expr import Expr
from symalloc.size.sign import is_nonnegative


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A set of facts, equal only to itself.

    `guards` come from asserts, casts and tests; `calls` from kernels and allocations.
    """

    guards: tuple[Condition, ...] = ()
    calls: tuple[Condition, ...] = ()

    def with_guards(self, conditions: Sequence[Condition]) -> Facts:
        """These facts and further guards."""
        return Facts((*self.guards, *conditions), self.calls) if conditions else self

    def with_calls(self, conditions: Sequence[Condition]) -> Facts:
        """These facts and further ones from kernels and allocations."""
        if not conditions:
            return self
        fresh = tuple(c for c in conditions if c not in self.calls)
        return Facts(self.guards, (*self.calls, *fresh)) if fresh else self


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFacts:
    """The facts of one function; `before[i]` hold in front of point i.

    `entry` holds on entry to the function.  `definitions` gives the symbols that casts bind, in terms of
    those that the parameters bind, where it is known.  `tests` are the conditions that Ifs test, by BRANCH.
    """

    before: Sequence[Facts]
    entry: tuple[Condition, ...]
    definitions: Mapping[str, Expr]
    tests: Mapping[int, Condition] = field(default_factory=dict)


def facts_of(
    cfg: ControlFlowGraph,
    kernels: Mapping[str, Kernel],
    numbers: TypeNumbering,
    tests: BranchTests = NO_TESTS,
) -> FunctionFacts:
    """The facts at every point of a function; `tests` are those of its Ifs that are no size conditions."""
    problem = _FactProblem(cfg, kernels, numbers, tests)
    before = forward(problem, Facts()).before
    return FunctionFacts(
        before=before,
        entry=entry_facts(cfg.function),
        definitions=problem.definitions,
        tests=problem.tests,
    )


_MOST_RELATIONS = 24
"""The relations of a fact behind an If up to which it is kept."""


class _FactProblem(DataflowProblem[Facts]):
    """A join keeps the facts from in front of the If, and that those of one of its branches hold."""

    def __init__(
        self,
        cfg: ControlFlowGraph,
        kernels: Mapping[str, Kernel],
        numbers: TypeNumbering,
        opaque: BranchTests,
    ) -> None:
        super().__init__(cfg)
        self.kernels, self.numbers, self.opaque = kernels, numbers, opaque
        self.tests: dict[int, Condition] = {}
        self.known: dict[Hashable, tuple[Condition, ...]] = {}
        self.definitions: dict[str, Expr] = {}
        self.outside: dict[int, Facts] = {}
        self.doubted: dict[int, tuple[Sequence[Expr | None], Sequence[Expr]]] = {}
        self.scalars = {n for n, o in cfg.function.symbols.items() if o is Origin.SCALAR}

    def transfer(self, point: int, state: Facts) -> Facts:
        instruction = self.cfg.points[point].instruction
        told = _TELLING.get(type(instruction))
        return state if told is None else told(self, instruction, state)

    def behind_call(self, call: CallKernel | CallTIR, facts: Facts) -> Facts:
        return facts.with_calls(self.compared(call)).with_guards(self.asserted(call))

    def behind_assert(self, checked: Assert, facts: Facts) -> Facts:
        if checked.condition is None:
            return facts
        return facts.with_guards(_parts(checked.condition.substitute(self.definitions)))

    def behind_allocation(self, made: AllocFresh | AllocStorage | AllocTensor, facts: Facts) -> Facts:
        return facts.with_calls(self.reserved(made))

    def edge(self, branch: int, state: Facts, *, then: bool) -> Facts:
        self.outside[branch] = state
        instruction = self.cfg.points[branch].instruction
        condition = instruction.condition if isinstance(instruction, If) else None
        test = self.opaque.read.get(branch) if condition is None else condition.substitute(self.definitions)
        if test is None:
            return state
        self.tests[branch] = test
        return state.with_guards(_parts(test if then else negate(test)))

    def join(self, branch: int, then: Facts, otherwise: Facts) -> Facts:
        outside, test = self.outside[branch], self.tests.get(branch)
        known = len(outside.guards)
        first, second = conjunction(then.guards[known:]), conjunction(otherwise.guards[known:])
        if test is not None and (first, second) == (test, negate(test)):
            return outside
        either = disjunction((first, second))
        large = sum(1 for _ in either.relations) > _MOST_RELATIONS
        return outside if large else outside.with_guards(_parts(either))

    def reserved(self, made: AllocFresh | AllocStorage | AllocTensor) -> tuple[Condition, ...]:
        """The facts that hold once memory was reserved: that nothing of its size is negative."""
        sizes = (made.size,) if isinstance(made, AllocStorage) else made.shape or ()
        known = self.doubted.get(id(sizes))  # equal extents are mostly one object
        if known is None:
            found = [s for s in sizes if s is not None and not is_nonnegative(s, self.scalars)]
            known = self.doubted[id(sizes)] = (sizes, found)
        return tuple([ge(size.substitute(self.definitions), 0) for size in known[1]]) if known[1] else ()

    def compared(self, call: CallKernel | CallTIR) -> tuple[Condition, ...]:
        """The facts that a kernel compares on entry."""
        kernel = self.kernels.get(call.kernel)
        if kernel is None:
            return ()
        key = (call.kernel, *map(self.numbers.of, arguments_of(call)))
        facts = self.known.get(key)
        if facts is None:
            compared = kernel_facts(kernel, arguments_of(call))
            facts = self.known[key] = tuple(fact.substitute(self.definitions) for fact in compared)
        return facts

    def asserted(self, call: CallKernel | CallTIR) -> tuple[Condition, ...]:
        """The facts that a kernel asserts."""
        kernel = self.kernels.get(call.kernel)
        if kernel is None or not kernel.asserts:
            return ()
        found = asserted(kernel, arguments_of(call))
        return tuple(part for one in found for part in _parts(one.substitute(self.definitions)))

    def behind_cast(self, cast: MatchCast, facts: Facts) -> Facts:
        reading = read_cast(cast)
        for name, value in reading.definitions.items():
            self.definitions[name] = value.substitute(self.definitions)
        return facts.with_guards([c.substitute(self.definitions) for c in reading.facts])


_TELLING: Mapping[type | None, Callable[[_FactProblem, Any, Facts], Facts]] = {
    AllocFresh: _FactProblem.behind_allocation,
    AllocStorage: _FactProblem.behind_allocation,
    AllocTensor: _FactProblem.behind_allocation,
    Assert: _FactProblem.behind_assert,
    CallKernel: _FactProblem.behind_call,
    CallTIR: _FactProblem.behind_call,
    MatchCast: _FactProblem.behind_cast,
}
"""What is known behind an instruction, by type."""


def _parts(condition: Condition) -> tuple[Condition, ...]:
    """`condition` as conjuncts, without what always holds."""
    return tuple(part for part in condition.conjuncts if part.as_bool is not True)


def entry_facts(function: Function) -> tuple[Condition, ...]:
    """The facts on entry: extents of parameters are not negative."""
    found: dict[Condition, None] = {}
    for extent in (e for param in function.params for e in extents_of(param.type)):
        if extent.as_symbol is None and extent.as_constant is None:
            fact = ge(extent, 0)
            if fact.as_bool is None:
                found[fact] = None
    return tuple(found)

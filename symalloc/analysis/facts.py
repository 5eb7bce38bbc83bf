"""What is known at each step of a function, because it was checked before and stops the program
otherwise.

Facts come from asserts, from R.match_cast, from the test of an If on its branches, and from kernels that
compare the shapes of their arguments.  A fact holds behind the step it comes from, on the branch it comes
from, nowhere else.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from symalloc.analysis.kernel_call import arguments_of, asserted, kernel_facts
from symalloc.program.casts import read_cast
from symalloc.program.control_flow import ControlFlowGraph, PointKind, ProgramPoint
from symalloc.program.model import Assert, CallKernel, CallTIR, Function, If, Kernel, MatchCast
from symalloc.program.shapes import TypeNumbers
from symalloc.program.types import ShapeType, TensorType, TupleType, Type
from symalloc.size.condition import And, Condition, ge, negate
from symalloc.size.expr import Expr


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A set of facts, equal only to itself.

    `guards` come from asserts, casts and tests; `calls` from kernels.
    """

    guards: tuple[Condition, ...] = ()
    calls: tuple[Condition, ...] = ()

    def with_guards(self, conditions: Sequence[Condition]) -> Facts:
        """These facts and further guards."""
        return Facts((*self.guards, *conditions), self.calls) if conditions else self

    def with_calls(self, conditions: Sequence[Condition]) -> Facts:
        """These facts and further ones from kernels."""
        if not conditions:
            return self
        fresh = tuple(c for c in conditions if c not in self.calls)
        return Facts(self.guards, (*self.calls, *fresh)) if fresh else self


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFacts:
    """`before[i]` is known when step i starts.

    `entry` holds on entry to the function.  `definitions` gives the symbols that casts bind, in terms of
    those that the parameters bind, where it is known.
    """

    before: Sequence[Facts]
    entry: tuple[Condition, ...]
    definitions: Mapping[str, Expr]


def facts_of(cfg: ControlFlowGraph, kernels: Mapping[str, Kernel], numbers: TypeNumbers) -> FunctionFacts:
    """The facts at every step of a function."""
    return _Collector(cfg, kernels, numbers).collect()


_TELLING = frozenset({Assert, CallKernel, CallTIR, MatchCast})
"""What instructions something is known behind."""


class _Collector:
    def __init__(self, cfg: ControlFlowGraph, kernels: Mapping[str, Kernel], numbers: TypeNumbers) -> None:
        self.cfg, self.kernels, self.numbers = cfg, kernels, numbers
        self.known: dict[Hashable, tuple[Condition, ...]] = {}
        self.definitions: dict[str, Expr] = {}

    def collect(self) -> FunctionFacts:
        current = Facts()
        before: list[Facts] = []
        outside: list[Facts] = []
        for step in self.cfg.points:
            before.append(current)
            if step.kind is PointKind.INSTRUCTION:
                if type(step.instruction) in _TELLING:
                    current = self.behind(step, current)
            elif step.kind is PointKind.BRANCH:
                outside.append(current)
                current = current.with_guards(self.test(step, holds=True))
            elif step.kind is PointKind.ELSE:
                current = outside[-1].with_guards(self.test(step, holds=False))
            elif step.kind is PointKind.JOIN:
                current = outside.pop()
        entry = entry_facts(self.cfg.function)
        return FunctionFacts(before=before, entry=entry, definitions=self.definitions)

    def behind(self, step: ProgramPoint, facts: Facts) -> Facts:
        """What is known behind a step."""
        match step.instruction:
            case CallKernel() | CallTIR() as call:
                return facts.with_calls(self.compared(call)).with_guards(self.asserted(call))
            case Assert(condition=condition) if condition is not None:
                return facts.with_guards(_parts(condition.substitute(self.definitions)))
            case MatchCast() as cast:
                return self.behind_cast(cast, facts)
        return facts

    def compared(self, call: CallKernel | CallTIR) -> tuple[Condition, ...]:
        """What a kernel compares on entry."""
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
        """What a kernel asserts."""
        kernel = self.kernels.get(call.kernel)
        if kernel is None or not kernel.asserts:
            return ()
        found = asserted(kernel, arguments_of(call))
        return tuple(part for one in found for part in _parts(one.substitute(self.definitions)))

    def test(self, step: ProgramPoint, *, holds: bool) -> tuple[Condition, ...]:
        """What is known on one side of an If."""
        condition = step.instruction.condition if isinstance(step.instruction, If) else None
        if condition is None:
            return ()
        known = condition.substitute(self.definitions)
        return _parts(known if holds else negate(known))

    def behind_cast(self, cast: MatchCast, facts: Facts) -> Facts:
        reading = read_cast(cast)
        for name, value in reading.definitions.items():
            self.definitions[name] = value.substitute(self.definitions)
        return facts.with_guards([c.substitute(self.definitions) for c in reading.facts])


def _parts(condition: Condition) -> tuple[Condition, ...]:
    """`condition` as conjuncts, without what always holds."""
    parts = condition.operands if isinstance(condition, And) else (condition,)
    return tuple(part for part in parts if part.as_bool is not True)


def entry_facts(function: Function) -> tuple[Condition, ...]:
    """What holds on entry: extents of parameters are not negative."""
    found: dict[Condition, None] = {}
    for extent in (e for param in function.params for e in extents_of(param.type)):
        if extent.as_symbol is None and extent.as_constant is None:
            fact = ge(extent, 0)
            if fact.as_bool is None:
                found[fact] = None
    return tuple(found)


def extents_of(kind: Type) -> tuple[Expr, ...]:
    """The extents in a type, tuples taken apart."""
    match kind:
        case TupleType(fields=fields):
            return tuple(extent for field in fields for extent in extents_of(field))
        case TensorType(shape=shape) if shape is not None:
            return shape
        case ShapeType(values=values) if values is not None:
            return values
    return ()

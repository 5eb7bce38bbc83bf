"""Facts: conditions that hold at a program point, because a check before it stops the program otherwise.

Facts come from asserts, from R.match_cast, from the test of an If on its branches, from kernels that
compare the shapes of their arguments, and from allocations: nobody gets memory of a negative size.  A fact
holds behind the point it comes from, on the branch it comes from; behind the If it holds together with the
test of that branch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import combinations, count
from typing import Any, NamedTuple

from symalloc.analysis.call_expansion import arguments_of, asserted, kernel_facts
from symalloc.analysis.effects import Effect
from symalloc.analysis.regions import PointsTo
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph, PointKind, consistent
from symalloc.program.operands import operands_of, other_names, read_cast, tensor_type
from symalloc.program.types import TensorType, extents_of
from symalloc.size.choice import is_nonnegative
from symalloc.size.condition import (
    FALSE,
    TRUE,
    Condition,
    Relation,
    conjunction,
    disjunction,
    eq,
    ge,
    le,
    ne,
    negate,
)
from symalloc.size.expr import Expr, symbol

# -- tests of Ifs ------------------------------------------------------------------------------------------


_NEGATIONS = frozenset({"relax.logical_not"})
_PLAIN = frozenset(
    f"relax.{name}"
    for name in (
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
        *("logical_and", "logical_or", "logical_xor", "logical_not", "abs", "negative"),
        *("add", "subtract", "multiply", "floor_divide", "floor_mod", "minimum", "maximum"),
    )
)
"""Operators without attributes: equal arguments give equal results."""
_DEEPEST = 6
"""The number of computations, one from another, up to which equal ones are told."""
_WORDS = frozenset({"and", "max", "min", "not", "or"})
"""The words of conditions, which no symbol is called."""


@dataclass(frozen=True, slots=True)
class BranchTests:
    """The tests of a function.

    `read` holds by BRANCH those that are no conditions on sizes, as conditions over `opaque` symbols;
    `sources` what tests are computed from: variables, and the names of symbols.
    """

    read: Mapping[int, Condition] = field(default_factory=dict)
    opaque: frozenset[str] = frozenset()
    sources: Mapping[int, frozenset[Hashable]] = field(default_factory=dict)

    def name(self, cfg: ControlFlowGraph, branch: int) -> str:
        """The test of a BRANCH in a message."""
        made = cfg.points[branch].instruction
        assert isinstance(made, ir.If)
        condition = made.condition
        if condition is None:
            return f"`{made.test.name}`" if isinstance(made.test, ir.Var) else "a condition"
        if isinstance(condition, Relation) and condition.operator == "!=":
            flag = condition.expr.as_symbol
            return f"`{flag}`" if flag in self.opaque else f"`{condition}`"
        return f"`{condition}`"

    def related(self, branches: Sequence[int]) -> tuple[int, int] | None:
        """Two BRANCHes of which one is computed from what the other is, and nobody knows how."""
        for one, other in combinations(branches, 2):
            shared = self.sources.get(one, _NOTHING) & self.sources.get(other, _NOTHING)
            first, second = (getattr(self.read.get(branch), "symbols", None) for branch in (one, other))
            if shared and first != second:  # of equal ones the prover knows how they depend on each other
                return one, other
        return None


_NOTHING: frozenset[Hashable] = frozenset()
NO_TESTS = BranchTests()


def branch_tests(
    points_to: PointsTo, effects: Sequence[Effect], kernels: Mapping[str, ir.Kernel] | None = None
) -> BranchTests:
    """Read the tests of a function."""
    return _TestReader(points_to, effects, kernels or {}).run() if points_to.cfg.joins else NO_TESTS


class _Value(NamedTuple):
    """A value that a test reads; `negated` where it tests the opposite."""

    key: Hashable
    name: str
    negated: bool = False


class _TestReader:
    def __init__(
        self, points_to: PointsTo, effects: Sequence[Effect], kernels: Mapping[str, ir.Kernel]
    ) -> None:
        self.points_to, self.effects, self.cfg = points_to, effects, points_to.cfg
        self.kernels = kernels
        self.values: dict[tuple[ir.Var, int], _Value] = {}
        self.paths = self.cfg.paths
        self.symbols: dict[Hashable, str] = {}
        self.taken = {*self.cfg.function.symbols, *_WORDS}

    def run(self) -> BranchTests:
        branches = [
            (number, point.instruction)
            for number, point in enumerate(self.cfg.points)
            if point.kind is PointKind.BRANCH and isinstance(point.instruction, ir.If)
        ]
        origins = self.cfg.function.symbols.items()
        flags = frozenset(name for name, origin in origins if origin is ir.Origin.FLAG)
        read: dict[int, Condition] = {}
        sources: dict[int, frozenset[Hashable]] = {}
        for number, made in branches:
            if made.condition is not None:
                sources[number] = frozenset(made.condition.symbols)
            elif isinstance(made.test, ir.Var):
                read[number] = self.condition(self.value(made.test, number))
                sources[number] = self.sources(made.test, number)
        return BranchTests(read, flags | frozenset(self.symbols.values()), sources)

    def condition(self, value: _Value) -> Condition:
        """The condition that a test of `value` is."""
        match value.key:
            case (ir.ConstantTensor(values=(number,)), -1):  # nothing writes it
                return TRUE if (number != 0) is not value.negated else FALSE
        name = self.symbols.get(value.key)
        if name is None:
            names = (value.name if number == 0 else f"{value.name}_{number}" for number in count())
            name = self.symbols[value.key] = next(name for name in names if name not in self.taken)
            self.taken.add(name)
        return eq(symbol(name), 0) if value.negated else ne(symbol(name), 0)

    def value(self, var: ir.Var, point: int, depth: int = 0) -> _Value:
        """The value that `var` holds in front of `point`, as far as `depth` computations back."""
        found = self.values.get((var, point))
        if found is None:
            found = self.values[var, point] = self._value(var, point, depth)
        return found

    def _value(self, var: ir.Var, point: int, depth: int) -> _Value:
        origin = self.origin(var)
        made = self.cfg.definitions.get(origin) if isinstance(origin, ir.Var) else None
        written = self.last_write(var, point)
        if isinstance(made, ir.CallOperator) and made.name in _NEGATIONS:
            start, opposite = self.cfg.starts[made.var], made.arguments[0]
            if written <= start and isinstance(opposite, ir.Var):
                inner = self.value(opposite, start, depth)
                return inner._replace(negated=not inner.negated)
        writer = self.cfg.points[written].instruction if written >= 0 else None
        if isinstance(writer, ir.CallKernel) and self.paths[written] <= self.paths[point]:
            negated = self.negated_by(writer, var)
            if negated is not None:
                inner = self.value(negated, written, depth)
                return inner._replace(negated=not inner.negated)
            key = self.stored_by(writer, written, var, depth)
        elif made is not None and written <= self.cfg.starts[made.var]:
            key = self.made_by(made, depth)
        else:
            key = None
        return _Value((origin, written) if key is None else key, _identifier(var.name))

    def negated_by(self, call: ir.CallKernel, var: ir.Var) -> ir.Var | None:
        """The flag whose negation a call stores in the memory of `var`, if it does nothing else."""
        kernel = self.kernels.get(call.kernel)
        if kernel is None or kernel.negates is None or len(call.arguments) != 2:
            return None
        source, target = (call.arguments[i] for i in kernel.negates)
        if not (isinstance(source, ir.Var) and isinstance(target, ir.Var)):
            return None
        return source if self.origin(target) == self.origin(var) else None

    def stored_by(self, call: ir.CallKernel, point: int, var: ir.Var, depth: int) -> Hashable | None:
        """A key for what a kernel stores in the memory of `var`; None where it is not known."""
        kernel = self.kernels.get(call.kernel)
        if kernel is None or not self.points_to.regions_of(var) & self.effects[point].must_defs:
            return None
        inputs: list[ir.Operand] = []
        outputs: list[int] = []
        for position, (parameter, argument) in enumerate(
            zip(kernel.parameters, call.arguments, strict=False)
        ):
            if isinstance(parameter, ir.KernelBuffer) and parameter.writes:
                if parameter.reads:
                    return None
                if isinstance(argument, ir.Var) and self.origin(argument) == self.origin(var):
                    outputs.append(position)
            else:
                inputs.append(argument)
        keys = self.keys(inputs, point, depth) if len(outputs) == 1 else None
        return None if keys is None else (call.kernel, outputs[0], keys)

    def made_by(self, made: ir.Instruction, depth: int) -> Hashable | None:
        """A key for what an operator or kernel makes anew; None where it is not known."""
        start = self.cfg.starts[made.var]
        if isinstance(made, ir.CallOperator) and made.name in _PLAIN:
            keys = self.keys(made.arguments, start, depth)
            return None if keys is None else (made.name, keys)
        if isinstance(made, ir.CallTIR) and len(made.outputs) == 1 and set(made.inplace) <= {None}:
            keys = self.keys(made.inputs, start, depth)
            return None if keys is None else (made.kernel, made.outputs, keys)
        return None

    def keys(self, operands: Sequence[ir.Operand], point: int, depth: int) -> tuple[Hashable, ...] | None:
        """Keys for the values of operands in front of `point`; None where one is not known."""
        found: list[Hashable] = []
        for operand in operands if depth < _DEEPEST else ():
            match operand:
                case ir.Var():
                    value = self.value(operand, point, depth + 1)
                    found.append((value.key, value.negated))
                case ir.ConstantTensor(values=None):
                    found.append(id(operand))
                case ir.ConstantTensor() | ir.ShapeValue():
                    found.append(operand)
                case ir.Scalar(value=value) if value is not None:
                    found.append(value)
        return tuple(found) if len(found) == len(operands) else None

    def origin(self, var: ir.Var) -> Hashable:
        """The variable, or the field of one, or the constant, that a variable is another name of."""
        *_, (operand, path) = other_names(var, self.cfg.definitions, views=True)
        if isinstance(operand, ir.ConstantTensor):
            return operand
        if not isinstance(operand, ir.Var):
            return var
        return (operand, path) if path else operand

    def last_write(self, var: ir.Var, point: int) -> int:
        """The last point on some path to `point` that may write what `var` holds; -1 where there is none."""
        around = self.paths[point]
        return next((w for w in self.writers(var, point) if consistent(self.paths[w] | around)), -1)

    def writers(self, var: ir.Var, point: int) -> Iterator[int]:
        """The points before `point`, from the last on, that may write what `var` holds."""
        family = self.points_to.family(self.points_to.regions_of(var))
        for earlier in range(point - 1, -1, -1):
            if self.points_to.resolve(self.effects[earlier].changes) & family:
                yield earlier

    def sources(self, var: ir.Var, point: int) -> frozenset[Hashable]:
        """All that the value of `var` in front of `point` may depend on."""
        found: dict[Hashable, None] = {}
        pending = [var]
        while pending:
            one = pending.pop()
            origin = self.origin(one)
            if origin in found:
                continue
            found[origin] = None
            inputs = self.inputs(origin, one, point)
            for operand in inputs:
                if isinstance(operand, ir.Var):
                    pending.append(operand)
                elif isinstance(operand, ir.Scalar) and operand.value is not None:
                    found.update(dict.fromkeys(operand.value.symbols))
        return frozenset(found)

    def inputs(self, origin: Hashable, var: ir.Var, point: int) -> Iterator[ir.Operand]:
        """The operands of what binds `origin`, or writes the memory of its alias `var` before `point`."""
        made = self.cfg.definitions.get(origin) if isinstance(origin, ir.Var) else None
        if made is not None and not isinstance(made, ir.AllocTensor):
            yield from operands_of(made)
        if isinstance(made, ir.If):
            yield from (made.then.result, made.otherwise.result)
        for number in self.writers(var, point):
            writer = self.cfg.points[number].instruction
            yield from () if writer is None else operands_of(writer)


def _identifier(name: str) -> str:
    plain = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)
    return plain if plain.isidentifier() else f"_{plain}"


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
    cfg: ControlFlowGraph, kernels: Mapping[str, ir.Kernel], tests: BranchTests = NO_TESTS
) -> FunctionFacts:
    """The facts at every point of a function; `tests` are those of its Ifs that are no size conditions."""
    problem = _FactProblem(cfg, kernels, tests)
    before = [*problem.before_points()]
    entry = extent_facts(e for param in cfg.function.params for e in extents_of(param.type))
    return FunctionFacts(before=before, entry=entry, definitions=problem.definitions, tests=problem.tests)


_PURE = (ir.Alias, ir.AllocTensor, ir.CallOperator, ir.CallTIR, ir.MakeTuple, ir.TakeField, ir.View)
_MOST_RELATIONS = 24
"""The relations of a fact behind an If up to which it is kept."""


class _FactProblem:
    def __init__(self, cfg: ControlFlowGraph, kernels: Mapping[str, ir.Kernel], opaque: BranchTests) -> None:
        self.cfg, self.kernels, self.opaque = cfg, kernels, opaque
        self.tests: dict[int, Condition] = {}
        self.compared: dict[Hashable, Sequence[Condition]] = {}
        self.definitions: dict[str, Expr] = {}
        self.counted: dict[ir.Operand, TensorType | None] = {}
        scalars = {n for n, o in cfg.function.symbols.items() if o is ir.Origin.SCALAR}
        self.is_nonnegative = cache(partial(is_nonnegative, signed=scalars))

    @cached_property
    def needed(self) -> frozenset[ir.Var]:
        """All that results and effects need; TVM drops other calls and allocations with their checks."""
        found: set[ir.Var] = set()
        for point in reversed(self.cfg.points):
            made = point.instruction
            if made is None or not self.is_pure(made) or made.var in found:
                found.update(point.uses)
        return frozenset(found)

    def is_pure(self, made: ir.Instruction) -> bool:
        """True if TVM drops an instruction whose result nothing needs, as a kernel that only checks."""
        if not isinstance(made, ir.CallKernel) or made.by_symbol or made.kernel not in self.kernels:
            return isinstance(made, _PURE)
        kernel = self.kernels[made.kernel]
        writes = (isinstance(one, ir.KernelBuffer) and one.writes for one in kernel.parameters)
        return not any((*kernel.others, *writes))

    def before_points(self) -> Iterator[Facts]:
        """Yield the facts in front of each point, in order."""
        state = Facts()
        outside: list[Facts] = []  # by open If: in front of its blocks
        ends: list[Facts] = []  # by If in whose else-block it is: at the end of its then-block
        for index, point in enumerate(self.cfg.points):
            yield state
            told = _TELLING.get(type(point.instruction))
            if told is not None:
                state = told(self, point.instruction, state)
            elif point.kind is PointKind.BRANCH:
                outside.append(state)
                state = self.inside(index, state, then=True)
            elif point.kind is PointKind.ELSE:
                ends.append(state)
                state = self.inside(point.branch, outside[-1], then=False)
            elif point.kind is PointKind.JOIN:
                state = self.joined(point.branch, outside.pop(), ends.pop(), state)

    def behind_call(self, call: ir.CallKernel | ir.CallTIR, facts: Facts) -> Facts:
        """Add what a kernel compares on entry, and what it asserts."""
        kernel = self.kernels.get(call.kernel)
        if kernel is None or (self.is_pure(call) and call.var not in self.needed):
            return facts
        arguments = arguments_of(call)
        key = (call.kernel, *[id(a.type) if type(a) is ir.Var else a for a in arguments])
        compared = self.compared.get(key)  # equal types are mostly one, and to hash them takes long
        if compared is None:
            compared = [c.substitute(self.definitions) for c in kernel_facts(kernel, arguments)]
            self.compared[key] = compared
        return facts.with_calls(compared).with_guards(self.parts(asserted(kernel, arguments)))

    def behind_allocation(
        self, made: ir.AllocFresh | ir.AllocStorage | ir.AllocTensor, facts: Facts
    ) -> Facts:
        """Nothing of the size of what was reserved is negative."""
        if made.var not in self.needed:
            return facts
        sizes = (made.size,) if isinstance(made, ir.AllocStorage) else made.shape or ()
        doubted = [size for size in sizes if size is not None and not self.is_nonnegative(size)]
        return facts.with_calls([ge(size.substitute(self.definitions), 0) for size in doubted])

    def behind_cast(self, cast: ir.MatchCast, facts: Facts) -> Facts:
        reading = read_cast(cast)
        for name, value in reading.definitions.items():
            self.definitions[name] = value.substitute(self.definitions)
        return facts.with_guards([c.substitute(self.definitions) for c in reading.facts + self.bound(cast)])

    def behind_packed(self, call: ir.CallPacked, facts: Facts) -> Facts:
        counts = call.contract.counts
        if counts is not None and counts < len(call.arguments):
            self.counted[call.var] = tensor_type(call.arguments[counts])
        return facts

    def bound(self, cast: ir.MatchCast) -> tuple[Condition, ...]:
        """At most all elements are those that a packed function chose, whose number `cast` names."""
        counted, chosen = self.counted.get(cast.source), tuple(extents_of(cast.target))
        if counted is None or counted.numel is None or not {e.as_symbol for e in chosen[-1:]} & cast.defines:
            return ()
        return (le(chosen[-1], counted.numel),) if all(row.as_constant for row in chosen[:-1]) else ()

    def parts(self, conditions: Iterable[Condition]) -> list[Condition]:
        """Conditions in symbols of the parameters, as conjuncts."""
        return [part for one in conditions for part in _parts(one.substitute(self.definitions))]

    def inside(self, branch: int, state: Facts, *, then: bool) -> Facts:
        """The facts at the start of a block of an If."""
        instruction = self.cfg.points[branch].instruction
        condition = instruction.condition if isinstance(instruction, ir.If) else None
        test = self.opaque.read.get(branch) if condition is None else condition.substitute(self.definitions)
        if test is None:
            return state
        self.tests[branch] = test
        return state.with_guards(_parts(test if then else negate(test)))

    def joined(self, branch: int, outside: Facts, then: Facts, otherwise: Facts) -> Facts:
        """The facts behind an If: those in front of it, and that those of one of its blocks hold."""
        test, known = self.tests.get(branch), len(outside.guards)
        first, second = conjunction(then.guards[known:]), conjunction(otherwise.guards[known:])
        if test is not None and (first, second) == (test, negate(test)):
            return outside
        either = disjunction((first, second))
        large = sum(1 for _ in either.relations) > _MOST_RELATIONS
        return outside if large else outside.with_guards(_parts(either))


_TELLING: Mapping[type | None, Callable[[_FactProblem, Any, Facts], Facts]] = {
    ir.AllocFresh: _FactProblem.behind_allocation,
    ir.AllocStorage: _FactProblem.behind_allocation,
    ir.AllocTensor: _FactProblem.behind_allocation,
    ir.Assert: lambda own, i, facts: facts.with_guards(own.parts([i.condition] if i.condition else [])),
    ir.CallKernel: _FactProblem.behind_call,
    ir.CallTIR: _FactProblem.behind_call,
    ir.CallPacked: _FactProblem.behind_packed,
    ir.MatchCast: _FactProblem.behind_cast,
}
"""What is known behind an instruction, by type."""


def _parts(condition: Condition) -> tuple[Condition, ...]:
    """`condition` as conjuncts, without what always holds."""
    return tuple(part for part in condition.conjuncts if part.as_bool is not True)


def extent_facts(extents: Iterable[Expr]) -> tuple[Condition, ...]:
    """The facts that extents are not negative; those of a bare symbol, which nobody doubts, are left out."""
    facts = dict.fromkeys(ge(extent, 0) for extent in dict.fromkeys(extents) if extent.as_symbol is None)
    return tuple(fact for fact in facts if fact.as_bool is None)

"""Calls written out: a function with the instructions of its callees in place of calls.

A summary says what a callee may write and return; it does not say in which order, where on a storage that it
was handed, or which of its results share memory.  Where that matters the call is written out: the parameters
become aliases of the arguments, the instructions follow with variables and symbols of their own, and the
result is an alias of what the callee returns.  A kill in the callee so drops the handle of the callee only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain, count
from typing import Any, NamedTuple

from symalloc.analysis.argument_binding import bind_function, entry_checks
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.paths import path_conditions
from symalloc.analysis.regions import RegionKind, align
from symalloc.analysis.sets import NO_REGIONS, RegionSet, contains, members
from symalloc.program import ir
from symalloc.program.operands import tensor_type
from symalloc.program.types import TensorType, TupleType
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr, symbol

MOST_UNDER_WAY = 3
"""The number of calls of one function that are written out inside each other."""
MOST_INSTRUCTIONS = 20_000
"""The number of instructions that a function may have for further calls in it to be written out."""
_MOST_NESTED = 64


class CopiedInstruction(NamedTuple):
    """The instruction of a callee that another was copied from, and the calls that lead to it, outermost
    first.
    """

    original: ir.Instruction
    calls: tuple[ir.CallFunction, ...]


class LeftCall(NamedTuple):
    """A call that is not written out, as it stands in the expanded function.

    `repeated` are the variables of the parameters in a call around it of the same function with the same
    sizes, if there is one.
    """

    call: ir.CallFunction
    repeated: tuple[ir.Var, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedFunction:
    """A function with calls written out.

    `copies` tells by the variable of an instruction where it was copied from; `written_out` names the
    functions that calls were written out of.  `left` holds, by variable, the calls that matter and still
    stand there, because of recursion or size.
    """

    function: ir.Function
    copies: Mapping[ir.Var, CopiedInstruction]
    written_out: frozenset[str]
    left: Mapping[ir.Var, LeftCall]

    def original(self, instruction: ir.Instruction) -> ir.Instruction:
        """The instruction of the program that `instruction` of `function` stands for."""
        found = self.copies.get(instruction.var)
        return instruction if found is None else found.original

    def calls_to(self, instruction: ir.Instruction | None) -> tuple[ir.CallFunction, ...]:
        """The calls that lead to an instruction of `function`, outermost first."""
        found = None if instruction is None else self.copies.get(instruction.var)
        return () if found is None else found.calls


def expand_calls(
    program: ir.Program, function: ir.Function, callees: frozenset[str]
) -> ExpandedFunction | None:
    """Write out the calls of `callees` in `function`, those inside callees too; None where there is none."""
    expander = _Expander(program, function, callees)
    body = expander.block(function.body, _Scope({}, {}, ()))
    if not expander.written_out:
        return None
    return ExpandedFunction(
        function=replace(function, body=body, symbols=expander.symbols),
        copies=expander.copies,
        written_out=frozenset(expander.written_out),
        left=expander.left,
    )


class _Scope(NamedTuple):
    """A call under way: what the callee's variables and symbols stand for, and the calls that lead here."""

    variables: dict[ir.Var, ir.Var]
    symbols: Mapping[str, Expr]
    calls: tuple[ir.CallFunction, ...]


class _Expander:
    """Copies block after block."""

    def __init__(self, program: ir.Program, function: ir.Function, callees: frozenset[str]) -> None:
        self.program, self.callees = program, callees
        self.symbols = dict(function.symbols)
        self.copies: dict[ir.Var, CopiedInstruction] = {}
        self.written_out: set[str] = set()
        self.left: dict[ir.Var, LeftCall] = {}
        self.frames: list[tuple[str, Mapping[str, Expr], tuple[ir.Var, ...]]] = []
        self.under_way = Counter([function.name])
        self.count = 0

    def block(self, block: ir.Block, scope: _Scope) -> ir.Block:
        made: list[ir.Instruction] = []
        self.lay_out(block, scope, made)
        return ir.Block(instructions=tuple(made), result=_copied(block.result, scope))

    def lay_out(self, block: ir.Block, scope: _Scope, made: list[ir.Instruction]) -> None:
        """Append the instructions of `block`, calls in them written out."""
        for original in block.instructions:
            self.count += 1
            instruction = self.copy(original, scope)
            if isinstance(instruction, ir.CallFunction) and instruction.name in self.callees:
                self.call(instruction, scope, made)
            else:
                made.append(instruction)

    def copy(self, original: ir.Instruction, scope: _Scope) -> ir.Instruction:
        """The instruction as it stands in the expanded function."""
        changes: dict[str, Any] = {}
        if isinstance(original, ir.If):
            changes = {
                "then": self.block(original.then, scope),
                "otherwise": self.block(original.otherwise, scope),
            }
        if not scope.calls:
            return replace(original, **changes) if changes else original
        for field in fields(original):
            if field.name not in _KEPT and field.name not in changes:
                changes[field.name] = _copied(getattr(original, field.name), scope)
        if isinstance(original, ir.MatchCast):
            names = {old: scope.symbols[old].as_symbol for old in original.defines & scope.symbols.keys()}
            changes["defines"] = frozenset(names.get(old) or old for old in original.defines)
        var = scope.variables[original.var] = _copied_var(original.var, scope)
        self.copies[var] = CopiedInstruction(original, scope.calls)
        return replace(original, var=var, **changes)

    def call(self, call: ir.CallFunction, scope: _Scope, made: list[ir.Instruction]) -> None:
        """Append what `call` does."""
        callee = self.program.functions[call.name]
        deep = self.under_way[call.name] >= MOST_UNDER_WAY or len(scope.calls) >= _MOST_NESTED
        if len(call.arguments) != len(callee.params) or deep or self.count > MOST_INSTRUCTIONS:
            self.left[call.var] = LeftCall(call, self.repeated(call, callee))
            made.append(call)
            return
        self.written_out.add(call.name)
        known = self.copies.get(call.var)
        original = known.original if known and isinstance(known.original, ir.CallFunction) else call
        inner = _Scope({}, self.bindings(call, callee), (*scope.calls, original))
        for param, argument in zip(callee.params, call.arguments, strict=True):
            var = inner.variables[param] = _bound_var(param, argument, inner)
            made.append(ir.Alias(var=var, span=call.span, source=argument))
        for condition in entry_checks(callee, call.arguments, inner.symbols):
            made.append(ir.Assert(var=ir.Var("_", _NOTHING), span=call.span, condition=condition))
        self.under_way[call.name] += 1
        self.frames.append((call.name, inner.symbols, tuple(inner.variables[p] for p in callee.params)))
        self.lay_out(callee.body, inner, made)
        self.frames.pop()
        self.under_way[call.name] -= 1
        result = _copied(callee.body.result, inner)
        made.append(ir.Alias(var=call.var, span=call.span, source=result))

    def repeated(self, call: ir.CallFunction, callee: ir.Function) -> tuple[ir.Var, ...]:
        """The parameters of a call under way of `callee` with the sizes of `call`."""
        bound = bind_function(callee, call.arguments)
        for name, symbols, params in reversed(self.frames):
            if name == call.name and all(symbols.get(one) == value for one, value in bound.items()):
                return params
        return ()

    def bindings(self, call: ir.CallFunction, callee: ir.Function) -> Mapping[str, Expr]:
        """The callee's symbols in those of the caller; what the arguments do not tell gets a new name."""
        bound = bind_function(callee, call.arguments)
        for name, origin in callee.symbols.items():
            if name not in bound:
                fresh = self.unused(name)
                self.symbols[fresh] = origin
                bound[name] = symbol(fresh)
        return bound

    def unused(self, name: str) -> str:
        names = chain((name,), (f"{name}_{number}" for number in count(2)))
        return next(fresh for fresh in names if fresh not in self.symbols)


_NOTHING = TupleType(fields=())
_KEPT = frozenset({"var", "span", "text", "handle", "defines"})


def _copied(value: Any, scope: _Scope) -> Any:
    """A field of an instruction, with variables and symbols replaced."""
    if isinstance(value, ir.Var):
        return scope.variables.get(value, value)
    if isinstance(value, Expr | Condition):
        return value.substitute(scope.symbols)
    if isinstance(value, tuple):
        return tuple([_copied(item, scope) for item in value])
    if is_dataclass(value) and not isinstance(value, ir.ConstantTensor | type):
        parts = {field.name: _copied(getattr(value, field.name), scope) for field in fields(value)}
        return replace(value, **parts)
    return value


def _copied_var(var: ir.Var, scope: _Scope) -> ir.Var:
    return ir.Var(var.name, _copied(var.type, scope))


def _bound_var(param: ir.Var, argument: ir.Operand, scope: _Scope) -> ir.Var:
    """The variable that stands for a parameter: of the argument's own type where that tells the extents.

    On entry they are compared with what is declared.
    """
    given = tensor_type(argument)
    if given is None or given.shape is None or given.dtype is None or not isinstance(param.type, TensorType):
        return _copied_var(param, scope)
    return ir.Var(param.name, given)


# -- the calls that matter ---------------------------------------------------------------------------------


def callees_to_write_out(program: ir.Program, analyses: Mapping[str, FunctionAnalysis]) -> frozenset[str]:
    """The called functions of which a summary does not say all that matters to the memory of a caller.

    They write, keep or return memory that they are given, or leave some of it unread; place tensors on it;
    return storages, results that share memory, or memory that they may not have written; or they call such a
    function with their own parameters, or return what it returns.
    """
    called = {name: [call for _, call in one.cfg.of_type(ir.CallFunction)] for name, one in analyses.items()}
    wanted = {call.name for calls in called.values() for call in calls} & program.functions.keys()
    found = {name for name in wanted if _matters(analyses[name])}
    while more := {name for name in wanted - found if _hands_on(analyses[name], called[name], found)}:
        found |= more
    return frozenset(found)


def _matters(analysis: FunctionAnalysis) -> bool:
    """True where the function itself does to its parameters and results what a summary cannot tell."""
    summary, points_to = analysis.summary, analysis.points_to
    if summary.writes or summary.may_writes or any(entry.must or entry.may for entry in summary.results):
        return True
    if any(r.kind is RegionKind.TENSOR and r.external for r in points_to.regions) or _leaves_unread(analysis):
        return True
    return _captures(analysis) or _shares_results(analysis) or _may_return_unwritten(analysis)


def _leaves_unread(analysis: FunctionAnalysis) -> bool:
    """True where some path reads nothing of a tensor that is given: a summary takes all to be read."""
    points_to, read = analysis.points_to, NO_REGIONS
    for path, effect in zip(path_conditions(analysis.cfg), analysis.effects, strict=True):
        if not path:
            read |= effect.reads | effect.may_reads
    given = (points_to.descendants[number] for leaf in points_to.parameters for number in members(leaf.must))
    return any(not family & read & ~points_to.storages for family in given if family & ~points_to.storages)


def _captures(analysis: FunctionAnalysis) -> bool:
    """True where a parameter is handed to what may keep it; operators that are not lowered do not count."""
    points_to = analysis.points_to
    keepers = (ir.CallPacked, ir.NotUnderstood)
    return any(
        effect.captures and isinstance(point.instruction, keepers) and _is_given(analysis, effect.captures)
        for point, effect in zip(points_to.cfg.points, analysis.effects, strict=True)
    )


def _is_given(analysis: FunctionAnalysis, numbers: RegionSet) -> bool:
    """True if some of the regions may be memory of a parameter."""
    given = analysis.points_to.given
    return any(contains(given, root) for root in analysis.points_to.roots(numbers))


def _shares_results(analysis: FunctionAnalysis) -> bool:
    """True where a storage is among the results, or two of them may be parts of one thing."""
    points_to = analysis.points_to
    seen: set[int] = set()
    for leaf in align(points_to.result, analysis.cfg.function.result_type):
        regions = points_to.resolve(leaf.must | leaf.may)
        roots = points_to.roots(regions)
        if regions & points_to.storages or roots & seen:
            return True
        seen |= roots
    return False


def _may_return_unwritten(analysis: FunctionAnalysis) -> bool:
    """True where a result is memory that not every path is seen to write in full."""
    points_to, paths = analysis.points_to, None
    for target in points_to.result_targets():
        made = points_to.regions[target.region].instruction
        if not isinstance(made, ir.AllocTensor | ir.AllocFresh):
            continue
        paths = paths or path_conditions(analysis.cfg)
        effects = zip(analysis.effects, paths, strict=True)
        if not any(contains(e.must_defs, target.region) and not path for e, path in effects):
            return True
    return False


def _hands_on(analysis: FunctionAnalysis, calls: Sequence[ir.CallFunction], found: set[str]) -> bool:
    """True where a function of `found` is called with parameters, or its result returned."""
    points_to = analysis.points_to
    results = points_to.roots(points_to.regions_of(analysis.cfg.points[-1].operand))
    made = {points_to.regions[root].var for root in results}
    return any(
        call.var in made or any(_is_given(analysis, points_to.regions_of(one)) for one in call.arguments)
        for call in calls
        if call.name in found
    )

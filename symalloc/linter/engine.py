"""Checks a program: every function, callees first; the findings of rules become diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TypeAlias

from symalloc.analysis.argument_binding import bind_function
from symalloc.analysis.call_expansion import ExpandedFunction, callees_to_write_out, expand_calls
from symalloc.analysis.conflicts import ReuseConflicts
from symalloc.analysis.facts import FunctionFacts, branch_tests, facts_of
from symalloc.analysis.feasibility import FeasiblePaths, Possible
from symalloc.analysis.handles import written_zero_offset_views
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse, analyse_variant
from symalloc.analysis.paths import PathCondition
from symalloc.analysis.unwritten_reads import UnwrittenReads
from symalloc.linter.diagnostic import Diagnostic, LintSummary, Report
from symalloc.linter.finding import Finding
from symalloc.linter.fixes import fix_candidates
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.function_prover import (
    FunctionDomains,
    FunctionProver,
    PlacedConstraint,
    Together,
    domain_of,
)
from symalloc.linter.memory_budget import MemoryBudget
from symalloc.linter.sites.site import FunctionContext, RelationSite
from symalloc.linter.unproved_indices import UnprovedIndices
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph, functions_as_values
from symalloc.program.ir import (
    Block,
    CallFunction,
    CallKernel,
    CallTIR,
    Function,
    Kernel,
    KernelBuffer,
    KernelScalar,
    Origin,
    Program,
    TupleValue,
    Var,
)
from symalloc.program.operands import TypeNumbering, extent_pairs
from symalloc.program.types import ScalarType, TensorType, TupleType
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.rulebook.book import Rulebook
from symalloc.size.condition import Condition, disjunction, negate
from symalloc.size.expr import Expr, symbol

PossibleIn: TypeAlias = Callable[[Function, FunctionFacts], Possible]
"""Return what judges whether conditions can hold together in a function."""


class FunctionContexts:
    """The contexts of all functions of a program.

    `plain` are those of the functions as they stand, callees first.  `expanded` are those of functions with
    calls written out, by name.  Private functions whose instructions stand in these for all that call them
    are `seen_in_callers`: what is wrong with the order of their writes and reads shows there.
    """

    def __init__(
        self,
        program: Program,
        possible: PossibleIn,
        indices: UnprovedIndices,
        budget: int | None = None,
    ) -> None:
        """Analyse `program`; `budget`: the most bytes that a call may hold at once."""
        self.program, self.possible, self.numbers = program, possible, TypeNumbering()
        self.indices = indices
        self.analyses = analyse(program)
        self._budget = (
            None if budget is None else MemoryBudget(limit=budget, analyses=self.analyses, known=self._known)
        )
        self.summaries = {name: analysis.summary for name, analysis in self.analyses.items()}
        self.plain = [self._context(name, analysis) for name, analysis in self.analyses.items()]
        self._callees = callees_to_write_out(program, self.analyses)
        self.expanded: dict[str, FunctionContext] = {}
        self._seen: set[str] = set()
        self._in_part: set[str] = set()
        if self._callees:
            self._expand()
            self.plain = [self._marked(context) for context in self.plain]
            self.expanded = {name: self._marked(context) for name, context in self.expanded.items()}

    def _context(
        self, name: str, analysis: FunctionAnalysis, expansion: ExpandedFunction | None = None
    ) -> FunctionContext:
        points_to, effects = analysis.points_to, analysis.effects
        function = self.program.functions[name] if expansion is None else expansion.function
        tests = branch_tests(points_to, effects, self.program.kernels)
        facts = facts_of(analysis.cfg, self.program.kernels, self.numbers, tests)
        paths = FeasiblePaths(analysis.cfg, facts, tests, self.possible(function, facts))
        return FunctionContext(
            program=self.program,
            function=function,
            analysis=analysis,
            facts=facts,
            numbers=self.numbers,
            conflicts=ReuseConflicts(points_to, effects, paths),
            unwritten=UnwrittenReads(points_to, effects, analysis.content, paths),
            written_views=written_zero_offset_views(points_to, effects),
            summaries=self.summaries,
            expansion=expansion,
            indices=self.indices,
            budget=self._budget,
        )

    def _known(self, name: str, path: PathCondition, bound: Var | None) -> Sequence[Condition]:
        """The conditions that hold in a function, on `path`, in front of `bound`, or at its end."""
        context = next(one for one in self.plain if one.function.name == name)
        cfg = context.analysis.cfg
        point = len(cfg.points) - 1 if bound is None else cfg.starts[bound]
        return context.paths.conditions(context.paths.whole(path, point), point)

    def _expand(self) -> None:
        """Write calls out, in functions that others call last."""
        values = functions_as_values(analysis.cfg for analysis in self.analyses.values())
        inner = {n for n in self._callees if self.program.functions[n].private and n not in values}
        for name in (*(n for n in self.analyses if n not in inner), *reversed(list(self.analyses))):
            if name in self.expanded or name in self._seen:
                continue
            self._seen |= self._written_out(name) & inner - {name}
        expansions = (context.expansion for context in self.expanded.values())
        left = {one.call.name for found in expansions if found is not None for one in found.left.values()}
        for name in self._seen & left:  # recursion, or very large
            self._written_out(name)
        self._in_part = self._seen & left
        self._seen -= left

    def _written_out(self, name: str) -> frozenset[str]:
        """Write the calls of a function out; return the functions of which instructions stand there."""
        expansion = self._expansion(name)
        if expansion is None:
            return frozenset()
        self.expanded[name] = self._variant(name, expansion)
        return expansion.written_out

    def _expansion(self, name: str) -> ExpandedFunction | None:
        """The function with its calls written out; None where none needs to be."""
        calls = self.analyses[name].cfg.of_type(CallFunction)
        if not any(call.name in self._callees for _, call in calls):
            return None
        return expand_calls(self.program, self.program.functions[name], self._callees)

    def _variant(self, name: str, expansion: ExpandedFunction) -> FunctionContext:
        left = frozenset(expansion.left)
        analysis = analyse_variant(self.program, expansion.function, self.analyses, left)
        return self._context(name, analysis, expansion)

    def _marked(self, context: FunctionContext) -> FunctionContext:
        name = context.function.name
        return replace(
            context,
            is_expanded=name in self.expanded,
            seen_in_callers=name in self._seen,
            seen_in_part=name in self._in_part,
        )


COUNTED_IN_CALLERS = "held-memory"
"""The kind of site at which callers are asked about all that their callees need, too."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallObligation:
    """A condition over symbols of a callee's parameters that rules `finding` out.

    `bounded`: the callee declares bounds that do so as well.
    """

    finding: Finding
    condition: Condition
    bounded: bool = False


@dataclass(slots=True)
class _CheckedCallee:
    """A checked function with its obligations.

    `answers` holds by finding what its calls gave: None where a call meets the obligation, else the finding
    there.
    """

    obligations: list[CallObligation]
    answers: dict[Finding, list[Finding | None]] = field(default_factory=dict)


class CallChecks:
    """Follows calls from checked functions into callees checked before them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._callees: dict[str, _CheckedCallee] = {}
        self._open: set[str] = set()  # functions with calls that are not known
        self._any_private = any(function.private for function in program.functions.values())

    def enter(self, one: FunctionCheck) -> None:
        """Take in a checked function; add to its findings those of its calls."""
        cfg = one.context.analysis.cfg
        if self._any_private:
            self._open |= functions_as_values((cfg,))
        for point, call in cfg.of_type(CallFunction):
            self._call(one, call, point)
        self._callees[one.context.function.name] = _CheckedCallee(_obligations(one))

    def _call(self, one: FunctionCheck, call: CallFunction, point: int) -> None:
        callee = self._callees.get(call.name)
        if callee is None:
            self._open.add(call.name)  # recursion: its needs were not known when this call was checked
            return
        bound = bind_function(self.program.functions[call.name], call.arguments)
        for obligation in callee.obligations:
            answers = callee.answers.setdefault(obligation.finding, [])
            answers.append(_answer(one, call, point, obligation, bound))

    def discharged(self) -> frozenset[Finding]:
        """The findings of private functions that all calls rule out."""
        known: dict[Finding, bool] = {}
        for name in reversed(self._callees):  # callers first
            function = self.program.functions[name]
            for finding, answers in self._callees[name].answers.items():
                met = all(answer is None or known.get(answer, False) for answer in answers)
                known[finding] = function.private and name not in self._open and met
        return frozenset(finding for finding, met in known.items() if met)


def _obligations(one: FunctionCheck) -> list[CallObligation]:
    """Collect the findings of a function that the shapes of its parameters decide."""
    given = {
        name
        for param in one.context.function.params
        for _, extent in extent_pairs(param.type, param.type)
        for name in (extent.as_symbol,)
        if name is not None
    }
    found = []
    bounded = [dependent.finding for dependent in one.bound_dependent]
    for number, finding in enumerate((*one.findings, *bounded)):
        if finding.verdict is not Verdict.RUNTIME_CHECK or finding.guarded or finding.site.uncertainty:
            continue
        if finding.site.kind == COUNTED_IN_CALLERS:
            continue
        condition = _needed(finding)
        if condition is not None and condition.symbols <= given:
            within = number >= len(one.findings)
            found.append(CallObligation(finding=finding, condition=condition, bounded=within))
    return found


def _needed(finding: Finding) -> Condition | None:
    """The condition that rules a finding out: its constraint, or that its place is not reached."""
    if finding.asked is None:
        return None
    wanted = finding.precondition or finding.asked.constraint
    known = finding.context.function.symbols.keys()  # what Ifs test otherwise, no caller knows
    facts = (f for f in (*finding.asked.facts.guards, *finding.asked.facts.calls) if f.symbols <= known)
    return disjunction([*(negate(fact) for fact in facts if fact.symbols & wanted.symbols), wanted])


def _answer(
    one: FunctionCheck, call: CallFunction, point: int, obligation: CallObligation, bound: Mapping[str, Expr]
) -> Finding | None:
    """Ask an obligation at a call: None where it is met, else the finding, which the caller then keeps."""
    cause, condition = obligation.finding, obligation.condition
    if cause.asked is None or not condition.symbols <= bound.keys():
        return cause
    known = one.context.facts.definitions
    divisors = (d for d in cause.asked.divisors if d.symbols <= bound.keys())
    asked = PlacedConstraint(
        constraint=condition.substitute(bound).substitute(known),
        facts=one.context.facts.before[point],
        sized=cause.asked.sized,
        divisors=tuple(divisor.substitute(bound).substitute(known) for divisor in divisors),
    )
    proof = one.prover.decide(asked)
    if proof.holds:
        one.summary.count(proof)
        return None
    proof, only_empty = one.prover.explain(asked.constraint, proof)
    if proof.holds:
        one.summary.count(proof)
        return None
    needed = one.prover.needed_bounds(asked.constraint, domain_of(proof))
    if obligation.bounded and not needed and proof.verdict is Verdict.RUNTIME_CHECK:
        return cause  # the bound that the callee declares is reported there
    one.summary.count(proof)
    site = RelationSite(
        kind="call",
        instruction=call,
        relation="callee-precondition-fails",
        texts={"callee": call.name, "condition": str(condition), "rule": cause.rule.name},
        dedup_key=(point, asked.constraint),
    )
    findings = [
        one.finding(rule, site, point, asked=asked, proof=proof, only_empty=only_empty, cause=cause)
        for rule in one.rulebook.by_site("call")
        if rule.relation == site.relation
    ]
    for finding in findings:
        one.keep_unless_bounded(finding, needed)
    return None if needed else findings[0] if findings else cause


def merge_callers(findings: Sequence[Finding]) -> Mapping[Finding, Finding | None]:
    """Changes to findings that stand at an instruction written out in callers.

    Of those of one rule at one instruction those of one place are kept: a certain one goes before an
    uncertain one, an error before a warning, the function itself before a caller.  The kept one names the
    calls that lead to the others; these become None.
    """
    found: dict[tuple[str, ir.Var], list[Finding]] = {}
    for finding in findings:
        if finding.original is not None:
            found.setdefault((finding.rule.id, finding.original.var), []).append(finding)
    changes: dict[Finding, Finding | None] = {}
    for same in found.values():
        if len(same) > 1 and any(finding.calls for finding in same):
            changes |= _merged(same)
    return changes


def _merged(same: Sequence[Finding]) -> Mapping[Finding, Finding | None]:
    first = min(same, key=_rank)
    rest = [finding for finding in same if finding.site.instruction is not first.site.instruction]
    return {**dict.fromkeys(rest), first: replace(first, further_calls=tuple(_outermost(rest)))}


def _outermost(findings: Iterable[Finding]) -> Iterable[ir.CallFunction]:
    return (finding.calls[0] for finding in findings if finding.calls)


def _rank(finding: Finding) -> tuple[object, ...]:
    severity = finding.severity
    return (
        finding.site.uncertainty is not None,
        severity is None,
        0 if severity is None else severity.rank,
        len(finding.calls),
    )


SITES = ("kernel-store", "kernel-load")
"""The kinds of sites that are asked about there."""


def lone_kernels(
    program: Program, graphs: Iterable[ControlFlowGraph], indices: UnprovedIndices
) -> Program | None:
    """A program of functions that each call one kernel which nothing calls; None where none needs a look.

    `graphs` are those of the functions of `program`.
    """
    called: set[str] = set()
    for cfg in graphs:
        calls: Sequence[tuple[int, CallKernel | CallTIR]] = cfg.of_type(CallKernel, CallTIR)
        called.update(call.kernel for _, call in calls)
    functions = {
        name: _caller(kernel)
        for name, kernel in program.kernels.items()
        if name not in called and name not in program.functions and indices.of(name)
    }
    if not functions:
        return None
    return Program(name=program.name, functions=functions, kernels=program.kernels, stage=program.stage)


def _caller(kernel: Kernel) -> Function:
    """A function with the parameters of `kernel`, which it hands on."""
    params = tuple(map(_param, kernel.parameters))
    nothing = TupleType(fields=())
    call = CallKernel(var=Var("_", nothing), kernel=kernel.name, arguments=params)
    symbols = {name: Origin.DIMENSION for param in params for name in _extents(param)}
    scalars = {p.name: Origin.SCALAR for p in kernel.parameters if isinstance(p, KernelScalar)}
    return Function(
        name=kernel.name,
        params=params,
        body=Block(instructions=(call,), result=TupleValue(())),
        result_type=nothing,
        symbols=scalars | symbols,
    )


def _param(parameter: KernelBuffer | KernelScalar) -> Var:
    if isinstance(parameter, KernelScalar):
        return Var(parameter.name, ScalarType(value=symbol(parameter.name), dtype=None))
    return Var(parameter.name, TensorType(shape=parameter.shape, dtype=parameter.dtype))


def _extents(param: Var) -> Iterator[str]:
    if isinstance(param.type, TensorType):
        yield from (name for extent in param.type.shape or () for name in extent.symbols)


def check(
    program: Program,
    rulebook: Rulebook,
    prover: Prover,
    *,
    assume: Sequence[Condition] = (),
    budget: int | None = None,
) -> Report:
    """Check `program`; findings come in program order.

    A condition of `assume` holds in every function that has all its symbols.  `budget`: the most bytes that
    a call may hold at once, None where that is not asked.
    """
    started = perf_counter()

    def proving(function: Function, facts: FunctionFacts) -> FunctionProver:
        return FunctionProver(prover, FunctionDomains(function, facts, assume))

    def checking(context: FunctionContext) -> FunctionCheck:
        return FunctionCheck(context, rulebook, proving(context.function, context.facts))

    indices = UnprovedIndices(program.kernels, prover)
    contexts = FunctionContexts(program, lambda *one: Together(partial(proving, *one)), indices, budget)
    checks = [checking(context) for context in contexts.plain]
    calls = CallChecks(program)
    for one in checks:
        expanded = contexts.expanded.get(one.context.function.name)
        one.run(expanded=None if expanded is None else checking(expanded))
        calls.enter(one)
    discharged, summary = calls.discharged(), LintSummary()
    for one in checks:
        one.discharge(discharged)
        one.report_declared_bounds()
        summary.add(one.summary)
    summary.data_dependent = indices.data_dependent
    merged = merge_callers([f for one in checks for f in one.findings]) if contexts.expanded else {}
    diagnostics: list[Diagnostic] = []
    for one in checks:
        diagnostics += _diagnostics(one, merged)
    for one in _alone(program, contexts, rulebook, prover):
        summary.add(replace(one.summary, functions=0))
        diagnostics += _diagnostics(one, {})
    summary.seconds = perf_counter() - started
    return Report(diagnostics=tuple(diagnostics), summary=summary)


def _alone(
    program: Program, contexts: FunctionContexts, rulebook: Rulebook, prover: Prover
) -> Iterator[FunctionCheck]:
    """Check the kernels that nothing calls; those that are right for some shapes may be meant for these."""
    rules = Rulebook(rules=tuple(rule for rule in rulebook.rules if rule.site in SITES))
    graphs, indices = (analysis.cfg for analysis in contexts.analyses.values()), contexts.indices
    lone = lone_kernels(program, graphs, indices) if rules.rules else None
    if lone is None:
        return

    def proving(function: Function, facts: FunctionFacts) -> FunctionProver:
        return FunctionProver(prover, FunctionDomains(function, facts, ()))

    for context in FunctionContexts(lone, lambda *one: Together(partial(proving, *one)), indices).plain:
        one = FunctionCheck(context, rules, proving(context.function, context.facts))
        one.run()
        one.findings = [found for found in one.findings if found.verdict is Verdict.ALWAYS_INVALID]
        yield one


def _diagnostics(one: FunctionCheck, merged: Mapping[Finding, Finding | None]) -> Iterable[Diagnostic]:
    for found in sorted(one.findings, key=lambda f: f.point):
        finding = merged.get(found, found)
        diagnostic = None if finding is None else finding.diagnostic(one.prover.prover)
        if finding is not None and diagnostic is not None:
            yield replace(diagnostic, candidates=fix_candidates(finding, one.prover))

"""Checks a program: every function, callees first; the findings of rules become diagnostics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter

from symalloc.analysis.argument_binding import bind_function
from symalloc.analysis.call_expansion import ExpandedFunction, callees_to_write_out, expand_calls
from symalloc.analysis.conflicts import ReuseConflicts
from symalloc.analysis.facts import branch_tests, facts_of
from symalloc.analysis.feasibility import FeasiblePaths
from symalloc.analysis.handles import written_zero_offset_views
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse, analyse_variant
from symalloc.analysis.unwritten_reads import UnwrittenReads
from symalloc.linter.diagnostic import Diagnostic, LintSummary, Report
from symalloc.linter.finding import Finding
from symalloc.linter.fixes import fix_candidates
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.function_prover import (
    FunctionProver,
    PlacedConstraint,
    UnprovedIndices,
    domain_of,
)
from symalloc.linter.sites.site import FunctionContext, ProgramContext, Site
from symalloc.program import ir
from symalloc.program.control_flow import ControlFlowGraph, functions_as_values
from symalloc.program.ir import (
    Block,
    CallFunction,
    CallKernel,
    CallTIR,
    Function,
    Kernel,
    KernelScalar,
    Origin,
    Program,
    TupleValue,
    Var,
)
from symalloc.program.operands import extent_pairs
from symalloc.program.types import TupleType, extents_of
from symalloc.prover.prover import Prover
from symalloc.prover.verdict import Verdict
from symalloc.rulebook.book import Rulebook
from symalloc.size.condition import Condition, disjunction, negate
from symalloc.size.expr import Expr


def program_context(shared: ProgramContext) -> ProgramContext:
    """Analyse functions, and write calls out where summaries do not say enough of what they call."""
    analyses = analyse(shared.program)
    shared.summaries.update((name, analysis.summary) for name, analysis in analyses.items())
    for name, analysis in analyses.items():
        shared.functions[name] = _context(shared, shared.program.functions[name], analysis)
    _expand(shared, analyses)
    return shared


def _context(
    shared: ProgramContext,
    function: Function,
    analysis: FunctionAnalysis,
    expansion: ExpandedFunction | None = None,
) -> FunctionContext:
    """The context of a function, as it stands or with calls written out."""
    points_to, effects, kernels = analysis.points_to, analysis.effects, shared.program.kernels
    tests = branch_tests(points_to, effects, kernels)
    facts = facts_of(analysis.cfg, kernels, tests)
    prover = FunctionProver(shared.prover, function, facts, shared.assume)
    paths = FeasiblePaths(analysis.cfg, facts, tests, prover.possible)
    return FunctionContext(
        shared=shared,
        function=function,
        analysis=analysis,
        facts=facts,
        prover=prover,
        conflicts=ReuseConflicts(points_to, effects, paths),
        unwritten=UnwrittenReads(points_to, effects, analysis.content, paths),
        written_views=written_zero_offset_views(points_to, effects),
        expansion=expansion,
    )


def _expand(shared: ProgramContext, analyses: Mapping[str, FunctionAnalysis]) -> None:
    """Write calls out, in functions that others call last."""
    functions, seen = shared.program.functions, shared.seen_in_callers
    callees = callees_to_write_out(shared.program, analyses)
    if not callees:
        return
    values = functions_as_values(shared.graphs)
    inner = {name for name in callees if functions[name].private and name not in values}
    for name in (*(n for n in analyses if n not in inner), *reversed(list(analyses))):
        if name not in shared.expanded and name not in seen:
            seen |= _write_out(shared, name, callees, analyses) & inner - {name}
    expansions = (context.expansion for context in shared.expanded.values())
    left = {one.call.name for found in expansions if found is not None for one in found.left.values()}
    shared.seen_in_part.update(seen & left)
    for name in shared.seen_in_part:  # recursion, or very large
        _write_out(shared, name, callees, analyses)
    seen -= left


def _write_out(
    shared: ProgramContext, name: str, callees: frozenset[str], analyses: Mapping[str, FunctionAnalysis]
) -> frozenset[str]:
    """Write out the calls of a function that need it; return the functions whose instructions stand there."""
    program = shared.program
    needed = any(call.name in callees for _, call in analyses[name].cfg.of_type(CallFunction))
    expansion = expand_calls(program, program.functions[name], callees) if needed else None
    if expansion is None:
        return frozenset()
    analysis = analyse_variant(program, expansion.function, analyses, frozenset(expansion.left))
    shared.expanded[name] = _context(shared, expansion.function, analysis, expansion)
    return expansion.written_out


COUNTED_IN_CALLERS = "held-memory"
"""The kind of site at which callers are asked about all that their callees need, too."""


class CallChecks:
    """Follows calls from checked functions into callees checked before them.

    Obligations are conditions over symbols of a callee's parameters that rule a finding of it out.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._obligations: dict[str, dict[Finding, Condition]] = {}
        # by finding of a callee what its calls gave: None where one meets the obligation, else a finding
        self._answers: defaultdict[Finding, list[Finding | None]] = defaultdict(list)
        self._open: set[str] = set()  # functions with calls that are not known
        self._any_private = any(function.private for function in program.functions.values())

    def enter(self, one: FunctionCheck) -> None:
        """Take in a checked function; add to its findings those of its calls."""
        cfg = one.context.analysis.cfg
        if self._any_private:
            self._open |= functions_as_values((cfg,))
        for point, call in cfg.of_type(CallFunction):
            obligations = self._obligations.get(call.name)
            if obligations is None:
                self._open.add(call.name)  # recursion: its needs were not known when this call was checked
            elif obligations:
                bound = bind_function(self.program.functions[call.name], call.arguments)
                for finding, condition in obligations.items():
                    self._answers[finding].append(_answer(one, call, point, finding, condition, bound))
        self._obligations[one.context.function.name] = _obligations(one)

    def discharged(self) -> frozenset[Finding]:
        """The findings of private functions that all calls rule out."""
        known: dict[Finding, bool] = {}
        for name in reversed(self._obligations):  # callers first
            closed = self.program.functions[name].private and name not in self._open
            for finding in self._obligations[name].keys() & self._answers.keys():
                answers = self._answers[finding]
                known[finding] = closed and all(a is None or known.get(a, False) for a in answers)
        return frozenset(finding for finding, met in known.items() if met)


def _obligations(one: FunctionCheck) -> dict[Finding, Condition]:
    """Collect the findings of a function that the shapes of its parameters decide."""
    given = {
        name
        for param in one.context.function.params
        for _, extent in extent_pairs(param.type, param.type)
        for name in (extent.as_symbol,)
        if name is not None
    }
    found = {}
    for finding in (*one.findings, *one.bound_dependent):
        if finding.verdict is not Verdict.RUNTIME_CHECK or finding.guarded or finding.site.uncertainty:
            continue
        condition = None if finding.site.kind == COUNTED_IN_CALLERS else _needed(finding)
        if condition is not None and condition.symbols <= given:
            found[finding] = condition
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
    one: FunctionCheck,
    call: CallFunction,
    point: int,
    cause: Finding,
    condition: Condition,
    bound: Mapping[str, Expr],
) -> Finding | None:
    """Ask an obligation at a call: None where it is met, else the finding, which the caller then keeps."""
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
    proof, only_empty = one.prover.decide(asked), False
    if not proof.holds:
        proof, only_empty = one.prover.explain(asked, proof)
    if proof.holds:
        one.summary.count(proof)
        return None
    proof = one.prover.completed(proof)
    needed = one.prover.needed_bounds(asked.constraint, domain_of(proof))
    if cause.needed and not needed and proof.verdict is Verdict.RUNTIME_CHECK:
        return cause  # the bound that the callee declares is reported there
    one.summary.count(proof)
    site = Site(
        kind="call",
        instruction=call,
        relation="callee-precondition-fails",
        texts={"callee": call.name, "condition": str(condition), "rule": cause.rule.name},
        dedup_key=(point, asked.constraint),
    )
    more = {"asked": asked, "proof": proof, "only_empty": only_empty, "cause": cause, "needed": needed}
    rules = [rule for rule in one.rulebook.by_site("call") if rule.relation == site.relation]
    findings = [one.finding(rule, site, point, **more) for rule in rules]
    for finding in findings:
        one.keep(finding)
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
    rest = [finding for finding in same if finding.instruction is not first.instruction]
    outermost = tuple(finding.calls[0] for finding in rest if finding.calls)
    return {**dict.fromkeys(rest), first: replace(first, further_calls=outermost)}


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
    params = tuple(Var(parameter.name, parameter.type) for parameter in kernel.parameters)
    nothing = TupleType(fields=())
    call = CallKernel(var=Var("_", nothing), kernel=kernel.name, arguments=params)
    extents = (extent for param in params for extent in extents_of(param.type))
    symbols = {name: Origin.DIMENSION for extent in extents for name in extent.symbols}
    scalars = {p.name: Origin.SCALAR for p in kernel.parameters if isinstance(p, KernelScalar)}
    return Function(
        name=kernel.name,
        params=params,
        body=Block(instructions=(call,), result=TupleValue(())),
        result_type=nothing,
        symbols=scalars | symbols,
    )


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
    indices = UnprovedIndices(program.kernels, prover)
    shared = program_context(
        ProgramContext(program=program, prover=prover, indices=indices, assume=assume, budget=budget)
    )
    checks = [FunctionCheck(context, rulebook) for context in shared.functions.values()]
    calls = CallChecks(program)
    for one in checks:
        expanded = shared.expanded.get(one.context.function.name)
        one.run(expanded=None if expanded is None else FunctionCheck(expanded, rulebook))
        calls.enter(one)
    discharged, summary = calls.discharged(), LintSummary()
    for one in checks:
        one.discharge(discharged)
        one.report_declared_bounds()
        summary.add(one.summary)
    summary.data_dependent = indices.data_dependent
    merged = merge_callers([f for one in checks for f in one.findings]) if shared.expanded else {}
    diagnostics = [found for one in checks for found in _diagnostics(one, merged)]
    rules = Rulebook(rules=tuple(rule for rule in rulebook.rules if rule.site in SITES))
    lone = lone_kernels(program, shared.graphs, indices) if rules.rules else None
    if lone is not None:  # where they are right for some shapes they may be meant for these
        found = check(lone, rules, prover)
        diagnostics += (one for one in found if one.verdict is Verdict.ALWAYS_INVALID)
        summary.add(replace(found.summary, functions=0, data_dependent=0))
    summary.seconds = perf_counter() - started
    return Report(diagnostics=tuple(diagnostics), summary=summary)


def _diagnostics(one: FunctionCheck, merged: Mapping[Finding, Finding | None]) -> Iterator[Diagnostic]:
    for found in sorted(one.findings, key=lambda f: f.point):
        finding = merged.get(found, found)
        diagnostic = None if finding is None else finding.diagnostic
        if finding is not None and diagnostic is not None:
            yield replace(diagnostic, candidates=fix_candidates(finding))

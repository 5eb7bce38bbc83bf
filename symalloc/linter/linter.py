"""The linter: checks programs, callees first, and what was read, file by file, and reports."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from symalloc.analysis.call_expansion import bind_function, expand_calls
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse, analyse_variant
from symalloc.analysis.kernels.index_bounds import unknown_indices
from symalloc.linter.diagnostic import (
    CANNOT_BE_READ,
    Dependent,
    Diagnostic,
    Fix,
    LintSummary,
    Report,
    Severity,
)
from symalloc.linter.fixes import fix_candidates
from symalloc.linter.function_check import FunctionCheck
from symalloc.linter.function_prover import KernelProofs, PlacedConstraint, domain_of
from symalloc.linter.lint_options import LintOptions, matches_file, parse_assumptions
from symalloc.linter.sites.site import NOT_VERIFIED, Finding, FunctionContext, ProgramContext, Site
from symalloc.linter.suppressions import apply_suppressions, find_suppressions
from symalloc.program import ir
from symalloc.program.control_flow import functions_as_values
from symalloc.program.operands import extent_pairs
from symalloc.program.reading import AS_IS, FileResult, ReadProblem
from symalloc.program.span import NumberedSpan, Source, Span
from symalloc.program.types import TupleType, extents_of, no_collections
from symalloc.prover.domain import Verdict
from symalloc.prover.prover import Prover
from symalloc.rulebook.rule import Rulebook, load_rules
from symalloc.size.condition import Condition, disjunction, negate
from symalloc.size.expr import Expr, symbol


def _analyse(shared: ProgramContext) -> None:
    """Analyse functions, and write the calls in them out."""
    analyses = analyse(shared.program, shared.kernels.coverage)
    shared.summaries.update((name, analysis.summary) for name, analysis in analyses.items())
    for name, analysis in analyses.items():
        shared.functions[name] = FunctionContext(shared, shared.program.functions[name], analysis)
    _expand(shared, analyses)


def _expand(shared: ProgramContext, analyses: Mapping[str, FunctionAnalysis]) -> None:
    """Write calls out, in functions that others call last."""
    functions, seen = shared.program.functions, shared.seen_in_callers
    called = {call.name for cfg in shared.graphs for _, call in cfg.of_type(ir.CallFunction)}
    if called.isdisjoint(functions):
        return
    values = functions_as_values(shared.graphs)
    inner = {name for name in called & functions.keys() if functions[name].private and name not in values}
    for name in (*(n for n in analyses if n not in inner), *reversed(list(analyses))):
        if name not in shared.expanded and name not in seen:
            seen |= _write_out(shared, name, analyses) & inner - {name}
    expansions = (context.expansion for context in shared.expanded.values())
    left = {one.call.name for found in expansions if found is not None for one in found.left.values()}
    shared.seen_in_part.update(seen & left)
    for name in shared.seen_in_part:  # recursion, or very large
        _write_out(shared, name, analyses)
    seen -= left


def _write_out(shared: ProgramContext, name: str, analyses: Mapping[str, FunctionAnalysis]) -> frozenset[str]:
    """Write out the calls of a function; return the functions whose instructions stand there."""
    program, calls = shared.program, analyses[name].cfg.of_type(ir.CallFunction)
    expansion = expand_calls(program, program.functions[name]) if calls else None
    if expansion is None:
        return frozenset()
    analysis = analyse_variant(program, expansion.function, analyses, frozenset(expansion.left))
    shared.expanded[name] = FunctionContext(shared, expansion.function, analysis, expansion)
    return expansion.written_out


COUNTED_IN_CALLERS = "held-memory"
"""The kind of site at which callers are asked about all that their callees need, too."""


class CallChecks:
    """Follows calls from checked functions into callees checked before them.

    Obligations are conditions over symbols of a callee's parameters that rule a finding of it out.
    """

    def __init__(self, shared: ProgramContext) -> None:
        self.shared = shared
        self._obligations: dict[str, dict[Finding, Condition]] = {}
        # by finding of a callee what its calls gave: None where one meets the obligation, else a finding
        self._answers: defaultdict[Finding, list[Finding | None]] = defaultdict(list)
        self._open: set[str] = set()  # functions with calls that are not known

    def enter(self, one: FunctionCheck) -> None:
        """Take in a checked function; add to its findings those of its calls."""
        cfg = one.context.analysis.cfg
        for point, call in cfg.of_type(ir.CallFunction):
            obligations = self._obligations.get(call.name)
            if obligations is None:
                self._open.add(call.name)  # recursion: its needs were not known when this call was checked
            elif obligations:
                bound = bind_function(self.shared.program.functions[call.name], call.arguments)
                for finding, condition in obligations.items():
                    self._answers[finding].append(_answer(one, call, point, finding, condition, bound))
        self._obligations[one.context.function.name] = _obligations(one)

    def discharged(self) -> frozenset[Finding]:
        """The findings of private functions that all calls rule out."""
        known: dict[Finding, bool] = {}
        unknown = self._open | functions_as_values(self.shared.graphs) if self._answers else self._open
        for name in reversed(self._obligations):  # callers first
            closed = self.shared.program.functions[name].private and name not in unknown
            for finding in self._obligations[name].keys() & self._answers.keys():
                answers = self._answers[finding]
                known[finding] = closed and all(a is None or known.get(a, False) for a in answers)
        return frozenset(finding for finding, met in known.items() if met)


def _obligations(one: FunctionCheck) -> dict[Finding, Condition]:
    """Collect the findings of a function that the shapes of its parameters decide."""
    pairs = (pair for param in one.context.function.params for pair in extent_pairs(param.type, param.type))
    given = {extent.as_symbol for extent, _ in pairs}
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
    call: ir.CallFunction,
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
    proof = one.prover.completed(proof, asked.constraint)
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
    rules = [rule for rule in one.rulebook.by_site["call"] if rule.relation == site.relation]
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
    found: defaultdict[tuple[str, ir.Var], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.original is not None:
            found[finding.rule.id, finding.original.var].append(finding)
    changes: dict[Finding, Finding | None] = {}
    for same in found.values():
        if len(same) > 1 and any(finding.calls for finding in same):
            first = min(same, key=_rank)
            rest = [finding for finding in same if finding.instruction is not first.instruction]
            outermost = tuple(finding.calls[0] for finding in rest if finding.calls)
            changes |= {**dict.fromkeys(rest), first: replace(first, further_calls=outermost)}
    return changes


def _rank(finding: Finding) -> tuple[object, ...]:
    rank = len(Severity) if finding.severity is None else finding.severity.rank
    return finding.site.uncertainty is not None, rank, len(finding.calls)


SITES = ("kernel-store", "kernel-load")
"""The kinds of sites that are asked about there."""


def lone_kernels(shared: ProgramContext) -> ir.Program | None:
    """A program of functions that each call one kernel which nothing calls; None where none needs a look."""
    program, taken = shared.program, {*shared.called_kernels, *shared.program.functions}
    unseen = {name: kernel for name, kernel in program.kernels.items() if name not in taken}
    left = {name: kernel for name, kernel in unseen.items() if shared.kernels.unproved(kernel)}
    functions = {name: _caller(kernel) for name, kernel in left.items()}
    return replace(program, functions=functions, kernels=left) if left else None


def _caller(kernel: ir.Kernel) -> ir.Function:
    """A function with the parameters of `kernel`, which it hands on."""
    params = tuple(ir.Var(parameter.name, parameter.type) for parameter in kernel.parameters)
    nothing = TupleType(fields=())
    call = ir.CallKernel(var=ir.Var("_", nothing), kernel=kernel.name, arguments=params)
    extents = (extent for param in params for extent in extents_of(param.type))
    symbols = {name: ir.Origin.DIMENSION for extent in extents for name in extent.symbols}
    scalars = {p.name: ir.Origin.SCALAR for p in kernel.parameters if isinstance(p, ir.KernelScalar)}
    return ir.Function(
        name=kernel.name,
        params=params,
        body=ir.Block(instructions=(call,), result=ir.TupleValue(())),
        result_type=nothing,
        symbols=scalars | symbols,
    )


def check(
    program: ir.Program,
    rulebook: Rulebook,
    prover: Prover,
    *,
    assume: Sequence[Condition] = (),
    options: LintOptions = LintOptions(),  # noqa: B008 - frozen
    kernels: KernelProofs | None = None,
) -> Report:
    """Check `program`; findings come in program order.

    A condition of `assume` holds in functions that have all its symbols; of `kernels` more may be known.
    """
    asked: dict[str, Any] = {"budget": options.budget, "order": options.order, "assume": assume}
    shared = ProgramContext(program=program, prover=prover, kernels=kernels or KernelProofs(prover), **asked)
    _analyse(shared)
    checks = [FunctionCheck(context, rulebook) for context in shared.functions.values()]
    calls = CallChecks(shared)
    for one in checks:
        expanded = shared.expanded.get(one.context.function.name)
        one.run(expanded=None if expanded is None else FunctionCheck(expanded, rulebook))
        calls.enter(one)
    discharged, summary = calls.discharged(), LintSummary()
    for one in checks:
        one.discharge(discharged)
        one.report_declared_bounds()
        summary.add(one.summary)
    summary.data_dependent = sum(map(unknown_indices, shared.called_kernels.values()))
    merged = merge_callers([f for one in checks for f in one.findings]) if shared.expanded else {}
    diagnostics = [found for one in checks for found in _diagnostics(one, merged)]
    rules = Rulebook(rules=tuple(rule for rule in rulebook.rules if rule.site in SITES))
    lone = lone_kernels(shared) if rules.rules else None
    if lone is not None:  # where they are right for some shapes they may be meant for these
        found = check(lone, rules, prover, kernels=shared.kernels)
        diagnostics += (one for one in found if one.verdict is Verdict.ALWAYS_INVALID)
        summary.add(replace(found.summary, functions=0, data_dependent=0))
    shared.functions.clear()  # they refer to it: as a cycle, all that was found would wait for a collection
    shared.expanded.clear()
    return Report(diagnostics=tuple(diagnostics), summary=summary)


def _diagnostics(one: FunctionCheck, merged: Mapping[Finding, Finding | None]) -> Iterator[Diagnostic]:
    for found in sorted(one.findings, key=lambda f: f.point):
        finding = merged.get(found, found)
        diagnostic = None if finding is None else finding.diagnostic
        if finding is not None and diagnostic is not None:
            alike, own, fixes = _alike(finding), _is_of_kernel(finding), fix_candidates(finding)
            yield replace(diagnostic, alike=alike, of_kernel=own, candidates=fixes)


def fresh_findings(
    found: Sequence[Diagnostic], earlier: Sequence[Sequence[Diagnostic]], sources: Mapping[str, Source]
) -> list[Diagnostic]:
    """The findings of a stage that none of the `earlier` stages had.

    One is a repetition where its kind is the same, and the message is, or the place in the user's file,
    or the constraint and the variable that is bound; and where all of these but the constraint differ,
    as far as an earlier stage had more findings of that constraint than are recognised.
    """
    seen = {sign for stage in earlier for one in stage for sign in _signs(one, sources)}
    known = [not seen.isdisjoint(_signs(one, sources)) for one in found]
    renamed: Counter[object] = Counter()
    for stage in earlier:
        renamed |= Counter((one.kind, one.constraint) for one in stage if one.constraint is not None)
    renamed.subtract((one.kind, one.constraint) for one, old in zip(found, known, strict=True) if old)
    fresh = []
    for one, old in zip(found, known, strict=True):
        if not old and renamed[one.kind, one.constraint] > 0:
            renamed[one.kind, one.constraint] -= 1
        elif not old:
            fresh.append(one)
    return fresh


def _signs(diagnostic: Diagnostic, sources: Mapping[str, Source]) -> list[object]:
    """The signs of a finding: two findings that share one are the same."""
    kind, span = diagnostic.kind, diagnostic.span
    found: list[object] = [(kind, "message", diagnostic.message)]
    own = sources.get(span.file) if span and not isinstance(span, NumberedSpan) else None
    if own is not None and own.origin is None:
        found.append((kind, "place", span))
    if diagnostic.constraint is not None and diagnostic.binds:
        found.append((kind, "binds", diagnostic.binds, diagnostic.constraint))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LintedFile:
    """The report on one file, and the symbols of its functions with where they get their values.

    `settled`: every fix that was tried was tried to the end.
    """

    report: Report
    symbols: Mapping[str, tuple[ir.Origin, ...]]
    settled: bool = True

    def finished(self, good: Mapping[int, tuple[Fix, ...]] = {}, *, settled: bool = True) -> LintedFile:
        """The same without what tries fixes: with the `good` ones, by the `id` of the diagnostic.

        `settled`: these were tried to the end.
        """
        found = (replace(d, candidates=(), fixes=good.get(id(d), ())) for d in self.report)
        return replace(self, report=replace(self.report, diagnostics=tuple(found)), settled=settled)


def report_of(linted: Sequence[LintedFile], *, seconds: float, skipped: int) -> Report:
    """Return the report on some files; it took `seconds`, and `skipped` files hold no module."""
    joined = Report.joined([one.report for one in linted])
    return replace(joined, summary=replace(joined.summary, seconds=seconds), skipped=skipped)


NOT_UNDERSTOOD = "SYM904"

_CANNOT_BE = "cannot be "


class Linter:
    """Checks what was read, one file after the other."""

    def __init__(self, options: LintOptions = LintOptions(), prover: Prover | None = None) -> None:  # noqa: B008
        """Load the rules; raises UsageError for rules, rule names or assumptions that make no sense."""
        self.options, self.prover = options, prover or Prover()
        self.rulebook = load_rules(options.rules)
        self.assume = parse_assumptions(options.assume)
        self._active = self.rulebook.select(options.select, options.ignore)
        self._bound_rules = frozenset(rule.id for rule in self.rulebook.by_site["declared-bound"])
        self._ignored = {
            pattern: frozenset().union(*map(self.rulebook.ids, keys))
            for pattern, keys in options.per_file_ignores.items()
        }

    @property
    def checked_rules(self) -> frozenset[str]:
        """The ids of the rules that are checked; none where only some stages of a module are read."""
        rules = self._active.rules if self.options.reports_unused else ()
        return frozenset(rule.id for rule in rules)

    @no_collections()
    def lint(self, reading: FileResult) -> LintedFile:
        """Check what one file gave; its findings are sorted, and hold what tries their fixes."""
        started = perf_counter()
        source = reading.source
        sources = {} if source is None else {source.file: source}
        summary = LintSummary()
        found = [self._unreadable(problem) for problem in reading.problems]
        found += apply_suppressions(
            self._checked(reading, sources, summary),
            find_suppressions(source) if source and source.origin is None else (),
            file=reading.file,
            known=self.rulebook,
            active=self._active,
            report_unused=not reading.problems and self.options.reports_unused,
        )
        kept = folded(sorted(filter(self._wanted, map(self._strict, found)), key=_order))
        shown = {span.file for diagnostic in kept for span in diagnostic.spans}
        summary.seconds = perf_counter() - started
        report = Report(
            diagnostics=tuple(kept),
            summary=summary,
            files=(reading.file,),
            sources={file: text for file, text in sources.items() if file in shown},
        )
        return LintedFile(report=report, symbols=_symbols(reading.programs))

    # -- checking ------------------------------------------------------------------------------------------

    def _checked(
        self, reading: FileResult, sources: dict[str, Source], summary: LintSummary
    ) -> list[Diagnostic]:
        """The findings of all stages of a file's modules; one that an earlier stage had is not repeated.

        The scripts that they point into are added to `sources`, and what was counted to `summary`.
        """
        stages, found = list[list[Diagnostic]](), list[Diagnostic]()
        kernels, asked = KernelProofs(self.prover), (self._active, self.prover)
        for program in reading.programs:
            result = check(program, *asked, assume=self.assume, options=self.options, kernels=kernels)
            summary.add(result.summary)
            told = [self._unasked(_told(d, program, reading)) for d in result]
            fresh = fresh_findings(told, stages, sources)
            stages.append(told)
            text, places = _printed(program, fresh)
            if text:
                sources[text.file] = text
            found += [_placed(one, places) for one in fresh]
        summary.functions = len({(one.name, name) for one in reading.programs for name in one.functions})
        return found

    def _unasked(self, found: Diagnostic) -> Diagnostic:
        """The finding; a note where a plan of TVM's, of which nobody asked, relies on a declared bound."""
        unasked = found.stage and self.options.stage == "auto" and found.rule in self._bound_rules
        return replace(found, severity=Severity.NOTE) if unasked else found

    def _unreadable(self, problem: ReadProblem) -> Diagnostic:
        rule = self.rulebook.get(CANNOT_BE_READ)
        known = problem.message.startswith(_CANNOT_BE)
        what = problem.message.removeprefix(_CANNOT_BE) if known else f"read: {problem.message}"
        return Diagnostic.of_rule(
            rule,
            {"file": problem.file, "problem": what},
            file=problem.file,
            module=problem.module or "",
            span=problem.span,
            help=problem.hint,
        )

    # -- filters -------------------------------------------------------------------------------------------

    def _wanted(self, diagnostic: Diagnostic) -> bool:
        if diagnostic.rule == CANNOT_BE_READ:
            return True  # what was not verified is never passed over
        file = diagnostic.file
        return not any(
            diagnostic.rule in ids and matches_file(file, pattern) for pattern, ids in self._ignored.items()
        )

    def _strict(self, diagnostic: Diagnostic) -> Diagnostic:
        unsure = diagnostic.rule == NOT_UNDERSTOOD or (
            diagnostic.verdict is Verdict.RUNTIME_CHECK and diagnostic.reason is not None
        )
        return replace(diagnostic, severity=Severity.ERROR) if self.options.strict and unsure else diagnostic


_OF_KERNELS = frozenset({"kernel-load", "kernel-store", "read"})
"""The kinds of sites at which every call of a kernel may be wrong in the same way."""


def _alike(finding: Finding) -> str:
    """The words that findings about one kernel have in common; none where each stands for itself."""
    made, texts = finding.original, finding.site.texts
    if not isinstance(made, ir.CallKernel | ir.CallTIR):
        return ""
    if finding.site.kind not in _OF_KERNELS:
        return made.kernel if finding.site.relation == NOT_VERIFIED else ""
    told = (texts.get(name, "") for name in ("buffer", "axis", "index", "what"))
    return " ".join((made.kernel, *told, _nameless(finding.asked), finding.reason or ""))


def _nameless(asked: PlacedConstraint | None) -> str:
    """The constraint whatever its symbols are called: those of each function have names of their own."""
    if asked is None:
        return ""
    names = {name: symbol(f"s{number}") for number, name in enumerate(sorted(asked.constraint.symbols))}
    return str(asked.constraint.substitute(names))


def _is_of_kernel(finding: Finding) -> bool:
    """True if a kernel is wrong in a buffer that it allocates, whatever it is given."""
    made, name = finding.original, finding.site.texts.get("buffer")
    if not isinstance(made, ir.CallKernel | ir.CallTIR) or name is None:
        return False
    kernel = finding.context.program.kernels[made.kernel]
    return name in {b.name for b in kernel.own_buffers} - {parameter.name for parameter in kernel.parameters}


_FEW = 2
"""The number of findings that are alike up to which each is shown."""


def folded(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Findings of one kind at many calls of one kernel, such as those of the layers of a model, as one."""
    alike: defaultdict[object, list[Diagnostic]] = defaultdict(list)
    for one in found:
        known = one.alike and (one.rule, one.severity, one.verdict, one.module, one.stage, one.alike)
        alike[known or id(one)].append(one)
    return [kept for group in alike.values() for kept in (group if len(group) <= _FEW else (_first(group),))]


def _first(group: Sequence[Diagnostic]) -> Diagnostic:
    """The first of some findings, with the places of the others and a note that counts them."""
    first, functions = group[0], Counter(one.function for one in group[1:])
    where = ", ".join(f"{count} in `{name}`" for name, count in functions.most_common())
    note = f"{len(group) - 1} more calls of this kernel are like it: {where}"
    return replace(first, notes=(*first.notes, note), dependents=tuple(map(_place, group[1:])))


def _place(one: Diagnostic) -> Dependent:
    constraint = None if one.verdict is Verdict.ALWAYS_INVALID else one.constraint
    return Dependent(rule=one.rule, constraint=constraint, span=one.span, function=one.function)


def _symbols(programs: Iterable[ir.Program]) -> Mapping[str, tuple[ir.Origin, ...]]:
    """The symbols of all functions, and where they get their values, in order."""
    found: defaultdict[str, set[ir.Origin]] = defaultdict(set)
    for function in (function for program in programs for function in program.functions.values()):
        for name, origin in function.symbols.items():
            found[name].add(origin)
    return {name: tuple(sorted(origins, key=str)) for name, origins in found.items()}


def _printed(program: ir.Program, found: Sequence[Diagnostic]) -> tuple[Source | None, Mapping[Span, Span]]:
    """The script that TVM prints for `program`, under a name of its own, and the places of what was `found`.

    None where nothing was found, or spans point into a file.
    """
    source = program.source
    spans = [span for diagnostic in found for span in diagnostic.spans]
    if source is None or isinstance(source, Source) or not spans:
        return None, {}
    text, places = source.located(spans)
    when = "as TVM prints it" if program.stage == AS_IS else f"after {program.stage}"
    file = f"{text.file} ({program.name} {when})"
    return replace(text, file=file), {span: there._replace(file=file) for span, there in places.items()}


def _told(diagnostic: Diagnostic, program: ir.Program, reading: FileResult) -> Diagnostic:
    """The finding with its file, module and stage."""
    planned = diagnostic.is_brief and program.stage != AS_IS
    return replace(
        diagnostic,
        file=diagnostic.file or reading.file,
        module=diagnostic.module or program.name,
        stage=None if program.stage == AS_IS else program.stage,
        span=_home(diagnostic.function, program, reading) if planned else diagnostic.span,
    )


def _placed(diagnostic: Diagnostic, places: Mapping[Span, Span]) -> Diagnostic:
    """The finding with its numbered spans looked up in `places`."""

    def place(span: Span | None) -> Span | None:
        return places.get(span) if isinstance(span, NumberedSpan) else span

    labels = ((label, place(label.span)) for label in diagnostic.labels)
    return replace(
        diagnostic,
        span=place(diagnostic.span),
        labels=tuple(replace(label, span=span) for label, span in labels if span is not None),
        dependents=tuple(replace(one, span=place(one.span)) for one in diagnostic.dependents),
    )


def _home(function: str, program: ir.Program, reading: FileResult) -> Span | None:
    """The place of a function in the file; None where that is no text."""
    stages = (one for one in reading.programs if (one.name, one.stage) == (program.name, AS_IS))
    spans = (one.functions[function].span for one in stages if function in one.functions)
    return next((span for span in spans if not isinstance(span, NumberedSpan)), None)


def _order(diagnostic: Diagnostic) -> tuple[object, ...]:
    span = diagnostic.span
    place = (span.file, *span.start) if span else ("", 0, 0)
    return (diagnostic.severity.rank, *place, diagnostic.rule)

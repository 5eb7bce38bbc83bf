"""A site is one place of a program at which rules ask; also what generators of sites need to make them, and
the finding: what is wrong at a site, how certain that is, and its diagnostic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple, TypeAlias

from symalloc.analysis.call_expansion import ExpandedFunction
from symalloc.analysis.conflicts import FeasiblePaths, ReuseConflicts
from symalloc.analysis.dependencies import OrderName
from symalloc.analysis.facts import branch_tests, facts_of
from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.kernels.coverage import Passes
from symalloc.analysis.misuses import UnwrittenReads, written_zero_offset_views
from symalloc.analysis.regions import FunctionSummary, Region
from symalloc.analysis.sets import NO_REGIONS, RegionSet
from symalloc.linter.diagnostic import Dependent, Diagnostic, Label, Severity
from symalloc.linter.function_prover import FunctionProver, KernelProofs, PlacedConstraint
from symalloc.program import ir
from symalloc.program.control_flow import EVERY_PATH, ControlFlowGraph, PathCondition
from symalloc.program.operands import callee_of
from symalloc.program.span import Span
from symalloc.prover.domain import Domain, Proof, Verdict
from symalloc.prover.prover import Prover
from symalloc.rulebook.rule import Rule, Value
from symalloc.size.condition import Condition
from symalloc.size.expr import Expr

LazyTexts: TypeAlias = Callable[[Prover, Domain], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One place of a program; `kind` says which rules ask there.

    With a `relation`, which the analyses decide, it is a place where that is broken; without, one where
    constraints over `quantities` must hold.  `unknown` says why one of these is left out: a note, or with
    `doubt` a warning.  `texts` are the words of messages (they win over quantities of the same name),
    `places` further spans to point at.  `instruction` and `span` stand in for those of the site's point.
    `uncertainty`: why it may be no fault whatever the verdict.  It is one only on paths that take the
    branches `path` and get to the point `until` (where it stands, if that is None).

    Of several findings of one rule with the same `dedup_key` one is kept.  With `several` that is one that no
    shape satisfies; where there is none, all are kept that guards against the others leave.

    `checked` is what the program itself checks right here: a constraint that is no more than that stops the
    program before any fault.  `promised`: the program says that it checks it, and no declared bound stands in
    for that.  `sized` sites ask only about inputs no larger than what a machine holds.
    `passes`: inside a kernel, whose divisors are its own affair.  `shown_only`: a fault where there is a
    counterexample, and `estimate`: perhaps also at smaller sizes than the smallest one found.  `idle`: only
    where a kernel has no elements to go through.

    Once there is something to report, `resolve` completes the site, once for each set of branches on which it
    is one (none where it is none), and `lazy_texts` gives further words.
    """

    kind: str
    instruction: ir.Instruction | None = None
    span: Span | None = None
    relation: str | None = None
    quantities: Mapping[str, Expr] = field(default_factory=dict)
    unknown: str | None = None
    doubt: bool = False
    texts: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Span] = field(default_factory=dict)
    uncertainty: str | None = None
    path: PathCondition = EVERY_PATH
    until: int | None = None
    dedup_key: object = None
    several: bool = False
    checked: Condition | None = None
    promised: bool = False
    sized: bool = False
    passes: Passes | None = None
    shown_only: bool = False
    estimate: bool = False
    idle: bool = False
    resolve: Callable[[Site], Iterable[Site]] | None = None
    lazy_texts: LazyTexts | None = None

    @property
    def memo_key(self) -> Hashable:
        """All that verdicts depend on, but for what is known at the point."""
        return self.kind, *self.quantities.items(), self.unknown, self.sized, self.passes, self.shown_only

    @property
    def resolved(self) -> Iterable[Site]:
        """The site completed, once for each set of branches on which it is one."""
        return (self,) if self.resolve is None else self.resolve(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramContext:
    """Knowledge that the contexts of all functions of a program share.

    `functions` are those of the functions as they stand, callees first, and `expanded` those of functions
    with calls written out, by name.  Private functions whose instructions stand in these for all that call
    them are `seen_in_callers`: what is wrong with the order of their writes and reads shows there; those
    `seen_in_part` are so but for calls of them further down in a recursion.  `kernels`: what is proved of
    kernels.  `budget`: the most bytes that a call may hold at once, if that is asked.
    `order`: that in which dispatches may run.
    """

    program: ir.Program
    prover: Prover
    kernels: KernelProofs
    assume: Sequence[Condition] = ()
    budget: int | None = None
    order: OrderName = "total"
    summaries: dict[str, FunctionSummary] = field(default_factory=dict)
    functions: dict[str, FunctionContext] = field(default_factory=dict)
    expanded: dict[str, FunctionContext] = field(default_factory=dict)
    seen_in_callers: set[str] = field(default_factory=set)
    seen_in_part: set[str] = field(default_factory=set)

    @property
    def graphs(self) -> list[ControlFlowGraph]:
        """The control-flow graphs of the functions as they stand."""
        return [context.analysis.cfg for context in self.functions.values()]

    @property
    def called_kernels(self) -> Mapping[str, ir.Kernel]:
        """The kernels that functions call, by name."""
        calls: list[Sequence[tuple[int, ir.CallKernel | ir.CallTIR]]]
        calls = [cfg.of_type(ir.CallKernel, ir.CallTIR) for cfg in self.graphs]
        called, known = {call.kernel for made in calls for _, call in made}, self.program.kernels
        return {name: kernel for name, kernel in known.items() if name in called}

    def holding(self, name: str, path: PathCondition, bound: ir.Var | None) -> Sequence[Condition]:
        """The conditions that hold in a function, on `path`, in front of `bound`, or at its end."""
        context = self.functions[name]
        cfg = context.analysis.cfg
        point = len(cfg.points) - 1 if bound is None else cfg.starts[bound]
        return context.paths.conditions(context.paths.whole(path, point), point)


class FunctionContext:
    """One function as the generators of sites see it.

    `conflicts` are the reuse conflicts, and `unwritten` the reads of what nothing has written, on paths that
    control can take.  `written_views` are the results of ensure_zero_offset that are written, with what
    writes them.  `expansion`: where the instructions come from, if `function` is one with calls written out.
    """

    def __init__(
        self,
        shared: ProgramContext,
        function: ir.Function,
        analysis: FunctionAnalysis,
        expansion: ExpandedFunction | None = None,
    ) -> None:
        self.shared, self.program, self.function = shared, shared.program, function
        self.analysis, self.expansion = analysis, expansion
        points_to, effects, kernels = analysis.points_to, analysis.effects, shared.program.kernels
        tests = branch_tests(points_to, effects, kernels)
        self.points_to, self.facts = points_to, facts_of(analysis.cfg, kernels, tests)
        self.prover = FunctionProver(shared.prover, function, self.facts, shared.assume)
        self.paths = FeasiblePaths(analysis.cfg, self.facts, tests, self.prover.possible)
        self.conflicts = ReuseConflicts(points_to, effects, self.paths)
        self.unwritten = UnwrittenReads(self.conflicts, analysis.content)
        self.written_views = written_zero_offset_views(points_to, effects)

    def regions_of(self, variables: Iterable[ir.Var]) -> RegionSet:
        """The regions that some of `variables` may point to."""
        found = NO_REGIONS
        for var in variables:
            found |= self.points_to.regions_of(var)
        return found

    def is_known_elsewhere(self, storage: Region) -> bool:
        """True if a storage that comes from another function is seen in a form with calls written out."""
        name = self.function.name
        if storage.instruction is None:
            return name in self.shared.seen_in_callers
        known = name in self.shared.expanded or name in self.shared.seen_in_callers
        return known and isinstance(storage.instruction, ir.CallFunction)

    def instruction(self, point: int) -> ir.Instruction | None:
        """The instruction at a point; None for the end of the function."""
        return self.analysis.cfg.points[point].instruction

    def definition(self, operand: ir.Operand) -> ir.Instruction | None:
        """The instruction that binds a variable; None for parameters and literals."""
        return self.analysis.cfg.definitions.get(operand) if isinstance(operand, ir.Var) else None


def name_of(operand: ir.Operand) -> str:
    """The name of an operand in a message."""
    match operand:
        case ir.Var(name=name) | ir.FunctionRef(name=name):
            return name
        case ir.ConstantTensor():
            return "a constant"
        case ir.Scalar(value=value) if value is not None:
            return str(value)
        case ir.TextLiteral(text=text):
            return text
    return "a literal"


def caller_name(instruction: ir.Instruction | None) -> str:
    """The name of what an instruction calls, quoted."""
    if instruction is None:
        return "the caller"
    return f"`{callee_of(instruction) or instruction.var.name}`"


def alias_at(context: FunctionContext, point: int, region: Region) -> Mapping[str, str]:
    """The text `alias`: the variable through which `point` reads `region`, unless it was bound to that."""
    points_to = context.points_to
    family = points_to.family(RegionSet(1 << region.number))
    for var in context.analysis.cfg.points[point].uses:
        if points_to.regions_of(var) & family & ~points_to.storages:
            return {"alias": f"`{var.name}`"} if var is not region.var else {}
    return {}


def shape_text(shape: tuple[Expr, ...] | None) -> str:
    """Extents as they stand in a shape, without brackets."""
    return "unknown" if shape is None else ", ".join(map(str, shape))


def places_of(**instructions: ir.Instruction | None) -> Mapping[str, Span]:
    """The places of those of `instructions` that have one."""
    return {place: made.span for place, made in instructions.items() if made is not None and made.span}


def places_in_memory(first: Region, second: Region) -> Mapping[str, Expr]:
    """The places of two regions in one memory, as quantities; those that are known."""
    places = {
        "first.offset": first.offset,
        "first.nbytes": first.nbytes,
        "second.offset": second.offset,
        "second.nbytes": second.nbytes,
    }
    return {name: value for name, value in places.items() if value is not None}


def not_understood(what: str, **more: Any) -> Site:
    """The site of a construct that is not verified; `what` says it in words."""
    return Site(
        kind="construct", texts={"what": what}, **{"relation": "not-understood", "dedup_key": what, **more}
    )


NOT_VERIFIED = "kernel-not-verified"


def not_verified(kernel: str, what: str, **more: Any) -> Site:
    """The site of what a kernel computes and is not decided; there is one for each kernel."""
    return not_understood(what, relation=NOT_VERIFIED, dedup_key=(NOT_VERIFIED, kernel), **more)


InstructionSites: TypeAlias = Callable[[FunctionContext, Any], Iterator[Site]]
FunctionSites: TypeAlias = Callable[[FunctionContext], Iterator[tuple[int, Site]]]


class FunctionGenerator(NamedTuple):
    """A generator of sites of some of `kinds` in a whole function; `expanded`: with its calls written out."""

    kinds: tuple[str, ...]
    generate: FunctionSites
    expanded: bool


# generators by type of instruction, and those that take the whole function
IN_INSTRUCTIONS: defaultdict[type[ir.Instruction], list[InstructionSites]] = defaultdict(list)
IN_FUNCTIONS: list[FunctionGenerator] = []


def instruction_sites(*instructions: type[ir.Instruction]) -> Callable[[InstructionSites], InstructionSites]:
    """Register a generator: sites at each instruction of one of the types `instructions`.

    Instructions whose memo keys are equal fare alike.  A key holds all fields of an instruction, and of its
    operands the types and byte offsets; a generator that looks at more adds it there (`MemoKeys`).
    """

    def register(generate: InstructionSites) -> InstructionSites:
        for instruction in instructions:
            IN_INSTRUCTIONS[instruction].append(generate)
        return generate

    return register


def function_sites(*kinds: str, expanded: bool = False) -> Callable[[FunctionSites], FunctionSites]:
    """Register a generator: sites of some of `kinds` in a whole function, each with its program point.

    An `expanded` one asks in what order memory is written and read.  Where a function calls others that a
    summary does not describe well enough, it is given the function with these calls written out
    (symalloc.analysis.call_expansion), and a callee that is seen in all its callers not at all.
    """

    def register(generate: FunctionSites) -> FunctionSites:
        IN_FUNCTIONS.append(FunctionGenerator(kinds, generate, expanded))
        return generate

    return register


def load_sites() -> None:
    """Import every module of this room, so that its generators are registered."""
    room = import_module("symalloc.linter.sites")
    for module in sorted(iter_modules(room.__path__), key=lambda found: found.name):
        import_module(f"symalloc.linter.sites.{module.name}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Finding:
    """One finding, at the program point `point` of a function; equal only to itself.

    `asked` is the constraint that fails, and `proof` says how; both are None for a relation.  `only_empty`:
    no shape without an empty tensor breaks it.  `undecidable`: a quantity of the constraint is not known.
    `cause` is the finding in a callee that this one of a call comes from.  `further_calls` lead to the same
    fault from elsewhere.  `within_bounds`: the counterexample keeps to the declared bounds of the function.
    `needed` are declared bounds that rule it out; with fewer of them it may be a fault.  `dependents` are the
    findings that a declared bound rules out, where this is about one.
    """

    context: FunctionContext
    rule: Rule
    site: Site
    point: int
    asked: PlacedConstraint | None = None
    proof: Proof | None = None
    only_empty: bool = False
    undecidable: bool = False
    cause: Finding | None = None
    further_calls: tuple[ir.CallFunction, ...] = ()
    within_bounds: bool = False
    needed: tuple[ir.DeclaredBound, ...] = ()
    dependents: tuple[Finding, ...] = ()

    @property
    def instruction(self) -> ir.Instruction | None:
        """The instruction at which the finding stands; None for the result of the function."""
        return self.site.instruction or self.context.instruction(self.point)

    @property
    def where(self) -> Span | None:
        """The span to point at."""
        made = self.instruction
        return self.site.span or (self.context.function.result_span if made is None else made.span)

    @property
    def original(self) -> ir.Instruction | None:
        """The instruction of the program at which the finding stands."""
        made, expansion = self.instruction, self.context.expansion
        return made if expansion is None or made is None else expansion.original(made)

    @property
    def calls(self) -> tuple[ir.CallFunction, ...]:
        """The calls, outermost first, that lead to it from the function in which it was found."""
        expansion = self.context.expansion
        return () if expansion is None else expansion.calls_to(self.instruction)

    @property
    def guarded(self) -> bool:
        """True where the program itself stops at a check before the fault."""
        return self.proof is not None and self.proof.guarded

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the constraint, never a definite one at an uncertain site; None for a relation."""
        if self.site.uncertainty is not None or self.undecidable:
            return Verdict.RUNTIME_CHECK
        return None if self.proof is None else self.proof.verdict

    @property
    def reason(self) -> str | None:
        """Why nothing definite can be said."""
        if self.site.uncertainty is not None:
            return self.site.uncertainty
        if self.proof is None:
            return self.site.unknown if self.undecidable else None
        return self.proof.reason if self.proof.unknown else None

    @property
    def counterexample(self) -> dict[str, int] | None:
        """A binding that breaks the constraint, empty where every one does; None where none is known."""
        point = None if self.proof is None else self.proof.counterexample
        found = {n: v for n, v in (point or {}).items() if n in self.context.function.symbols}  # no tests
        return found if found or point == {} else None

    @property
    def precondition(self) -> Condition | None:
        """A condition under which the constraint holds, where some shapes satisfy it."""
        if self.proof is None or self.proof.verdict is not Verdict.RUNTIME_CHECK:
            return None
        found = self.proof.precondition
        return found if found is None or found.symbols <= self.context.function.symbols.keys() else None

    @property
    def severity(self) -> Severity | None:
        """The severity; None where the rule keeps silent about such a verdict.

        What is not certain to be a fault (an uncertain alias, a constraint that could not be decided and has
        no counterexample) is no error; where a size is not even known it is a note, but for a site of
        `doubt`.  A call that may break what its callee needs is no worse than that need is there.
        """
        rule, proof = self.rule, self.proof
        if self.verdict is not Verdict.RUNTIME_CHECK:
            return Severity(rule.severity)
        if rule.severity_at_runtime is None:
            return None
        empty = self.only_empty and rule.severity_when_empty
        severity = Severity(empty or rule.severity_at_runtime)
        if proof is None:
            noted = self.undecidable and not self.site.doubt
            return Severity.NOTE if noted else _milder(severity, Severity.WARNING)
        if self.site.uncertainty is not None or (proof.unknown and self.counterexample is None):
            severity = _milder(severity, Severity.WARNING)
        cause = self.cause.severity if self.cause is not None else None
        return severity if cause is None else _milder(severity, cause)

    def doubted(self, why: str) -> Finding:
        """The finding, no longer certain, so that it is no error."""
        if self.site.uncertainty is not None or self.severity is not Severity.ERROR:
            return self
        return replace(self, site=replace(self.site, uncertainty=why))

    @property
    def diagnostic(self) -> Diagnostic | None:
        """The diagnostic; None where the rule has nothing to say of such a verdict."""
        severity = self.severity
        if severity is None:
            return None
        values = self._values()
        rule, result = self.rule, values.get("consequence")
        return Diagnostic(
            rule=rule.id,
            name=rule.name,
            severity=severity,
            verdict=self.verdict,
            message=self._message(values),
            module=self.context.program.name,
            function=self.context.function.name,
            span=self.where,
            label="".join(rule.rendered((rule.label,), values)),
            labels=self._labels(values),
            path=self.context.paths.text(self.site.path),
            counterexample=self.counterexample,
            smallest=self.proof is not None and self.proof.smallest,
            consequence=None if result is None else str(result),
            precondition=None if self.precondition is None else str(self.precondition),
            reason=self.reason,
            notes=tuple(self._notes(values)),
            help=rule.help_about(values),
            guarded=self.guarded,
            constraint=None if self.asked is None else str(self.asked.constraint),
            binds="" if self.instruction is None else self.instruction.var.name,
            dependents=tuple(finding.dependent for finding in self.dependents),
        )

    @property
    def dependent(self) -> Dependent:
        """The finding as one that another finding is about."""
        what, name = self.asked and str(self.asked.constraint), self.context.function.name
        return Dependent(rule=self.rule.id, constraint=what, span=self.where, function=name)

    def _values(self) -> dict[str, Value]:
        """The values of names in the rule's templates."""
        site, point, proof = self.site, self.counterexample, self.proof
        values: dict[str, Value] = {**site.quantities, **site.texts, "function": self.context.function.name}
        values |= {"reason": self.reason, "counterexample": point, "precondition": self.precondition}
        if point is not None and self.rule.compiled is not None:
            known = {n: e.substitute(self.context.facts.definitions) for n, e in site.quantities.items()}
            values["consequence"] = self.rule.compiled.consequence(known, point)
        if site.lazy_texts is not None and proof is not None and proof.domain is not None:
            values.update(site.lazy_texts(self.context.prover.prover, proof.domain))
        return values

    def _message(self, values: Mapping[str, Value]) -> str:
        never = self.verdict is Verdict.ALWAYS_INVALID
        message = self.rule.message_about(values, never_holds=never)
        if message is not None:
            return message
        texts = self.site.texts
        subjects = (texts[n] for n in ("tensor", "first", "second", "argument") if n in texts)
        names = " and ".join(f"`{subject}`" for subject in dict.fromkeys(subjects))
        return f"cannot be decided: {self.rule.name}{f' of {names}' if names else ''}"

    def _labels(self, values: Mapping[str, Value]) -> tuple[Label, ...]:
        labels = []
        for place, span in self.site.places.items():
            template = self.rule.labels.get(place)
            if template is not None and span != self.where:
                labels += [Label(span=span, text=text) for text in self.rule.rendered((template,), values)]
        for call in (*self.calls, *self.further_calls):
            if call.span is not None:
                labels.append(Label(span=call.span, text=f"`{call.name}` is called here"))
        return tuple(dict.fromkeys(labels))

    def _notes(self, values: Mapping[str, Value]) -> Iterator[str]:
        yield from self.rule.rendered(self.rule.notes, values)
        if self.within_bounds and self.counterexample:
            yield "the counterexample keeps to the declared bounds"
        proof = self.proof
        if proof is not None and proof.verdict is Verdict.ALWAYS_INVALID and proof.witness:
            point = ", ".join(f"{name} = {value}" for name, value in proof.witness.items())
            when = "only an empty shape satisfies it" if self.site.passes is None else "no pass gets there at"
            yield f"{when}: {point}"


def _milder(left: Severity, right: Severity) -> Severity:
    return max(left, right, key=lambda severity: severity.rank)

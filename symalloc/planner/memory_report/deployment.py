"""The memory of a module's functions as a server calls them on one device: formulas over named symbols, and
bytes at any sizes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from symalloc.analysis.donation import function_meant
from symalloc.errors import UsageError, meant, require_binding, require_bytes, require_text
from symalloc.planner.memory_report.function_report import (
    FunctionReport,
    MemorySample,
    bound_label,
    check_wanted,
    chosen,
    needed_at_entry,
    plan_symbols,
    require_symbols,
    sample_at,
)
from symalloc.planner.memory_report.non_arena import PAGE, KernelWorkspace
from symalloc.program import ir
from symalloc.program.created_state import DeviceKind, StatePart, created_state
from symalloc.program.operands import instructions_of
from symalloc.program.types import OpaqueType, TensorType, Type, holds_memory, type_leaves
from symalloc.prover.domain import INT64_MAX, INT64_MIN, Domain, Proof, Verdict
from symalloc.prover.prover import Prover
from symalloc.shown import Shown
from symalloc.size.choice import grows, maximum, undominated
from symalloc.size.condition import FALSE, Condition, conjunction, le
from symalloc.size.expr import ZERO, Expr, constant, highest, round_up, symbol

Part: TypeAlias = Literal["arenas", "call", "kept", "workspace", "inputs"]
"""Arenas, a call with its results, the result of the call before, workspace and the machine's table of sizes,
inputs with weights and constants.
"""
Sum: TypeAlias = Literal["arenas", "call", "again", "workspace", "everything"]
SUMS: Mapping[Sum, tuple[Part, ...]] = {
    "arenas": ("arenas",),
    "call": ("call",),
    "again": ("call", "kept"),
    "workspace": ("call", "kept", "workspace"),
    "everything": ("call", "kept", "workspace", "inputs"),
}
"""Sums that are asked about, of parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMemory:
    """The memory of one function, which a server calls unless it is `private`.

    `weights` are tensors that stay the same from call to call, and that it shares with others by their names;
    `inputs` are those that come anew with each call.
    Of `call` the largest counts: sums of bytes that are held together, and of `arenas` among them.  `kept`
    are the results that the machine keeps until the next call is over; as many bytes as are `unsure` may be
    none.  `table`: the bytes in which the machine keeps sizes during a call, or fewer, if `optional`, as some
    of the workspace may not be taken then.  `workspace`: the
    blocks that kernels take of TVM's pool, then those that they take while they hold one, while they hold
    two, and so on: of each the largest counts.  `doubt`: a call, or what it creates, may take less on the
    device.  `state`: what it creates.  `takes_none`: it takes no tensor and no object; `objects` are those
    that it takes.  `unknown` says of a part why there may be more.
    """

    name: str
    private: bool = False
    weights: Mapping[str, Expr] = field(default_factory=dict)
    inputs: Expr = ZERO
    arenas: tuple[Expr, ...] = ()
    call: tuple[Expr, ...] = ()
    doubt: bool = False
    kept: Expr = ZERO
    unsure: Expr = ZERO
    workspace: tuple[tuple[Expr, ...], ...] = ()
    table: int = 0
    optional: bool = False
    state: tuple[StatePart, ...] = ()
    takes_none: bool = False
    objects: tuple[str, ...] = ()
    unknown: Mapping[Part, tuple[str, ...]] = field(default_factory=dict)
    declared: Mapping[str, int] = field(default_factory=dict)
    lower: Mapping[str, int] = field(default_factory=dict)
    signed: frozenset[str] = frozenset()
    symbols: frozenset[str] = frozenset()

    @property
    def sizes(self) -> Iterator[Expr]:
        """All sizes of which the sum is made."""
        yield from self.weights.values()
        yield from (one.nbytes for one in self.state)
        yield from (self.inputs, self.kept, *self.call)
        yield from (size for level in self.workspace for size in level)

    def sums(self, asked: Sum, constants: int = 0, *, least: bool = False) -> tuple[Expr, ...]:
        """Sums of bytes of which the largest is what is asked; `least`: only what is held for sure."""
        if asked == "arenas":
            return (ZERO,) if least else self.arenas
        made = sum((one.nbytes for one in self.state if not least or not self.doubt), start=ZERO)
        kept = made + self.kept - (self.unsure if least else ZERO)
        weights = sum(self.weights.values(), start=constant(constants))
        fixed: dict[Part, Expr] = {"call": made, "kept": kept, "inputs": self.inputs + weights}
        fixed["workspace"] = constant(0 if least and self.optional else self.table)
        base = sum((fixed.get(part, ZERO) for part in SUMS[asked]), start=ZERO)
        taken = "workspace" in SUMS[asked] and self.workspace and not (least and self.optional)
        spaces, *further = self.workspace if taken else ((ZERO,),)
        more = ZERO if least else sum((maximum(*level) for level in further), start=ZERO)
        calls = (ZERO,) if least and self.doubt else self.call or (ZERO,)
        return undominated((base + more + call + space for call in calls for space in spaces), self.signed)

    def exact(self, asked: Sum) -> bool:
        """True if that is no less."""
        several = "workspace" in SUMS[asked] and (len(self.workspace) > 1 or self.optional)
        return not (self.doubt or several or ("kept" in SUMS[asked] and self.unsure != ZERO))

    def gap(self, asked: Sum) -> str | None:
        """The first thing for which it is not known how much that is."""
        return next(
            (f"{why} is not known" for part in SUMS[asked] for why in self.unknown.get(part, ())), None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """All that a module's functions take on one device; `constants` are the bytes in the module itself.

    `spread`: what lies on other devices counts, too.
    """

    functions: tuple[FunctionMemory, ...]
    constants: int = 0
    spread: bool = False


def deployment_of(
    program: ir.Program,
    reports: Sequence[FunctionReport],
    *,
    inputs: Mapping[str, int],
    constants: int,
    device: DeviceKind,
) -> Deployment:
    """The deployment of planned functions; `inputs` tells how many parameters of one are no weights."""
    made = [function_memory(program.functions[one.plan.function], one, inputs, device) for one in reports]
    spread = len(program.devices) > 1
    if spread:
        made = [replace(function, doubt=True) for function in made]
    return Deployment(functions=tuple(made), constants=constants, spread=spread)


def function_memory(
    function: ir.Function, report: FunctionReport, inputs: Mapping[str, int], device: DeviceKind
) -> FunctionMemory:
    """The memory of one planned function."""
    count = inputs.get(function.name, len(function.params))
    weights, vague = _weights(function.params[count:])
    outcome, outside = report.outcome, report.outside
    calls = [outcome.planned, *([outcome.unplanned] if outcome.fallback else [])]
    inside = [*instructions_of(function.body)]  # what it calls in the module is not looked at
    states = [(one, created_state(one, device)) for one in inside if isinstance(one, ir.CallPacked)]
    created = [(call, state) for call, state in states if state is not None]
    variables = {call.var for call, _ in created}
    alone = not any(isinstance(one, ir.CallFunction) for one in inside)
    names = {call.name for call, _ in created if alone}
    returned = [result.nbytes for result in outside.returned]
    sized = {
        (index, path): leaf.nbytes
        for index, param in enumerate(function.params[:count])
        for path, leaf in type_leaves(param.type)
        if isinstance(leaf, TensorType)
    }
    back = {place: sure for place, sure in outside.returned_inputs.items() if place in sized}
    held = [one for call in calls for one in call.unknown if one.var not in variables]
    parallel = any(use.parallel for use in outside.kernels)
    reserved = outcome.reserved
    unknown: dict[Part, list[str]] = {
        "arenas": [] if reserved.not_known is None else [reserved.not_known.removesuffix(" is not known")],
        "call": [
            *(state.problem for _, state in created if state.problem is not None),
            *(f"what `{name}` takes" for call in calls for name in call.unseen if name not in names),
            *(call.problem for call in calls if call.problem is not None),
            *(f"the size of `{one.var.name}`" for one in held),
        ],
        "kept": ["the size of a result"] * (None in returned),
        "workspace": [
            *(f"the workspace of `{use.name}`: {use.problem}" for use in outside.kernels if use.problem),
            *["the workspace that each worker thread takes"] * parallel,
        ],
        "inputs": [*vague, *["the size of an input"] * (None in sized.values())],
    }
    doubt = any(one.doubt is not None for one in calls)
    branches = any(call not in function.body.instructions for call, _ in created)
    parts = [part for _, state in created for part in state.parts]
    results = [_sum(one.padded for one in path) for call in calls for path in call.results]
    made = maximum(*undominated([ZERO, *results], report.signed))
    unsure = _sum(sized[place] for place, sure in back.items() if not sure)
    return FunctionMemory(
        name=function.name,
        private=function.private,
        weights=weights,
        inputs=_sum(sized.values()),
        arenas=(reserved.known.sums(report.signed) or (ZERO,)) if report.placements else (),
        call=tuple(size for one in calls for size in one.known.sums(report.signed) or (ZERO,)),
        doubt=doubt or branches,
        kept=made + _sum(sized[place] for place in back),
        unsure=unsure + (made - _sum(returned) if doubt else ZERO),
        workspace=_workspace(outside.calls),
        table=outside.table,
        optional=outside.branches,
        state=tuple(part for part in parts if device == "cpu" or not part.host),
        takes_none=not any(holds_memory(param.type) for param in function.params),
        objects=tuple(
            name for name, leaf in _leaves(function.params[:count]) if isinstance(leaf, OpaqueType)
        ),
        unknown={part: tuple(dict.fromkeys(why)) for part, why in unknown.items() if why},
        declared=function.declared_upper,
        lower=function.declared_lower,
        signed=report.signed,
        symbols=frozenset(function.symbols),
    )


def _sum(sizes: Iterable[Expr | None]) -> Expr:
    """The sum of those that are known."""
    return sum((size for size in sizes if size is not None), start=ZERO)


def _leaves(params: Sequence[ir.Var]) -> Iterator[tuple[str, Type]]:
    """The parameters and their fields, no two of one name."""
    met: Counter[str] = Counter()
    for param in params:
        met[param.name] += 1
        name = param.name if met[param.name] == 1 else f"{param.name} ({met[param.name]})"
        for path, leaf in type_leaves(param.type):
            yield ".".join([name, *map(str, path)]), leaf


def _weights(params: Sequence[ir.Var]) -> tuple[dict[str, Expr], list[str]]:
    """The tensors among parameters, and what is not known of them."""
    sizes = {name: _nbytes(leaf) for name, leaf in _leaves(params)}
    vague = [f"the size of the weight `{name}`" for name, size in sizes.items() if size is None]
    return {name: size for name, size in sizes.items() if size is not None}, vague


def _nbytes(kind: Type) -> Expr | None:
    if isinstance(kind, TensorType):
        return kind.nbytes
    return None if isinstance(kind, OpaqueType) else ZERO


def _workspace(calls: Sequence[KernelWorkspace]) -> tuple[tuple[Expr, ...], ...]:
    """The blocks that kernels take, then those that they take while they hold one, and so on.

    TVM's pool (`workspace_pool_bytes`) makes a block for a request only if all blocks as large are lent, or
    drops one as large for it.  So no more blocks exceed a size than are held behind a request that does.
    """
    levels: list[list[Expr]] = []
    for call in calls:
        held: set[int] = set()
        for slot, size in call.steps:
            if size is None:
                held.discard(slot)
            else:
                held.add(slot)
                levels += ([constant(PAGE)] for _ in range(len(levels), len(held)))
                for level in levels[: len(held)]:
                    level.append(round_up(size, PAGE))
    return tuple(map(undominated, levels))


MOST_SUMS = 64  # of a formula that the prover is asked about
_LONG = "its formula is too long"


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestValue:
    """The largest value of a symbol, and of those `alike` as well, that fits, the others at `at`.

    `value` is None where nothing fits, or where the formula is not shown to grow with the symbol
    (`monotone` is False); `unbounded`: every value fits.
    """

    symbol: str
    at: Mapping[str, int]
    value: int | None
    monotone: bool = True
    alike: tuple[str, ...] = ()

    @property
    def unbounded(self) -> bool:
        """True where every value fits."""
        return self.value == INT64_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """The largest value of the symbol `other`, and of those `alike` as well, at values of `symbol`: pairs;
    null where nothing fits.
    """

    symbol: str
    other: str
    rows: tuple[tuple[int, int | None], ...]
    alike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The bytes that memory shall take at most, at these values of symbols, where what is assumed holds."""

    limit: int
    values: Mapping[str, int] = field(default_factory=dict)
    assume: tuple[Condition, ...] = ()

    def check(self, deployment: Deployment) -> None:
        """Raise UsageError for a symbol that no function has, or for shapes that there are none of."""
        known = frozenset().union(*(one.symbols for one in deployment.functions))
        require_symbols(frozenset(self.values).union(*(one.symbols for one in self.assume)), known)
        for one in self.assume:
            if not any(one.symbols <= function.symbols for function in deployment.functions):
                raise UsageError(f"no function has all symbols of the assumption {one}")
        for function in deployment.functions:
            wrong = [name for name in self.values if self.values[name] < 0 and name in function.symbols]
            for name in (name for name in wrong if name not in function.signed):
                raise UsageError(
                    f"`{name}` is {self.values[name]} in `{function.name}`; it must be from 0 on"
                )
            if Prover().prove(FALSE, self.domain(function)).holds:
                raise UsageError(f"no shape of `{function.name}` is left by what is assumed")

    def domain(self, function: FunctionMemory) -> Domain:
        """The shapes of a function that are meant."""
        at = {name: constant(value) for name, value in self.values.items()}
        own = (one.substitute(at) for one in self.assume if one.symbols <= function.symbols)
        return Domain(lower=dict.fromkeys(sorted(function.signed), INT64_MIN), assumptions=tuple(own))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The proof that some memory of a function takes at most `limit` bytes, and the largest values of its
    symbols.

    `within` is the same within the bounds that the function declares, None where there are none.  `unknown`
    says why there may be more memory than what is known; then only that nothing fits is proved, and the
    largest values are at most that.  Where it is not `exact`, it may be less.
    """

    limit: int
    proof: Proof
    largest: tuple[LargestValue, ...] = ()
    trade: Trade | None = None
    within: Proof | None = None
    unknown: str | None = None
    exact: bool = True

    @property
    def holds(self) -> bool:
        """True where it is proved of every shape that is meant and declared."""
        return (self.within or self.proof).holds


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFit(Shown):
    """The shapes at which what a function takes fits: arenas, where it has some, its whole call, a call
    beside the result of the one before, the same with workspace, and with weights, inputs and constants.
    """

    function: str
    asked: Asked
    arenas: Fit | None
    call: Fit
    again: Fit
    workspace: Fit
    everything: Fit

    @property
    def sums(self) -> Mapping[Sum, Fit]:
        """Those that there are, by name."""
        found: dict[Sum, Fit | None] = {what: getattr(self, what) for what in SUMS}
        return {what: fit for what, fit in found.items() if fit is not None}

    def __bool__(self) -> bool:
        raise TypeError("say what shall fit: .call.holds, or .arenas, .again, .workspace, .everything")


def fit_functions(deployment: Deployment, asked: Asked, prover: Prover) -> list[FunctionFit]:
    """Return where the memory of each function takes at most so many bytes; raises UsageError."""
    asked.check(deployment)
    return [fit_function(one, asked, prover, constants=deployment.constants) for one in deployment.functions]


def fit_function(memory: FunctionMemory, asked: Asked, prover: Prover, *, constants: int = 0) -> FunctionFit:
    """Return where the memory of a planned function takes at most so many bytes."""
    named = sorted(frozenset().union(*(one.symbols for one in memory.sums("everything"))))
    names = [name for name in named if name not in asked.values] or named
    upper = {name: bound for name, bound in memory.declared.items() if name in names}
    lower = {
        name: bound if name in memory.signed else max(bound, 0)
        for name, bound in memory.lower.items()
        if name in names
    }
    values = {name: value for name, value in {**upper, **asked.values}.items() if name in memory.symbols}
    domain = asked.domain(memory)
    at = {name: constant(value) for name, value in asked.values.items()}
    bounded = replace(domain, lower={**domain.lower, **lower}, upper=upper) if upper or lower else None

    each = (memory.sums(what, constants) for what in SUMS if what != "arenas")
    tried = (steps_of(sums, asked.limit, names, values, prover) for sums in each)
    steps = next(filter(None, tried), ())

    def fit(what: Sum) -> Fit:
        sums, unknown, exact = memory.sums(what, constants), memory.gap(what), memory.exact(what)
        if len(sums) > MOST_SUMS:
            return Fit(limit=asked.limit, proof=proof_at_most(None, 0, domain, prover, _LONG), unknown=_LONG)
        least = sums if exact else memory.sums(what, constants, least=True)

        def proof(over: Domain) -> Proof:
            found = proof_at_most([one.substitute(at) for one in sums], asked.limit, over, prover, unknown)
            if exact or found.verdict is not Verdict.ALWAYS_INVALID:
                return found
            sure = [one.substitute(at) for one in least]
            return proof_at_most(sure, asked.limit, over, prover, unknown or "it may be less")

        return Fit(
            limit=asked.limit,
            proof=proof(domain),
            within=None if bounded is None else proof(bounded),
            largest=largest_values(sums, asked.limit, names, values, prover),
            trade=trade_of(sums, asked.limit, names, values, prover, steps),
            unknown=unknown,
            exact=exact,
        )

    fits = {what: fit(what) for what in SUMS if what != "arenas"}
    arenas = fit("arenas") if memory.arenas else None
    return FunctionFit(function=memory.name, asked=asked, arenas=arenas, **fits)


def proof_at_most(
    sums: Sequence[Expr] | None, limit: int, domain: Domain, prover: Prover, unknown: str | None
) -> Proof:
    """Prove that the largest of `sums` is at most `limit`; with `unknown` memory only the contrary."""
    if sums is None:
        return Proof(verdict=Verdict.RUNTIME_CHECK, decided_by="size", unknown=True, reason=unknown)
    proof = prover.prove(conjunction(le(one, limit) for one in sums), domain)
    if unknown is None or proof.verdict is Verdict.ALWAYS_INVALID:
        return proof
    return replace(proof, verdict=Verdict.RUNTIME_CHECK, precondition=None, unknown=True, reason=unknown)


# -- the largest values ------------------------------------------------------------------------------------


def largest_values(
    sums: Sequence[Expr], limit: int, names: Sequence[str], values: Mapping[str, int], prover: Prover
) -> tuple[LargestValue, ...]:
    """The largest value of each of some symbols with all others at `values`; of several without a value,
    that which they can have together.
    """
    left = [name for name in names if name not in values]
    each = [left] if left else [[name] for name in names]
    return tuple(largest_value(sums, limit, one, values, prover) for one in each)


def largest_value(
    sums: Sequence[Expr], limit: int, names: Sequence[str], values: Mapping[str, int], prover: Prover
) -> LargestValue:
    """Return the largest value >= 0 of symbols that are alike by bisection, the others at `values`; each sum
    must grow with it.
    """
    name, *others = names
    at = {other: value for other, value in sorted(values.items()) if other not in names}
    fixed = {other: constant(value) for other, value in at.items()}
    alone = [one.substitute({**fixed, **dict.fromkeys(others, symbol(name))}) for one in sums]
    more = {name: symbol(name) + 1}
    found = LargestValue(symbol=name, at=at, value=None, alike=tuple(others))
    if not all(
        grows(one) or prover.prove(le(one, one.substitute(more)), explain=False).holds for one in alone
    ):
        return replace(found, monotone=False)

    def fits(value: int) -> bool:
        taken = highest(alone, {name: value})
        return taken is not None and taken <= limit

    if not fits(0):
        return found
    most = bisect_left(range(INT64_MAX), True, key=lambda value: not fits(value + 1))
    return replace(found, value=most)


def steps_of(
    sums: Sequence[Expr], limit: int, names: Sequence[str], values: Mapping[str, int], prover: Prover
) -> Sequence[int]:
    """Powers of two for the first of several symbols without a value, up to what fits beside 1 of each."""
    left = [name for name in names if name not in values]
    beside = {**values, **dict.fromkeys(left[1:], 1)}
    most = largest_value(sums, limit, left[:1], beside, prover).value if len(left) > 1 else None
    if most is None or most == INT64_MAX:
        return ()
    return [1 << power for power in range(0, most.bit_length(), -(-most.bit_length() // 8) or 1)]


def trade_of(
    sums: Sequence[Expr],
    limit: int,
    names: Sequence[str],
    values: Mapping[str, int],
    prover: Prover,
    steps: Sequence[int],
) -> Trade | None:
    """The trade between the first of several symbols without a value, at some steps, and the others, which
    are alike.  None where there are not two, or nothing can be told.
    """
    left = [name for name in names if name not in values]
    if len(left) < 2 or not steps:
        return None
    first, *others = left
    found = [largest_value(sums, limit, others, {**values, first: step}, prover) for step in steps]
    if not all(one.monotone for one in found):
        return None
    rows = tuple((one.at[first], one.value) for one in found)
    return Trade(symbol=first, other=others[0], rows=rows, alike=tuple(others[1:]))


NO_SIZES: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleReport(Shown):
    """The reports on the functions of a planned module, and the memory of each."""

    reports: tuple[FunctionReport, ...]
    deployment: Deployment
    functions: Mapping[str, ir.Function]

    def of(self, function: str | None) -> FunctionReport:
        """Return the report on `function`, by default on the only one, or on main; raises UsageError."""
        reports = {report.plan.function: report for report in self.reports}
        wanted = None if function is None else require_text("function", function)
        found = function_meant(wanted, list(reports))
        if found is not None:
            return reports[found]
        if wanted is None:
            raise UsageError(f"the module has {len(reports)} functions: name one of {', '.join(reports)}")
        raise UsageError(f"the module has no function `{wanted}`{meant(wanted, list(reports))}")

    def at(
        self, binding: Mapping[str, int] = NO_SIZES, /, *, function: str | None = None, **sizes: int
    ) -> MemorySample:
        """Return the bytes of a call at some sizes, such as `plan.at(n=128).call`.

        `binding` gives sizes by name or by symbol of sympy; `function` chooses one where there are several.
        Raises UsageError for sizes that do not fit it.
        """
        given = require_binding("binding", binding) | require_binding("sizes", sizes)
        report = self.of(function)
        of, names = self.functions[report.plan.function], plan_symbols(report.plan, report.outside)
        check_wanted([given], {of.name: needed_at_entry(names, of)}, later=names)
        (at,) = chosen(names, of, [given])
        return sample_at(report, at, bound_label(at, of))

    def fits(
        self,
        limit: str | int,
        binding: Mapping[str, int] = NO_SIZES,
        /,
        *,
        function: str | None = None,
        **sizes: int,
    ) -> FunctionFit:
        """Say for which shapes arenas, a call, workspace, weights and inputs take at most `limit` bytes.

            plan.fits("1GiB", n=128).call.holds

        It is printed as `symalloc plan --fits` prints it; sizes that are given are fixed.  Raises UsageError.
        """
        given = require_binding("binding", binding) | require_binding("sizes", sizes)
        asked = Asked(limit=require_bytes("limit", limit), values=given)
        name = self.of(function).plan.function
        (memory,) = (one for one in self.deployment.functions if one.name == name)
        return fit_functions(replace(self.deployment, functions=(memory,)), asked, Prover())[0]

"""The shapes at which memory takes at most so many bytes: proofs, and the largest values of symbols."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from symalloc.errors import UsageError
from symalloc.planner.memory_report.deployment import SUMS, Deployment, FunctionMemory, Sum
from symalloc.planner.memory_report.function_report import require_symbols
from symalloc.prover.domain import INT64_MAX, INT64_MIN, Domain, Proof, Verdict
from symalloc.prover.prover import Prover
from symalloc.shown import Shown
from symalloc.size.condition import FALSE, Condition, conjunction, le
from symalloc.size.expr import Expr, constant, highest, symbol
from symalloc.size.sign import grows

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

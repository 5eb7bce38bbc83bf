"""The budget of a device: its options, all that a deployment takes against the memory there is, and what of
it fits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import chain, product, zip_longest
from typing import Literal, TypeAlias

import msgspec

from symalloc.errors import UsageError, meant, require_bytes, require_text, require_texts, shown
from symalloc.options import TEXTS, Kind, amount, option, read_fields
from symalloc.planner.memory_report.deployment import (
    MOST_SUMS,
    Deployment,
    FunctionMemory,
    LargestValue,
    Trade,
    largest_value,
    largest_values,
    proof_at_most,
    steps_of,
    trade_of,
)
from symalloc.planner.memory_report.function_report import require_symbols
from symalloc.prover.domain import INT64_MIN, Domain, Proof, Verdict
from symalloc.prover.prover import Prover
from symalloc.shown import Shown
from symalloc.size.choice import maximum, undominated
from symalloc.size.condition import conjunction, le
from symalloc.size.expr import ZERO, Expr, constant, highest
from symalloc.size.parse import as_expr

_FORM = re.compile(r"(?:(?P<function>[^:=]+):)?(?P<values>[^:]*)")
_COMMA = re.compile(r",(?![^()]*\))")  # none between parentheses
_PER_CENT = re.compile(r"(\d{1,2}(?:\.\d{1,9})?) ?%", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Sizes by the names of symbols: those of `function`, or of all functions where that is None."""

    function: str | None = None
    values: Mapping[str, Expr] = field(default_factory=dict)


def _setting(name: str, text: str) -> Setting:
    """`[FUNCTION:]NAME=SIZE,…`; raises UsageError."""
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{name} {text}: write [FUNCTION:]NAME=SIZE,…, such as seq_len=2048")
    parts = [part.partition("=") for part in _COMMA.split(found["values"]) if part.strip()]
    sizes = {symbol.strip(): size for symbol, _, size in parts if symbol.strip() and size.strip()}
    if len(sizes) < len(parts):
        raise UsageError(f"{name} {text}: each size is NAME=SIZE, once, such as seq_len=2048")
    given = {symbol: _size(f"{name} {text}", size) for symbol, size in sizes.items()}
    function = found["function"]
    return Setting(function=None if function is None else function.strip(), values=given)


def _size(place: str, value: object) -> Expr:
    try:
        return as_expr(value)
    except ValueError as error:
        raise UsageError(f"{place}: {error}") from None


def _settings(name: str, value: object) -> tuple[Setting, ...]:
    """Settings in texts, or in a mapping: of symbols to sizes, or of functions to such mappings."""
    if isinstance(value, tuple) and all(isinstance(one, Setting) for one in value):
        return value
    if not isinstance(value, Mapping):
        return tuple(_setting(name, text) for text in require_texts(name, value))
    apart = {key: one for key, one in value.items() if isinstance(one, Mapping)}
    common = {key: one for key, one in value.items() if key not in apart}
    return tuple(
        Setting(
            function=None if function is None else require_text(f"a function of {name}", function),
            values={
                require_text(f"a symbol of {name}", getattr(key, "name", key)): _size(f"{name} {key}", one)
                for key, one in values.items()
            },
        )
        for function, values in ((None, common), *apart.items())
        if values or function is not None
    )


def _sizes(name: str, value: object) -> tuple[Setting, ...]:
    found = _settings(name, value)
    if not all(one.values for one in found):
        raise UsageError(f"{name} is {shown(value)}; write [FUNCTION:]NAME=SIZE,…, such as seq_len=2048")
    return found


def _states(name: str, value: object) -> tuple[Setting, ...]:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple) and all(isinstance(one, str) for one in texts):
        texts = tuple(one if ":" in one else f"{one}:" for one in texts)
    found = _settings(name, texts)
    if any(one.function is None for one in found):
        raise UsageError(f"{name} is {shown(value)}; it must name functions: FUNCTION[:NAME=SIZE,…]")
    return found


@dataclass(frozen=True, slots=True)
class Margin:
    """Memory of the device that stays free: so many bytes, or a share of all."""

    nbytes: int = 0
    share: Fraction = Fraction(0)

    def of(self, device: int) -> int:
        """The bytes of a device of so many."""
        return self.nbytes + -(-device * self.share.numerator // self.share.denominator)


def _margin(name: str, value: object) -> Margin:
    if isinstance(value, Margin):
        return value
    text = value.strip() if isinstance(value, str) else ""
    share = _PER_CENT.fullmatch(text)
    if text.endswith("%") and share is None:
        raise UsageError(f"{name} is {shown(value)}; a share of the device is from 0% to less than 100%")
    return Margin(require_bytes(name, value)) if share is None else Margin(0, Fraction(share[1]) / 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """The options of a budget.  Raises UsageError for values that make no sense."""

    device: int = option(None, amount(1), "The memory of the device, such as 24GiB.")
    state: tuple[Setting, ...] = option(
        (),
        Kind(read=_states, metavar="FUNCTION[:NAME=SIZE,…]", several=True),
        "A function that is called once and whose result is kept, such as a KV cache, and its sizes; may be "
        "repeated. Without it: all functions that take no tensor.",
    )
    bind: tuple[Setting, ...] = option(
        (),
        Kind(read=_sizes, metavar="[FUNCTION:]NAME=SIZE,…", several=True),
        "Sizes, or what they are in terms of others (seq_len=prefill_chunk_size), in all functions or one; "
        "may be repeated. Without one: the upper bound that functions declare.",
        short=("--with",),
    )
    free: tuple[str, ...] = option(
        (),
        TEXTS,
        "A symbol whose largest value is wanted; may be repeated. Two are traded off.",
        metavar="NAME",
    )
    skip: tuple[str, ...] = option(
        (), TEXTS, "A function that is never called; may be repeated.", metavar="FUNCTION"
    )
    extra: int = option(0, amount(), "Memory of the device that something else takes, such as 600MiB.")
    margin: Margin = option(
        0, Kind(read=_margin, metavar="BYTES|N%"), "Memory of the device that shall stay free."
    )

    def __post_init__(self) -> None:
        if self.device is None:
            raise UsageError("give the memory of the device: --device 24GiB")
        read_fields(self)


Share: TypeAlias = Literal["weights", "constants", "state", "call", "kept", "workspace", "extra"]
Sizes: TypeAlias = Mapping[str, Expr]


class BudgetTerm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A term of the sum; `nbytes` is null where a symbol has no value.

    `sums`: the largest of these is it.  `name`: of the part of a state, or of the function whose call, or
    whose result, is the largest; `source`: the lines of TVM that take it.
    """

    what: Share
    function: str | None = None
    name: str | None = None
    nbytes: int | None = msgspec.field(name="bytes", default=None)
    sums: tuple[Expr, ...] = ()
    source: str | None = None


class Cut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The largest value of a symbol with which all fits, where `given` is too much; null where none is.

    `pieces`: calls of that size that make one of the size given, where it is an extent of inputs.
    """

    symbol: str
    given: int
    largest: int | None
    pieces: int | None = None


class DeviceBudget(
    Shown, msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="version", tag=1
):
    """The answer of `symalloc budget`, in bytes.

    `total` is at the values of `values`, null where a symbol has none; a device of `device` bytes less the
    `margin` has to hold it.  `exact`: it is no less; else TVM's pool, or a call, may hold less.  `fits`: it
    is proved to, or not to; null where neither is, or where it depends on symbols without a value.
    `verdict` is over the symbols that are free: where it is runtime-check, it fits exactly when `condition`
    holds (where it holds, if not `exact`), if that is not null.  With `unknown` memory the total is the
    least, and only that nothing fits is proved; where it is `spread` over several devices, the total is that
    of all, as far as it is known.  `declared` names the symbols that have the upper bound of a
    function as their value.
    """

    device: int
    margin: int
    total: int | None
    exact: bool
    fits: bool | None
    verdict: str
    condition: str | None
    counterexample: Mapping[str, int] | None
    terms: tuple[BudgetTerm, ...]
    values: Mapping[str, str]
    declared: tuple[str, ...]
    largest: tuple[LargestValue, ...]
    trade: Trade | None
    cuts: tuple[Cut, ...]
    unknown: tuple[str, ...]
    spread: bool = False

    @property
    def limit(self) -> int:
        """The bytes that there are."""
        return max(self.device - self.margin, 0)


def device_budget(deployment: Deployment, options: BudgetOptions) -> DeviceBudget:
    """Prove whether a deployment fits a device, and find how much of what does.  Raises UsageError."""
    called = tuple(one for one in deployment.functions if not one.private)
    deployment = replace(deployment, functions=called)
    _check(deployment, options)
    return _Reckoning(deployment, options, Prover()).answer()


# -- functions and values ----------------------------------------------------------------------------------


def _check(deployment: Deployment, options: BudgetOptions) -> None:
    """Raise UsageError for a function or a symbol that there is not."""
    functions = {function.name: function for function in deployment.functions}
    named = [setting.function for setting in (*options.state, *options.bind) if setting.function is not None]
    for name in (*named, *options.skip):
        if name not in functions:
            raise UsageError(f"the module has no function `{name}`{meant(name, list(functions))}")
    values = [value for one in (*options.state, *options.bind) for value in one.values.items()]
    own = frozenset().union(*(function.symbols for function in functions.values()))
    named_in_values = frozenset().union(*(value.symbols for _, value in values))
    given = frozenset(symbol for symbol, _ in values)
    require_symbols([*given, *options.free], own | named_in_values)
    require_symbols(named_in_values, own.union(given, options.free))
    for setting in (*options.state, *options.bind):
        if setting.function is not None:
            own = functions[setting.function].symbols
            require_symbols(setting.values.keys() - named_in_values, own, f"`{setting.function}`")
    _check_once(options.state)
    _check_once(options.bind)


def _check_once(settings: Iterable[Setting]) -> None:
    """Raise UsageError where a symbol has two values in one function, or in all."""
    found: dict[tuple[str | None, str], Expr] = {}
    for setting in settings:
        for name, size in setting.values.items():
            before = found.setdefault((setting.function, name), size)
            if before != size:
                where = "" if setting.function is None else f" in `{setting.function}`"
                raise UsageError(f"`{name}` is given twice{where}: {before} and {size}")


def _settled(values: Sizes) -> Sizes:
    """The values with those of others put in; raises UsageError where one stands for itself."""
    for _ in values:
        values = {name: size.substitute(values) for name, size in values.items()}
    for name, size in values.items():
        if not size.symbols.isdisjoint(values):
            raise UsageError(f"the size of `{name}` is given in terms of itself")
    return values


def _given(settings: Iterable[Setting], function: str | None) -> Sizes:
    """The sizes that settings give for one function, or for all."""
    return {k: v for one in settings if one.function == function for k, v in one.values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    """The parts of the sum, of functions with sizes put in: what is always held, and what counts once."""

    fixed: tuple[BudgetTerm, ...]
    largest: Mapping[Share, Sequence[tuple[str, Expr]]]

    @property
    def sums(self) -> tuple[Expr, ...]:
        """Sums of which the largest is the total."""
        base = sum((one.sums[0] for one in self.fixed), start=ZERO)
        choices = [undominated(size for _, size in sized) or (ZERO,) for sized in self.largest.values()]
        return undominated(sum(chosen, start=base) for chosen in product(*choices))


@dataclass(slots=True)
class _Reckoning:
    """One deployment against the options."""

    deployment: Deployment
    options: BudgetOptions
    prover: Prover

    @property
    def functions(self) -> list[FunctionMemory]:
        return [one for one in self.deployment.functions if one.name not in self.options.skip]

    @property
    def states(self) -> Collection[str]:
        """The functions that are called once."""
        if self.options.state:
            return {one.function for one in self.options.state if one.function is not None}
        return {function.name for function in self.functions if function.takes_none}

    @property
    def called(self) -> list[FunctionMemory]:
        """The functions that are called, those that only would make another state left out."""
        return [one for one in self.functions if not one.takes_none or one.name in self.states]

    @property
    def creates(self) -> bool:
        """True if a function that is called makes objects, or may."""
        return any(one.state or one.unknown for one in self.called if one.name in self.states)

    def common(self) -> dict[str, Expr]:
        """The sizes of all functions; those of a state are sizes of all where nothing else is said."""
        states = {k: v for one in self.options.state for k, v in one.values.items()}
        return {**states, **_given(self.options.bind, None)}

    def sizes(self, function: FunctionMemory, free: Collection[str]) -> Sizes:
        """The values of the symbols of one function, but for those that are free."""
        own = _given(self.options.bind, function.name)
        declared = {n: constant(bound) for n, bound in {**self.declared(), **function.declared}.items()}
        known = {**declared, **self.common(), **_given(self.options.state, function.name)}
        return _settled({**{name: size for name, size in known.items() if name not in free}, **own})

    def shares(self, free: Collection[str], *, least: bool = False) -> _Shares:
        """The parts of the sum over the symbols that are free; `least`: only what is held for sure."""
        extra = BudgetTerm(what="extra", sums=(constant(self.options.extra),))
        if least and self.deployment.spread:
            return _Shares(fixed=(extra,), largest={})
        weights: dict[tuple[str, Expr], None] = {}
        fixed: list[BudgetTerm] = []
        largest: dict[Share, list[tuple[str, Expr]]] = {"call": [], "kept": [], "workspace": []}
        further: list[list[Expr]] = []
        for function in self.called:
            sizes, name = self.sizes(function, free), function.name
            weights |= {(one, nbytes.substitute(sizes)): None for one, nbytes in function.weights.items()}
            kept = (function.kept - function.unsure if least else function.kept).substitute(sizes)
            inputs = function.inputs.substitute(sizes) + constant(0 if least else function.table)
            calls = [size.substitute(sizes) + inputs for size in function.call]
            if name in self.states:
                term = partial(BudgetTerm, what="state", function=name)
                fixed.append(term(name="what it returns", sums=(kept,)))
                made = [(part, part.nbytes.substitute(sizes)) for part in function.state]
                fixed += (
                    term(name=part.what, sums=(size,), source=part.source)
                    for part, size in made
                    if not (least and function.doubt)
                )
                calls = [size - kept for size in calls]
            else:
                largest["kept"].append((name, kept))
            largest["call"] += ((name, size) for size in calls if not (least and function.doubt))
            sure = () if least and function.optional else function.workspace
            blocks = [[size.substitute(sizes) for size in level] for level in sure]
            largest["workspace"] += ((name, size) for level in blocks[:1] for size in level)
            pairs = zip_longest(further, [] if least else blocks[1:], fillvalue=list[Expr]())
            further = [[*level, *own] for level, own in pairs]
        more = sum((maximum(*undominated(level)) for level in further), start=ZERO)
        largest["workspace"] = [(name, size + more) for name, size in largest["workspace"]]
        around = (
            BudgetTerm(what="weights", sums=(sum((size for _, size in weights), start=ZERO),)),
            BudgetTerm(what="constants", sums=(constant(self.deployment.constants),)),
            extra,
        )
        return _Shares(fixed=(*around, *fixed), largest=largest)

    # -- the answer ----------------------------------------------------------------------------------------

    def answer(self) -> DeviceBudget:
        """The whole budget."""
        options = self.options
        for function in self.called:
            self.check(function)
        margin = options.margin.of(options.device)
        limit = max(options.device - margin, 0)
        unknown = self.unknown()
        exact = not any(not one.exact("workspace") for one in self.called)
        least = bool(unknown)
        sums = self.shares(options.free, least=least).sums
        settled = self.shares((), least=least and not self.deployment.spread)
        names = sorted(frozenset().union(*(one.symbols for one in sums)))
        known = ((name, size.as_constant) for name, size in _settled(self.shown()).items() if name in names)
        at = {name: value for name, value in known if value is not None}
        traded = [name for name in dict.fromkeys(options.free) if name in names][:2]
        rest = {name: value for name, value in at.items() if len(traded) < 2 or name not in traded}
        total = highest(settled.sums, {})
        proof = self.proof(sums, limit, unknown)
        if not exact and proof.verdict is Verdict.ALWAYS_INVALID:
            proof = self.proof(
                self.shares(options.free, least=True).sums, limit, unknown or ["it may be less"]
            )
        asked = (sums, limit, [*dict.fromkeys([*traded, *names])], rest, self.prover)
        return DeviceBudget(
            device=options.device,
            margin=margin,
            total=total,
            exact=exact,
            fits=self.fits(proof, total, limit, unknown),
            verdict=proof.verdict.value,
            condition=_condition(proof, sums, limit),
            counterexample=proof.counterexample,
            terms=tuple(_terms(settled)),
            values={name: str(size) for name, size in {**self.shown(), **self.apart()}.items()},
            declared=tuple(sorted(self.declared())),
            largest=largest_values(sums, limit, names, at, self.prover),
            trade=trade_of(*asked, steps_of(*asked)),
            cuts=tuple(self.cuts(limit)) if total is not None and total > limit else (),
            unknown=unknown,
            spread=self.deployment.spread,
        )

    def fits(self, proof: Proof, total: int | None, limit: int, unknown: Sequence[str]) -> bool | None:
        """True or False where all is proved to fit, or not to; None where neither is."""
        if total is None:
            return True if proof.holds else False if proof.verdict is Verdict.ALWAYS_INVALID else None
        least = highest(self.shares((), least=True).sums, {})
        if least is not None and least > limit:
            return False
        return None if unknown or total > limit else True

    def declared(self) -> dict[str, int]:
        """The upper bounds that stand for values, the largest of several functions."""
        found: dict[str, int] = {}
        for function in self.called:
            given = {**self.common(), **_given(self.options.bind, function.name)}
            for name, bound in function.declared.items():
                if name not in given and name in function.symbols:
                    found[name] = max(bound, found.get(name, 0))
        return found

    def check(self, function: FunctionMemory) -> None:
        """Raise UsageError where a function has a negative extent, or a size divides by nothing."""
        sizes = {n: size for n, size in self.sizes(function, ()).items() if n in function.symbols}
        for name in sorted(sizes.keys() - function.signed):
            value = sizes[name].as_constant
            if value is not None and value < 0:
                raise UsageError(f"`{name}` is {value} in `{function.name}`; it must be from 0 on")
        divisors = frozenset().union(*(size.divisors for size in (*sizes.values(), *function.sizes)))
        for divisor in sorted(divisors, key=str):
            value = divisor.substitute(sizes).as_constant
            if value is not None and value <= 0:
                what = "0" if divisor.as_constant is not None else f"{divisor}, which is {value}"
                raise UsageError(f"a size in `{function.name}` is divided by {what}")

    def apart(self) -> Sizes:
        """The sizes that one function has for itself, other than those of all."""
        shown, settings = self.shown(), (*self.options.state, *self.options.bind)
        return {
            f"{setting.function}:{name}": size
            for setting in settings
            for name, size in setting.values.items()
            if setting.function is not None and shown.get(name) != size
        }

    def shown(self) -> Sizes:
        """The values of symbols as they were given, and as functions declare them."""
        declared = {name: constant(bound) for name, bound in self.declared().items()}
        return {**declared, **self.common()}

    def unknown(self) -> tuple[str, ...]:
        """The memory that is not known, and in which functions."""
        found: dict[str, list[str]] = {}
        for function in self.called:
            reasons = [*dict.fromkeys(chain.from_iterable(function.unknown.values()))]
            if function.state and function.name not in self.states:
                reasons.append("how long what it creates is kept (--state says so)")
            if not self.creates:
                reasons += (f"what `{name}` holds, which no function makes" for name in function.objects)
            for reason in reasons:
                found.setdefault(reason, []).append(f"`{function.name}`")
        more = {reason: f" and {len(names) - 1} more" if names[1:] else "" for reason, names in found.items()}
        return tuple(f"{reason}, in {names[0]}{more[reason]}" for reason, names in found.items())

    def proof(self, sums: Sequence[Expr], limit: int, unknown: Sequence[str]) -> Proof:
        """The proof that the total is at most `limit`."""
        if len(sums) > MOST_SUMS:
            return proof_at_most(None, limit, Domain(), self.prover, "its formula is too long")
        signed = frozenset().union(*(function.signed for function in self.called))
        domain = Domain(lower=dict.fromkeys(sorted(signed), INT64_MIN))
        return proof_at_most(sums, limit, domain, self.prover, unknown[0] if unknown else None)

    def cuts(self, limit: int) -> Iterator[Cut]:
        """The symbols of which less fits: those that were given as numbers and that no weight depends on."""
        inputs = frozenset().union(*(function.inputs.symbols for function in self.called))
        of_weights = {n for function in self.called for w in function.weights.values() for n in w.symbols}
        alike = {name: size.symbols for name, size in self.common().items()}
        for symbol, size in self.shown().items():
            given = size.as_constant
            if not given or symbol in of_weights:
                continue
            found = largest_value(self.shares((symbol,)).sums, limit, [symbol], {}, self.prover)
            if not found.monotone or found.unbounded:
                continue
            called = symbol in inputs or any(symbol in alike.get(name, ()) for name in inputs)
            pieces = -(-given // found.value) if called and found.value else None
            yield Cut(symbol=symbol, given=given, largest=found.value or None, pieces=pieces)


def _condition(proof: Proof, sums: Sequence[Expr], limit: int) -> str | None:
    """The condition under which the sums are small enough, as the prover has solved it or as it stands."""
    if proof.verdict is not Verdict.RUNTIME_CHECK or proof.reason is not None:
        return None
    found = proof.precondition or conjunction(le(one, limit) for one in sums)
    return str(found)


def _terms(shares: _Shares) -> Iterator[BudgetTerm]:
    """The terms with their bytes; of functions the one whose bytes are the largest."""
    for term in shares.fixed:
        if term.sums != (ZERO,):
            yield msgspec.structs.replace(term, nbytes=term.sums[0].as_constant)
    for what, sized in shares.largest.items():
        sums = undominated(size for _, size in sized)
        most = highest(sums, {})
        name = next((name for name, size in sized if most and size.as_constant == most), None)
        if sums not in ((), (ZERO,)):
            yield BudgetTerm(what=what, function=name, nbytes=most, sums=sums)

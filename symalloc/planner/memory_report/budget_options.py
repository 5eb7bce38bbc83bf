"""The options of a device's budget: the device, sizes as a server chooses them, and what it keeps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from symalloc.errors import UsageError, require_bytes, require_text, require_texts, shown
from symalloc.options import TEXTS, Kind, amount, option, read_fields
from symalloc.size.expr import Expr
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

"""The options that an editor gives when it starts the server (`initializationOptions`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from symalloc.errors import UsageError, meant

DEBOUNCE = 0.05
TIMEOUT = 60.0
_KEYS = ("debounce", "timeout", "bind")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """`debounce`: seconds without a change before a text is checked.  `timeout`: seconds for reading one.

    `bind` gives values of symbols at which a hover shows sizes.
    """

    debounce: float = DEBOUNCE
    timeout: float = TIMEOUT
    bind: Mapping[str, int] = field(default_factory=dict)


def read_options(given: object) -> ServerOptions:
    """Read the options, of which times are in milliseconds and seconds as docs/editor.md says.

    Raises UsageError for what is not understood.
    """
    if given is None:
        return ServerOptions()
    if not isinstance(given, Mapping):
        raise UsageError(f"initializationOptions must be an object, not {given!r}")
    for key in given:
        if key not in _KEYS:
            known = ", ".join(_KEYS)
            raise UsageError(
                f"unknown key `{key}` in initializationOptions{meant(key, _KEYS) or f'; known are {known}'}"
            )
    return ServerOptions(
        debounce=_number(given, "debounce", DEBOUNCE * 1000, least=0) / 1000,
        timeout=_number(given, "timeout", TIMEOUT, least=1),
        bind=_binding(given.get("bind", {})),
    )


def _number(given: Mapping[str, object], key: str, default: float, *, least: float) -> float:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise UsageError(f"`{key}` must be a number of at least {least:g}, not {value!r}")
    return float(value)


def _binding(given: object) -> Mapping[str, int]:
    if not isinstance(given, Mapping):
        raise UsageError(f'`bind` must be an object such as {{"n": 128}}, not {given!r}')
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise UsageError(f"`bind` gives `{name}` the value {value!r}; it must be a whole number")
    return dict(given)

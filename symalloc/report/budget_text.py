"""The budget of a device, as text."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.planner.memory_report.device_budget import BudgetTerm, Cut, DeviceBudget
from symalloc.report.plan_text import WIDTH, largest_text, trade_lines
from symalloc.report.quantities import binding_text, broken, columns, cut, human_bytes
from symalloc.size.choice import maximum
from symalloc.size.expr import combined

WIDEST = 56  # characters of a formula
_EXTENT = {True: "every", False: "no"}
LONGEST = 300  # characters of a condition
TITLES = {
    "weights": "weights",
    "constants": "constants of the module",
    "call": "largest call, with its inputs",
    "kept": "results kept from the call before",
    "workspace": "workspace of kernels",
    "extra": "--extra",
}


def budget_text(budget: DeviceBudget) -> str:
    """Return the answer, what takes how much, and how large symbols can be."""
    return "".join(f"{line.rstrip()}\n" for line in _lines(budget))


def _lines(budget: DeviceBudget) -> Iterator[str]:
    yield _answer(budget)
    yield ""
    yield from columns([*_rows(budget)], left=(0, 3))
    yield ""
    if budget.values:
        declared = {name: f"{size} (declared)" for name, size in budget.values.items()}
        shown = {n: declared[n] if n in budget.declared else size for n, size in budget.values.items()}
        yield broken("at " + ", ".join(f"{name} = {size}" for name, size in shown.items()), WIDTH, margin=3)
    known = ", by what is known" if budget.unknown else ""
    if budget.largest:
        yield broken(_when(budget), WIDTH, margin=2)
        yield from (f"{largest_text(one)}{known}" for one in budget.largest)
    if budget.trade is not None:
        yield ""
        yield from trade_lines(budget.trade, known)
    yield from (f"{_cut(one)}{known}" for one in budget.cuts if one.largest is not None)
    rest = ", ".join(one.symbol for one in budget.cuts if one.largest is None)
    yield from [f"no smaller value alone makes it fit: {rest}"] if rest else []
    yield from (f"not known: {reason}" for reason in budget.unknown)


def _answer(budget: DeviceBudget) -> str:
    there = human_bytes(budget.device)
    if budget.margin:
        there = f"{there} less {human_bytes(budget.margin)}"
    if budget.total is None:
        short = budget.condition is not None and len(budget.condition) <= WIDEST
        open_ = "not proved to fit" if budget.unknown else _when(budget) if short else "fits at some sizes"
        return f"{there}: {open_ if budget.fits is None else f'fits at {_EXTENT[budget.fits]} size'}"
    least = "at least " if budget.unknown else "" if budget.exact else "at most "
    said = f"{least}{human_bytes(budget.total)} of {there}"
    if budget.unknown and budget.spread:
        known = f"{human_bytes(budget.total)} are known of all devices together"
        return f"{there}: {'does not fit' if budget.fits is False else 'not proved to fit'}; {known}"
    spare = budget.limit - budget.total
    if budget.fits is False:
        return f"{said}: does not fit, {least}{human_bytes(-spare)} too much"
    return f"{said}: {'fits' if budget.fits else 'not proved to fit'}, {human_bytes(max(spare, 0))} left"


def _when(budget: DeviceBudget) -> str:
    names = ", ".join(one.symbol for one in budget.largest)
    if budget.unknown and budget.verdict != "always-invalid":
        return f"over {names}: not proved to fit: {budget.unknown[0]}"
    if budget.condition is not None:
        sums = f"no sum over {names} is more than {budget.limit} (the JSON has them)"
        told = f"{budget.condition} (proved)" if len(budget.condition) <= LONGEST else sums
        return f"fits {'exactly ' * budget.exact}when {told}"
    words = {"always-valid": "fits at every size (proved)", "always-invalid": "fits at no size (proved)"}
    at = "" if budget.counterexample is None else f"; not at {binding_text(budget.counterexample)}"
    return f"over {names}: {words.get(budget.verdict, f'no condition was found{at}')}"


def _rows(budget: DeviceBudget) -> Iterator[tuple[str, str, str, str]]:
    state = None
    for term in budget.terms:
        if term.what == "state" and term.function != state:
            state = term.function
            parts = (one.nbytes for one in budget.terms if (one.what, one.function) == ("state", state))
            yield f"state of `{state}`", *_bytes(combined(sum, parts)), ""
        yield _row(term)
    yield "sum", *_bytes(budget.total), ""


def _bytes(count: int | None) -> tuple[str, str]:
    return human_bytes(count), "" if count is None else f"{count:,} B"


def _row(term: BudgetTerm) -> tuple[str, str, str, str]:
    if term.what == "state":
        title, told = f"  {term.name}", term.source or ""
    else:
        title, told = TITLES[term.what], "" if term.function is None else f"`{term.function}`"
    formula = "" if term.nbytes is not None else cut(maximum(*term.sums), WIDEST)
    return title, *_bytes(term.nbytes), "  ".join(filter(None, (told, formula)))


def _cut(one: Cut) -> str:
    more = f", {one.pieces} calls where one was" if one.pieces else ""
    return f"fits with {one.symbol} = {one.largest} instead of {one.given}{more}"

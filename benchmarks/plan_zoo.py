"""Plans of a zoo of models beside TVM's: planning time, memory of whole calls as measured, bits, call time.

Each model is taken through a process of its own, so that a crash of TVM costs one row.  Of its calls, one for
each binding and each path that its conditions allow, a row shows the worst.  Bytes are what a counting
allocator saw on TVM's virtual machine, rounded up to 64; `whole` figures include the results.  Ratios
are shown as they are; no limit is missed by a call that takes up to 64 KiB more: so much is given for fewer
arenas.

    plan/build      process time of planning over that of relax.build with TVM's planner, median of turns
    arena/floor     peak of what is freed before the call returns, over the least that this order needs; what
                    other paths need is needed until the If that parts them
    whole/floor     the same with the results
    bits            calls with the unplanned module's results, to the bit
    /unplanned      peak of the whole call over that of the unplanned module, which frees each tensor early
    /TVM, /free     the same over TVM's StaticPlanBlockMemory, with the declared bounds and without any
    allocations     storages taken in a call, ours and TVM's
    time            of a call over that of TVM's plan, process time, median of turns; the worse of the
                    first and last binding

Exit status 1 where a limit of the summary is missed.

    python -m benchmarks.plan_zoo [MODEL ...] [--group imported|ordinary|made] [--part plan ...] [--json]
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import click

from benchmarks.harness import json_option
from benchmarks.zoo_measures import OURS, PARTS, UNBUILDABLE
from benchmarks.zoo_models import GROUPS
from symalloc.planner.buffers.call_bytes import SPARE
from tests.models.measure import compiler


@dataclass(frozen=True, slots=True)
class Limit:
    """What is asked of a column: of the median over models, of the worst, or of both; and of the worst where
    the plan says that it took a fallback.
    """

    column: str
    middle: float | None
    worst: float | None
    form: str = ".3f"
    on_fallback: float | None = None

    def of(self, row: ModelRow) -> float | None:
        """The limit of one model."""
        return self.on_fallback if self.on_fallback is not None and row.fallbacks else self.worst


LIMITS = (
    Limit("plan/build", 0.05, 0.15, ".1%"),
    Limit("arena/floor", None, 1.0, on_fallback=1.1),
    Limit("whole/floor", None, None),
    Limit("/unplanned", None, 1.02),
    Limit("/TVM", None, 1.0),
    Limit("/free", None, 1.0),
    Limit("time", 1.0, 1.05),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """What the process of one model said: `found` and `problem` of its parts, and how it ended."""

    model: str
    found: dict[str, Any]
    problems: dict[str, str]

    @property
    def beside(self) -> list[dict[str, Any]]:
        """Our plan and the unplanned module, a record a call."""
        return self.found.get("memory", [])

    @property
    def rivals(self) -> list[dict[str, Any]]:
        """TVM's plans at the same calls."""
        return self.found.get("tvm", [])

    @property
    def fallbacks(self) -> list[dict[str, Any]]:
        """The fallbacks that the plan took."""
        return self.found.get("plan", {}).get("fallbacks", [])

    def ratios(self, column: str, *, judged: bool = False) -> list[float]:
        """The ratios of one column, one for each call; none where it was not measured.  With `judged` those
        by which a limit is judged.
        """
        return [ratio for ratio, counts in _RATIOS[column](self) if counts or not judged]

    def worst(self, column: str, *, judged: bool = False) -> float | None:
        """The largest of `ratios`."""
        return max(self.ratios(column, judged=judged), default=None)


Ratio: TypeAlias = tuple[float, bool]
"""A ratio, and whether a limit is judged by it."""


def _of_bytes(ours: int, theirs: int) -> Ratio:
    return ours / theirs if theirs else float("inf") if ours else 1.0, ours - theirs > SPARE


def _to_unplanned(row: ModelRow) -> Iterator[Ratio]:
    return (_of_bytes(call["ours"]["total"], call["unplanned"]["total"]) for call in row.beside)


def _to_tvm(kind: str) -> Callable[[ModelRow], Iterator[Ratio]]:
    def ratios(row: ModelRow) -> Iterator[Ratio]:
        for call, rival in zip(row.beside, row.rivals, strict=False):
            if rival[kind] is not None:
                yield _of_bytes(call["ours"]["total"], rival[kind]["total"])

    return ratios


def _to_floor(field: str) -> Callable[[ModelRow], Iterator[Ratio]]:
    return lambda row: (_of_bytes(call["ours"][field], call["floor"][field]) for call in row.beside)


def _shares(row: ModelRow) -> Iterator[Ratio]:
    if "plan" in row.found:
        yield row.found["plan"]["share"], True


def _times(row: ModelRow) -> Iterator[Ratio]:
    for at in row.found.get("time", []):
        if "tvm" in at:
            yield median(a / b for a, b in zip(at["ours"], at["tvm"], strict=True)), True


_RATIOS: dict[str, Callable[[ModelRow], Iterator[Ratio]]] = {
    "plan/build": _shares,
    "arena/floor": _to_floor("planned"),
    "whole/floor": _to_floor("total"),
    "/unplanned": _to_unplanned,
    "/TVM": _to_tvm("tvm"),
    "/free": _to_tvm("tvm without bounds"),
    "time": _times,
}

# -- one model -----------------------------------------------------------------------------------------------


def examine(model: str, rounds: int, parts: Sequence[str], seconds: float) -> ModelRow:
    """Measure one model in a process of its own, which may take so many seconds."""
    command = [sys.executable, "-m", "benchmarks.zoo_measures", model, str(rounds), *parts]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
        told, ended = done.stdout, f"ended with {done.returncode}" if done.returncode else None
    except subprocess.TimeoutExpired as late:
        told = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        ended = f"took longer than {seconds:g} s"
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for said in map(json.loads, told.splitlines()):
        if "problem" in said:
            problems[said["part"]] = said["problem"]
        else:
            found[said["part"]] = said["found"]
    if ended:
        at = next((p for p in ("case", *parts) if p not in found and p not in problems), "the end")
        problems[at] = ended
    return ModelRow(model=model, found=found, problems=problems)


# -- the table -----------------------------------------------------------------------------------------------

HEADER = (
    f"{'model':34}{'bindings':>9}{'plan/build':>11}{'arena/floor':>12}{'whole/floor':>12}{'bits':>8}"
    f"{'/unplanned':>11}{'/TVM':>7}{'/free':>7}{'allocations':>12}{'time':>7}"
)


def line(row: ModelRow) -> str:
    """One line of the table, and one for each problem."""
    calls = row.beside
    same = sum(call["difference"] is None for call in calls)
    taken = max((call["ours"]["allocations"] for call in calls), default="-")
    theirs = (
        max((r["tvm"] or r["tvm without bounds"])["allocations"] for r in row.rivals) if row.rivals else "-"
    )
    shown = {limit.column: cell(row.worst(limit.column), limit.form) for limit in LIMITS}
    text = (
        f"{row.model:34}{len(row.found.get('case', {}).get('bindings', ())):>9}{shown['plan/build']:>11}"
        f"{shown['arena/floor']:>12}{shown['whole/floor']:>12}{f'{same}/{len(calls)}':>8}"
        f"{shown['/unplanned']:>11}{shown['/TVM']:>7}{shown['/free']:>7}"
        f"{f'{taken}/{theirs}':>12}{shown['time']:>7}"
    )
    parts: dict[str, list[str]] = {}
    for part, problem in row.problems.items():
        parts.setdefault(problem, []).append(part)
    said = [f"    {', '.join(where)}: {problem}" for problem, where in parts.items()]
    said += [f"    fallback: {fallback['kind']}: {fallback['reason']}" for fallback in row.fallbacks]
    return "\n".join([text, *said])


def cell(value: float | None, form: str) -> str:
    """A ratio, or a dash where there is none."""
    return "-" if value is None else format(value, form)


# -- what is missed ------------------------------------------------------------------------------------------


def summary(rows: Sequence[ModelRow]) -> Iterator[str]:
    """Median and worst of each column over the models, beside what is wanted."""
    differing = sum(call["difference"] is not None for row in rows for call in row.beside)
    count = sum(len(row.beside) for row in rows)
    yield f"{len(rows)} models, {count} calls, {differing} of them with other bits"
    for limit in LIMITS:
        by_model = {row.model: worst for row in rows if (worst := row.worst(limit.column)) is not None}
        if by_model:
            largest = max(by_model, key=by_model.__getitem__)
            middle = median(by_model.values())
            yield (
                f"  {limit.column:12} median {middle:{limit.form}}{_wanted(limit.middle, limit)}, "
                f"worst {by_model[largest]:{limit.form}}{_wanted(limit.worst, limit)} ({largest})"
            )


def _wanted(bound: float | None, limit: Limit) -> str:
    return "" if bound is None else f" [{bound:{limit.form}}]"


def missed(rows: Sequence[ModelRow]) -> Iterator[str]:
    """What is asked for and does not hold."""
    for row in rows:
        for part, problem in row.problems.items():
            if part in OURS and not problem.startswith(UNBUILDABLE):
                yield f"{row.model}: {part}: {problem}"
        for call in row.beside:
            if call["difference"]:
                yield f"{row.model} at {call['binding']} {call['path'] or ''}: {call['difference']}"
        for limit in LIMITS:
            worst = row.worst(limit.column, judged=True)
            allowed = limit.of(row)
            if worst is not None and allowed is not None and worst > allowed:
                yield f"{row.model}: {limit.column} {worst:{limit.form}}"
    for limit in LIMITS:
        values = [worst for row in rows if (worst := row.worst(limit.column)) is not None]
        if limit.middle is not None and values and median(values) > limit.middle:
            yield f"the median of {limit.column}: {median(values):{limit.form}}"


def chosen(models: Sequence[str], groups: Sequence[str]) -> list[str]:
    """The names of the models that are meant; raises click.UsageError for one that there is not."""
    known = [name for names in GROUPS.values() for name in names]
    unknown = [name for name in models if name not in known]
    if unknown:
        raise click.UsageError(f"no such model: {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = [name for group in groups for name in GROUPS[group]]
    return list(dict.fromkeys([*models, *wanted])) or known


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option("--group", "groups", multiple=True, type=click.Choice(list(GROUPS)), help="A group of models.")
@click.option("--part", "parts", multiple=True, type=click.Choice(list(PARTS)), help="Measure this only.")
@click.option(
    "--rounds", default=5, show_default=True, help="Turns of planning; calls take three times as many."
)
@click.option("--seconds", default=1200.0, show_default=True, help="Give a model up behind so many.")
@json_option
def main(
    models: tuple[str, ...],
    groups: tuple[str, ...],
    parts: tuple[str, ...],
    rounds: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Exit with 1 where something that is asked for does not hold; 2 for a model that there is not."""
    names = chosen(models, groups)
    if compiler() is None:
        raise click.UsageError("measuring needs a C++ compiler (c++, g++ or clang++) on the PATH")
    if not as_json:
        print(HEADER)
    rows = []
    for name in names:
        rows.append(row := examine(name, rounds, parts or list(PARTS), seconds))
        if not as_json:
            print(line(row), flush=True)
    short = list(missed(rows))
    if as_json:
        told = [{"model": r.model, "found": r.found, "problems": r.problems} for r in rows]
        print(json.dumps({"rows": told, "missed": short}))
    else:
        print("\n".join(["", *summary(rows), "", *(["missed:", *short] if short else ["nothing missed"])]))
    sys.exit(bool(short))


if __name__ == "__main__":
    main()

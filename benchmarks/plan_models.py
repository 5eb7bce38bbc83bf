"""Compile models with PlanMemory, run them on TVM's virtual machine, and measure what they allocate.

Every model is built unplanned, with this project's planner and with TVM's own, and run at several bindings
of its symbols; some lie beyond an upper bound that the module declares.  A line shows the bytes that each
holds at most at one moment, as the allocator saw them, outputs left out (`peak`) and with them (`total`);
TVM's figure is the smaller of its plans with and without the declared bounds.  `floor` is what the
intermediate tensors need at one moment at least.  Exit status 1 where an output differs in one bit, the
linter has an error or a warning on the planned module, or a peak exceeds the floor, or TVM's, by more than
2 % and 64 KiB.

    python -m benchmarks.plan_models [MODEL ...] [--json]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import click

import symalloc
from benchmarks.harness import json_option
from symalloc.planner.buffers.call_bytes import SHARE, SPARE
from tests.models.measure import compiler, load
from tests.models.planned import CASES, Case, Row, Variants, compare

HEADER = (
    f"{'model':19}{'binding':18}{'same':>6}{'lint':>6}{'storages':>11}"
    f"{'peak':>12}{'TVM':>12}{'floor':>12}{'/floor':>8}{'/TVM':>7}{'total':>12}{'TVM':>12}{'/TVM':>7}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was found of one model: a row a binding, and what the linter says of its planned module."""

    case: Case
    rows: tuple[Row, ...]
    findings: tuple[str, ...]

    def missed(self) -> Iterator[str]:
        """What must hold and does not."""
        yield from (f"{self.case.name}: {finding}" for finding in self.findings)
        for row in self.rows:
            place = f"{self.case.name} at {shown(row)}"
            if row.difference:
                yield f"{place}: {row.difference}"
            rivals = [w.planned for w in (row.theirs, row.bounded) if w is not None]
            for whose, peak in (("the floor", row.floor), *(("TVM's peak", peak) for peak in rivals)):
                if row.ours.planned > peak + max(SHARE * peak, SPARE):
                    yield f"{place}: {row.ours.planned / peak:.3f} of {whose}"


def examine(case: Case) -> Result:
    """Build and run one model."""
    variants = Variants(case)
    reports = (symalloc.lint(m, stage="as-is") for m in (variants.planned.module, variants.settled))
    findings = dict.fromkeys(f"{d.rule} {d.message}" for r in reports for d in r if d.severity != "note")
    rows = tuple(compare(variants, binding) for binding in case.bindings)
    return Result(case=case, rows=rows, findings=tuple(findings))


def shown(row: Row) -> str:
    """The binding, marked where it lies beyond a declared bound."""
    return " ".join(f"{name}={extent}" for name, extent in row.binding.items()) + ("!" if row.beyond else "")


def line(row: Row, clean: bool) -> str:
    """One line of the table."""
    ours, rivals = row.ours, [w for w in (row.theirs, row.bounded) if w is not None]
    theirs = min((w.planned for w in rivals), default=None)
    total = min((w.total for w in rivals), default=None)
    counts = f"{ours.allocations}/{min((w.allocations for w in rivals), default='-')}"
    against = row.against or (None, None)
    return (
        f"{row.case:19}{shown(row):18}{'no' if row.difference else 'yes':>6}{'ok' if clean else 'no':>6}"
        f"{counts:>11}{ours.planned:12,}{cell(theirs):>12}{row.floor:12,}{row.ratio:8.3f}"
        f"{cell(against[0], '.3f'):>7}{ours.total:12,}{cell(total):>12}{cell(against[1], '.3f'):>7}"
    )


def cell(value: float | None, form: str = ",") -> str:
    """Bytes, or what else `form` is for; a dash where there is none."""
    return "-" if value is None else format(value, form)


def summarise(results: Sequence[Result]) -> None:
    """The worst ratios of all."""
    rows = [row for result in results for row in result.rows]
    against = [row.against for row in rows if row.against]
    print(f"\n{len(results)} models, {len(rows)} rows")
    print(f"worst peak / floor        {max(r.ratio for r in rows):.3f}")
    print(f"worst peak / TVM's        {max((a for a, _ in against), default=1.0):.3f}")
    print(f"worst total / TVM's total {max((b for _, b in against), default=1.0):.3f}")


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@json_option
def main(models: tuple[str, ...], as_json: bool) -> None:
    """Exit with 1 where something that must hold does not; 2 for a model that there is not."""
    unknown = [name for name in models if name not in CASES]
    if unknown:
        raise click.UsageError(f"no such model: {', '.join(unknown)}; there are {', '.join(CASES)}")
    if compiler() is None:
        raise click.UsageError("measuring needs a C++ compiler (c++, g++ or clang++) on the PATH")
    load()
    if not as_json:
        print(HEADER)
    results = []
    for name in models or CASES:
        results.append(result := examine(CASES[name]))
        if not as_json:
            print("\n".join(line(row, not result.findings) for row in result.rows), flush=True)
    missed = [one for result in results for one in result.missed()]
    if as_json:
        print(json.dumps({"rows": [asdict(r) for x in results for r in x.rows], "missed": missed}))
    else:
        summarise(results)
        print("\n".join(["", "missed:", *missed] if missed else ["", "nothing missed"]))
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()

"""Plant faults in planned modules and see what the linter says of them; a table by operator.

Every mutant is judged twice: by a concrete interpreter that walks TVM's own tree at many sizes and on every
path, and by `symalloc.lint`.  *real*: it can go wrong.  *found*: of those, an error was reported; *fitting*:
by a rule that fits the fault.  *harmless*: nothing goes wrong anywhere; *alarms*: of those, an error was
reported all the same.

    python -m benchmarks.mutation [--tries 3] [--seed 0] [--show] [--json]
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable

import click

from benchmarks.harness import json_option, timed
from tests.mutation.harness import Outcome, judge, mutants
from tests.mutation.subjects import subjects

COLUMNS = ("planted", "real", "found", "fitting", "harmless", "alarms")


def count(outcomes: Iterable[Outcome]) -> dict[str, Counter[str]]:
    """The table: operator to column to number of mutants."""
    table: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        row = table.setdefault(outcome.mutant.operator, Counter())
        row["planted"] += 1
        row["real"] += outcome.real
        row["found"] += outcome.real and outcome.found
        row["fitting"] += outcome.real and outcome.fitting
        row["harmless"] += outcome.harmless
        row["alarms"] += outcome.harmless and outcome.found
    return table


def show(table: dict[str, Counter[str]]) -> None:
    """Print the table and its sums."""
    print(f"{'operator':26}" + "".join(f"{c:>10}" for c in COLUMNS))
    for operator, row in {**table, "all": sum(table.values(), Counter())}.items():
        print(f"{operator:26}" + "".join(f"{row[c]:10}" for c in COLUMNS))


def describe(outcome: Outcome) -> str:
    """One line on a mutant whose answers differ."""
    mutant = outcome.mutant
    kinds = ", ".join(f"{f.kind} at {dict(f.binding)}" for f in outcome.faults) or "harmless"
    place = f"{mutant.subject}.{mutant.function}, {mutant.operator} ({mutant.change})"
    return f"{place}: {kinds}; linted {sorted(outcome.rules)}"


@click.command()
@click.option("--tries", default=3, show_default=True, help="Mutants per subject and operator, at most.")
@click.option("--seed", default=0, show_default=True)
@click.option("--show", "described", is_flag=True, help="Describe every mutant judged differently.")
@json_option
def main(tries: int, seed: int, described: bool, as_json: bool) -> None:
    """Exit with 1 where a real fault was missed or misnamed, or a harmless change reported."""
    seconds, outcomes = timed(lambda: [judge(m) for m in mutants(subjects(), tries=tries, seed=seed)])
    wrong = [o for o in outcomes if (o.real and not o.fitting) or (o.harmless and o.found)]
    table = count(outcomes)
    if as_json:
        print(json.dumps({"seconds": seconds, "operators": table}))
    else:
        show(table)
        print(f"{len(wrong)} judged differently, {seconds:.0f} s")
        if described:
            print("\n".join(map(describe, wrong)))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

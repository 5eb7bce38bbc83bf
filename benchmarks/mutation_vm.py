"""Plant faults in modules, run them, and see what the linter says; a table by operator.

The oracle is TVM's virtual machine: every mutant is compiled and called at several sizes, on every path, with
storages filled with two patterns and bounds to the byte, and once more with every kernel on copies of its
arguments between pages that nobody may touch (tests/mutation/vm).  *harmful*: a run crashes or stops, depends
on what was in memory before, writes or reads beside its tensors, or reads what nobody or somebody else has
written.  *found*: of those, a fitting rule reports an error or a warning; *errors*: an error; *unverified*:
not found, but SYM904 says that something was not verified; *on data*: not found, since the index that was
changed depends on a tensor's elements: such indices are not verified.  *harmless*: every call gives what the
original gives; *other*: well-defined, but another program; *alarms*: errors on either of the two. Not
judged: *unseen*, changes to a kernel's own buffer that no run shows, since nothing is guarded beside it;
*unbuilt*, what TVM refuses to compile.

    python -m benchmarks.mutation_vm [--tries 1] [--seed 0] [--share 1] [--only NAME] [--show]
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from random import Random

os.environ.setdefault("TVM_NUM_THREADS", "1")  # before TVM: a process that forks must have no threads

import click

from benchmarks.harness import json_option, timed
from tests.mutation.vm.campaign import ALL_OPERATORS, Campaign, VmOutcome, campaign
from tests.mutation.vm.subjects import names, vm_subjects

COLUMNS = (
    "planted",
    "harmful",
    "found",
    "errors",
    "unverified",
    "on data",
    "harmless",
    "other",
    "alarms",
    "unseen",
    "unbuilt",
)


def count(outcomes: Iterable[VmOutcome]) -> dict[str, Counter[str]]:
    """The table: operator to column to number of mutants."""
    table: dict[str, Counter[str]] = {}
    for o in outcomes:
        row = table.setdefault(o.operator, Counter())
        row["planted"] += 1
        row["harmful"] += o.harmful
        row["found"] += o.harmful and bool(o.fitting)
        row["errors"] += o.harmful and bool(o.fitting & o.errors)
        row["unverified"] += o.unverified
        row["on data"] += o.on_data
        row["harmless"] += o.harmless
        row["other"] += not (o.harmful or o.harmless or o.unseen or o.judgement.unbuilt)
        row["unseen"] += o.unseen
        row["alarms"] += o.alarm
        row["unbuilt"] += o.judgement.unbuilt is not None
    return table


def rules(outcomes: Iterable[VmOutcome]) -> dict[str, Counter[str]]:
    """Kind of fault to rule to number of mutants that show the one and are found by the other."""
    table: dict[str, Counter[str]] = {}
    for o in outcomes:
        for kind in o.judgement.kinds:
            table.setdefault(kind, Counter()).update(o.fitting or ["on data" if o.on_data else "missed"])
    return table


def show(table: dict[str, Counter[str]]) -> None:
    """Print the table and its sums."""
    print(f"{'operator':24}" + "".join(f"{c:>11}" for c in COLUMNS))
    for operator, row in {**table, "all": sum(table.values(), Counter())}.items():
        print(f"{operator:24}" + "".join(f"{row[c]:11}" for c in COLUMNS))


def describe(o: VmOutcome) -> str:
    """A few lines on a mutant that is judged differently."""
    seen = [f"    run: {f.kind}: {f.what[:200]} at {f.invocation}" for f in o.judgement.faults[:3]]
    said = [
        f"    linted: {f.severity} {f.rule}: {f.message} {dict(f.counterexample)}" for f in o.findings[:4]
    ]
    verdict = "missed" if o.missed else "alarm"
    return "\n".join([f"{verdict} {o.subject}.{o.function}, {o.operator} ({o.change})", *seen, *said])


def dump(outcomes: Sequence[VmOutcome], folder: Path) -> None:
    """Write the modules of mutants that are judged differently, with what is known of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, o in enumerate(outcomes):
        name = f"{o.subject}-{o.operator}-{index}".replace("/", "-").replace(" ", "_")
        (folder / f"{name}.json").write_text(o.module, encoding="utf-8")
        (folder / f"{name}.txt").write_text(describe(o) + "\n", encoding="utf-8")


def judged(index: int, tries: int, seed: int, share: float) -> Campaign:
    """The mutants of one subject, by its place in the list; of the operators a share is drawn."""
    random = Random(f"{names()[index]} {seed}")
    operators = {name: operator for name, operator in ALL_OPERATORS.items() if random.random() < share}
    return campaign(list(vm_subjects())[index], tries=tries, seed=seed, operators=operators)


def told(done: Campaign, described: bool, folder: Path | None) -> Campaign:
    """Say on the standard error stream that a subject is done, and what was judged differently; dump that."""
    wrong = [o for o in done.outcomes if o.missed or o.alarm]
    click.echo(f"{done.subject}: {len(done.outcomes)} mutants, {len(wrong)} judged differently", err=True)
    for outcome in wrong if described else ():
        click.echo(describe(outcome), err=True)
    if folder is not None:
        dump(wrong, folder)
    return done


@click.command()
@click.option("--tries", default=1, show_default=True, help="Mutants per subject and operator, at most.")
@click.option("--seed", default=0, show_default=True)
@click.option("--share", default=1.0, show_default=True, help="Of the operators, for each subject.")
@click.option("--only", default="", help="Subjects whose name holds this.")
@click.option("--show", "described", is_flag=True, help="Describe every mutant judged differently.")
@click.option("--dump", "folder", type=click.Path(path_type=Path), help="Write their modules there.")
@click.option("--processes", default=2, show_default=True)
@json_option
def main(
    tries: int,
    seed: int,
    share: float,
    only: str,
    described: bool,
    folder: Path | None,
    processes: int,
    as_json: bool,
) -> None:
    """Exit with 1 where a harmful mutant was missed or misnamed, or an error reported on another."""
    chosen = [i for i, name in enumerate(names()) if only in name]
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=8) as pool:
        one = partial(judged, tries=tries, seed=seed, share=share)
        seconds, campaigns = timed(
            lambda: [told(c, described, folder) for c in pool.imap_unordered(one, chosen)]
        )
    outcomes = [o for c in campaigns for o in c.outcomes]
    wrong = [o for o in outcomes if o.missed or o.alarm]
    unbuilt = [o for o in outcomes if o.judgement.unbuilt]
    if as_json:
        print(json.dumps({"seconds": seconds, "operators": count(outcomes), "rules": rules(outcomes)}))
    else:
        report(campaigns, outcomes, seconds)
        if described:
            print("\n".join(f"unbuilt {o.subject}, {o.operator}: {o.judgement.unbuilt}" for o in unbuilt))
    sys.exit(bool(wrong))


def report(campaigns: Sequence[Campaign], outcomes: Sequence[VmOutcome], seconds: float) -> None:
    """Print the tables and what could not be judged."""
    show(count(outcomes))
    for kind, row in sorted(rules(outcomes).items()):
        print(f"{kind:24}" + ", ".join(f"{rule} {n}" for rule, n in row.most_common()))
    usable = [c for c in campaigns if c.outcomes]
    models = {c.subject.partition("/")[0] for c in usable}
    wrong = sum(o.missed or o.alarm for o in outcomes)
    on_data = sum(o.on_data for o in outcomes)
    print(f"{on_data} more are harmful by an index that depends on data, which is not verified: not reported")
    print(f"{len(usable)} subjects of {len(models)} models, {wrong} judged differently, {seconds:.0f} s")
    for c in campaigns:
        for reason in c.excluded:
            print(f"not judged: {c.subject}: {reason[:200]}")


if __name__ == "__main__":
    main()

"""The proof of a plan as SMT-LIB2 scripts, one for each obligation, and an index that says what each proves.

Every script of a right plan is to be answered `unsat` by any solver of integer arithmetic; one of a broken
plan, `sat`.  `index.json`: `{"version": 1, "plans": [{"function", "guards", "obligations": [{"file", "kind",
"excludes", "buffers": [[name], [name, name], …], "claim", "guarded", "expected"}]}]}`; `excludes` says in
words what the proof rules out, for each of `buffers`.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from symalloc.planner.check.obligations import Obligation, obligations
from symalloc.planner.check.validate import ObligationProver
from symalloc.planner.memory_plan import Plan
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.smtlib import certificate, status
from symalloc.prover.verdict import Proof

INDEX = "index.json"


def plan_certificate(
    plans: Iterable[tuple[Plan, Domain]], prover: Prover, *, machine: bool = True
) -> dict[str, str]:
    """The scripts and the index that prove each of `plans` over its domain, by file name.

    `machine` is that of `obligations`.
    """
    files: dict[str, str] = {}
    entries = []
    for number, (plan, domain) in enumerate(plans):
        folder = f"{number}-{re.sub(r'[^A-Za-z0-9_.-]', '_', plan.function)}"
        judge = ObligationProver.of(plan, domain, prover)
        rows = []
        for count, obligation in enumerate(obligations(plan, machine=machine)):
            proof = judge.proof(obligation)
            name = f"{folder}/{count:04d}-{obligation.kind}.smt2"
            files[name] = _script(plan, obligation, judge.domain_of(obligation), proof)
            row = {
                "file": name,
                "kind": obligation.kind,
                "excludes": obligation.problem,
                "buffers": [list(names) for names in obligation.where],
                "claim": str(obligation.claim),
                "guarded": obligation.guarded,
                "expected": status(proof),
            }
            rows.append(row)
        guards = [str(guard.condition) for guard in plan.guards]
        entries.append({"function": plan.function, "guards": guards, "obligations": rows})
    files[INDEX] = json.dumps({"version": 1, "plans": entries}, indent=1) + "\n"
    return files


def write_certificate(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` into `folder`, which is made where it is missing; the index last.

    They are written beside it first, so that a full disk leaves nothing half written.  Raises OSError.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as staging:
        for name, text in files.items():
            staged = Path(staging) / name
            staged.parent.mkdir(exist_ok=True)
            staged.write_text(text, encoding="utf-8")
        for name in files:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (Path(staging) / name).replace(target)


def _script(plan: Plan, obligation: Obligation, domain: Domain, proof: Proof) -> str:
    first = ", ".join(obligation.where[0]) or "the arena"
    more = f" and {len(obligation.where) - 1} more" if len(obligation.where) > 1 else ""
    title = re.sub(r"\s+", " ", f"{plan.function}: {first}{more}: excludes that {obligation.problem}")
    return f"; {title}\n{certificate(obligation.claim, domain, proof)}"

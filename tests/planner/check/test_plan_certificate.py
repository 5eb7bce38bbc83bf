"""Certificates of plans, replayed by z3 in a process that has never seen symalloc."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from symalloc.planner.check.obligations import obligations
from symalloc.planner.check.plan_certificate import INDEX, plan_certificate, write_certificate
from symalloc.planner.interference import interference
from symalloc.planner.memory_plan import Buffer, Plan
from symalloc.planner.offsets import assemble
from symalloc.planner.overflow_guards import guards
from symalloc.planner.stack import Stacking
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.size.condition import le
from symalloc.size.expr import Expr, constant, round_up, symbol
from tests.planner.brute_stackings import chosen_by

B, N = symbol("b"), symbol("n")
DOMAIN = Domain()
REPLAY = """
import json, sys, pathlib, z3
answers = {}
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.smt2")):
    solver = z3.SimpleSolver()
    solver.from_string(path.read_text())
    answers[str(path.relative_to(sys.argv[1]))] = str(solver.check())
assert "symalloc" not in sys.modules
print(json.dumps(answers))
"""


def buffer(id_: int, size: Expr, *live: tuple[int, int]) -> Buffer:
    return Buffer(id=id_, name=f"t{id_}", size=size, nbytes=size, live=live)


BUFFERS = (
    buffer(0, round_up(4 * B * N, 64), (0, 2)),
    buffer(1, 256 * B * N, (1, 3)),
    buffer(2, constant(4096), (2, 5)),
    buffer(3, round_up(4 * N, 64), (4, 6)),
    buffer(4, 256 * B * N, (5, 7)),
)


def plan() -> Plan:
    """A choice, a maximum, divisions, a product."""
    one, other = (
        assemble(BUFFERS, Stacking.of(order, BUFFERS), DOMAIN, Prover())
        for order in ((2, 0, 1, 3, 4), (1, 0, 2, 3, 4))
    )
    arena = chosen_by(le(N, 16), one, other)
    return Plan(function="main", arenas=(arena,), guards=guards([arena], DOMAIN, Prover()))


def replayed(folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", REPLAY, str(folder)], capture_output=True, text=True, check=True
    )
    answers = json.loads(done.stdout)
    assert isinstance(answers, dict)
    return answers


def test_every_obligation_of_a_plan_replays_as_unsat(tmp_path: Path) -> None:
    right = plan()
    write_certificate(tmp_path, plan_certificate([(right, DOMAIN)], Prover()))
    answers = replayed(tmp_path)
    (entry,) = json.loads((tmp_path / INDEX).read_text())["plans"]
    assert entry["function"] == "main"
    assert entry["guards"] == [str(g.condition) for g in right.guards]
    rows = entry["obligations"]
    assert {row["file"] for row in rows} == set(answers)
    assert {row["expected"] for row in rows} == set(answers.values()) == {"unsat"}
    assert {row["kind"] for row in rows} == {o.kind for o in obligations(right)}


def test_the_index_names_every_pair_that_is_live_together(tmp_path: Path) -> None:
    files = plan_certificate([(plan(), DOMAIN)], Prover())
    rows = json.loads(files[INDEX])["plans"][0]["obligations"]
    named = {frozenset(pair) for row in rows if row["kind"] == "apart" for pair in row["buffers"]}
    near = interference(BUFFERS)
    assert named == {frozenset((f"t{i}", f"t{j}")) for i, others in enumerate(near) for j in others}


def test_what_is_wrong_with_a_broken_plan_replays_as_sat(tmp_path: Path) -> None:
    right = plan()
    (arena,) = right.arenas
    low = tuple(replace(p, offset=p.offset - 64) if p.buffer.name == "t1" else p for p in arena.placements)
    broken = replace(right, arenas=(replace(arena, placements=low),))
    write_certificate(tmp_path, plan_certificate([(broken, DOMAIN)], Prover()))
    answers = replayed(tmp_path)
    rows = json.loads((tmp_path / INDEX).read_text())["plans"][0]["obligations"]
    assert all(answers[row["file"]] == row["expected"] for row in rows)
    wrong = [row for row in rows if row["expected"] == "sat"]
    assert {"apart", "start"} <= {row["kind"] for row in wrong}
    assert all(any("t1" in names for names in row["buffers"]) for row in wrong if row["buffers"] != [[]])


def test_a_plan_over_the_integers_says_nothing_of_64_bits() -> None:
    unguarded = replace(plan(), guards=())
    for machine, kinds in ((True, {"range"}), (False, set())):
        files = plan_certificate([(unguarded, DOMAIN)], Prover(), machine=machine)
        rows = json.loads(files[INDEX])["plans"][0]["obligations"]
        assert {row["kind"] for row in rows if row["expected"] != "unsat"} == kinds
        assert any(row["kind"] == "apart" for row in rows)


def test_functions_of_odd_names_get_folders_of_their_own() -> None:
    first, second = (replace(plan(), function=name, arenas=()) for name in ("../f", "f g"))
    files = plan_certificate(
        [(p, DOMAIN) for p in (replace(plan(), function="../f"), second, first)], Prover()
    )
    assert all(".." not in Path(name).parts and not Path(name).is_absolute() for name in files)
    assert {Path(name).parts[0] for name in files} == {"0-.._f", INDEX}


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(OSError, match="file"):
        write_certificate(blocked, {INDEX: "{}"})

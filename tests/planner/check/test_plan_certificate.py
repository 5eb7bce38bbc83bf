"""Certificates of plans, replayed and checked in processes that have never seen symalloc; forged ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import tvm
import z3
from tvm import relax

import symalloc
from symalloc.planner.check.obligations import ArenaObligations
from symalloc.planner.check.plan_certificate import (
    INDEX,
    Certificate,
    CertifiedPlan,
    plan_certificate,
    write_certificate,
)
from symalloc.planner.memory_plan import Plan, PlanOptions
from symalloc.planner.offsets import assemble
from symalloc.planner.overflow_guards import guards
from symalloc.planner.stack import Stacking
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover
from symalloc.prover.smtlib import term
from symalloc.relax.files.plan_file import plan_module
from symalloc.size.condition import le
from symalloc.size.expr import constant, round_up, symbol
from tests.models.zoo import MODELS
from tests.planner.brute_stackings import buffer, chosen_by
from tests.planner.check.forgeries import FORGERIES, SCRIPT, checker, forged
from tests.relax.built import MODULES, graph, machine

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
        assemble(BUFFERS, Stacking.of(order, BUFFERS), DOMAIN) for order in ((2, 0, 1, 3, 4), (1, 0, 2, 3, 4))
    )
    arena = chosen_by(le(N, 16), one, other)
    return Plan(function="main", arenas=(arena,), guards=guards([arena], DOMAIN, Prover()))


def isolated(*arguments: object) -> tuple[int, str]:
    """The exit status and the output of Python in a process that knows nothing of symalloc."""
    command = [sys.executable, "-I", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def replayed(plan: Plan, folder: Path) -> tuple[CertifiedPlan, dict[str, str]]:
    """The certificate of a plan, and what z3 answers to each of its files."""
    files = plan_certificate([(plan, DOMAIN)], Prover())
    write_certificate(folder, files)
    status, said = isolated("-c", REPLAY, folder)
    assert status == 0, said
    (entry,) = index_of(files).plans
    return entry, json.loads(said)


def index_of(files: Mapping[str, str]) -> Certificate:
    return msgspec.json.decode(files[INDEX], type=Certificate)


def test_every_claim_of_a_plan_replays_as_unsat(tmp_path: Path) -> None:
    right = plan()
    entry, answers = replayed(right, tmp_path)
    assert (entry.function, entry.text) == ("main", None)
    assert [g.condition for g in entry.guards] == [term(g.condition) for g in right.guards]
    assert {row.file for row in entry.claims} == set(answers)
    assert {row.expected for row in entry.claims} == set(answers.values()) == {"unsat"}
    arenas = [ArenaObligations(arena) for arena in right.arenas]
    claimed = {one.kind for claims in arenas for one in (*claims.of_each(), *claims.all_apart())}
    assert {row.kind for row in entry.claims} == {"guard", *claimed}


def test_what_is_wrong_with_a_broken_plan_replays_as_sat(tmp_path: Path) -> None:
    right = plan()
    (arena,) = right.arenas
    low = tuple(replace(p, offset=p.offset - 64) if p.buffer.name == "t1" else p for p in arena.placements)
    broken = replace(right, arenas=(replace(arena, placements=low),))
    entry, answers = replayed(broken, tmp_path)
    assert all(answers[row.file] == row.expected for row in entry.claims)
    wrong = [row for row in entry.claims if row.expected == "sat"]
    assert {"apart", "start"} <= {row.kind for row in wrong}
    assert all(any(1 in numbers for numbers in row.buffers) for row in wrong if row.buffers[0])


def test_a_plan_over_the_integers_says_nothing_of_64_bits() -> None:
    unguarded = replace(plan(), guards=())
    for asked, kinds in ((True, {"most"}), (False, set())):
        (entry,) = index_of(plan_certificate([(unguarded, DOMAIN)], Prover(), machine=asked)).plans
        assert {row.kind for row in entry.claims if row.expected != "unsat"} == kinds
        assert any(row.kind == "apart" for row in entry.claims)


# -- the script that checks without symalloc -----------------------------------------------------------------


def answered(folder: Path, *options: str) -> tuple[int, str]:
    """The exit status of the script and what it says."""
    return isolated(SCRIPT, folder, *options)


def certified(name: str, folder: Path, **options: Any) -> Path:
    """The certificate of one of the ordinary models."""
    plan_module(MODELS[name].build(), options=PlanOptions(certificate=folder, **options))
    return folder


def test_the_script_is_short_and_knows_nothing_of_symalloc() -> None:
    text = SCRIPT.read_text()
    assert len(text.splitlines()) <= 300
    assert not re.search(r"^\s*(import|from) (symalloc|tvm)", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["branches", "subroutines", "nonzero", "mlp_residual", "append_to_cache"])
def test_true_certificates_of_models_are_accepted(name: str, tmp_path: Path) -> None:
    status, said = answered(certified(name, tmp_path))
    assert (status, said[:9]) == (0, "accepted:")


@pytest.mark.parametrize("guards", ["native", "fallback", "none"])
def test_guards_of_each_kind_are_found(guards: Any, tmp_path: Path) -> None:
    status, said = answered(certified("mlp_residual", tmp_path, guards=guards))
    assert (status, "nothing checks" in said) == ((1, True) if guards == "none" else (0, False))


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A true certificate: two arenas, one guard."""
    folder = certified("mlp_residual", tmp_path_factory.mktemp("right"))
    assert checker().check(folder, packing=False)
    return folder


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A true certificate of a function whose shapes a kernel checks: their product is limited."""
    folder = tmp_path_factory.mktemp("checked")

    def write(emit: Any, x: relax.Var) -> relax.Expr:
        a = emit(relax.op.exp(x))
        return relax.op.tanh(emit(relax.op.multiply(emit(relax.op.add(a, x)), a)))

    planned = symalloc.plan(graph(write, x=("b", "s", 32)), certificate=folder)
    (folder / "0-main" / "function.py").write_text(planned.module.script(show_meta=False))
    assert checker().check(folder, packing=False)
    return folder


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_certificates_are_refused(forgery: str, right: Path, checked: Path, tmp_path: Path) -> None:
    script = checker()
    assert any(forged(one, tmp_path, forgery) for one in (right, checked))
    with pytest.raises((script.Refused, ValueError, LookupError)):
        script.check(tmp_path, packing=False)


def test_the_module_that_is_run_is_what_counts(tmp_path: Path) -> None:
    """A certificate with a function that goes with it says nothing of another module."""
    for name in ("gru", "mlp_residual"):
        planned = plan_module(MODELS[name].build(), options=PlanOptions(certificate=tmp_path / name)).module
        (tmp_path / f"{name}.py").write_text(planned.script(show_meta=False))
    script, told = checker(), tmp_path / "gru" / "0-forward" / "function.py"
    assert script.check(tmp_path / "gru", tmp_path / "gru.py", packing=False)
    told.write_text("")
    assert script.check(tmp_path / "gru", tmp_path / "gru.py", packing=False)
    for other in ("mlp_residual", "more"):
        text = (tmp_path / "gru.py").read_text()
        (tmp_path / "more.py").write_text(text + text.replace("def forward(", "def backward("))
        with pytest.raises((script.Refused, LookupError)):
            script.check(tmp_path / "gru", tmp_path / f"{other}.py", packing=False)
    (tmp_path / "gru" / INDEX).write_text('{"version": 2, "machine": true, "plans": []}')
    with pytest.raises(script.Refused, match="nothing is said of any function"):
        script.check(tmp_path / "gru", packing=False)


def test_what_cannot_be_read_is_no_proof(right: Path, tmp_path: Path) -> None:
    assert answered(tmp_path)[0] == 2
    (tmp_path / INDEX).write_text('{"version": 2}')
    status, said = answered(tmp_path)
    assert status == 2 and "Traceback" not in said
    assert answered(right, "--packing") == (1, "refused: another version, or a packing problem\n")


def test_certificates_of_packings_are_accepted_as_such(tmp_path: Path) -> None:
    rows = [
        {"id": i, "lower": i, "upper": i + 2, "size": size} for i, size in enumerate(("n", "64*n", "4096"))
    ]
    symalloc.pack({"buffers": rows, "symbols": {"n": {"min": 1}}}, certificate=tmp_path)
    assert answered(tmp_path, "--packing")[0] == 0
    assert answered(tmp_path)[0] == 1


def evaluated(text: str, at: Mapping[str, int]) -> int:
    """The value of a term of SMT-LIB, by z3."""
    solver, given = z3.Solver(), [f"(declare-const |{n}| Int) (assert (= |{n}| {v}))" for n, v in at.items()]
    solver.from_string(f"{' '.join(given)} (declare-const %it Int) (assert (= %it {text}))")
    assert solver.check() == z3.sat
    return int(str(solver.model()[z3.Int("%it")]))


def test_offsets_and_bytes_are_those_of_a_call(tmp_path: Path) -> None:
    """The terms of the index, evaluated by z3, beside the tensors that TVM's virtual machine makes."""
    options = PlanOptions(certificate=tmp_path)
    planned = plan_module(MODULES.Chain, options=options)
    (entry,) = index_of({INDEX: (tmp_path / INDEX).read_text()}).plans
    buffers = sorted((b for a in entry.arenas for b in a.buffers), key=lambda b: b.allocated)
    assert len(buffers) > 1
    built = machine(planned.module)
    for n in (1, 5, 33):
        made: list[tuple[int, int]] = []

        def note(_f: Any, name: str, before: bool, result: Any, *given: Any, to: Any = made) -> None:
            if name == "vm.builtin.alloc_tensor" and not before:
                to.append((int(given[1]), result.numpy().nbytes))

        built.set_instrument(note)
        built["main"](tvm.runtime.tensor(np.zeros((n, 8), "float32")))
        wanted = [(evaluated(b.offset, {"n": n}), evaluated(b.bytes, {"n": n})) for b in buffers]
        rest = iter(made)
        assert all(one in rest for one in wanted), (wanted, made)


def test_functions_of_odd_names_get_folders_of_their_own() -> None:
    names = ("../f", "f g", "../f")
    plans = [replace(plan(), function=name, arenas=(), guards=()) for name in names]
    plans[0] = replace(plan(), function="../f")
    files = plan_certificate([(one, DOMAIN) for one in plans], Prover())
    assert all(".." not in Path(name).parts and not Path(name).is_absolute() for name in files)
    assert {Path(name).parts[0] for name in files} == {"0-.._f", INDEX}

"""`symalloc prove` as a person meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., tuple[int, str, str]]


def test_the_question_of_the_readme(run: Run) -> None:
    status, out, _ = run("prove", "4*m <= 16", "--assume", "m >= 1")
    assert status == 1
    assert out.startswith("runtime-check: 4*m <= 16\n  counterexample: m = 5\n")
    assert "  holds only when: m <= 4\n" in out
    assert "  decided by: sampling" in out


def test_always_valid_is_success(run: Run) -> None:
    assert run("prove", "4*m <= 16", "--assume", "m <= 4")[0] == 0


def test_json(run: Run) -> None:
    status, out, _ = run("prove", "4*m <= 16", "--format", "json")
    row = json.loads(out)
    assert status == 1
    assert (row["verdict"], row["counterexample"], row["precondition"]) == (
        "runtime-check",
        {"m": 5},
        "m <= 4",
    )


def test_unrelated_assumption_is_mentioned(run: Run) -> None:
    status, _, err = run("prove", "n <= 4", "--assume", "n == k", "--assume", "k <= 4", "--assume", "z >= 1")
    assert status == 0
    assert err == "note: `z` of --assume has nothing to do with the constraint\n"


def test_batch(tmp_path: Path, run: Run) -> None:
    file, output, folder = tmp_path / "in.json", tmp_path / "out.json", tmp_path / "proofs"
    rows = [
        {"id": "a/1", "constraint": "4*m <= 16", "label": "runtime-check"},
        {"id": "b", "constraint": "m >= 1"},
    ]
    file.write_text(json.dumps(rows))
    status, out, err = run("prove", "--batch", str(file), "-o", str(output), "--certificate", str(folder))
    assert (status, out) == (0, "")
    answers = json.loads(output.read_text())
    assert [a["id"] for a in answers] == ["a/1", "b"]
    assert answers[0]["precondition"] == "m <= 4"
    assert "1 of 1 as labelled, 0 decided otherwise" in err
    assert sorted(p.name for p in folder.iterdir()) == ["a_1.smt2", "b.smt2"]

"""`symalloc prove` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Run


def test_the_question_of_the_readme(run: Run) -> None:
    status, out, _ = run("prove", "4*m <= 16", "--assume", "m >= 1")
    assert status == 1
    assert out.startswith("runtime-check: 4*m <= 16\n  counterexample: m = 5\n")
    assert "  holds only when: m <= 4\n" in out
    assert "  decided by: sampling" in out


def test_json(run: Run) -> None:
    status, out, _ = run("prove", "4*m <= 16", "--format", "json")
    row = json.loads(out)
    assert (status, row["verdict"]) == (1, "runtime-check")
    assert (row["counterexample"], row["precondition"]) == ({"m": 5}, "m <= 4")


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


TABLE = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"
PROBLEM = {
    "name": "two",
    "symbols": {"n": {"min": 1, "max": 8}},
    "buffers": [
        {"id": "x", "size": "64*n", "lower": 0, "upper": 2, "alignment": 64},
        {"id": "y", "size": "128", "lower": 1, "upper": 3, "alignment": 64},
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "two.json").write_text(json.dumps(PROBLEM))
    return tmp_path


def test_a_table_by_default(folder: Path, run: Run) -> None:
    status, out, err = run("pack", folder / "two.json", folder / "table.csv", "--effort", "quick")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["problem", "two", "table"]


def test_json_on_standard_output(folder: Path, run: Run) -> None:
    status, out, _ = run("pack", folder / "two.json", "--format", "json")
    assert status == 0
    assert json.loads(out)["arena"] == "64*n + 128"


def test_a_capacity_that_is_kept_and_one_that_is_not(folder: Path, run: Run) -> None:
    status, out, err = run("pack", folder / "table.csv", "--capacity", "12", "--format", "csv")
    assert (status, err) == (0, "")
    header, *rows = out.splitlines()
    assert header == "id,lower,upper,size,offset"
    assert all(int(row.split(",")[4]) + 4 <= 12 for row in rows)
    status, _, err = run("pack", folder / "table.csv", "--capacity", "11")
    assert status == 1
    assert err == "error: table: does not fit the capacity of 11 bytes: needs 12 bytes\n"
    status, _, err = run("pack", folder / "two.json", "--capacity", "639")
    assert status == 1
    assert err.endswith("needs 640 bytes at n = 8\n")


def test_an_answer_is_read_back_and_stays(folder: Path, run: Run) -> None:
    named = "buffer_id,begin,end,size,gaps\nb1,0,2,4,\nb2,3,8,4,5-6\nb3,0,8,4,\nb4,5,20,4,\nb5,0,20,4,\n"
    (folder / "named.csv").write_text(named)
    gaps = {**PROBLEM, "symbols": {}, "buffers": [{"id": "x", "size": 8, "lower": 0, "upper": 9}]}
    gaps["buffers"] = [*gaps["buffers"], {"id": "y", "size": 8, "lower": 1, "upper": 7, "gaps": [[2, 4]]}]
    (folder / "gaps.json").write_text(json.dumps(gaps))
    for name in ("table.csv", "named.csv", "gaps.json"):
        status, out, err = run("pack", folder / name, "--format", "csv")
        assert (status, err) == (0, "")
        (folder / "answer.csv").write_text(out)
        assert run("pack", folder / "answer.csv", "--format", "csv")[1] == out
    assert out.splitlines()[2] == "y,1,7,8,64,2-4,64"


def test_one_answer_goes_to_a_file_by_its_suffix(folder: Path, run: Run) -> None:
    status, out, _ = run("pack", folder / "two.json", "-o", folder / "answer.json")
    assert status == 0 and out.startswith("problem")
    assert json.loads((folder / "answer.json").read_text())["proved"] is True
    assert run("pack", folder / "table.csv", "-o", folder / "answer.csv")[0] == 0
    assert (folder / "answer.csv").read_text().startswith("id,lower,upper,size,offset\nb1,0,3,4,")


def test_several_answers_go_to_a_directory(folder: Path, run: Run) -> None:
    status, _, _ = run("pack", folder / "two.json", folder / "table.csv", "-o", folder / "out")
    assert status == 0
    assert sorted(p.name for p in (folder / "out").iterdir()) == ["table.csv", "two.json"]


def test_a_certificate_for_each_problem(folder: Path, run: Run) -> None:
    proofs = folder / "proofs"
    assert run("pack", folder / "two.json", "--certificate", proofs)[0] == 0
    assert json.loads((proofs / "index.json").read_text())["version"] == 2
    assert run("pack", folder / "two.json", folder / "table.csv", "--certificate", proofs / "both")[0] == 0
    assert sorted(p.name for p in (proofs / "both").iterdir()) == ["table", "two"]

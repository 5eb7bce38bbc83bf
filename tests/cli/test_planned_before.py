"""A module that is planned already: every verb says so, and none takes it for one without memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_main import SIMPLE

Run = Callable[..., tuple[int, str, str]]
VERBS = (
    ("plan",),
    ("plan", "--compare", "tvm"),
    ("run", "--bind", "n=3", "--check"),
    ("report", "-o", "map.html"),
    ("budget", "--device", "1GiB", "--bind", "n=3"),
)


@pytest.fixture
def planned(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(SIMPLE)
    assert run("plan", "model.py", "-o", "planned.json", "-q")[0] == 0
    return Path("planned.json")


def test_every_verb_says_so_once(run: Run, planned: Path) -> None:
    said = "note: planned.json is planned already: "
    for verb, *options in VERBS:
        status, _, err = run(verb, planned, *options)
        assert (status, err.count(said)) == (0, 1), verb
        status, _, err = run(verb, planned, *options, "-q")
        assert (status, err) == (0, ""), verb
        assert said not in run(verb, "model.py", *options)[2], verb
    status, _, err = run("diff", "model.py", planned)
    assert (status, err.count(said)) == (0, 1)
    assert run("lint", planned)[0] == 0


def test_a_run_does_not_say_that_there_was_nothing(run: Run, planned: Path) -> None:
    _, out, _ = run("run", planned, "--bind", "n=3")
    assert "arena: none, no tensor was left to plan" in out

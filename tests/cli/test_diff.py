from __future__ import annotations

import json
from pathlib import Path

import pytest

import symalloc
from symalloc.errors import UsageError
from tests.cli.documents import read_as
from tests.conftest import Run
from tests.modules import CHAIN

pytestmark = pytest.mark.usefixtures("warm_workers")

MODULE = CHAIN.replace("16", "256")
MORE = MODULE.replace("b = R.add(a, x)", "c = R.concat([x, x])\n        b = R.add(a, R.sum(c))")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A model, and one that takes more."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(MODULE)
    after.write_text(MORE)
    return str(before), str(after)


def test_a_model_that_takes_more(run: Run, files: tuple[str, str]) -> None:
    status, out, err = run("diff", *files, "--bind", "n=4")
    assert (status, err) == (1, "")
    assert "main: a call takes more: n = 1: " in out
    assert "(proved, so at every shape)" in out or "(proved, the smallest such shape)" in out
    assert "    new: " in out
    assert "n = 4" in out


def test_a_plan_from_before_and_a_model_now(run: Run, files: tuple[str, str], tmp_path: Path) -> None:
    _, plan, _ = run("plan", files[0], "--format", "json")
    kept = tmp_path / "plan.json"
    kept.write_text(plan)
    assert run("diff", str(kept), files[0])[0] == 0
    status, text, _ = run("diff", str(kept), files[1], "--format", "json")
    (function,) = read_as("diff", text)["functions"]
    grown = function["measures"]["call"]["grown"]
    assert (status, function["grew"], grown["proved"], grown["binding"]) == (1, True, True, {"n": 1})
    backwards = run("diff", files[1], "-", stdin=plan.encode())
    assert backwards[0] == 0, "the other way round it takes less"


def test_plans_in_memory(files: tuple[str, str]) -> None:
    planned = symalloc.plan(files[0])
    assert not symalloc.diff(planned, files[0]).grew
    diff = symalloc.diff(planned, symalloc.plan(files[1]), bind={"n": 2})
    assert diff.grew
    assert str(diff).endswith("(proved, so at every shape)") or "smallest" in str(diff)
    assert [dict(sample.binding) for sample in diff.functions[0].samples] == [{"n": 2}]
    with pytest.raises(UsageError, match="the binding of 'n' is 'two'"):
        symalloc.diff(files[0], files[0], bind={"n": "two"})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"version": 2, "functions": []}', "a plan report of version 2, only 1 is known"),
        (
            '{"version": 1, "functions": [{"function": "main"}]}',
            "the plan report is not understood: Object missing required field `arenas` - at `$.functions[0]`",
        ),
        ('{"version": 1, "functions": 3}', "the plan report is not understood"),
        ('{"version": 1, "functions": []}', "no function in common: none before, `main` after"),
        ("{", "cannot be read"),
    ],
)
def test_a_report_that_is_none(
    run: Run, files: tuple[str, str], tmp_path: Path, content: str, said: str
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(content)
    status, out, err = run("diff", str(broken), files[0])
    assert (status, out) == (2, "")
    assert said in err and "Traceback" not in err


def test_two_functions_of_one_name_are_refused(run: Run, files: tuple[str, str], tmp_path: Path) -> None:
    document = json.loads(run("plan", files[0], "--format", "json")[1])
    document["functions"] *= 2
    twice = tmp_path / "twice.json"
    twice.write_text(json.dumps(document))
    status, out, err = run("diff", str(twice), files[0])
    assert (status, out) == (2, "")
    assert err.endswith("twice.json: the plan report has several functions called `main`\n")

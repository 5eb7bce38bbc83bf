from __future__ import annotations

from pathlib import Path

import pytest

import symalloc
from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.relax.files.requests import PlanRequest
from symalloc.session.config import find_config, found_files, load_config, plan_options
from symalloc.session.linting import LintSession
from symalloc.session.planning import planned_file


def _write(folder: Path, table: str) -> Path:
    file = folder / "pyproject.toml"
    file.write_text(table, encoding="utf-8")
    return file


def test_everything_is_read(tmp_path: Path) -> None:
    file = _write(
        tmp_path,
        """
[tool.symalloc]
select = ["SYM1"]
ignore = ["SYM105"]
assume = ["n <= 2048"]
rules = ["house-rules"]
stage = "as-is"
exclude = ["third_party"]
per-file-ignores = { "tests/*" = ["SYM2", "SYM3"] }
baseline = "known.json"
jobs = 3
budget = "2MiB"
cache = false
""",
    )
    assert load_config(file) == LintOptions(
        select=("SYM1",),
        ignore=("SYM105",),
        assume=("n <= 2048",),
        rules=(tmp_path / "house-rules",),
        stage="as-is",
        exclude=("third_party",),
        per_file_ignores={"tests/*": ("SYM2", "SYM3")},
        baseline=tmp_path / "known.json",
        jobs=3,
        budget=2 * 2**20,
        cache=False,
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[tool.symalloc]\ntrust = true", ["`trust` cannot be set in a file", "--trust"]),
        ("[tool.symalloc]\nselct = []", ["unknown key `selct`", "did you mean 'select'?"]),
        ("[tool.symalloc]\nper_file_ignores = {}", ["did you mean 'per-file-ignores'?"]),
        ("[tool.symalloc]\nzzz = 1", ["unknown key `zzz`", "known are stage, select"]),
        ("[tool.symalloc]\nselect = 1", ["`select` is 1; it must be a text or a list of texts"]),
        ("[tool.symalloc]\njobs = true", ["`jobs` is True; it must be a whole number of at least 1"]),
        ("[tool.symalloc]\ncache = 'here'", ["`cache` is 'here'; it must be True or False"]),
        ("[tool.symalloc]\nbudget = 0", ["`budget` is 0; it must be from 1 to"]),
        ("[tool.symalloc]\nbaseline = 3", ["`baseline` is 3; it must be a path"]),
        ("[tool.symalloc]\nper-file-ignores = []", ["`per-file-ignores` is []; it must be a table"]),
        ("[tool]\nsymalloc = 3", ["tool.symalloc is not a table"]),
        ("[tool.symalloc\n", ["not valid TOML"]),
        ("[tool.other]", ["there is no [tool.symalloc] table"]),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, table: str, words: list[str]) -> None:
    file = _write(tmp_path, table)
    with pytest.raises(UsageError) as caught:
        load_config(file)
    assert str(file) in str(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_the_nearest_file_with_a_table_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    outer = _write(tmp_path, "[tool.symalloc]\n")
    _write(tmp_path / "a", "[tool.other]\n")
    model = inner / "model.py"
    model.touch()
    assert find_config([str(model)]) == outer
    nearer = _write(inner, "[tool.symalloc]\n")
    assert find_config([str(model)]) == nearer


def test_options_of_plans_stand_beside(tmp_path: Path) -> None:
    file = _write(tmp_path, '[tool.symalloc]\njobs = 3\nmax-buffer = "1MiB"\n')
    assert load_config(file).jobs == 3
    model = tmp_path / "model.py"
    assert plan_options(model, {"max_buffer": None, "bounds": "auto"})[0].max_buffer == 2**20
    assert plan_options(model, {"max_buffer": 2**30})[0].max_buffer == 2**30
    _write(tmp_path, '[tool.symalloc]\nmax-buffer = "none"\n')
    with pytest.raises(UsageError, match=r"pyproject.toml: `max-buffer`: `none` is no amount"):
        plan_options(model, {})


@pytest.mark.parametrize("jobs", [1, 3])
def test_jobs_are_the_most_processes_of_a_session(tmp_path: Path, jobs: int) -> None:
    with LintSession(load_config(_write(tmp_path, f"[tool.symalloc]\njobs = {jobs}"))) as session:
        assert session._pool._size == jobs


def test_contracts_of_packed_functions_reach_lint_and_plans(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        """from tvm.script import ir as I, relax as R, tirx as T


@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 64), "float32"), cache: R.Any) -> R.Any:
        a = R.add(x, x)
        first = R.call_packed("mylib.append", cache, a, ty_args=(R.Any,))
        b = R.add(R.multiply(x, x), x)
        second = R.call_packed("mylib.append", first, b, ty_args=(R.Any,))
        return second
"""
    )
    assert {found.rule for found in symalloc.lint(model)} == {"SYM203", "SYM904"}
    file = _write(tmp_path, '[tool.symalloc.packed."mylib.append"]\nreturns = 0\ntakes = "nothing"\n')
    options = load_config(file)
    assert options.packed["mylib.append"].returns == (0,)
    with LintSession(options) as session:
        assert not session.lint_files(found_files(options, [str(model)])).diagnostics
    request = PlanRequest(path=model, packed=plan_options(model, {})[1])
    (report,) = planned_file(request).file.reports
    assert report.outcome.planned.not_known is None
    assert len(report.placements) == 3

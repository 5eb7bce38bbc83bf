from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import tvm

from symalloc.cli.main import main
from symalloc.relax.files.load import read_one
from tests.cli.documents import read_as
from tests.conftest import Run
from tests.modules import FAULTY

pytestmark = pytest.mark.usefixtures("warm_workers")


HEAD = "from tvm.script import ir as I, relax as R, tirx as T\n\n\n\n"
TENSOR = 'R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([m]), R.dtype("float32"))'
ONLY = ("--select", "SYM101,SYM9")  # what these tests are about


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("model.py")
    path.write_text(HEAD + FAULTY, encoding="utf-8")
    return path


# -- findings --------------------------------------------------------------------------------------------


def test_a_finding_with_both_fixes(run: Run, model: Path) -> None:
    status, out, _ = run("lint", str(model), *ONLY)
    assert status == 1
    assert out.startswith("error[SYM101]: tensor `alloc` can outgrow its storage")
    assert "= counterexample: m = 5  ->  20 B > 16 B" in out
    assert "= holds only when: m <= 4   (no guard in `main` enforces it)" in out
    assert "R.shape([m * 4])   fix (safe), re-linted: always valid" in out
    assert "fix (unsafe), re-linted: always valid" in out
    assert out.endswith("1 fixable with --fix\n")


def test_diff_writes_nothing(run: Run, model: Path) -> None:
    before = model.read_bytes()
    status, out, _ = run("lint", str(model), *ONLY, "--diff")
    assert status == 1
    assert out.startswith("--- a/model.py\n+++ b/model.py\n")
    assert "+        storage = R.memory.alloc_storage(R.shape([m * 4])," in out
    assert model.read_bytes() == before


def test_fix_repairs_the_file_and_keeps_its_form(run: Run, model: Path) -> None:
    model.write_bytes((HEAD + FAULTY).replace("\n", "\r\n").encode())
    model.chmod(0o600)
    status, _, err = run("lint", str(model), *ONLY, "--fix")
    assert status == 0
    assert "fixed 1 finding in 1 file" in err
    expected = (HEAD + FAULTY).replace("R.shape([16])", "R.shape([m * 4])").replace("\n", "\r\n")
    assert model.read_bytes() == expected.encode()
    assert model.stat().st_mode & 0o777 == 0o600


def test_comments_allow_and_say_when_they_do_not(run: Run, model: Path) -> None:
    text = (HEAD + FAULTY).replace(TENSOR, f"{TENSOR}  # symalloc: allow(SYM101) -- m is small")
    model.write_text(text.replace("        m = ", "        # symalloc: allow(SYM102, SYM20l)\n        m = "))
    status, out, _ = run("lint", str(model), "--select", "SYM101,SYM102,SYM901", "--format", "concise")
    assert status == 1
    assert [line.split()[1] for line in out.splitlines()] == ["SYM901", "SYM901"]
    assert "SYM102" in out and "did you mean `SYM2" in out


def test_json_goes_to_a_file_whole(run: Run, model: Path) -> None:
    status, out, _ = run("lint", str(model), *ONLY, "--format", "json", "-o", "report.json", "--exit-zero")
    assert (status, out) == (0, "")
    document = read_as("lint", Path("report.json").read_text(encoding="utf-8"))
    assert [d["rule"] for d in document["diagnostics"]] == ["SYM101"]
    assert sorted(p.name for p in Path.cwd().iterdir()) == ["model.py", "report.json"]


def test_one_unreadable_file_costs_one_finding(run: Run, model: Path) -> None:
    Path("broken.json").write_text('{"root_index": 1', encoding="utf-8")
    Path("evil.py").write_text(
        HEAD + FAULTY.replace("[16]", "[__import__('os').mkdir('owned') or 16]"), encoding="utf-8"
    )
    status, out, _ = run("lint", "broken.json", str(model), "evil.py", *ONLY, "--format", "concise")
    assert status == 2
    found = [(line.split(":")[0], line.split()[1]) for line in out.splitlines()]
    assert list(dict.fromkeys(found)) == [
        ("broken.json", "SYM902"),
        ("model.py", "SYM101"),
        ("evil.py", "SYM902"),
    ]
    assert not Path("owned").exists()


def test_config_is_overlaid_by_the_command_line(run: Run, model: Path) -> None:
    Path("pyproject.toml").write_text('[tool.symalloc]\nselect = ["SYM9"]\nassume = ["m >= 7"]\n')
    status, out, _ = run("lint", str(model), "--select", "SYM101", "--format", "json")
    assert status == 1
    (finding,) = json.loads(out)["diagnostics"]
    assert (finding["rule"], finding["counterexample"]) == ("SYM101", {"m": 7})


def test_a_baseline_leaves_known_findings_out(run: Run, model: Path) -> None:
    status, _, err = run("lint", str(model), *ONLY, "--write-baseline", "known.json")
    assert (status, err) == (0, "wrote known.json: 1 known finding\n")
    Path("pyproject.toml").write_text('[tool.symalloc]\nbaseline = "known.json"\n')
    model.write_text(f"# moved\n{HEAD}{FAULTY}")
    status, out, _ = run("lint", str(model), *ONLY)
    assert (status, "error" in out) == (0, False)
    assert out.endswith("1 known finding left out\n")
    model.write_text(HEAD + FAULTY.replace(TENSOR, TENSOR.replace("[m]", "[m + 1]")))
    status, out, _ = run("lint", str(model), *ONLY)
    assert (status, out.count("error[SYM101]")) == (1, 1)
    assert out.endswith("1 finding of the baseline gone\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("-o", "model.py"),
        ("-o", "link.py"),
        ("-o", "known.json", "--baseline", "known.json"),
        ("-o", "new.json", "--write-baseline", "new.json"),
        ("-o", "pyproject.toml"),
        ("--write-baseline", "model.py"),
    ],
)
def test_what_is_read_is_not_overwritten(run: Run, model: Path, arguments: Sequence[str]) -> None:
    Path("link.py").symlink_to("model.py")
    Path("known.json").write_text('{"version": 1, "findings": []}')
    Path("pyproject.toml").write_text("[tool.symalloc]\n")
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    status, out, err = run("lint", "model.py", *arguments)
    assert (status, out) == (2, "")
    assert f"{arguments[0]} {arguments[1]}: it would overwrite " in err
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before


def test_findings_are_gone_with_the_model(run: Run, model: Path) -> None:
    other = Path("other.py")
    other.write_text(model.read_text())
    assert run("lint", "model.py", "other.py", *ONLY, "--write-baseline", "known.json")[0] == 0
    other.write_text("x = 1\n")
    status, out, _ = run("lint", "model.py", "other.py", *ONLY, "--baseline", "known.json")
    assert status == 0 and "1 finding of the baseline gone" in out


def test_no_baseline_is_written_of_half_the_files(run: Run, model: Path) -> None:
    Path("broken.py").write_text(f"{HEAD}this is no Python")
    status, out, err = run(
        "lint", "broken.py", str(model), *ONLY, "--strict", "--write-baseline", "known.json"
    )
    assert (status, "error[SYM902]" in out) == (2, True)
    assert "no baseline written to known.json: broken.py could not be read in full" in err
    assert not Path("known.json").exists()


def test_what_is_done_is_said_to_whoever_debugs(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    said = []
    for arguments in (["--debug", "lint"], ["lint"]):
        with pytest.raises(SystemExit):
            main([*arguments, str(model), *ONLY, "--format", "concise"])
        said.append(capsys.readouterr().err)
    first, *steps, last = said[0].splitlines()
    assert (first, last) == ("symalloc: reading model.py", "symalloc: read model.py: 1 programs, 0 problems")
    assert {*steps} <= {"symalloc: checking model.py", "symalloc: reading model.py"}
    assert said[1] == ""


DECLARED = """\
from tvm.script import ir as I, relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("m",), "float32")) -> R.Tensor(("m",), "float32"):
        R.func_attr({"tir_var_upper_bound": {"m": 4}})
        with R.dataflow():
            y = R.add(x, x)
            z = R.exp(y)
            w = R.multiply(z, y)
            R.output(w)
        return w
"""


def test_a_bound_of_tvms_plan_is_one_line_at_a_place_that_the_user_has(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(DECLARED)
    _, out, _ = run("lint", file)
    (line,) = [line for line in out.splitlines() if "SYM401" in line]
    assert line.endswith(f"or plan with `symalloc plan --bounds enforce` --> {file}:7:5")
    dumped = tmp_path / "model.json"
    dumped.write_text(tvm.ir.save_json(read_one(file)))
    _, out, _ = run("lint", dumped)
    (line,) = [line for line in out.splitlines() if "SYM401" in line]
    assert line.endswith(f" --> {dumped}")


def test_a_damaged_file_that_is_named_is_an_error(run: Run, tmp_path: Path) -> None:
    sound, damaged = tmp_path / "package.json", tmp_path / "damaged.json"
    sound.write_text('{"name": "x"}')
    damaged.write_text('{"name": "x", ')
    assert run("lint", sound)[0] == 0
    status, out, _ = run("lint", sound, damaged)
    assert status == 2 and "SYM902" in out and str(damaged) in out
    sound.write_text(json.dumps({"nodes": [{}] * 40_000, "root_index": 0}))
    assert run("lint", sound)[0] == 2  # however far behind the mark stands

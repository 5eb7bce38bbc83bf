"""What GitHub runs of action.yml, and what pre-commit reads."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.pool.processes import ran

ROOT = Path(__file__).parent.parent


@pytest.mark.nightly
def test_the_step_annotates_and_writes_sarif(tmp_path: Path) -> None:
    sarif, outputs = tmp_path / "found.sarif", tmp_path / "outputs"
    environment = {
        **os.environ,
        "PATHS": "examples/issue_17322.py examples/mlp.py",
        "ARGS": "--select SYM101 --assume 'm <= 9'",
        "SARIF": str(sarif),
        "GITHUB_OUTPUT": str(outputs),
    }
    status, out, err = ran(sys.executable, ROOT / ".github" / "lint.py", env=environment, cwd=ROOT)
    assert status == 0, err
    (annotation,) = re.findall(r"^::error file=.*", out, re.MULTILINE)
    assert "line=18,col=17" in annotation and "counterexample: m = 5" in annotation.replace("%0A", " ")
    (run,) = json.loads(sarif.read_text())["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["SYM101"]
    assert outputs.read_text() == "status=1\n"


def test_the_action_runs_the_step_with_what_it_reads() -> None:
    action = (ROOT / "action.yml").read_text()
    assert ".github/lint.py" in action
    for name in re.findall(r'environ(?:\.get\()?\[?"([A-Z]+)"', (ROOT / ".github" / "lint.py").read_text()):
        assert name == "GITHUB_OUTPUT" or f"        {name}: ${{{{ inputs." in action


def test_the_hook_runs_a_verb_that_there_is() -> None:
    entries = re.findall(r"^  entry: (.*)$", (ROOT / ".pre-commit-hooks.yaml").read_text(), re.MULTILINE)
    assert entries == ["symalloc lint", "symalloc lint"]


def test_the_documents_name_inputs_and_hooks_that_there_are() -> None:
    github, hook = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "pipelines.md").read_text(), re.DOTALL)
    inputs = re.findall(r"^  ([\w-]+):$", (ROOT / "action.yml").read_text(), re.MULTILINE)
    given = re.findall(r"^      ([\w-]+):", github.partition("with:")[2], re.MULTILINE)
    assert given and set(given) <= set(inputs)
    (chosen,) = re.findall(r"- id: (.*)", hook)
    assert f"- id: {chosen}\n" in (ROOT / ".pre-commit-hooks.yaml").read_text()

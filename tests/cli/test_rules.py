from __future__ import annotations

import json
from pathlib import Path

import pytest

from symalloc.report.document import schema_text
from symalloc.rulebook.rule import load_rules
from tests.conftest import Run

HOUSE_RULE = """
id = "HOUSE101"
name = "odd-storage"
severity = "error"
site = "storage"
constraint = "size % 256 == 0"
message = "storage `{storage}` of {size} is no multiple of 256 B"
doc = "Storages come in multiples of 256 bytes. Our allocator wants it so."
"""


def test_every_rule_is_listed_with_id_name_severity_and_summary(run: Run) -> None:
    status, out, err = run("rules")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == len(load_rules().rules)
    for line, rule in zip(lines, load_rules().rules, strict=True):
        assert line.startswith(f"{rule.id}  {rule.name} ")
        assert f" {rule.severity}" in line
        assert line.endswith(rule.summary.replace("`", ""))


def test_the_list_as_json(run: Run) -> None:
    status, out, _ = run("rules", "--format", "json")
    entries = {entry["id"]: entry for entry in json.loads(out)}
    assert status == 0
    assert entries["SYM101"]["constraint"] == "offset + nbytes <= storage.size"
    assert entries["SYM201"]["relation"] == "use-after-kill"
    assert entries["SYM301"]["severity_at_runtime"] is None
    assert entries["SYM109"]["severity_when_empty"] == "note"
    assert entries["SYM101"]["fixes"] == ["grow-storage", "insert-assertion"]


def test_a_folder_of_rules_is_listed_too(run: Run, tmp_path: Path) -> None:
    (tmp_path / "HOUSE101.toml").write_text(HOUSE_RULE)
    status, out, _ = run("rules", "--rules", str(tmp_path))
    assert status == 0
    assert out.startswith("HOUSE101  odd-storage ")
    status, out, _ = run("explain", "odd-storage", "--rules", str(tmp_path))
    assert status == 0
    assert "must hold: size % 256 == 0" in out


def test_a_faulty_folder_of_rules_is_told_about(run: Run, tmp_path: Path) -> None:
    (tmp_path / "HOUSE101.toml").write_text(HOUSE_RULE.replace("size % 256", "sise % 256"))
    for verb in (["rules"], ["explain", "SYM101"]):
        status, out, err = run(*verb, "--rules", str(tmp_path))
        assert (status, out) == (2, "")
        assert "HOUSE101.toml:6: constraint: unknown name `sise`" in err
        assert "(did you mean `size`?)" in err


def test_the_schema_of_a_document_is_printed(run: Run) -> None:
    assert run("schema", "plan") == (0, schema_text("plan"), "")


@pytest.mark.parametrize("key", ["SYM101", "sym101", "tensor-exceeds-storage"])
def test_a_rule_is_explained_by_id_or_name(run: Run, key: str) -> None:
    status, out, err = run("explain", key)
    assert (status, err) == (0, "")
    assert out.startswith("SYM101 tensor-exceeds-storage (error)\n")
    assert "must hold: offset + nbytes <= storage.size" in out
    assert "error[SYM101]: tensor `alloc` can outgrow its storage" in out
    assert "= holds only when: m <= 4" in out
    assert "https://github.com/apache/tvm/issues/17322" in out
    assert "# symalloc: allow(SYM101)" in out


def test_one_example_of_each_kind_is_shown_unless_all_are_asked_for(run: Run) -> None:
    rule = load_rules().get("SYM203")
    _, short, _ = run("explain", "SYM203")
    assert (short.count("Found: "), short.count("Fine: ")) == (1, 1)
    assert f"{len(rule.bad) + len(rule.good) - 2} more examples: symalloc explain SYM203 --all" in short
    _, full, _ = run("explain", "SYM203", "--all")
    assert (full.count("Found: "), full.count("Fine: ")) == (len(rule.bad), len(rule.good))
    assert "more example" not in full


def test_examples_are_printed_as_they_stand(run: Run) -> None:
    """Long lines too: what is shown can be copied and linted."""
    for rule in load_rules().rules:
        _, out, _ = run("explain", rule.id)
        for line in rule.bad[0].module.strip().splitlines():
            assert f"    {line}".rstrip() in out.splitlines()


def test_without_a_rule_all_are_listed(run: Run) -> None:
    status, out, _ = run("explain")
    assert status == 0
    assert out == run("rules")[1]

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from symalloc.rulebook.book import load_rules
from symalloc.rulebook.rule import RuleError
from symalloc.rulebook.sites import SITE_KINDS

RuleWriter = Callable[..., Path]
SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "rules").glob("SYM*.toml"))


def test_the_shipped_rules_are_all_there_in_order() -> None:
    assert [rule.id for rule in load_rules().rules] == SHIPPED


def test_a_shipped_rule_lies_in_the_file_named_after_it() -> None:
    assert all(rule.file.stem == rule.id for rule in load_rules().rules)


def test_every_shipped_rule_is_documented_and_has_examples() -> None:
    for rule in load_rules().rules:
        paragraphs = rule.doc.split("\n\n")
        assert 2 <= len(paragraphs) <= 4, rule.id
        assert rule.bad and rule.good, rule.id
        assert 10 < len(rule.summary) < 170, rule.id


def test_rules_are_found_by_site() -> None:
    rules = load_rules()
    assert {r.id for r in rules.by_site("tensor-on-storage")} >= {"SYM101", "SYM102", "SYM104", "SYM106"}
    for kind in SITE_KINDS:
        assert rules.by_site(kind) == tuple(rule for rule in rules.rules if rule.site == kind)
    assert sum(len(rules.by_site(kind)) for kind in SITE_KINDS) == len(rules.rules)
    with pytest.raises(KeyError):
        rules.by_site("nowhere")


@pytest.mark.parametrize("key", ["SYM203", "sym203", "live-tensors-overlap", "Live-Tensors-Overlap"])
def test_a_rule_is_found_by_id_or_name(key: str) -> None:
    assert load_rules().get(key).id == "SYM203"


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [
        ("SYM198", "SYM109"),
        ("use-after-free", "use-after-kill"),
        ("tensor-exceed-storage", "tensor-exceeds-storage"),
    ],
)
def test_an_unknown_rule_is_refused_with_a_suggestion(key: str, suggestion: str) -> None:
    with pytest.raises(RuleError, match=f"unknown rule `{key}`") as caught:
        load_rules().get(key)
    assert caught.value.suggestion == suggestion


def test_rules_are_selected_by_id_beginning_and_name() -> None:
    rules = load_rules()
    assert [r.id for r in rules.select(["SYM3"], ["SYM302", "constant-index-out-of-range"]).rules] == [
        "SYM301",
        "SYM303",
        "SYM304",
        "SYM306",
        "SYM307",
        "SYM308",
        "SYM309",
    ]
    assert rules.select().rules == rules.rules
    assert next(r.id for r in rules.select(ignore=["sym1", "SYM2", "SYM9"]).rules) == "SYM301"
    assert rules.ids("S") == {r.id for r in rules.rules}
    for wrong in ("", "SYM8", "sym-101"):
        with pytest.raises(RuleError, match="unknown rule"):
            rules.select([wrong])


def test_a_house_rule_joins_the_shipped_ones(write_rule: RuleWriter) -> None:
    folder = write_rule().parent
    rules = load_rules([folder])
    assert len(rules.rules) == len(SHIPPED) + 1
    assert rules.get("odd-storage").id == "HOUSE101"
    assert next(r.id for r in rules.by_site("tensor-on-storage")) == "HOUSE101"
    assert len(load_rules().rules) == len(SHIPPED)
    assert load_rules([folder / "HOUSE101.toml"]).rules == rules.rules


def test_ids_and_names_are_taken_once(write_rule: RuleWriter) -> None:
    folder = write_rule().parent
    write_rule("other.toml", name='"other"')
    with pytest.raises(RuleError, match=r"other\.toml: id: `HOUSE101` is already taken by .*HOUSE101\.toml"):
        load_rules([folder])
    write_rule("other.toml", id='"HOUSE102"')
    with pytest.raises(RuleError, match=r"name: `odd-storage` is already taken"):
        load_rules([folder])
    write_rule("other.toml", id='"HOUSE102"', name='"use-after-kill"')
    with pytest.raises(RuleError, match=r"`use-after-kill` is already taken by .*SYM201\.toml"):
        load_rules([folder])


def test_a_folder_without_rules_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"holds no rules"):
        load_rules([tmp_path])
    with pytest.raises(RuleError, match="no such folder"):
        load_rules([tmp_path / "missing"])


def test_the_rulebook_needs_neither_tvm_nor_sympy_nor_z3() -> None:
    code = (
        "import sys; from symalloc.rulebook.book import load_rules; load_rules();"
        "print([m for m in ('tvm', 'sympy', 'z3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

from __future__ import annotations

from collections.abc import Callable

import pytest

from symalloc.rulebook.book import load_rules

Run = Callable[..., tuple[int, str, str]]


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

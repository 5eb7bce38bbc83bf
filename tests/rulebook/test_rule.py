from __future__ import annotations

import pytest

from symalloc.rulebook.book import load_rules
from symalloc.rulebook.rule import Value
from symalloc.size.parse import parse_condition, parse_expr

VALUES: dict[str, Value] = {
    "tensor": "alloc",
    "storage": "storage",
    "nbytes": parse_expr("4*m"),
    "offset": parse_expr("0"),
    "numel": parse_expr("m"),
    "storage.size": parse_expr("16"),
    "shape": "m",
    "dtype": "float32",
}


def test_the_condition_of_a_constraint_is_over_what_the_site_holds() -> None:
    rule = load_rules().get("SYM101")
    assert rule.needs == {"offset", "nbytes", "storage.size"}
    quantities = {name: value for name, value in VALUES.items() if name in rule.needs}
    assert rule.condition(quantities) == parse_condition("m <= 4")  # type: ignore[arg-type]


def test_a_relation_has_no_condition() -> None:
    with pytest.raises(TypeError, match="SYM201 asks for a relation"):
        load_rules().get("SYM201").condition({})


def test_a_rule_says_what_it_found() -> None:
    rule = load_rules().get("SYM101")
    assert rule.message_about(VALUES) == (
        "tensor `alloc` can outgrow its storage: 4*m B at offset 0 does not fit in 16 B"
    )
    invalid = rule.message_about(VALUES, never_holds=True)
    assert invalid is not None and "does not fit its storage: 4*m B" in invalid
    assert rule.rendered((rule.label,), VALUES) == ("`alloc` needs 4*m B (m x float32)",)
    assert rule.message_about({}) is None


def test_the_first_help_that_has_all_its_values_is_given() -> None:
    rule = load_rules().get("SYM101")
    guarded = rule.help_about({**VALUES, "precondition": parse_condition("m <= 4")})
    assert guarded is not None and guarded.endswith("R.shape([4*m]), or guard with m <= 4")
    plain = rule.help_about(VALUES)
    assert plain is not None and plain.endswith("reserve R.shape([4*m])")
    assert rule.help_about({}) is None


def test_a_note_without_its_values_is_left_out() -> None:
    rule = load_rules().get("SYM101")
    assert rule.rendered(rule.notes, VALUES) == ()
    (note,) = rule.rendered(rule.notes, {**VALUES, "noticed_at": "m = 1025"})
    assert note.startswith("TVM hides this until m = 1025: 16 B")


def test_the_summary_is_the_first_sentence() -> None:
    assert load_rules().get("SYM204").summary == (
        "A storage or tensor must be allocated on every path that leads to its use."
    )

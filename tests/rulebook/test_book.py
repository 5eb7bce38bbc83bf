"""The book of rules: its files, their types, their templates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from symalloc.rulebook.rule import (
    IN_ADVICE,
    SITE_KINDS,
    RuleError,
    Value,
    compile_template,
    load_rules,
    read_rule,
)
from symalloc.size.parse import parse_condition, parse_expr

RuleWriter = Callable[..., Path]
SHIPPED = sorted(path.stem for path in (Path(__file__).parents[2] / "rules").glob("SYM*.toml"))


def test_the_shipped_rules_are_all_there_in_order_documented_and_with_examples() -> None:
    rules = load_rules().rules
    assert [rule.id for rule in rules] == [rule.file.stem for rule in rules] == SHIPPED
    for rule in rules:
        assert 2 <= len(rule.doc.split("\n\n")) <= 4, rule.id
        assert rule.bad and rule.good, rule.id
        assert 10 < len(rule.summary) < 170, rule.id
    summary = "A storage or tensor must be allocated on every path that leads to its use."
    assert load_rules().get("SYM204").summary == summary


def test_rules_are_found_by_site() -> None:
    rules = load_rules()
    for kind in SITE_KINDS:
        assert rules.by_site[kind] == tuple(rule for rule in rules.rules if rule.site == kind)
    assert {r.id for r in rules.by_site["tensor-on-storage"]} >= {"SYM101", "SYM102", "SYM104", "SYM106"}
    with pytest.raises(KeyError):
        rules.by_site["nowhere"]


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
    chosen = rules.select(["SYM3"], ["SYM302", "constant-index-out-of-range"]).rules
    assert [r.id for r in chosen] == [f"SYM{number}" for number in (301, 303, 304, *range(306, 311))]
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
    assert next(r.id for r in rules.by_site["tensor-on-storage"]) == "HOUSE101"
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
        "import sys; from symalloc.rulebook.rule import load_rules; load_rules();"
        "print([m for m in ('tvm', 'sympy', 'z3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


EXAMPLE = """
[[bad]]
name = "odd"
module = "class Module: pass"
expect = { verdict = "runtime-check", counterexample = { m = 1 } }
"""


def test_a_rule_is_what_its_file_says(write_rule: RuleWriter) -> None:
    path = write_rule(tail=EXAMPLE, help='["reserve {precondition}", "round up"]', note='"{noticed_at}"')
    rule = read_rule(path)
    known = (rule.id, rule.name, rule.severity, rule.severity_at_runtime, rule.site)
    assert known == ("HOUSE101", "odd-storage", "error", "error", "tensor-on-storage")
    assert rule.needs == {"storage.size"}
    assert rule.help == ("reserve {precondition}", "round up")
    assert rule.notes == ("{noticed_at}",)
    assert rule.message_when_invalid == rule.message
    assert rule.bad[0].expect.counterexample == {"m": 1}
    assert rule.file == path


def test_the_severity_of_a_runtime_check_may_differ_or_be_off(write_rule: RuleWriter) -> None:
    assert read_rule(write_rule(severity_at_runtime='"note"')).severity_at_runtime == "note"
    assert read_rule(write_rule(severity_at_runtime='"off"')).severity_at_runtime is None


@pytest.mark.parametrize(
    ("lines", "field", "problem", "suggestion"),
    [
        ({"severty": '"error"'}, "severty", "unknown key", "severity"),
        ({"sit": '"use"'}, "sit", "unknown key", "site"),
        ({"zzz": "1"}, "zzz", "unknown key", None),
        ({"severity": None}, None, "`severity` is missing", None),
        ({"severity": '"fatal"'}, "severity", "invalid enum value 'fatal'", None),
        ({"message": "3"}, "message", "expected `str`, got `int`", None),
        ({"fixes": '["rewrite-everything"]'}, "fixes[0]", "invalid enum value", None),
        ({"site": '"tensor-on-storag"'}, "site", "unknown site `tensor-on-storag`", "tensor-on-storage"),
        ({"constraint": '"storage.sise >= 0"'}, "constraint", "unknown name `storage.sise`", "storage.size"),
        ({"constraint": '"ofset >= 0"'}, "constraint", "`ofset`; this site offers offset", "offset"),
        ({"constraint": '"mx(1, 2) == 1"'}, "constraint", "is not a size function; known are ceildiv", "max"),
        ({"constraint": '"offset"'}, "constraint", "a size where a condition is expected", None),
        ({"constraint": '"1 + (nbytes <= 3)"'}, "constraint", "a size where a condition is expected", None),
        ({"constraint": None}, "constraint", "either a `constraint` or a `relation`", None),
        ({"relation": '"placement-differs"'}, "constraint", "either a `constraint` or a `relation`", None),
        (
            {"constraint": None, "relation": '"placement-difers"'},
            "relation",
            "unknown relation `placement-difers`; a tensor-on-storage site knows placement-differs",
            "placement-differs",
        ),
        ({"message": '"{tensr} is odd"'}, "message", "unknown name `tensr`", "tensor"),
        ({"message": '"{precondition}"'}, "message", "unknown name `precondition`", None),
        ({"message": '"{nbytes:hex}"'}, "message", "unknown style `hex`", "code"),
        ({"message": '"{tensor"'}, "message", "write {{ and }} for braces", None),
        ({"message": '"tensor}"'}, "message", "write {{ and }} for braces", None),
        ({"message": '"{}"'}, "message", "syntax error", None),
        ({"label": '"{offset + numl}"'}, "label", "unknown name `numl`", "numel"),
        ({"help": '["fine", "{countrexample}"]'}, "help", "unknown name", "counterexample"),
        ({"note": '"{noticed}"'}, "note", "unknown name `noticed`", "noticed_at"),
        ({"labels": '{ storag = "here" }'}, "labels", "unknown place `storag`", "storage"),
        ({"labels": '{ storage = "{sise}" }'}, "labels.storage", "unknown name `sise`", None),
        ({"id": '"house-1"'}, "id", "expected `str` matching regex", None),
        ({"name": '"Odd Storage"'}, "name", "expected `str` matching regex", None),
    ],
)
def test_a_faulty_rule_is_refused_with_place_and_suggestion(
    write_rule: RuleWriter,
    lines: dict[str, str | None],
    field: str | None,
    problem: str,
    suggestion: str | None,
) -> None:
    path = write_rule(**lines)
    with pytest.raises(RuleError) as caught:
        read_rule(path)
    error = caught.value
    assert (error.file, error.field, error.suggestion) == (path, field, suggestion)
    assert problem in error.problem
    assert str(error).startswith(f"{path}:")


@pytest.mark.parametrize(
    ("tail", "field", "suggestion"),
    [
        (EXAMPLE.replace("expect", "expects"), "bad[0].expects", "expect"),
        (EXAMPLE.replace("verdict", "verdct"), "bad[0].expect.verdct", "verdict"),
        ('[[goood]]\nname = "x"\nmodule = "y"\n', "goood", "good"),
    ],
)
def test_an_unknown_key_of_an_example_is_refused(
    write_rule: RuleWriter, tail: str, field: str, suggestion: str
) -> None:
    with pytest.raises(RuleError, match="did you mean") as caught:
        read_rule(write_rule(tail=tail))
    assert (caught.value.field, caught.value.suggestion) == (field, suggestion)
    assert caught.value.line is not None


@pytest.mark.parametrize(
    ("lines", "line", "said"),
    [
        ({"constraint": '"offset + numl <= storage.size"'}, 5, "constraint: unknown name `numl`"),
        ({"severity": "error"}, 3, "is not TOML"),
    ],
)
def test_the_line_is_that_of_the_key(
    write_rule: RuleWriter, lines: dict[str, str], line: int, said: str
) -> None:
    path = write_rule(**lines)
    with pytest.raises(RuleError) as caught:
        read_rule(path)
    assert caught.value.line == line
    assert path.read_text().splitlines()[line - 1].startswith(next(iter(lines)))
    assert str(caught.value).startswith(f"{path}:{line}: ") and said in str(caught.value)
    assert "at line" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="cannot be read: No such file"):
        read_rule(tmp_path / "missing.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b'id = "\xff"')
    with pytest.raises(RuleError, match="is not UTF-8"):
        read_rule(binary)
    binary.write_bytes(b"")
    with pytest.raises(RuleError, match="`id` is missing"):
        read_rule(binary)


OUTGROWN: dict[str, Value] = {
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
    quantities = {name: value for name, value in OUTGROWN.items() if name in rule.needs}
    assert rule.condition(quantities) == parse_condition("m <= 4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="SYM201 asks for a relation"):
        load_rules().get("SYM201").condition({})


def test_a_rule_says_what_it_found_where_it_has_the_values() -> None:
    rule = load_rules().get("SYM101")
    assert rule.message_about(OUTGROWN) == (
        "tensor `alloc` can outgrow its storage: 4*m B at offset 0 does not fit in 16 B"
    )
    invalid = rule.message_about(OUTGROWN, never_holds=True)
    assert invalid is not None and "does not fit its storage: 4*m B" in invalid
    assert rule.rendered((rule.label,), OUTGROWN) == ("`alloc` needs 4*m B (m x float32)",)
    assert rule.rendered(rule.notes, OUTGROWN) == ()
    (note,) = rule.rendered(rule.notes, {**OUTGROWN, "noticed_at": "m = 1025"})
    assert note.startswith("TVM hides this until m = 1025: 16 B")
    assert rule.message_about({}) is None and rule.help_about({}) is None


def test_the_first_help_that_has_all_its_values_is_given() -> None:
    rule = load_rules().get("SYM101")
    guarded = rule.help_about({**OUTGROWN, "precondition": parse_condition("m <= 4")})
    assert guarded is not None and guarded.endswith("R.shape([4*m]), or guard with m <= 4")
    plain = rule.help_about(OUTGROWN)
    assert plain is not None and plain.endswith("reserve R.shape([4*m])")


SITE = "tensor-on-storage"
VALUES: dict[str, Value] = {
    **OUTGROWN,
    "itemsize": 4,
    "storage.size": 16,
    "precondition": parse_condition("m <= 4"),
    "counterexample": {"m": 5, "n": 1},
    "consequence": None,
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("no names", "no names"),
        ("`{tensor}` on `{storage}`", "`alloc` on `storage`"),
        ("{nbytes} in {storage.size}", "4*m B in 16 B"),
        ("{offset + nbytes + 64}", "(4*m + 64) B"),
        ("{offset}", "0 B"),
        ("{offset:code}", "0"),
        ("R.shape([{nbytes + 64:code}])", "R.shape([4*m + 64])"),
        ("{numel} elements", "m elements"),
        ("{numel * itemsize}", "4*m"),
        ("{round_up(storage.size, 4096)}", "4096 B"),
        ("{{m}} is {tensor}", "{m} is alloc"),
    ],
)
def test_a_template_writes_names_and_expressions(template: str, expected: str) -> None:
    assert compile_template(template, SITE).render(VALUES) == expected


def test_help_may_use_what_the_proof_found_and_texts_win_over_quantities() -> None:
    template = compile_template("{precondition}, else {counterexample}", SITE, IN_ADVICE)
    assert template.render(VALUES) == "m <= 4, else m = 5, n = 1"
    assert compile_template("at {offset}", SITE).render({"offset": "the end"}) == "at the end"


@pytest.mark.parametrize("template", ["{consequence}", "{alignment}", "{offset + alignment}", "{noticed_at}"])
def test_a_name_without_a_value_is_not_rendered(template: str) -> None:
    assert compile_template(template, SITE, IN_ADVICE).render(VALUES) is None

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from symalloc.rulebook.book import read_rule
from symalloc.rulebook.rule import RuleError

RuleWriter = Callable[..., Path]
EXAMPLE = """
[[bad]]
name = "odd"
module = "class Module: pass"
expect = { verdict = "runtime-check", counterexample = { m = 1 } }
"""


def test_a_rule_is_what_its_file_says(write_rule: RuleWriter) -> None:
    path = write_rule(tail=EXAMPLE, help='["reserve {precondition}", "round up"]', note='"{noticed_at}"')
    rule = read_rule(path)
    assert (rule.id, rule.name, rule.severity, rule.site) == (
        "HOUSE101",
        "odd-storage",
        "error",
        "tensor-on-storage",
    )
    assert rule.severity_at_runtime == "error"
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


def test_the_line_is_that_of_the_key(write_rule: RuleWriter) -> None:
    path = write_rule(constraint='"offset + numl <= storage.size"')
    with pytest.raises(RuleError) as caught:
        read_rule(path)
    assert caught.value.line == 5
    assert path.read_text().splitlines()[4].startswith("constraint")
    assert str(caught.value).startswith(f"{path}:5: constraint: unknown name `numl`")


def test_malformed_toml_is_refused_with_its_line(write_rule: RuleWriter) -> None:
    path = write_rule(severity="error")
    with pytest.raises(RuleError) as caught:
        read_rule(path)
    assert caught.value.line == 3
    assert "is not TOML" in str(caught.value)
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

"""A user's own folder of rules is as good as the shipped one."""

from __future__ import annotations

from pathlib import Path

import pytest

import symalloc
from symalloc.errors import UsageError
from symalloc.rulebook.rule import load_rules
from symalloc.size.parse import parse_condition

pytestmark = pytest.mark.usefixtures("warm_workers")

HOUSE_RULE = """
id = "HOUSE101"
name = "odd-storage"
severity = "error"
severity_at_runtime = "warning"
site = "tensor-on-storage"
constraint = "storage.size % 256 == 0"
message = "storage `{storage}` can be of {storage.size}, no multiple of 256 B"
message_when_invalid = "storage `{storage}` is of {storage.size}, no multiple of 256 B"
help = "reserve {round_up(storage.size, 256)}"
doc = "Storages come in multiples of 256 bytes. Our allocator wants it so."
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "HOUSE101.toml").write_text(HOUSE_RULE)
    return folder


def _example(rule: str, kind: str, index: int, folder: Path) -> Path:
    example = getattr(load_rules().get(rule), kind)[index]
    file = folder / "module.py"
    file.write_text(example.module)
    return file


def test_a_house_rule_finds_what_it_asks_for(house: Path, tmp_path: Path) -> None:
    file = _example("SYM101", "good", 0, tmp_path)
    (found,) = symalloc.lint(file, rules=[house], stage="as-is")
    assert (found.rule, found.name, found.severity) == ("HOUSE101", "odd-storage", "warning")
    assert found.message == "storage `storage` can be of 4*m B, no multiple of 256 B"
    assert found.counterexample == {"m": 1}
    assert found.precondition is not None
    precondition = parse_condition(found.precondition)
    assert all(precondition.evaluate({"m": m}) == (m % 64 == 0) for m in range(300))
    assert found.help is not None and found.help.startswith("reserve 256*")
    assert symalloc.lint(file, stage="as-is").ok


def test_a_house_rule_is_definite_where_it_can_be(house: Path, tmp_path: Path) -> None:
    file = _example("SYM201", "good", 0, tmp_path)
    (found,) = symalloc.lint(file, rules=house, select=["HOUSE1"], stage="as-is")
    assert (found.verdict, found.severity) == ("always-invalid", "error")
    assert found.message == "storage `storage` is of 64 B, no multiple of 256 B"


def test_a_faulty_house_rule_is_refused(house: Path, tmp_path: Path) -> None:
    (house / "HOUSE102.toml").write_text(HOUSE_RULE.replace("HOUSE101", "HOUSE102"))
    file = _example("SYM101", "good", 0, tmp_path)
    with pytest.raises(UsageError, match=r"HOUSE102\.toml: name: `odd-storage` is already taken"):
        symalloc.lint(file, rules=house)


def test_a_rule_that_keeps_silent_needs_no_declared_bound(house: Path, tmp_path: Path) -> None:
    silent = HOUSE_RULE.replace('at_runtime = "warning"', 'at_runtime = "off"').replace("% 256 == 0", "<= 64")
    (house / "HOUSE101.toml").write_text(silent)
    file = _example("SYM401", "good", 1, tmp_path)
    assert symalloc.lint(file, rules=house, stage="as-is").ok

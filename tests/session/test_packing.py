"""`symalloc.pack`, the function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from symalloc import UsageError, pack

PROBLEM = {
    "symbols": {"n": {}},
    "buffers": [
        {"id": "x", "size": "64*n", "lower": 0, "upper": 2},
        {"id": "y", "size": "128", "lower": 1, "upper": 3},
    ],
}


def test_a_dictionary_and_a_file_give_the_same(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps(PROBLEM))
    answers = [pack(PROBLEM, effort="quick"), pack(file, effort="quick"), pack(str(file), effort="quick")]
    assert {str(a.arena) for a in answers} == {"64*n + 128"}
    assert len({tuple(sorted((k, str(v)) for k, v in a.offsets.items())) for a in answers}) == 1


def test_a_capacity_and_a_certificate(tmp_path: Path) -> None:
    packing = pack(PROBLEM, capacity=100, certificate=tmp_path / "proof")
    assert packing.overrun is not None
    assert (tmp_path / "proof" / "index.json").is_file()


def test_errors_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(
        '{"buffers": [{"id": 1, "size": "8 // n", "lower": 0, "upper": 1}], "symbols": {"n": {"min": 0}}}'
    )
    with pytest.raises(
        UsageError, match=r"p\.json: buffers\[0\] \(`1`\)\.size: .* makes sense only where n >= 1"
    ):
        pack(file)
    with pytest.raises(UsageError, match=r"the id of a buffer is empty"):
        pack({"buffers": [{"id": "", "size": 1, "lower": 0, "upper": 1}]})


def test_absurd_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="a size goes beyond"):
        pack({"symbols": {"n": {}}, "buffers": [{"id": "x", "size": "n * 2**4000", "lower": 0, "upper": 1}]})
    assert pack({"buffers": [{"id": "x", "size": "2**70", "lower": 0, "upper": 1}]}).arena == 2**70

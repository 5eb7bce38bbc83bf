from __future__ import annotations

import pytest

from symalloc.rulebook.language import Units, compile_constraint, compile_quantity
from symalloc.size.parse import parse_condition, parse_expr

QUANTITIES: Units = {
    "offset": "bytes",
    "nbytes": "bytes",
    "numel": "elements",
    "itemsize": "bytes/element",
    "storage.size": "bytes",
    "actual": "number",
}
VALUES = {
    "offset": parse_expr("64*k"),
    "nbytes": parse_expr("4*m"),
    "numel": parse_expr("m"),
    "itemsize": parse_expr("4"),
    "storage.size": parse_expr("n*1024"),
    "actual": parse_expr("m - 1"),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("offset + nbytes <= storage.size", "64*k + 4*m <= n*1024"),
        ("numel * itemsize == nbytes", "True"),
        ("offset % 64 == 0", "True"),
        ("0 <= offset < storage.size", "0 <= 64*k and 64*k < n*1024"),
        ("not nbytes > storage.size", "4*m <= n*1024"),
        ("nbytes == 0 or offset + nbytes <= 128", "4*m == 0 or 64*k + 4*m <= 128"),
        ("round_up(nbytes, 64) <= storage.size", "round_up(4*m, 64) <= n*1024"),
        ("max(offset, nbytes, 256) <= storage.size", "max(64*k, 4*m, 256) <= n*1024"),
        ("min(nbytes, 7) >= -offset", "min(4*m, 7) >= -64*k"),
        ("storage.size // nbytes >= 2", "(n*1024) // (4*m) >= 2"),
        ("nbytes // itemsize == numel", "True"),
        ("nbytes <= 2**63 - 1", "4*m <= 9223372036854775807"),
        ("actual != 3", "m - 1 != 3"),
        ("nbytes * actual < 10", "4*m*(m - 1) < 10"),
    ],
)
def test_a_constraint_builds_the_condition_it_writes(text: str, expected: str) -> None:
    constraint = compile_constraint(text, QUANTITIES)
    assert constraint.at(VALUES) == parse_condition(expected)


def test_a_constraint_knows_the_quantities_it_needs() -> None:
    constraint = compile_constraint("offset + nbytes <= storage.size or offset == 0", QUANTITIES)
    assert constraint.names == {"offset", "nbytes", "storage.size"}
    with pytest.raises(KeyError, match="nbytes"):
        constraint.at({"offset": parse_expr("n"), "storage.size": parse_expr("1")})


@pytest.mark.parametrize(
    ("text", "in_bytes"),
    [
        ("offset", True),
        ("offset + 4", True),
        ("nbytes % 64", True),
        ("max(1, nbytes - offset)", True),
        ("round_up(nbytes, 64)", True),
        ("3 * 4", False),
        ("-numel", False),
        ("offset + numel", False),
        ("numel * itemsize", False),
        ("nbytes // offset", False),
        ("ceildiv(nbytes, 64)", False),
    ],
)
def test_a_size_is_in_bytes_where_it_is_of_bytes_alone(text: str, in_bytes: bool) -> None:
    assert compile_quantity(text, QUANTITIES).in_bytes is in_bytes


@pytest.mark.parametrize(
    ("text", "consequence"),
    [
        ("offset + nbytes <= storage.size", "80 B > 16 B"),
        ("offset % 128 == 0", "64 B != 0 B"),
        ("storage.size // nbytes >= 2", "1 < 2"),
    ],
)
def test_a_consequence_has_units_where_it_compares_bytes(text: str, consequence: str) -> None:
    values = {"offset": parse_expr("64"), "nbytes": parse_expr("16"), "storage.size": parse_expr("n")}
    assert compile_constraint(text, QUANTITIES).consequence(values, {"n": 16}) == consequence

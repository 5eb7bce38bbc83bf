"""Records made by position are those made by keywords."""

from __future__ import annotations

import pytest

from symalloc.program.ir import Alias, AllocFresh, TextLiteral, Var
from symalloc.program.record import by_position
from symalloc.program.types import DType, OpaqueType

VAR, FLOAT = Var("x", OpaqueType()), DType("float32", 32)


def test_fields_come_in_order_those_of_a_base_first() -> None:
    named = AllocFresh(var=VAR, handle=3, shape=(), dtype=FLOAT, device=1, inexact="i")
    made = by_position(AllocFresh)(VAR, None, 3, (), FLOAT, 1, "global", "i")
    assert made == named and made.handle == named.handle and type(made) is AllocFresh


def test_no_field_may_be_left_out() -> None:
    with pytest.raises(TypeError, match="source"):
        by_position(Alias)(VAR, None, None)
    assert by_position(Alias)(VAR, None, None, TextLiteral("t")).source == TextLiteral("t")

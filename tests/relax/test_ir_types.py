"""What is left of TVM's error messages."""

from __future__ import annotations

import pytest

from symalloc.relax.ir_types import error_text


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        ("Check failed: (a.size() == 2) is false: two are needed", "two are needed"),
        ("Check failed: (a->IsInstance<B>()) is false: ", "Check failed: (a->IsInstance<B>()) is false:"),
        ("\nTraceback:\n  File x.cc, line 3\nreal words at 0x7f12345678\n", "real words at"),
        ("", "ValueError"),
        ("x" * 700, "x" * 600 + " …"),
    ],
)
def test_the_words_are_kept(raised: str, text: str) -> None:
    assert error_text(ValueError(raised)) == text

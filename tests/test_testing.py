"""The assertion for tests of other projects, which the pytest plugin brings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import symalloc
from tests.test_api import FAULTY, SOUND


def test_a_fault_fails_with_the_findings(assert_memory_safe: Callable[..., symalloc.Report]) -> None:
    with pytest.raises(AssertionError, match="memory faults:") as error:
        assert_memory_safe(FAULTY, select="SYM101")
    assert "counterexample: m = 5  ->  20 B > 16 B" in str(error.value)


def test_what_is_safe_gives_its_report(assert_memory_safe: Callable[..., symalloc.Report]) -> None:
    assert assert_memory_safe(SOUND).ok
    assert assert_memory_safe(FAULTY, select="SYM101", assume="m <= 4").summary.constraints == 1
    assert assert_memory_safe is symalloc.assert_memory_safe

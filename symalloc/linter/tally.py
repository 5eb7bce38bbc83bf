"""Counting constraints by verdict."""

from __future__ import annotations

from dataclasses import dataclass

from symalloc.linter.judge import Ruling
from symalloc.prover.verdict import Verdict

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """How many constraints were checked, and how they fared.

    `runtime_check` counts what depends on the shapes, `guarded` those of them that the program checks
    when it runs.
    """

    always_valid: int = 0
    always_invalid: int = 0
    runtime_check: int = 0
    guarded: int = 0
    unknown: int = 0

    @property
    def constraints(self) -> int:
        """All of them."""
        return self.always_valid + self.always_invalid + self.runtime_check

    def count(self, ruling: Ruling) -> None:
        """Adds one ruling; what holds only thanks to a check at run time is a guarded run-time check."""
        if ruling.guarded:
            self.runtime_check += 1
            self.guarded += 1
        elif ruling.verdict is Verdict.ALWAYS_INVALID:
            self.always_invalid += 1
        elif ruling.verdict is Verdict.RUNTIME_CHECK:
            self.runtime_check += 1
            self.unknown += ruling.unknown
        else:
            self.always_valid += 1

    def add(self, other: Tally) -> None:
        """Adds all of `other`."""
        self.always_valid += other.always_valid
        self.always_invalid += other.always_invalid
        self.runtime_check += other.runtime_check
        self.guarded += other.guarded
        self.unknown += other.unknown

    def copy(self) -> Tally:
        """The same counts."""
        return Tally(self.always_valid, self.always_invalid, self.runtime_check, self.guarded, self.unknown)

    def since(self, earlier: Tally) -> Tally:
        """What was added since `earlier`."""
        return Tally(
            self.always_valid - earlier.always_valid,
            self.always_invalid - earlier.always_invalid,
            self.runtime_check - earlier.runtime_check,
            self.guarded - earlier.guarded,
            self.unknown - earlier.unknown,
        )

"""The one error of this room: a rule that cannot be used, said for whoever wrote it."""

from __future__ import annotations

from pathlib import Path

from symalloc.errors import UsageError


class RuleError(UsageError):
    """A rule file, or a request for a rule, that makes no sense.

    `file`, `line` (from 1) and `field` say where, as far as known; `suggestion` is what was probably meant.
    """

    def __init__(
        self,
        *,
        problem: str,
        file: Path | None = None,
        line: int | None = None,
        field: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        place = "" if file is None else f"{file}:{line}: " if line else f"{file}: "
        subject = f"{field}: " if field else ""
        hint = f" (did you mean `{suggestion}`?)" if suggestion else ""
        super().__init__(f"{place}{subject}{problem}{hint}")
        self.file, self.line, self.field = file, line, field
        self.problem, self.suggestion = problem, suggestion

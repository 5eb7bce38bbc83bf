"""`[tool.symalloc]` in pyproject.toml.

    [tool.symalloc]
    select = ["SYM1", "SYM2"]
    ignore = ["SYM205"]
    assume = ["n <= 2048"]
    rules = ["house-rules"]          # relative to the file
    stage = "auto"
    exclude = ["third_party"]
    per-file-ignores = { "tests/*" = ["SYM2"] }
    baseline = "symalloc-baseline.json"   # relative to the file
    jobs = 4
    budget = "512MiB"
    cache = false                    # lint all files in each run

The command line overlays what is read here: `select`, `stage`, `baseline`, `jobs`, `budget` replace, the
others add.  `trust` is refused: whoever can change this file (a pull request) could otherwise make the linter
run the code that it brings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symalloc.errors import UsageError, nearest
from symalloc.linter.lint_options import LintOptions
from symalloc.program.reading import STAGES, is_stage
from symalloc.session.amounts import parse_amount

_KEYS = (
    "select",
    "ignore",
    "assume",
    "rules",
    "exclude",
    "stage",
    "per-file-ignores",
    "baseline",
    "jobs",
    "budget",
    "cache",
)


def find_config(paths: Sequence[str]) -> Path | None:
    """Find the nearest pyproject.toml with a [tool.symalloc] table, above the first path or from here."""
    start = (Path(paths[0]) if paths else Path.cwd()).resolve()
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        if _is_file(file) and _table(file) is not None:
            return file
    return None


def _is_file(file: Path) -> bool:
    """True where `file` is a regular file; Path.is_file raises OSError for a name that is too long."""
    try:
        return file.is_file()
    except OSError:
        return False


def load_config(file: Path) -> LintOptions:
    """Read the options set in `file`; raises UsageError for what is no TOML or not understood."""
    table = _table(file)
    if table is None:
        raise UsageError(f"{file}: there is no [tool.symalloc] table")
    for key in table:
        _check_key(file, key)

    def texts(key: str) -> tuple[str, ...]:
        return _texts(file, key, table.get(key, []))

    return LintOptions(
        select=texts("select"),
        ignore=texts("ignore"),
        assume=texts("assume"),
        exclude=texts("exclude"),
        rules=tuple(file.parent / place for place in texts("rules")),
        stage=_stage(file, table.get("stage", "auto")),
        per_file_ignores=_per_file(file, table.get("per-file-ignores", {})),
        baseline=_path(file, "baseline", table.get("baseline")),
        jobs=_jobs(file, table.get("jobs")),
        budget=parse_amount(f"{file}: `budget`", table.get("budget"), least=1),
        cache=_flag(file, "cache", table.get("cache", True)),
    )


def _table(file: Path) -> dict[str, Any] | None:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    found = document.get("tool", {}).get("symalloc")
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{file}: tool.symalloc is not a table")
    return found


def _check_key(file: Path, key: str) -> None:
    if key == "trust":
        raise UsageError(
            f"{file}: `trust` cannot be set in a file: a change to the project could then make the linter "
            "run the code that it brings; give --trust on the command line"
        )
    if key not in _KEYS:
        close = nearest(key.replace("_", "-"), list(_KEYS))
        hint = f"; did you mean `{close}`?" if close else f"; known are {', '.join(_KEYS)}"
        raise UsageError(f"{file}: unknown key `{key}` in [tool.symalloc]{hint}")


def _texts(file: Path, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f'{file}: `{key}` must be a list of strings, such as {key} = ["…"]')
    return tuple(value)


def _stage(file: Path, value: object) -> str:
    if isinstance(value, str) and is_stage(value):
        return value
    raise UsageError(f"{file}: `stage` must be one of {', '.join(STAGES)}, or a pass, not {value!r}")


def _jobs(file: Path, value: object) -> int | None:
    if value is None or (type(value) is int and value >= 1):
        return value
    raise UsageError(f"{file}: `jobs` must be a whole number of at least 1, not {value!r}")


def _flag(file: Path, key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise UsageError(f"{file}: `{key}` must be true or false, not {value!r}")


def _path(file: Path, key: str, value: object) -> Path | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"{file}: `{key}` must be the name of a file, not {value!r}")
    return None if value is None else file.parent / value


def _per_file(file: Path, value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise UsageError(f'{file}: `per-file-ignores` must be a table, such as {{ "tests/*" = ["SYM2"] }}')
    return {pattern: _texts(file, f"per-file-ignores.{pattern}", keys) for pattern, keys in value.items()}

"""`[tool.symalloc]` in pyproject.toml, and the files of a lint run; loads nothing that lints.

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
    max-buffer = "1GiB"              # of plans
    cache = false                    # lint all files in each run

    [tool.symalloc.packed."mylib.sort"]  # what a packed function does, as `symalloc.packed_function` has it
    defines = [1]
    takes = "nothing"

These are the options of `LintOptions` and `PlanOptions` that stand `in_file`, read as Python reads its
keyword arguments.  The command line overlays them.  `trust` is refused: whoever can change this file (a pull
request) could otherwise make the linter run the code that it brings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from symalloc.errors import UsageError
from symalloc.linter.lint_options import LintOptions
from symalloc.options import options_of, read_table
from symalloc.planner.memory_plan import PlanOptions
from symalloc.program.packed_contracts import PackedContract, stated_contracts
from symalloc.relax.read.find_files import FoundFiles, find
from symalloc.session.files import read_text

PLANNING = frozenset(
    name.replace("_", "-") for name, known in options_of(PlanOptions).items() if known.in_file
)
"""The keys that are options of plans."""


def find_config(paths: Sequence[str]) -> Path | None:
    """Find the nearest pyproject.toml with a [tool.symalloc] table, above the first path or from here."""
    start = (Path(paths[0]) if paths else Path.cwd()).resolve()
    for folder in (start, *start.parents):
        file = folder / "pyproject.toml"
        with suppress(OSError):  # of a name that is too long
            if file.is_file() and _table(file) is not None:
                return file
    return None


def load_config(file: Path) -> LintOptions:
    """Read the options set in `file`; raises UsageError for what is no TOML or not understood."""
    table = _table(file)
    if table is None:
        raise UsageError(f"{file}: there is no [tool.symalloc] table")
    if "trust" in table:
        raise UsageError(
            f"{file}: `trust` cannot be set in a file: a change to the project could then make the linter "
            "run the code that it brings; give --trust on the command line"
        )
    packed = stated_contracts(f"{file}: `packed`", table.pop("packed", {}))
    own = {key: value for key, value in table.items() if key not in PLANNING}
    given = read_table(LintOptions, own, "[tool.symalloc]", prefix=f"{file}: ")
    return LintOptions(packed=packed, **{name: _below(file.parent, value) for name, value in given.items()})


def plan_options(path: Path, given: Mapping[str, Any]) -> tuple[PlanOptions, Mapping[str, PackedContract]]:
    """Return the options of a plan of the model at `path`, as `given`, else as [tool.symalloc] says, and the
    contracts of packed functions: those of [tool.symalloc.packed] and others.
    """
    file = find_config([str(path)])
    table = {} if file is None else _table(file) or {}
    packed = stated_contracts(f"{file}: `packed`", table.get("packed", {}))
    own = {key: value for key, value in table.items() if key in PLANNING}
    told = read_table(PlanOptions, own, "[tool.symalloc]", f"{file}: ")
    stated = {name: value for name, value in given.items() if value is not None}
    return PlanOptions(**{**told, **stated}), packed


def _below(folder: Path, value: Any) -> Any:
    """Return an option's value, with its paths relative to `folder`."""
    if isinstance(value, tuple):
        return tuple(_below(folder, each) for each in value)
    return folder / value if isinstance(value, Path) else value


def _table(file: Path) -> dict[str, Any] | None:
    try:
        document = tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from None
    found = document.get("tool", {}).get("symalloc")
    if found is not None and not isinstance(found, dict):
        raise UsageError(f"{file}: tool.symalloc is not a table")
    return found


def found_files(options: LintOptions, paths: Sequence[str]) -> FoundFiles:
    """Find the files that `paths` name, less those excluded; raises UsageError where nothing is left."""
    found = find(paths, trust=options.trust, strict=options.strict)
    kept = tuple(file for file in found.files if not options.excludes(str(file)))
    if found.files and not kept:
        raise UsageError(f"all {len(found.files)} files are excluded by {', '.join(options.exclude)}")
    return replace(found, files=kept)

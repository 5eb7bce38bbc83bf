"""Pack problems in files and dictionaries, for `symalloc pack` and `symalloc.pack`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from symalloc.arguments import require_bytes, require_choice, require_path, require_whole
from symalloc.errors import SymallocError, UsageError
from symalloc.planner.check.plan_certificate import write_certificate
from symalloc.planner.check.validate import PlanRefusedError
from symalloc.planner.packing.pack_problem import Packing, pack_problem
from symalloc.planner.packing.packing_problem import (
    PackingProblem,
    ProblemError,
    problem_of,
    read_csv,
    read_json,
)
from symalloc.planner.planner_options import EffortName
from symalloc.planner.stack import SearchBudget
from symalloc.session.files import explained, read_text


def pack(
    problem: PackingProblem | Mapping[str, Any] | str | Path,
    *,
    capacity: str | int | None = None,
    effort: EffortName = "normal",
    seed: int = 0,
    certificate: str | Path | None = None,
) -> Packing:
    """Return a proved packing of `problem`: a dictionary in the JSON form, or the path of a JSON or CSV file.

    `capacity` is in bytes, or such as "2GiB": `.overrun` says whether the packing fits it.  `effort` is how
    long to search; `certificate` a folder for the proof as SMT-LIB2.  Raises UsageError for a
    problem that makes no sense, SymallocError where the packing cannot be proved.
    """
    room = None if capacity is None else require_bytes("capacity", capacity)
    require_choice("effort", effort, get_args(EffortName))
    folder = None if certificate is None else require_path("certificate", certificate)
    known = _known(problem)
    budget = SearchBudget.of(effort, seed=require_whole("seed", seed, 0))
    try:
        packing = pack_problem(known, budget=budget, capacity=room, certify=folder is not None)
    except ProblemError as error:
        raise UsageError(f"{known.source}: {error}") from None
    except OverflowError:
        reason = "a size goes beyond what a float can hold; nothing is so large"
        raise UsageError(f"{known.source}: {reason}") from None
    except PlanRefusedError as error:
        raise SymallocError(f"{known.source}: {error}") from None
    if folder is not None and packing.certificate is not None:
        with explained(f"cannot write the certificate to {folder}"):
            write_certificate(folder, packing.certificate)
    return packing


def read_problem(path: Path) -> PackingProblem:
    """Return the problem in a file: CSV where its name ends in .csv, JSON otherwise.  Raises UsageError."""
    text = read_text(path)
    read = read_csv if path.suffix.lower() == ".csv" else read_json
    try:
        return replace(read(text, path.stem), source=str(path))
    except ProblemError as error:
        raise UsageError(f"{path}: {error}") from None


def _known(problem: PackingProblem | Mapping[str, Any] | str | Path) -> PackingProblem:
    if isinstance(problem, PackingProblem):
        return problem
    if isinstance(problem, str | Path):
        return read_problem(require_path("problem", problem))
    if not isinstance(problem, Mapping):
        raise UsageError(f"a problem is a dictionary or the path of a file, not a {type(problem).__name__}")
    try:
        return problem_of(problem)
    except ProblemError as error:
        raise UsageError(str(error)) from None

"""The options of a plan: effort of the search, forms of tensors and guards, a folder for proofs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from symalloc.analysis.donation import Donation

EffortName: TypeAlias = Literal["quick", "normal", "thorough"]
Flavour: TypeAlias = Literal["auto", "arena", "storages"]
GuardKind: TypeAlias = Literal["assert", "fallback", "native", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of the planner: one record for the command line, Python, the pipeline and the pass.

    `effort` names the budget of the search for a stacking, `seed` makes it repeatable.  `flavour`: one
    "arena" with tensors at symbolic offsets; "storages", one storage per slot and every tensor at offset 0;
    or "auto", the arena where the target's kernels can run it.
    `guards`: what the check at entry becomes, an assertion, an If whose else runs unplanned, a kernel's
    own asserts that need no Python, or nothing.  `certificate`: the folder for the proof as SMT-LIB2.
    `alias`: which inputs the caller donates, each for an output to be written into its memory.
    """

    effort: EffortName = "quick"
    seed: int = 0
    flavour: Flavour = "auto"
    guards: GuardKind = "assert"
    certificate: Path | None = None
    alias: tuple[Donation, ...] = ()

"""The options of a plan: effort of the search, forms of tensors and guards, a folder for proofs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from symalloc.analysis.donation import Donation
from symalloc.arguments import require_choice, require_flag, require_whole, shown
from symalloc.errors import UsageError

EffortName: TypeAlias = Literal["quick", "normal", "thorough"]
Flavour: TypeAlias = Literal["auto", "arena", "storages"]
BoundsUse: TypeAlias = Literal["ignore", "enforce", "reserve"]
GuardKind: TypeAlias = Literal["assert", "fallback", "native", "none"]

_CHOICES: Mapping[str, Any] = {
    "effort": EffortName,
    "flavour": Flavour,
    "guards": GuardKind,
    "bounds": BoundsUse,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of the planner: one record for the command line, Python, the pipeline and the pass.

    `effort` names the budget of the search for a stacking, `seed` makes it repeatable.  `flavour`: one
    "arena" with tensors at symbolic offsets; "storages", one storage per slot and every tensor at offset 0;
    or "auto", the arena where the target's kernels can run it.  `guards`: what the check at entry becomes, an
    assertion, an If whose else runs unplanned, a kernel's own asserts that need no Python, or nothing.
    `bounds`: what becomes of bounds that a function declares: they only steer the search ("ignore"); they are
    checked at entry, and proofs rely on them ("enforce"); and arena and offsets are constants at these bounds
    ("reserve").  `graphs`: kernels are captured in CUDA graphs, which takes storages of constant size.
    `certificate`: the folder for the proof as SMT-LIB2.  `alias`: which inputs the caller donates, each for
    an output to be written into its memory.
    """

    effort: EffortName = "quick"
    seed: int = 0
    flavour: Flavour = "auto"
    guards: GuardKind = "assert"
    bounds: BoundsUse = "ignore"
    graphs: bool = False
    certificate: Path | None = None
    alias: tuple[Donation, ...] = ()

    @property
    def constants_apart(self) -> bool:
        """True where what has a constant size has an arena of its own, which is constant, too."""
        return self.graphs or self.bounds == "reserve"

    def __post_init__(self) -> None:
        """Raise UsageError for a value that there is not, and for choices that contradict each other."""
        for name, kind in _CHOICES.items():
            require_choice(name, getattr(self, name), get_args(kind))
        require_whole("seed", self.seed, 0)
        require_flag("graphs", self.graphs)
        if not isinstance(self.certificate, Path | None):
            raise UsageError(f"certificate is {shown(self.certificate)}; it must be a Path")
        if not isinstance(self.alias, tuple) or not all(isinstance(d, Donation) for d in self.alias):
            raise UsageError(f"alias is {shown(self.alias)}; it must be a tuple of donations")
        if self.bounds != "ignore" and self.guards == "none":
            raise UsageError(
                f'bounds="{self.bounds}" rests on a check at entry, and guards="none" leaves it out; '
                "take other guards"
            )

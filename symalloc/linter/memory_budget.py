"""The budget of bytes that calls are compared with (SYM402), and what the comparison takes of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from symalloc.analysis.interprocedural import FunctionAnalysis
from symalloc.analysis.paths import PathCondition
from symalloc.program.control_flow import functions_as_values
from symalloc.program.ir import AllocFresh, AllocStorage, CallFunction, Var
from symalloc.size.condition import Condition

KnownAt: TypeAlias = Callable[[str, PathCondition, Var], Sequence[Condition]]
"""The conditions that hold in a function, on a path, in front of the instruction that binds a variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """The most bytes that a call of a function may hold at once; `analyses` are those of the program's
    functions, and `known` tells what holds in them.
    """

    limit: int
    analyses: Mapping[str, FunctionAnalysis]
    known: KnownAt

    @property
    def applies(self) -> bool:
        """False for a module that reserves no memory yet: TVM's passes put that in."""
        graphs = (analysis.cfg for analysis in self.analyses.values())
        return any(cfg.of_type(AllocStorage, AllocFresh) for cfg in graphs)

    def counts_in_callers(self, name: str) -> bool:
        """True where only other functions of the program call a function: it counts with them."""
        graphs = [analysis.cfg for analysis in self.analyses.values()]
        called = {call.name for cfg in graphs for _, call in cfg.of_type(CallFunction)}
        private = self.analyses[name].cfg.function.private
        return private and name in called and name not in functions_as_values(graphs)

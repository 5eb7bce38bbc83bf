"""What a fix is made from: the finding, the program it was found in, the script."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from symalloc.linter.diagnostic import Diagnostic
from symalloc.linter.fix_source import Script
from symalloc.program.model import Alias, Function, Instruction, Operand, Program, Var
from symalloc.program.operands import instructions_of
from symalloc.prover.domain import Domain
from symalloc.prover.prover import Prover


@dataclass(frozen=True, kw_only=True)
class FixContext:
    """One finding to be fixed.  `function` is None for findings that belong to no function."""

    diagnostic: Diagnostic
    program: Program | None
    script: Script
    prover: Prover
    domain: Domain

    @property
    def function(self) -> Function | None:
        """The function that the finding is in."""
        return self.program.functions.get(self.diagnostic.function) if self.program else None

    def instruction(self) -> Instruction | None:
        """The instruction that the finding points at."""
        function = self.function
        span = self.diagnostic.span
        if function is None or span is None:
            return None
        return next((i for i in instructions_of(function.body) if i.span == span), None)

    @cached_property
    def _made(self) -> Mapping[Var, Instruction]:
        """What binds each variable of the function."""
        return {i.var: i for i in instructions_of(self.function.body)} if self.function else {}

    def definition(self, operand: Operand) -> Instruction | None:
        """The instruction that made `operand`, seen through plain aliases."""
        while isinstance(operand, Var):
            found = self._made.get(operand)
            if not isinstance(found, Alias):
                return found
            operand = found.source
        return None

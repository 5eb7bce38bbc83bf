"""The functions of a program as the generators of sites see them, plain and with calls written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from symalloc.analysis.call_expansion import ExpandedFunction, callees_to_write_out, expand_calls
from symalloc.analysis.conflicts import ReuseConflicts
from symalloc.analysis.facts import FunctionFacts, branch_tests, facts_of
from symalloc.analysis.feasibility import FeasiblePaths, Possible
from symalloc.analysis.handles import written_zero_offset_views
from symalloc.analysis.interprocedural import FunctionAnalysis, analyse, analyse_variant
from symalloc.analysis.paths import PathCondition
from symalloc.analysis.unwritten_reads import UnwrittenReads
from symalloc.linter.memory_budget import MemoryBudget
from symalloc.linter.sites.site import FunctionContext
from symalloc.linter.unproved_indices import UnprovedIndices
from symalloc.program.control_flow import functions_as_values
from symalloc.program.ir import CallFunction, Function, Program, Var
from symalloc.program.operands import TypeNumbering
from symalloc.size.condition import Condition

PossibleIn: TypeAlias = Callable[[Function, FunctionFacts], Possible]
"""Return what judges whether conditions can hold together in a function."""


class FunctionContexts:
    """The contexts of all functions of a program.

    `plain` are those of the functions as they stand, callees first.  `expanded` are those of functions with
    calls written out, by name.  Private functions whose instructions stand in these for all that call them
    are `seen_in_callers`: what is wrong with the order of their writes and reads shows there.
    """

    def __init__(
        self,
        program: Program,
        possible: PossibleIn,
        indices: UnprovedIndices,
        budget: int | None = None,
    ) -> None:
        """Analyse `program`; `budget`: the most bytes that a call may hold at once."""
        self.program, self.possible, self.numbers = program, possible, TypeNumbering()
        self.indices = indices
        self.analyses = analyse(program)
        self._budget = (
            None if budget is None else MemoryBudget(limit=budget, analyses=self.analyses, known=self._known)
        )
        self.summaries = {name: analysis.summary for name, analysis in self.analyses.items()}
        self.plain = [self._context(name, analysis) for name, analysis in self.analyses.items()]
        self._callees = callees_to_write_out(program, self.analyses)
        self.expanded: dict[str, FunctionContext] = {}
        self._seen: set[str] = set()
        self._in_part: set[str] = set()
        if self._callees:
            self._expand()
            self.plain = [self._marked(context) for context in self.plain]
            self.expanded = {name: self._marked(context) for name, context in self.expanded.items()}

    def _context(
        self, name: str, analysis: FunctionAnalysis, expansion: ExpandedFunction | None = None
    ) -> FunctionContext:
        points_to, effects = analysis.points_to, analysis.effects
        function = self.program.functions[name] if expansion is None else expansion.function
        tests = branch_tests(points_to, effects, self.program.kernels)
        facts = facts_of(analysis.cfg, self.program.kernels, self.numbers, tests)
        paths = FeasiblePaths(analysis.cfg, facts, tests, self.possible(function, facts))
        return FunctionContext(
            program=self.program,
            function=function,
            analysis=analysis,
            facts=facts,
            numbers=self.numbers,
            conflicts=ReuseConflicts(points_to, effects, paths),
            unwritten=UnwrittenReads(points_to, effects, analysis.content, paths),
            written_views=written_zero_offset_views(points_to, effects),
            summaries=self.summaries,
            expansion=expansion,
            indices=self.indices,
            budget=self._budget,
        )

    def _known(self, name: str, path: PathCondition, bound: Var | None) -> Sequence[Condition]:
        """The conditions that hold in a function, on `path`, in front of `bound`, or at its end."""
        context = next(one for one in self.plain if one.function.name == name)
        cfg = context.analysis.cfg
        point = len(cfg.points) - 1 if bound is None else cfg.starts[bound]
        return context.paths.conditions(context.paths.whole(path, point), point)

    def _expand(self) -> None:
        """Write calls out, in functions that others call last."""
        values = functions_as_values(analysis.cfg for analysis in self.analyses.values())
        inner = {n for n in self._callees if self.program.functions[n].private and n not in values}
        for name in (*(n for n in self.analyses if n not in inner), *reversed(list(self.analyses))):
            if name in self.expanded or name in self._seen:
                continue
            self._seen |= self._written_out(name) & inner - {name}
        expansions = (context.expansion for context in self.expanded.values())
        left = {one.call.name for found in expansions if found is not None for one in found.left.values()}
        for name in self._seen & left:  # recursion, or very large
            self._written_out(name)
        self._in_part = self._seen & left
        self._seen -= left

    def _written_out(self, name: str) -> frozenset[str]:
        """Write the calls of a function out; return the functions of which instructions stand there."""
        expansion = self._expansion(name)
        if expansion is None:
            return frozenset()
        self.expanded[name] = self._variant(name, expansion)
        return expansion.written_out

    def _expansion(self, name: str) -> ExpandedFunction | None:
        """The function with its calls written out; None where none needs to be."""
        calls = self.analyses[name].cfg.of_type(CallFunction)
        if not any(call.name in self._callees for _, call in calls):
            return None
        return expand_calls(self.program, self.program.functions[name], self._callees)

    def _variant(self, name: str, expansion: ExpandedFunction) -> FunctionContext:
        left = frozenset(expansion.left)
        analysis = analyse_variant(self.program, expansion.function, self.analyses, left)
        return self._context(name, analysis, expansion)

    def _marked(self, context: FunctionContext) -> FunctionContext:
        name = context.function.name
        return replace(
            context,
            is_expanded=name in self.expanded,
            seen_in_callers=name in self._seen,
            seen_in_part=name in self._in_part,
        )

"""The script of a module in memory, printed when something is to be shown in it, and no more than that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import tvm
from tvm import relax

from symalloc.program.printed_script import (
    WHOLE_BODY,
    Branch,
    Branches,
    NumberedPlace,
    PrintedScript,
    numbered,
)
from symalloc.program.span import Source, Span
from symalloc.relax.ir_types import Node, elements

PRINTED_WHOLE = 200
"""The most bindings that a module may have to be printed as a whole; a longer script takes too long."""


@dataclass(frozen=True, kw_only=True)
class ModuleScript:
    """The script of `mod`, which came from `file`, as it is after the pass `stage`.

    Of a large module only the functions and bindings that something is to be shown in are printed.
    """

    mod: tvm.IRModule
    file: str
    stage: str
    branches: Mapping[str, Branches]

    def located(self, spans: Iterable[Span]) -> tuple[Source, Mapping[Span, Span]]:
        """See PlaceFinder."""
        wanted = dict.fromkeys(span for span in spans if isinstance(span, NumberedPlace))
        if sum(map(_length, self.mod.functions.values())) <= PRINTED_WHOLE:
            return printed(self.mod, self.file, self.stage, self.branches).located(wanted)
        shortened = _Shortened(self.mod, wanted, self.branches)
        script = printed(shortened.mod, self.file, self.stage, shortened.branches)
        moved = {place: shortened.moved.get(place, place) for place in wanted}
        source, found = script.located(moved.values())
        return source, {place: found[there] for place, there in moved.items() if there in found}


def printed(mod: tvm.IRModule, file: str, stage: str, branches: Mapping[str, Branches]) -> PrintedScript:
    """The script that TVM prints for `mod`."""
    source = Source(file=file, text=mod.script(show_meta=False), origin=stage)
    return PrintedScript(source, branches)


def _length(function: Node) -> int:
    if not isinstance(function, relax.Function) or type(function.body) is not relax.SeqExpr:
        return 0
    return sum(len(block.bindings) for block in function.body.blocks)


class _Shortened:
    """A module with nothing but the bindings that are wanted, and the Ifs around them.

    `moved` gives the numbered place that each wanted place has there, `branches` the branches there.
    """

    def __init__(
        self, mod: tvm.IRModule, wanted: Iterable[NumberedPlace], branches: Mapping[str, Branches]
    ) -> None:
        self.moved: dict[NumberedPlace, NumberedPlace] = {}
        self.branches: dict[str, list[Branch]] = {}
        places: dict[str, list[NumberedPlace]] = defaultdict(list)
        for place in wanted:
            places[place.function].append(place)
        functions = {v: f for v, f in mod.functions.items() if v.name_hint in places}
        kept = {v: self._function(v.name_hint, f, places, branches) for v, f in functions.items()}
        self.mod = tvm.IRModule(kept, global_infos=mod.global_infos)

    def _function(
        self,
        name: str,
        function: Node,
        places: Mapping[str, list[NumberedPlace]],
        branches: Mapping[str, Branches],
    ) -> Node:
        keep: dict[int, set[int]] = defaultdict(set)
        of_function = branches.get(name, ())
        for place in places[name]:
            number, branch = place.number, place.branch
            while number >= 0:
                keep[branch].add(number)
                number, branch = of_function[branch].number, of_function[branch].outer
        self.branches[name] = [WHOLE_BODY]
        walk = _Shortening(name, keep, of_function, self.moved, self.branches[name])
        body = walk.sequence(function.body, 0, 0)
        return relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)


class _Shortening:
    """Rebuilds one function; `keep` holds the numbers of the bindings that stay, by branch."""

    def __init__(
        self,
        name: str,
        keep: Mapping[int, set[int]],
        branches: Branches,
        moved: dict[NumberedPlace, NumberedPlace],
        found: list[Branch],
    ) -> None:
        self.name, self.keep, self.branches = name, keep, branches
        self.moved, self.found = moved, found

    def sequence(self, body: Node, branch: int, there: int) -> Node:
        """The kept bindings of a branch, which has the number `there` in the shortened function."""
        keep = self.keep.get(branch, set())
        bindings = [b for block in body.blocks for b in elements(block.bindings)] if keep else []
        kept = []
        for place, number in enumerate(sorted(keep)):
            self.moved[numbered(self.name, number, branch)] = numbered(self.name, place, there)
            kept.append(self._binding(bindings[number], number, branch, place, there))
        return relax.SeqExpr([relax.BindingBlock(kept)] if kept else [], body.body)

    def _binding(self, binding: Node, number: int, branch: int, place: int, there: int) -> Node:
        value = binding.value
        if type(value) is not relax.If:
            return binding
        sides = [self._side(value, number, branch, place, there, taken=taken) for taken in (True, False)]
        return relax.VarBinding(binding.var, relax.If(value.cond, *sides))

    def _side(self, value: Node, number: int, branch: int, place: int, there: int, *, taken: bool) -> Node:
        inside = self._number(Branch(branch, number, taken))
        self.found.append(Branch(there, place, taken))
        body = value.true_branch if taken else value.false_branch
        return self.sequence(body, inside, len(self.found) - 1)

    def _number(self, branch: Branch) -> int:
        return self.branches.index(branch)

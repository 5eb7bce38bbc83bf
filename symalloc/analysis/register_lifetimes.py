"""When the registers of a function let go of what they hold, as TVM's passes have it.

Each variable has a register of its frame, which holds its value until a kill empties it, or the frame ends.
TVM's KillAfterLastUse puts a kill behind the last use of a variable; in a block with an If it puts none at
the If and behind it, and never one for what nothing uses or a block yields.  Behind it our KillOnPaths makes
the kills of functions with Ifs anew, by liveness on every path, and drops idle results in others.  Names that
TVM's CanonicalizeBindings does away with have no register.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from symalloc.program import ir
from symalloc.program.operands import variables_in, variables_of
from symalloc.program.types import ScalarType, ShapeType, TupleType, Type

Kills: TypeAlias = Literal["stock", "paths"]
"""The passes that decide when registers let go: TVM's alone, or with ours behind them."""


@dataclass(slots=True)
class RegisterLifetimes:
    """The variables whose registers are emptied `behind` the instruction that binds a variable, and on
    `entering` and `leaving` a side of an If, by the variable of the If.  `names` tells by a variable that has
    no register which one it stands for.  `anew`: kills that are there already do not count.
    """

    names: Mapping[ir.Var, ir.Var] = field(default_factory=dict)
    behind: Mapping[ir.Var, Sequence[ir.Var]] = field(default_factory=dict)
    entering: Mapping[tuple[ir.Var, bool], Sequence[ir.Var]] = field(default_factory=dict)
    leaving: Mapping[tuple[ir.Var, bool], Sequence[ir.Var]] = field(default_factory=dict)
    anew: bool = False


def register_lifetimes(function: ir.Function, kills: Kills) -> RegisterLifetimes:
    """The lifetimes of the registers of `function`; TVM's pass keeps the kills that are there already."""
    names = _Names()
    names.block(function.body)
    if kills == "paths" and any(isinstance(one, ir.If) for one in function.body.instructions):
        found = _OnPaths()
        found.block(function.body, set())
        return RegisterLifetimes({}, found.behind, found.entering, found.leaving, anew=True)
    lifetimes = _Stock(names.of)
    used = lifetimes.block(function.body)
    for var in _idle_results(function.body, used) if kills == "paths" else ():
        lifetimes.behind.setdefault(var, []).append(var)
    return RegisterLifetimes(names.of, lifetimes.behind)


def holds_memory(kind: Type) -> bool:
    """True if a value of this type may hold a tensor."""
    if isinstance(kind, TupleType):
        return any(map(holds_memory, kind.fields))
    return not isinstance(kind, ShapeType | ScalarType)


def _idle_results(body: ir.Block, used: Collection[ir.Var]) -> Iterator[ir.Var]:
    """Yield what calls return and nothing uses: KillOnPaths drops it at once."""
    killed = {one.target for one in body.instructions if isinstance(one, ir.Kill)}
    for one in body.instructions:
        made = isinstance(one, ir.CallFunction | ir.CallPacked | ir.View) and holds_memory(one.var.type)
        if made and one.var not in used and one.var not in killed:
            yield one.var


# -- kills by liveness on every path -------------------------------------------------------------------------


@dataclass(slots=True)
class _OnPaths:
    """The ends of registers by liveness; see `RegisterLifetimes`."""

    behind: dict[ir.Var, Sequence[ir.Var]] = field(default_factory=dict)
    entering: dict[tuple[ir.Var, bool], Sequence[ir.Var]] = field(default_factory=dict)
    leaving: dict[tuple[ir.Var, bool], Sequence[ir.Var]] = field(default_factory=dict)

    def block(self, block: ir.Block, behind: set[ir.Var]) -> set[ir.Var]:
        """Return what is used in `block` or `behind` it, and note where registers are emptied in it."""
        live = behind.union(variables_in(block.result))
        for one in reversed(block.instructions):
            if isinstance(one, ir.Kill):
                continue
            used = variables_of(one)
            dead = [var for var in dict.fromkeys((one.var, *used)) if var not in live]
            live.discard(one.var)
            if isinstance(one, ir.If):
                live = self.branch(one, live, used)
                dead = [var for var in dead if var is one.var]
            live.update(used)
            if dead:
                self.behind[one.var] = dead
        return live

    def branch(self, branch: ir.If, behind: set[ir.Var], used: Sequence[ir.Var]) -> set[ir.Var]:
        """Return what is used in an If or `behind` it."""
        sides = {True: branch.then, False: branch.otherwise}
        live = {side: self.block(block, behind) for side, block in sides.items()}
        needed = live[True] | live[False]
        for side, block in sides.items():
            key = branch.var, side
            self.entering[key] = [*((needed | set(used)) - live[side])]
            self.leaving[key] = [*(set(variables_in(block.result)) - behind)]
        return needed


# -- the kills of TVM's pass ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Names:
    """The variables that are other names `of` variables; `tuples` holds the fields of tuples."""

    of: dict[ir.Var, ir.Var] = field(default_factory=dict)
    tuples: dict[ir.Operand, Sequence[ir.Operand]] = field(default_factory=dict)

    def block(self, block: ir.Block) -> None:
        for one in block.instructions:
            source: ir.Operand | None = None
            match one:
                case ir.Alias(source=source):
                    pass
                case ir.MatchCast(source=ir.Var(type=kind) as value, target=target) if kind == target:
                    source = value
                case ir.MakeTuple():
                    self.tuples[one.var] = one.fields
                case ir.TakeField(source=whole, index=index):
                    known = self.of.get(whole, whole) if isinstance(whole, ir.Var) else whole
                    items = self.tuples.get(known, ())
                    source = items[index] if 0 <= index < len(items) else None
                case ir.If(then=then, otherwise=otherwise):
                    self.block(then)
                    self.block(otherwise)
            if isinstance(source, ir.Var):
                self.of[one.var] = self.of.get(source, source)


@dataclass(slots=True)
class _Stock:
    """The kills `behind` instructions, `names` told apart from variables."""

    names: Mapping[ir.Var, ir.Var]
    behind: dict[ir.Var, list[ir.Var]] = field(default_factory=dict)

    def block(self, block: ir.Block) -> set[ir.Var]:
        """Note the kills in `block`; return the variables that it uses."""
        ends: dict[ir.Var, ir.Var | None] = {}  # the binding that uses a variable last, before any If
        killed: set[ir.Operand] = set()
        branched = False
        for one in block.instructions:
            used = {*self.renamed(variables_of(one))}
            if isinstance(one, ir.Kill):
                killed.update(used)
                continue
            if isinstance(one, ir.If):
                branched = True
                used |= self.block(one.then) | self.block(one.otherwise)
            if one.var not in self.names:
                ends.update(dict.fromkeys(used, None if branched else one.var))
        ends.update(dict.fromkeys(self.renamed(variables_in(block.result)), None))
        bound = {one.var for one in block.instructions}
        behind: defaultdict[ir.Var, list[ir.Var]] = defaultdict(list)
        for var, last in ends.items():
            if last is not None and var in bound and var not in killed:
                behind[last].append(var)
        self.behind.update(behind)
        return set(ends)

    def renamed(self, variables: Iterable[ir.Var]) -> Iterable[ir.Var]:
        return (self.names.get(var, var) for var in variables)

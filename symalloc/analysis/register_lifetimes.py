"""When the registers of a function let go of what they hold, as TVM's passes have it.

Each variable has a register of its frame, which holds its value until a kill empties it, or the frame ends.
TVM's KillAfterLastUse puts a kill behind the last use of a variable; in a block with an If it puts none at
the If and behind it, and never one for what nothing uses or a block yields; names that it does away with have
no register.  Our KillOnPaths, in its place, goes by liveness on every path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from symalloc.program import ir
from symalloc.program.operands import instructions_of, other_names, type_of, variables_in, variables_of

Kills: TypeAlias = Literal["stock", "paths"]
"""The passes that decide when registers let go: TVM's alone, or ours among them."""


Where: TypeAlias = Literal["behind", "then", "else", "yielded by then", "yielded by else"]
Place: TypeAlias = tuple[ir.Var, Where]
"""Behind the instruction that binds a variable, at the start of a block of the If that does, or behind what
such a block yields.
"""
Emptied: TypeAlias = dict[Place, list[ir.Var]]


@dataclass(frozen=True, slots=True)
class RegisterLifetimes:
    """The variables whose registers are emptied at each place.

    `names` tells by a variable that has no register which one it stands for.  `anew`: kills that are there
    already do not count.
    """

    emptied: Mapping[Place, Sequence[ir.Var]]
    names: Mapping[ir.Var, ir.Var] = field(default_factory=dict)
    anew: bool = False


def register_lifetimes(function: ir.Function, kills: Kills) -> RegisterLifetimes:
    """The lifetimes of the registers of `function`; TVM's pass keeps the kills that are there already."""
    if kills == "paths":
        emptied: Emptied = {}
        _last_uses(function.body, set(), emptied)
        return RegisterLifetimes(emptied, anew=True)
    names = _other_names(function.body)
    lifetimes = _Stock(names)
    lifetimes.block(function.body)
    return RegisterLifetimes(lifetimes.emptied, names)


# -- liveness on every path ----------------------------------------------------------------------------------


def _last_uses(block: ir.Block, live: set[ir.Var], found: Emptied) -> set[ir.Var]:
    """Note, from its end on, where variables are needed no more in a block behind which some are `live`.

    Returns those that are live in front of it.  Kills are no uses.
    """
    live = live.union(variables_in(block.result))
    for one in reversed(block.instructions):
        if isinstance(one, ir.Kill):
            continue
        used = variables_of(one)
        ended = [] if one.var in live else [one.var]
        live.discard(one.var)
        if isinstance(one, ir.If):
            live = _last_uses_in_if(one, used, live, found)
            live.update(used)
        for var in used:
            if var not in live and var is not one.var:
                ended.append(var)
            live.add(var)
        if ended:
            found[one.var, "behind"] = ended
    return live


def _last_uses_in_if(branch: ir.If, used: Sequence[ir.Var], live: set[ir.Var], found: Emptied) -> set[ir.Var]:
    then, otherwise = (_last_uses(block, live, found) for block in (branch.then, branch.otherwise))
    _note((branch.var, "yielded by then"), variables_in(branch.then.result), live, found)
    _note((branch.var, "yielded by else"), variables_in(branch.otherwise.result), live, found)
    needed = then | otherwise
    _note((branch.var, "then"), (*needed, *used), then, found)
    _note((branch.var, "else"), (*needed, *used), otherwise, found)
    return needed


def _note(place: Place, variables: Iterable[ir.Var], live: Collection[ir.Var], found: Emptied) -> None:
    ended = [var for var in dict.fromkeys(variables) if var not in live]
    if ended:
        found[place] = ended


# -- the kills of TVM's pass ---------------------------------------------------------------------------------


_RENAMING = ir.Alias, ir.MatchCast, ir.TakeField


def _other_names(body: ir.Block) -> Mapping[ir.Var, ir.Var]:
    """The variable that each one which is nothing but another name of it stands for."""
    definitions = {one.var: one for one in instructions_of(body)}
    found: dict[ir.Var, ir.Var] = {}
    renaming = (var for var, one in definitions.items() if isinstance(one, _RENAMING))
    for var in renaming:
        for operand, path in other_names(var, definitions):
            if not isinstance(operand, ir.Var):
                break
            if not path and operand is not var:
                found[var] = operand
            made = definitions.get(operand)
            if isinstance(made, ir.MatchCast) and type_of(made.source) != made.target:
                break
    return found


@dataclass(slots=True)
class _Stock:
    """The variables whose registers are `emptied`, `names` told apart from variables."""

    names: Mapping[ir.Var, ir.Var]
    emptied: Emptied = field(default_factory=dict)

    def block(self, block: ir.Block) -> set[ir.Var]:
        """Note the kills in `block`; return the variables that it uses."""
        ends: dict[ir.Var, ir.Var | None] = {}  # the binding that uses a variable last, before any If
        killed: set[ir.Operand] = set()
        branched, names = False, self.names
        for one in block.instructions:
            if one.var in names:
                continue
            used: Iterable[ir.Var] = variables_of(one)
            if names:
                used = [names.get(var, var) for var in used]
            if type(one) is ir.Kill:
                killed.update(used)
                continue
            if type(one) is ir.If:
                branched = True
                used = {*used, *self.block(one.then), *self.block(one.otherwise)}
            ends.update(dict.fromkeys(used, None if branched else one.var))
        ends.update(dict.fromkeys(self.renamed(variables_in(block.result)), None))
        bound = {one.var for one in block.instructions}
        for var, last in ends.items():
            if last is not None and var in bound and var not in killed:
                self.emptied.setdefault((last, "behind"), []).append(var)
        return set(ends)

    def renamed(self, variables: Iterable[ir.Var]) -> Iterable[ir.Var]:
        return (self.names.get(var, var) for var in variables)

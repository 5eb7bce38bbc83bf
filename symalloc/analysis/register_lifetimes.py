"""When the registers of a function let go of what they hold, as TVM's passes have it.

Each variable has a register of its frame, which holds its value until a kill empties it, or the frame ends.
TVM's KillAfterLastUse puts a kill behind the last use of a variable; in a block with an If it puts none at
the If and behind it, and never one for what nothing uses or a block yields; names that it does away with have
no register.  Our KillOnPaths, in its place, goes by liveness on every path.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from symalloc.program import ir
from symalloc.program.operands import instructions_of, other_names, type_of, variables_in, variables_of

Kills: TypeAlias = Literal["stock", "paths"]
"""The passes that decide when registers let go: TVM's alone, or ours among them."""


Where: TypeAlias = Literal["behind", "then", "else", "yielded by then", "yielded by else"]
Place: TypeAlias = tuple[ir.Var, Where]
"""Behind the instruction that binds a variable, at the start of a block of the If that does, or behind what
such a block yields.
"""


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
        emptied = {one.place: one.variables for one in last_uses(function.body) if one.variables}
        return RegisterLifetimes(emptied, anew=True)
    names = _other_names(function.body)
    lifetimes = _Stock(names)
    lifetimes.block(function.body)
    return RegisterLifetimes(lifetimes.emptied, names)


# -- liveness on every path ----------------------------------------------------------------------------------


class LastUse(NamedTuple):
    """The variables that nothing needs from `place` on.

    `live` are those that something needs there, while this one is looked at; `allocates`: memory may be taken
    before the function is over.
    """

    place: Place
    variables: Sequence[ir.Var]
    live: Collection[ir.Var]
    allocates: bool


class _Ahead(NamedTuple):
    live: set[ir.Var]
    allocates: bool


def last_uses(body: ir.Block) -> Iterator[LastUse]:
    """Yield where variables are needed no more in a function, from its end on; kills are no uses."""
    yield from _last_uses(body, _Ahead(set(), allocates=False))


def _last_uses(block: ir.Block, ahead: _Ahead) -> Generator[LastUse, None, _Ahead]:
    """Yield the last uses in a block with this `ahead`; return what is ahead in front of it."""
    live, allocates = ahead.live.union(variables_in(block.result)), ahead.allocates
    for one in reversed(block.instructions):
        if isinstance(one, ir.Kill):
            continue
        used = variables_of(one)
        ended = (one.var,) if isinstance(one, ir.If) else (one.var, *used)
        yield _ended((one.var, "behind"), ended, live, allocates)
        live.discard(one.var)
        if isinstance(one, ir.If):
            live, allocates = yield from _last_uses_in_if(one, used, _Ahead(live, allocates))
        live.update(used)
        allocates = allocates or _allocates(one)
    return _Ahead(live, allocates)


def _last_uses_in_if(
    branch: ir.If, used: Sequence[ir.Var], ahead: _Ahead
) -> Generator[LastUse, None, _Ahead]:
    then = yield from _last_uses(branch.then, ahead)
    otherwise = yield from _last_uses(branch.otherwise, ahead)
    yielded = tuple(variables_in(branch.then.result)), tuple(variables_in(branch.otherwise.result))
    yield _ended((branch.var, "yielded by then"), yielded[0], *ahead)
    yield _ended((branch.var, "yielded by else"), yielded[1], *ahead)
    needed = then.live | otherwise.live
    yield _ended((branch.var, "then"), (*needed, *used), *then)
    yield _ended((branch.var, "else"), (*needed, *used), *otherwise)
    return _Ahead(needed, then.allocates or otherwise.allocates)


def _ended(place: Place, variables: Iterable[ir.Var], live: Collection[ir.Var], allocates: bool) -> LastUse:
    return LastUse(place, [var for var in dict.fromkeys(variables) if var not in live], live, allocates)


_ALLOCATES_NOTHING = frozenset(
    {ir.Alias, ir.AllocTensor, ir.Assert, ir.If, ir.MakeTuple, ir.MatchCast, ir.TakeField}
)


def _allocates(instruction: ir.Instruction) -> bool:
    """True if an instruction by itself may take memory; a kernel may, for its workspace."""
    if isinstance(instruction, ir.CallPacked):
        return instruction.contract.allocates
    if isinstance(instruction, ir.View):
        return instruction.kind != "reshape"
    return type(instruction) not in _ALLOCATES_NOTHING


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
    emptied: dict[Place, list[ir.Var]] = field(default_factory=dict)

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

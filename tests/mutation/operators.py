"""Mutation operators: each plants one fault in a function taken apart, at places drawn at random.

An operator gets the function and a source of randomness, changes the lists in place and says what it did, or
returns None where it finds nothing to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from random import Random
from typing import Any

import tvm
from tvm import relax
from tvm.script import relax as R  # noqa: N812

from mutation.editable import EditableFunction, Sequence, Step, inline_sizes, with_arguments
from mutation.kernels import takes_offset, with_offset_factor

__all__ = ["OPERATORS", "Operator"]

Operator = Callable[[EditableFunction, Random], str | None]
Place = tuple[Sequence, int]

_ALLOC_STORAGE = "relax.memory.alloc_storage"
_ALLOC_TENSOR = "relax.memory.alloc_tensor"
# the operator, and the function of the runtime that it becomes: same arguments
_VIEWS = ("relax.memory.view", "runtime.TVMTensorCreateView")
_KILLS = ("relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object")


def _named(*names: str) -> Callable[[Step], bool]:
    return lambda step: step.operator in names


def _draw(places: list[Place], random: Random) -> tuple[Sequence, int, Step] | None:
    if not places:
        return None
    sequence, index = random.choice(places)
    return sequence, index, sequence.steps[index]


def _set_argument(step: Step, index: int, argument: Any) -> None:
    arguments = list(step.value.args)
    arguments[index] = argument
    step.value = with_arguments(step.value, arguments)


def _retype(function: EditableFunction, step: Step, shape: list[Any], dtype: str) -> None:
    """Give the step's variable the type that its changed value has."""
    ty = relax.TensorType(relax.ShapeExpr(shape), dtype)
    function.renamed[step.var] = relax.Var(step.var.name, ty)
    for sequence, index in function.find(_named("relax.memory.ensure_zero_offset")):
        follower = sequence.steps[index]
        if follower.value.args[0].same_as(step.var):
            function.renamed[follower.var] = relax.Var(follower.var.name, ty)


# -- sizes, shapes, offsets --------------------------------------------------------------------------------


def shrink_storage(function: EditableFunction, random: Random) -> str | None:
    """Reserve less: a half, a byte less, 64 bytes less, or the bytes of one position only."""
    found = _draw(function.find(_named(_ALLOC_STORAGE)), random)
    if found is None:
        return None
    step = found[2]
    size = step.value.args[0].values[0]
    smaller = random.choice([tvm.tirx.floordiv(size, 2), size - 1, size - 64, tvm.tirx.const(16, "int64")])
    _set_argument(step, 0, relax.ShapeExpr([smaller]))
    return f"{step.var.name}: {size} -> {smaller}"


def grow_storage(function: EditableFunction, random: Random) -> str | None:
    """Reserve more: harmless."""
    found = _draw(function.find(_named(_ALLOC_STORAGE)), random)
    if found is None:
        return None
    step = found[2]
    size = step.value.args[0].values[0]
    larger = random.choice([size * 2, size + 64])
    _set_argument(step, 0, relax.ShapeExpr([larger]))
    return f"{step.var.name}: {size} -> {larger}"


def grow_shape(function: EditableFunction, random: Random) -> str | None:
    """Make one extent of a tensor larger: by one, or twice."""
    inline_sizes(function.body)
    found = _draw(
        function.find(lambda s: s.operator == _ALLOC_TENSOR and len(s.value.args[2].values) > 0), random
    )
    if found is None:
        return None
    step = found[2]
    shape = list(step.value.args[2].values)
    axis = random.randrange(len(shape))
    shape[axis] = random.choice([shape[axis] + 1, shape[axis] * 2])
    _set_argument(step, 2, relax.ShapeExpr(shape))
    _retype(function, step, shape, str(step.value.args[3].value))
    return f"{step.var.name}: extent {axis} -> {shape[axis]}"


def swap_symbol(function: EditableFunction, random: Random) -> str | None:
    """Put another symbol, or a constant, for a symbol in the size of a storage or the shape of a tensor."""
    inline_sizes(function.body)
    found = _draw(
        function.find(lambda s: s.operator in (_ALLOC_STORAGE, _ALLOC_TENSOR) and _symbols(s)), random
    )
    if found is None:
        return None
    step = found[2]
    index = 0 if step.operator == _ALLOC_STORAGE else 2
    old = random.choice(_symbols(step))
    params = function.original.params
    known = [v for p in params for v in relax.analysis.tir_vars_in_type(p.ty)]
    others = [v for v in known if not v.same_as(old)]
    new = random.choice([*others, tvm.tirx.const(4, "int64")])
    shape = [_substitute(e, old, new) for e in step.value.args[index].values]
    _set_argument(step, index, relax.ShapeExpr(shape))
    if index == 2:
        _retype(function, step, shape, str(step.value.args[3].value))
    return f"{step.var.name}: {old} -> {new}"


def _symbols(step: Step) -> list[Any]:
    shape = step.value.args[0 if step.operator == _ALLOC_STORAGE else 2]
    if not isinstance(shape, relax.ShapeExpr):
        return []
    return [v for e in shape.values for v in tvm.tirx.analysis.undefined_vars(e)]


def _substitute(expression: Any, old: Any, new: Any) -> Any:
    if type(expression).__name__ == "Var":
        return new if expression.same_as(old) else expression
    if hasattr(expression, "a") and hasattr(expression, "b"):
        return type(expression)(_substitute(expression.a, old, new), _substitute(expression.b, old, new))
    return expression


def shift_offset(function: EditableFunction, random: Random) -> str | None:
    """Move a tensor or a view in its storage: up by 64, 32 or 1 bytes, or in front of it."""
    places = function.find(_named(_ALLOC_TENSOR)) + function.find(_named(*_VIEWS))
    found = _draw(places, random)
    if found is None:
        return None
    step = found[2]
    index = 1 if step.operator == _ALLOC_TENSOR else 3
    offset = step.value.args[index]
    by = random.choice([64, 32, 1, -64, -4096])
    base = 0 if type(offset).__name__ == "Tuple" else offset
    _set_argument(step, index, relax.prim_value(base + by) if isinstance(base, int) else base + by)
    return f"{step.var.name}: offset {by:+}"


def share_offset(function: EditableFunction, random: Random) -> str | None:
    """Give a tensor, or a view, the offset of another one."""
    index, placed = 1, function.find(_named(_ALLOC_TENSOR))
    views = function.find(_named(*_VIEWS))
    if views and random.random() < 0.5:
        index, placed = 3, views
    found = _draw(placed, random)
    if found is None:
        return None
    step = found[2]
    others = [s.steps[i] for s, i in placed]
    donors = [d for d in others if str(d.value.args[index]) != str(step.value.args[index])]
    donors = [d for d in donors if _is_outermost(function, d.value.args[index])]
    if not donors:
        return None
    donor = random.choice(donors)
    _set_argument(step, index, donor.value.args[index])
    return f"{step.var.name}: offset of {donor.var.name}"


def _is_outermost(function: EditableFunction, offset: Any) -> bool:
    """Whether an offset is known wherever a tensor may stand: no variable of its own holds it."""
    held = {s.var for sequence in function.sequences() for s in sequence.steps}
    return type(offset).__name__ != "Var" or offset not in held


def shift_shared_offset(function: EditableFunction, random: Random) -> str | None:
    """Change an offset that several tensors share: by 64, 32 or 1 bytes, or to nothing."""
    found = _draw(function.find(lambda s: isinstance(s.var.ty, tvm.ir.PrimType)), random)
    if found is None:
        return None
    step = found[2]
    by = random.choice([64, 32, 1, -64, None])
    step.value = relax.prim_value(0 if by is None else step.value + by)
    return f"{step.var.name}: {'0' if by is None else f'{by:+}'}"


def grow_view(function: EditableFunction, random: Random) -> str | None:
    """Make one extent of a view larger."""
    inline_sizes(function.body)
    found = _draw(function.find(_named(*_VIEWS)), random)
    if found is None:
        return None
    step = found[2]
    shape = list(step.value.args[1].values)
    axis = random.randrange(len(shape))
    shape[axis] = random.choice([shape[axis] + 1, shape[axis] * 2])
    _set_argument(step, 1, relax.ShapeExpr(shape))
    _retype(function, step, shape, str(step.value.args[2].value))
    return f"{step.var.name}: extent {axis} -> {shape[axis]}"


def change_dtype(function: EditableFunction, random: Random) -> str | None:
    """Give a tensor another element type."""
    inline_sizes(function.body)
    found = _draw(function.find(_named(_ALLOC_TENSOR)), random)
    if found is None:
        return None
    step = found[2]
    old = str(step.value.args[3].value)
    new = random.choice([d for d in ("float16", "float64", "int32", "float32") if d != old])
    _set_argument(step, 3, R.dtype(new))
    _retype(function, step, list(step.value.args[2].values), new)
    return f"{step.var.name}: {old} -> {new}"


# -- offsets that users take -------------------------------------------------------------------------------


def forget_to_settle(function: EditableFunction, random: Random) -> str | None:
    """Leave out an ensure_zero_offset: whoever comes behind it gets the offset."""
    found = _draw(function.find(_named("relax.memory.ensure_zero_offset")), random)
    if found is None:
        return None
    step = found[2]
    step.value = step.value.args[0]
    return f"{step.var.name} not settled"


def refuse_offset(function: EditableFunction, random: Random) -> str | None:
    """Compile a kernel for tensors that begin at byte 0."""
    return _recompile(function, random, None)


def coarsen_offset(function: EditableFunction, random: Random) -> str | None:
    """Compile a kernel for offsets at twice or four times the distance."""
    return _recompile(function, random, random.choice([2, 4]))


def _recompile(function: EditableFunction, random: Random, times: int | None) -> str | None:
    """Declare one of the buffers that take an offset anew, in a kernel that the function calls."""
    called = {s.steps[i].operator for s, i in function.find(Step.calls_global)}
    choices = [
        (name, position)
        for name, kernel in sorted(function.kernels.items())
        for position, param in enumerate(kernel.params)
        if name in called and takes_offset(param)
    ]
    if not choices:
        return None
    name, position = random.choice(choices)
    kernel = function.kernels[name]
    function.changed[name] = with_offset_factor(kernel, position, times)
    wanted = "no offset" if times is None else f"{times} times the offset"
    return f"{name}: {kernel.params[position].name} takes {wanted}"


# -- who lies where ----------------------------------------------------------------------------------------


def retarget_tensor(function: EditableFunction, random: Random) -> str | None:
    """Put a tensor on another storage that was reserved before it, killed or not."""
    found = _draw(function.find(_named(_ALLOC_TENSOR)), random)
    if found is None:
        return None
    sequence, index, step = found
    storages = [
        s.var
        for s in sequence.steps[:index]
        if s.operator == _ALLOC_STORAGE and not s.var.same_as(step.value.args[0])
    ]
    if not storages:
        return None
    old, other = step.value.args[0], random.choice(storages)
    _set_argument(step, 0, other)
    return f"{step.var.name}: {old.name} -> {other.name}"


def retarget_to_live(function: EditableFunction, random: Random) -> str | None:
    """Put a tensor on another storage whose handle is kept for it."""
    change = retarget_tensor(function, random)
    if change is not None:
        _drop_storage_kills(function)
    return change


def _drop_storage_kills(function: EditableFunction) -> None:
    for sequence in function.sequences():
        sequence.steps[:] = [s for s in sequence.steps if s.operator != "relax.memory.kill_storage"]


def _allocate_first(sequence: Sequence) -> None:
    """Move the allocations of a sequence to its front: nothing is written earlier or later by that."""
    front = [s for s in sequence.steps if s.operator in (_ALLOC_STORAGE, _ALLOC_TENSOR)]
    rest = [s for s in sequence.steps if s.operator not in (_ALLOC_STORAGE, _ALLOC_TENSOR)]
    sequence.steps[:] = front + rest


def swap_storages(function: EditableFunction, random: Random) -> str | None:
    """Two storages change places in all that is placed on them."""
    inline_sizes(function.body)
    _drop_storage_kills(function)
    _allocate_first(function.body)
    storages = [s.var for s in function.body.steps if s.operator == _ALLOC_STORAGE]
    if len(storages) < 2:
        return None
    one, two = random.sample(storages, 2)
    swap: Mapping[Any, Any] = {one: two, two: one}
    for sequence, index in function.find(_named(_ALLOC_TENSOR)):
        step = sequence.steps[index]
        _set_argument(step, 0, swap.get(step.value.args[0], step.value.args[0]))
    storage_first = sorted(function.body.steps, key=lambda s: s.operator != _ALLOC_STORAGE)
    function.body.steps[:] = storage_first
    return f"{one.name} <-> {two.name}"


def merge_storages(function: EditableFunction, random: Random) -> str | None:
    """All on one storage goes to another, made as large as both: only lifetimes are at stake."""
    _drop_storage_kills(function)
    storages = [s for s in function.body.steps if s.operator == _ALLOC_STORAGE]
    if len(storages) < 2:
        return None
    one, two = random.sample(storages, 2)
    size = one.value.args[0].values[0] + two.value.args[0].values[0]
    _set_argument(one, 0, relax.ShapeExpr([size]))
    for sequence, index in function.find(_named(_ALLOC_TENSOR)):
        step = sequence.steps[index]
        if step.value.args[0].same_as(two.var):
            _set_argument(step, 0, one.var)
    function.body.steps[:] = sorted(function.body.steps, key=lambda s: s.operator != _ALLOC_STORAGE)
    return f"{two.var.name} into {one.var.name}"


def alloc_in_other_branch(function: EditableFunction, random: Random) -> str | None:
    """Move an allocation from one side of an If to the other."""
    inline_sizes(function.body)
    sides = [step.branches for s in function.sequences() for step in s.steps if step.branches]
    moves = [
        (a, b, i)
        for pair in sides
        for a, b in (pair, pair[::-1])
        for i, step in enumerate(a.steps)
        if step.operator in (_ALLOC_STORAGE, _ALLOC_TENSOR)
    ]
    if not moves:
        return None
    source, target, index = random.choice(moves)
    step = source.steps.pop(index)
    target.steps.insert(0, step)
    return f"{step.var.name} moved to the other branch"


# -- kills -------------------------------------------------------------------------------------------------


def kill_earlier(function: EditableFunction, random: Random) -> str | None:
    """Move a kill up by one to eight steps, not above what it kills."""
    found = _draw(function.find(_named(*_KILLS)), random)
    if found is None:
        return None
    sequence, index, step = found
    target = step.value.args[0]
    first = next((i + 1 for i, s in enumerate(sequence.steps) if s.var.same_as(target)), 0)
    to = max(first, index - random.randint(1, 8))
    if to == index:
        return None
    sequence.steps.insert(to, sequence.steps.pop(index))
    return f"kill of {target.name} up by {index - to}"


def kill_later(function: EditableFunction, random: Random) -> str | None:
    """Move a kill down: harmless, for memory goes with the last alias."""
    found = _draw(function.find(_named(*_KILLS)), random)
    if found is None:
        return None
    sequence, index, step = found
    to = min(len(sequence.steps) - 1, index + random.randint(1, 8))
    if to == index:
        return None
    sequence.steps.insert(to, sequence.steps.pop(index))
    return f"kill of {step.value.args[0].name} down by {to - index}"


def duplicate_kill(function: EditableFunction, random: Random) -> str | None:
    """Kill something twice."""
    found = _draw(function.find(_named(*_KILLS)), random)
    if found is None:
        return None
    sequence, index, step = found
    again = Step(relax.Var(f"{step.var.name}_again", relax.TupleType([])), step.value)
    sequence.steps.insert(random.randint(index + 1, len(sequence.steps)), again)
    return f"{step.value.args[0].name} killed twice"


def drop_kill(function: EditableFunction, random: Random) -> str | None:
    """Leave a kill out."""
    found = _draw(function.find(_named(*_KILLS)), random)
    if found is None:
        return None
    sequence, index, step = found
    del sequence.steps[index]
    return f"{step.value.args[0].name} not killed"


def use_after_kill(function: EditableFunction, random: Random) -> str | None:
    """Kill an argument right before a call that uses it."""
    calls = function.find(Step.calls_global)
    found = _draw(calls, random)
    if found is None:
        return None
    sequence, index, step = found
    defined = {s.var for s in sequence.steps[:index]}
    arguments = [a for a in step.value.args if type(a).__name__ == "Var" and a in defined]
    if not arguments:
        return None
    victim = random.choice(arguments)
    kill = relax.Call(tvm.ir.Op.get("relax.memory.kill_tensor"), [victim])
    sequence.steps.insert(index, Step(relax.Var("killed", relax.TupleType([])), kill))
    return f"{victim.name} killed before {step.operator}"


# -- calls -------------------------------------------------------------------------------------------------


def replace_argument(function: EditableFunction, random: Random) -> str | None:
    """Hand a call another tensor that is in scope."""
    found = _draw(function.find(Step.calls_global), random)
    if found is None:
        return None
    sequence, index, step = found
    tensors = [s.var for s in sequence.steps[:index] if isinstance(s.var.ty, relax.TensorType)]
    arguments = [i for i, a in enumerate(step.value.args) if isinstance(a.ty, relax.TensorType)]
    if not tensors or not arguments:
        return None
    position, other = random.choice(arguments), random.choice(tensors)
    if other.same_as(step.value.args[position]):
        return None
    old = step.value.args[position]
    _set_argument(step, position, other)
    return f"{step.operator}: argument {position}, {getattr(old, 'name', 'a constant')} -> {other.name}"


def reorder_calls(function: EditableFunction, random: Random) -> str | None:
    """Exchange two calls that both have their arguments before the first."""
    inline_sizes(function.body)
    _drop_storage_kills(function)
    places = []
    for sequence in function.sequences():
        _allocate_first(sequence)
        calls = [i for i, s in enumerate(sequence.steps) if s.calls_global()]
        places += [(sequence, one, two) for one, two in pairwise(calls) if _free(sequence, one, two)]
    if not places:
        return None
    sequence, one, two = random.choice(places)
    steps = sequence.steps
    steps[one], steps[two] = steps[two], steps[one]
    return f"{steps[two].operator} <-> {steps[one].operator}"


def _free(sequence: Sequence, one: int, two: int) -> bool:
    """Whether nothing that the steps from `one` on define is an argument of step `two`."""
    defined = {s.var for s in sequence.steps[one:two]}
    return not any(type(a).__name__ == "Var" and a in defined for a in sequence.steps[two].value.args)


OPERATORS: Mapping[str, Operator] = {
    "shrink storage": shrink_storage,
    "grow storage": grow_storage,
    "grow shape": grow_shape,
    "swap symbol": swap_symbol,
    "shift offset": shift_offset,
    "share offset": share_offset,
    "shift shared offset": shift_shared_offset,
    "grow view": grow_view,
    "change dtype": change_dtype,
    "forget to settle": forget_to_settle,
    "refuse offset": refuse_offset,
    "coarsen offset": coarsen_offset,
    "retarget tensor": retarget_tensor,
    "retarget to live storage": retarget_to_live,
    "merge storages": merge_storages,
    "swap storages": swap_storages,
    "alloc in other branch": alloc_in_other_branch,
    "kill earlier": kill_earlier,
    "kill later": kill_later,
    "duplicate kill": duplicate_kill,
    "drop kill": drop_kill,
    "use after kill": use_after_kill,
    "replace argument": replace_argument,
    "reorder calls": reorder_calls,
}

"""Mutation operators: each plants one fault in a function taken apart, at places drawn at random.

An operator gets the function and a source of randomness, changes the lists in place and says what it did, or
returns None where it finds nothing to change.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutation.operators import (
    bodies,
    callees,
    calls,
    executions,
    handing_over,
    heap_slots,
    kills,
    operands,
    sizes,
    storages,
)
from tests.mutation.operators.places import Operator

__all__ = ["OPERATORS", "RUN_OPERATORS", "Operator"]

OPERATORS: Mapping[str, Operator] = {
    "shrink storage": sizes.shrink_storage,
    "grow storage": sizes.grow_storage,
    "grow shape": sizes.grow_shape,
    "swap symbol": sizes.swap_symbol,
    "shift offset": sizes.shift_offset,
    "share offset": sizes.share_offset,
    "shift shared offset": sizes.shift_shared_offset,
    "grow view": sizes.grow_view,
    "change dtype": sizes.change_dtype,
    "forget to settle": handing_over.forget_to_settle,
    "refuse offset": handing_over.refuse_offset,
    "coarsen offset": handing_over.coarsen_offset,
    "retarget tensor": storages.retarget_tensor,
    "retarget to live storage": storages.retarget_to_live,
    "merge storages": storages.merge_storages,
    "swap storages": storages.swap_storages,
    "alloc in other branch": storages.alloc_in_other_branch,
    "kill earlier": kills.kill_earlier,
    "kill later": kills.kill_later,
    "duplicate kill": kills.duplicate_kill,
    "drop kill": kills.drop_kill,
    "use after kill": kills.use_after_kill,
    "replace argument": calls.replace_argument,
    "reorder calls": calls.reorder_calls,
}

# whose faults only a run of the kernels can show
RUN_OPERATORS: Mapping[str, Operator] = {
    "drop a call": executions.drop_call,
    "move behind reader": executions.move_behind_reader,
    "double a call": executions.double_call,
    "write elsewhere": executions.write_elsewhere,
    "exchange outputs": executions.swap_outputs,
    "write a constant": executions.write_constant,
    "shift a store": bodies.shift_store,
    "shift a load": bodies.shift_load,
    "exchange indices": bodies.swap_indices,
    "extend a loop": bodies.extend_loop,
    "exchange loops": bodies.swap_loops,
    "loosen a guard": bodies.loosen_guard,
    "swap arguments": callees.swap_arguments,
    "kill a parameter": callees.kill_parameter,
    "share results": callees.share_results,
    "shrink an argument": callees.shrink_argument,
    "drop a check": callees.drop_check,
    "read operand later": operands.read_operand_later,
    "wrong slot": heap_slots.wrong_slot,
}

"""Planning: live ranges, interference, stacking, offsets, guards; and a validator that shares no code
with them.
"""

from symalloc.planner.check.validate import PlanFault, PlanRefusedError, validate
from symalloc.planner.memory_plan import ALIGNMENT, Arena, Buffer, Guard, Placement, Plan, Unplanned
from symalloc.planner.plan_functions import plan_program

__all__ = [
    "ALIGNMENT",
    "Arena",
    "Buffer",
    "Guard",
    "Placement",
    "Plan",
    "PlanFault",
    "PlanRefusedError",
    "Unplanned",
    "plan_program",
    "validate",
]

"""Planning: live ranges, interference, stacking, offsets, guards; and a validator that shares no code
with them.
"""

from symalloc.planner.check.validate import Fault, PlanRefusedError, validate
from symalloc.planner.model import ALIGNMENT, Arena, Buffer, Guard, Placement, Plan, Unplanned
from symalloc.planner.planner import plan_function, plan_program

__all__ = [
    "ALIGNMENT",
    "Arena",
    "Buffer",
    "Fault",
    "Guard",
    "Placement",
    "Plan",
    "PlanRefusedError",
    "Unplanned",
    "plan_function",
    "plan_program",
    "validate",
]

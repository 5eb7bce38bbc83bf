"""Measuring what a call on TVM's virtual machine takes from its allocator, and what it needs at least."""

from tests.models.measure.floor import Floor, floor, floors
from tests.models.measure.library import ALLOCATOR, compiler, load
from tests.models.measure.usage import Usage, measured, usage

__all__ = ["ALLOCATOR", "Floor", "Usage", "compiler", "floor", "floors", "load", "measured", "usage"]

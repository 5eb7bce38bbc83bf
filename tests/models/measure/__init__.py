"""Measuring what a call on TVM's virtual machine takes from its allocator, and what it needs at least."""

from models.measure.floor import floor
from models.measure.library import ALLOCATOR, compiler, load
from models.measure.usage import Usage, measured, usage

__all__ = ["ALLOCATOR", "Usage", "compiler", "floor", "load", "measured", "usage"]

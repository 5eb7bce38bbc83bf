"""Reads of what nothing has written, through handles, packed functions and other functions."""

from __future__ import annotations

from symalloc.analysis.feasibility import FeasiblePaths
from symalloc.analysis.interprocedural import analyse
from symalloc.analysis.unwritten_reads import UnwrittenReads
from symalloc.program.ir import Operand
from tests.program.build import Body, param

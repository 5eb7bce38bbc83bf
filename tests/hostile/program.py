"""A hostile program: its module, its harmless twin, what is found, and how a run shows the fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import tvm

from symalloc.rulebook.rule import StageName
from tests.hostile.machine import Shows

__all__ = ["HostileProgram", "ModuleSource", "hostile"]

ModuleSource: TypeAlias = str | Callable[[], tvm.IRModule]
"""The text of a module from its `@I.ir_module` on, or what makes the module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostileProgram:
    """One program that goes wrong, and a twin as like to it as can be that does not.

    `what` says in one line what goes wrong, and names it among those of its area.  The finding: `rule`,
    `severity`, `verdict` (None: the rule has none, or it does not matter), `on_line` (a piece of the source
    line that it points at), `counterexample`.  `also` are other rules that may report an error beside it.
    `twin` must have no error, and no warning of `rule`.

    `shows` runs the program and its twin on TVM's virtual machine, in a process of its own, and is True where
    the fault is seen there.  Where a signal ends the process, that is `signal`.  Both None: it cannot be run.
    """

    what: str
    module: ModuleSource
    twin: ModuleSource
    rule: str
    severity: str = "error"
    verdict: str | None = None
    on_line: str | None = None
    counterexample: Mapping[str, int] | None = None
    also: frozenset[str] = frozenset()
    stage: StageName = "as-is"
    shows: Shows | None = None
    signal: int | None = None


def hostile(what: str, rule: str, text: str, **more: Any) -> HostileProgram:
    """A program and its twin in one text: `<<a|b>>` is `a` in the program and `b` in the twin."""
    module, twin = (re.sub(r"<<(.*?)\|(.*?)>>", rf"\{side}", text, flags=re.DOTALL) for side in (1, 2))
    return HostileProgram(what=what, module=module, twin=twin, rule=rule, **more)

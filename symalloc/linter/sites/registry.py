"""Generators of sites, which every module of this room registers when it is imported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple, TypeAlias, TypeVar

from symalloc.linter.sites.site import FunctionContext, Site
from symalloc.program.ir import Instruction
from symalloc.rulebook.sites import SITE_KINDS

InstructionSites: TypeAlias = Callable[[FunctionContext, Any], Iterator[Site]]
FunctionSites: TypeAlias = Callable[[FunctionContext], Iterator[tuple[int, Site]]]
_InInstruction = TypeVar("_InInstruction", bound=InstructionSites)
_InFunction = TypeVar("_InFunction", bound=FunctionSites)


class FunctionGenerator(NamedTuple):
    """A generator of sites of some of `kinds` in a whole function; `expanded`: with its calls written out."""

    kinds: frozenset[str]
    generate: FunctionSites
    expanded: bool


# generators by type of instruction, each with the kind of its sites; and those that take the whole function
IN_INSTRUCTIONS: defaultdict[type[Instruction], list[tuple[str, InstructionSites]]] = defaultdict(list)
IN_FUNCTIONS: list[FunctionGenerator] = []


def instruction_sites(
    kind: str, *instructions: type[Instruction]
) -> Callable[[_InInstruction], _InInstruction]:
    """Register a generator: sites of `kind` at each instruction of one of the types `instructions`.

    Instructions whose memo keys are equal fare alike.  A key holds all fields of an instruction, and of its
    operands the types and byte offsets; a generator that looks at more adds it there (sites/memo_keys.py).
    """
    _require(kind)

    def register(generate: _InInstruction) -> _InInstruction:
        for instruction in instructions:
            IN_INSTRUCTIONS[instruction].append((kind, generate))
        return generate

    return register


def function_sites(*kinds: str, expanded: bool = False) -> Callable[[_InFunction], _InFunction]:
    """Register a generator: sites of some of `kinds` in a whole function, each with its program point.

    An `expanded` one asks in what order memory is written and read.  Where a function calls others that a
    summary does not describe well enough, it is given the function with these calls written out
    (symalloc.analysis.call_expansion), and a callee that is seen in all its callers not at all.
    """
    for kind in kinds:
        _require(kind)

    def register(generate: _InFunction) -> _InFunction:
        IN_FUNCTIONS.append(FunctionGenerator(frozenset(kinds), generate, expanded))
        return generate

    return register


def load_sites() -> None:
    """Import every module of this room, so that its generators are registered."""
    room = import_module("symalloc.linter.sites")
    for module in sorted(iter_modules(room.__path__), key=lambda found: found.name):
        import_module(f"symalloc.linter.sites.{module.name}")


def _require(kind: str) -> None:
    if kind not in SITE_KINDS:
        raise ValueError(f"no kind of site is called `{kind}`: add it to symalloc/rulebook/sites.py")

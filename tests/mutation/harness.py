"""Plant faults: modules with one change each, drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

import tvm
from tvm import relax

from tests.mutation.editable import rebuild, take_apart
from tests.mutation.kernels import kernels_of
from tests.mutation.operators import OPERATORS, Operator

__all__ = ["Mutant", "mutants"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A module with one change; `reference` does what it should do, None where the original does that."""

    subject: str
    operator: str
    change: str
    function: str
    module: tvm.IRModule
    reference: tvm.IRModule | None = None


def mutants(
    subjects: Iterable[tuple[str, tvm.IRModule]],
    *,
    tries: int,
    seed: int,
    operators: Mapping[str, Operator] = OPERATORS,
) -> Iterator[Mutant]:
    """For every subject and operator, up to `tries` different mutants; the same for the same seed."""
    for name, mod in subjects:
        for operator, change in operators.items():
            random = Random(f"{name} {operator} {seed}")
            yield from _mutants_of(name, mod, (operator, change), tries, random)


def _mutants_of(
    name: str, mod: tvm.IRModule, operator: tuple[str, Operator], tries: int, random: Random
) -> Iterator[Mutant]:
    functions = [g for g, f in mod.functions_items() if isinstance(f, relax.Function)]
    kernels = kernels_of(mod)
    seen: set[str] = set()
    for _ in range(tries):
        target = random.choice(functions)
        edited = take_apart(mod[target], kernels)
        change = operator[1](edited, random)
        if change is None or change in seen:
            continue
        seen.add(change)
        changed = {mod.get_global_var(kernel): new for kernel, new in edited.changed.items()}
        others = dict(mod.functions_items()) | changed | edited.added
        mutated, right = (
            body and tvm.IRModule(others | {target: rebuild(edited, body)}, attrs=mod.attrs)
            for body in (edited.body, edited.reference)
        )
        yield Mutant(
            subject=name,
            operator=operator[0],
            change=change,
            function=str(target.name_hint),
            module=mutated,
            reference=right,
        )

"""VerifyMemory's relax side: a pass instrument that has the module checked after every pass.

What a check is comes from outside (`symalloc.session.linting`): this room knows no rules.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir.instrument import PassInstrument, pass_instrument

from symalloc.relax.ir_types import Node
from symalloc.relax.passes.stages import has_memory_operations

Mode: TypeAlias = Literal["raise", "warn"]

_WRAPPERS = frozenset({"sequential", "_pipeline", "symalloc"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFault:
    """One error or warning in a module: the rule that it breaks, the function it is in, and what is wrong,
    for a person.
    """

    rule: str
    function: str
    text: str
    error: bool = True


Check: TypeAlias = Callable[[tvm.IRModule, str], Sequence[MemoryFault]]


class VerificationError(Exception):
    """A pass left a module with a memory fault that it did not have before.

    Built from the text alone: TVM's pass runner keeps nothing else of an exception.
    """


class VerificationWarning(UserWarning):
    """The same as a warning."""


tvm_ffi.register_error(VerificationError)  # or it leaves TVM's pass runner as a RuntimeError


def make_instrument(check: Check, mode: Mode = "raise") -> PassInstrument:
    """A pass instrument that calls `check(module, pass name)` after every pass that leaves memory operations.

    Faults that the module had before the pass are not charged to it; of nested passes the innermost is
    named.  Raises VerificationError through the pass for errors, unless `mode` is "warn"; warns with
    VerificationWarning of all else.
    """
    watch = _Watch(check, mode)

    @pass_instrument
    class VerifyMemory:
        enter_pass_ctx = staticmethod(watch.reset)
        exit_pass_ctx = staticmethod(watch.reset)
        run_before_pass = staticmethod(watch.before)
        run_after_pass = staticmethod(watch.after)

    return VerifyMemory()


class _Watch:
    """Follows one module through nested passes.

    Invariant: `known` counts the faults of the module as it last was, by rule, function and severity.
    """

    def __init__(self, check: Check, mode: Mode) -> None:
        self._check, self._mode = check, mode
        self.reset()

    def reset(self) -> None:
        """Forget everything: a context begins, or ends (also by an exception)."""
        self._depth = 0
        self._known: Counter[tuple[str, str, bool]] = Counter()

    def before(self, module: Node, info: Node) -> None:
        """At the outermost pass, note the faults that are there already."""
        self._depth += 1
        if self._depth == 1:
            self._known = _counted(self._faults(module, str(info.name)))

    def after(self, module: Node, info: Node) -> None:
        """Charge the pass with the faults that were not there before."""
        self._depth -= 1
        name = str(info.name)
        if not _holds_functions(module):
            return  # a part of the module under way, on which a pass runs another one
        faults = self._faults(module, name)
        found = _counted(faults)
        added = found - self._known
        self._known = found
        if added and name not in _WRAPPERS:
            self._report(name, [f for f in faults if _key(f) in added])

    def _faults(self, module: Node, name: str) -> Sequence[MemoryFault]:
        if not isinstance(module, tvm.IRModule) or not has_memory_operations(module):
            return ()
        return self._check(module, name)

    def _report(self, name: str, faults: Sequence[MemoryFault]) -> None:
        """Warn of the warnings, then raise (or warn of) the errors."""
        for error, what in ((False, "possible memory fault"), (True, "memory fault")):
            found = [f for f in faults if f.error is error]
            if not found:
                continue
            text = f"{name} brings in {_count(found, what)}:\n" + "\n".join(f.text.rstrip() for f in found)
            if error and self._mode == "raise":
                raise VerificationError(text)
            warnings.warn(VerificationWarning(text), stacklevel=2)


def _key(fault: MemoryFault) -> tuple[str, str, bool]:
    return fault.rule, fault.function, fault.error


def _counted(faults: Iterable[MemoryFault]) -> Counter[tuple[str, str, bool]]:
    return Counter(map(_key, faults))


def _count(faults: Sequence[MemoryFault], what: str) -> str:
    rules = ", ".join(sorted({f.rule for f in faults}))
    return f"a {what} ({rules})" if len(faults) == 1 else f"{len(faults)} {what}s ({rules})"


def _holds_functions(module: Node) -> bool:
    return isinstance(module, tvm.IRModule) and any(
        isinstance(function, relax.Function) for function in module.functions.values()
    )

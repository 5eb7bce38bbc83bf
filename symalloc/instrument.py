"""`symalloc.VerifyMemory`: the linter as a pass instrument."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symalloc.errors import UsageError
from symalloc.linter.diagnostic import Severity
from symalloc.linter.lint_options import LintOptions
from symalloc.linter.linter import Linter
from symalloc.relax.workers.programs import read_module
from symalloc.report.text import text_of

if TYPE_CHECKING:
    from tvm import IRModule

    from symalloc.relax.passes.verify_pass import MemoryFault, Mode


def VerifyMemory(  # noqa: N802 - TVM's instruments are classes, and this is called like one
    *,
    mode: Mode = "raise",
    assume: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Any:
    """A pass instrument that lints the module after every pass and stops at the pass that brings an error in.

        with tvm.transform.PassContext(instruments=[symalloc.VerifyMemory()]):
            relax.build(mod, target="llvm")

    `assume`, `select` and `ignore` are those of `symalloc.lint`.  A warning that a pass brings in becomes a
    VerificationWarning that names the pass; notes are passed over.  With mode "warn" the build goes on after
    errors too.  Raises UsageError for arguments that make no sense; while passes run, VerificationError.
    """
    from symalloc.relax.passes.verify_pass import make_instrument

    if mode not in ("raise", "warn"):
        raise UsageError(f"mode is {mode!r}; it must be 'raise' or 'warn'")
    options = LintOptions(assume=tuple(assume), select=tuple(select), ignore=tuple(ignore), stage="as-is")
    faults = partial(_faults, Linter(options))
    return make_instrument(faults, mode, locate=partial(faults, locate=True))


def _faults(linter: Linter, module: IRModule, stage: str, *, locate: bool = False) -> Sequence[MemoryFault]:
    """The errors and warnings in a module as it stands; the prover's memory lasts over all passes.

    With `locate` they are shown in the script of the module, which takes a while to print.
    """
    from symalloc.relax.passes.verify_pass import MemoryFault

    linter = linter.fresh()
    found = linter.add(read_module(module, replace(linter.options, locate=locate), name=stage))
    report = linter.report()
    return [
        MemoryFault(
            rule=d.rule,
            function=d.function,
            text=text_of(d, report).plain,
            error=d.severity is Severity.ERROR,
        )
        for d in found
        if d.severity is not Severity.NOTE
    ]

"""Sites of kind `memory-place`: devices and memory scopes of allocations, beside those that there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symalloc.linter.sites.registry import instruction_sites
from symalloc.linter.sites.site import ConstraintSite, FunctionContext, Site
from symalloc.program.ir import AllocFresh, AllocStorage, AllocTensor
from symalloc.size.expr import ONE, ZERO, Expr, constant

_PLAIN = frozenset({"", "global"})
_IPC = "ipc_memory"  # TVM lowers it where several GPUs work together
_SCOPES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("llvm", "c", "metal", "vulkan", "webgpu"), _PLAIN),
    **dict.fromkeys(("cuda", "rocm"), _PLAIN | {_IPC}),
    "hexagon": _PLAIN | {"global.vtcm"},
}
"""Scopes that the allocators of a kind of device know; those of the other kinds are their own affair."""


@instruction_sites("memory-place", AllocStorage, AllocTensor, AllocFresh)
def memory_places(context: FunctionContext, made: AllocStorage | AllocTensor | AllocFresh) -> Iterator[Site]:
    """The device of an allocation among those of the module, and its scope among those of the device."""
    kinds = context.program.devices
    if made.device < 0 or (kinds and made.device >= len(kinds)):
        there = f"the module names {len(kinds)}" if kinds else "devices are counted from 0"
        maybe = "the machine may be given more devices than the module names" if made.device >= 0 else None
        problem = f"device {made.device}, and {there}"
        yield _site(made, problem, maybe, device=constant(made.device), devices=constant(len(kinds)))
    if isinstance(made, AllocTensor) or made.scope in _PLAIN or made.device < 0:
        return
    kind = kinds[made.device] if made.device < len(kinds) else ""
    if kind in _SCOPES and made.scope not in _SCOPES[kind]:
        problem = f"scope `{made.scope}`, which devices of kind `{kind}` do not have"
        yield _site(made, problem, None, scopes=ZERO)
    elif not kind and not made.scope.startswith(("global.", _IPC)):
        maybe = "it depends on the device, which the module does not name"
        yield _site(made, f"scope `{made.scope}`, which allocators do not have", maybe, scopes=ZERO)


def _site(
    made: AllocStorage | AllocTensor | AllocFresh,
    problem: str,
    uncertainty: str | None,
    *,
    device: Expr = ZERO,
    devices: Expr = ONE,
    scopes: Expr = ONE,
) -> Site:
    return ConstraintSite(
        kind="memory-place",
        instruction=made,
        quantities={"device": device, "devices": devices, "scopes": scopes},
        texts={"variable": made.var.name, "problem": problem},
        uncertainty=uncertainty,
    )

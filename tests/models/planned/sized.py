"""Cases made of the imported and of the ordinary models: five bindings from the symbols of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import tvm
from tvm import relax
from tvm.relax.analysis import definable_tir_vars_in_type

from tests.models.execution import is_condition, public_function
from tests.models.imported import load_imported
from tests.models.planned.case import Binding, Case
from tests.models.zoo import MODELS

__all__ = ["five_bindings", "imported_case", "ordinary_case"]

_EXTENTS = (1, 2, 7, 16, 33)  # above the lower bound, less one; each symbol begins with another
_APART = 2


@cache
def imported_case(name: str) -> Case:
    """The stored model `name`."""
    module = load_imported(name)
    return _case(name, module, {}, None)


@cache
def ordinary_case(name: str) -> Case:
    """The model `name` of the zoo; where it needs certain sizes, these only."""
    model = MODELS[name]
    return _case(name, model.build(), model.sizes, model.fault)


def _case(name: str, module: tvm.IRModule, sizes: Mapping[str, int], fault: str | None) -> Case:
    names = [str(v.name_hint) for v, f in module.functions_items() if isinstance(f, relax.Function)]
    function = "main" if "main" in names else public_function(module)
    bindings = five_bindings(module[function])
    return Case(
        name=name,
        build=lambda: module,
        bindings=(sizes,) if sizes else bindings,
        function=function,
        declared={s: bound for s, bound in _declared(module[function], "upper").items() if s in bindings[0]},
        paths=tuple(p.name for p in module[function].params if is_condition(p.ty)),
        theirs=fault,
    )


def five_bindings(function: relax.Function) -> tuple[Binding, ...]:
    """Extents of the symbols of the parameters, within declared bounds; fewer where these leave no five."""
    symbols = sorted({v.name for p in function.params for v in definable_tir_vars_in_type(p.ty)})
    low, high = _declared(function, "lower"), _declared(function, "upper")

    def extent(k: int, index: int, name: str) -> int:
        wanted = max(low.get(name, 0), 1) - 1 + _EXTENTS[(k + _APART * index) % len(_EXTENTS)]
        return min(wanted, high.get(name, wanted))

    found = [{n: extent(k, i, n) for i, n in enumerate(symbols)} for k in range(len(_EXTENTS))]
    return tuple(binding for i, binding in enumerate(found) if binding not in found[:i])


def _declared(function: relax.Function, which: str) -> dict[str, int]:
    found = (function.attrs or {}).get(f"tir_var_{which}_bound", {})
    return {str(name): int(bound) for name, bound in found.items()}

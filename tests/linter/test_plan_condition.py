"""SYM403: a planned module whose check was taken out, or weakened, is found; as emitted it is clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax

import symalloc
from symalloc.linter.diagnostic import Diagnostic
from tests.mutation.editable import Sequence, Step, rebuild, take_apart
from tests.relax.built import MODULES
from tests.scale import part

KINDS = tuple(product(("assert", "native", "fallback"), ("ignore", "enforce", "reserve")))
MODELS = ("Chain", "Branches", "Cast", "Calls", "Exported", "FromShape", "Scalars", "InPlace", "Reshapes")
Change = Callable[[Sequence, int], None]
Test = Callable[[Step], bool]


def _checks_plan(module: tvm.IRModule) -> Test:
    """Find the checks of plans, not those of casts; some are kernels."""

    named = {variable.name_hint for variable in module.get_global_vars()}

    def test(step: Step) -> bool:
        called = module[step.operator].script() if step.operator in named else str(step.value)
        return "these shapes" in called

    return test


def _dropped(where: Sequence, index: int) -> None:
    del where.steps[index]


def _then_only(where: Sequence, index: int) -> None:
    """The planned side alone, whatever the sizes."""
    step = where.steps[index]
    assert step.branches is not None
    then, _ = step.branches
    where.steps[index : index + 1] = [*then.steps, Step(step.var, then.result)]


def _changed(module: tvm.IRModule, test: Test, change: Change) -> Iterator[tvm.IRModule]:
    """The modules in which one step is changed that satisfies the test."""
    for variable, function in module.functions_items():
        steps = take_apart(function).find(test) if isinstance(function, relax.Function) else ()
        for number in range(len(steps)):
            edited = take_apart(function)
            change(*edited.find(test)[number])
            made = dict(module.functions_items())
            made[variable] = rebuild(edited)
            yield tvm.IRModule(made, attrs=module.attrs, global_infos=module.global_infos)


def _planned(name: str, guards: str, bounds: str) -> tvm.IRModule:
    module = getattr(MODULES, name)
    return symalloc.plan(module, guards=guards, bounds=bounds).module


def _found(module: Any, *rules: str) -> list[Diagnostic]:
    rules = rules or ("SYM403",)
    return [d for d in symalloc.lint(module, stage="as-is", select=rules) if d.rule in rules]


def _told(module: tvm.IRModule, text: str) -> tvm.IRModule:
    """The module with another condition that its functions say they check."""
    functions = {
        var: f.with_attr("symalloc.plan_condition", text) if isinstance(f, relax.Function) else f
        for var, f in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


@pytest.mark.slow
@pytest.mark.parametrize(("guards", "bounds"), KINDS)
def test_a_check_that_is_taken_out_is_found(guards: str, bounds: str) -> None:
    told, counted = 0, 0
    for name in part(MODELS[KINDS.index((guards, bounds)) % 4 :], 4):
        module = _planned(name, guards, bounds)
        assert not _found(module, "SYM403", "SYM904"), name
        branches = guards == "fallback"
        for damaged in _changed(module, lambda s: bool(s.branches), _then_only) if branches else ():
            told += bool(_found(damaged))
        for damaged in _changed(module, _checks_plan(module), _dropped):
            found = _found(damaged)
            counted += 1
            assert {str(d.severity) for d in found} == {"error"}, (name, damaged.script())
            assert all(d.counterexample for d in found), found
    assert told + counted >= 1


LATER = """
@I.ir_module
class Later:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        q = T.int64()
        found = R.unique(R.exp(R.tanh(x)), sorted=True)
        few = R.match_cast(found, R.Tensor((q,), "float32"))
        more = R.tanh(R.concat([x, few, few, few], axis=0))
        sums = R.add(R.exp(more), R.negative(more))
        return R.sum(sums)
"""


def test_what_is_checked_later_is_needed_there_and_not_before() -> None:
    """The later check lets `n` grow less than that at entry, where memory needs only the one."""
    module = symalloc.plan(tvm.script.from_source(LATER)).module
    entry, later = module["main"].attrs["symalloc.plan_condition"].split("; ")
    assert "q" not in entry and "n <= " in later and "q <= " in later
    assert not _found(module, "SYM403", "SYM904")
    damaged = [*_changed(module, _checks_plan(module), _dropped)]
    assert [len(_found(one)) for one in damaged] == [1, 1]


def test_the_condition_is_read_back_from_files(tmp_path: Path) -> None:
    module = _planned("Chain", "assert", "ignore")
    (damaged,) = _changed(module, _checks_plan(module), _dropped)
    for number, (one, findings) in enumerate(((module, 0), (damaged, 1))):
        script, json = tmp_path / f"m{number}.py", tmp_path / f"m{number}.json"
        script.write_text(one.script())
        json.write_text(tvm.ir.save_json(one))
        assert [len(_found(script)), len(_found(json))] == [findings] * 2


@pytest.mark.parametrize(
    ("text", "said"), [("n <=", "no condition"), ("k <= 4", "names `k`, no symbol here")]
)
def test_a_condition_that_cannot_be_read_is_said(text: str, said: str) -> None:
    module = _planned("Chain", "assert", "ignore")
    (found,) = _found(_told(module, text), "SYM904")
    assert said in found.message


def test_a_plan_without_checks_promises_none() -> None:
    assert not _found(_planned("Chain", "none", "ignore"))

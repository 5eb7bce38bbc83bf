"""Every argument of every public function, given what makes no sense: an error of ours that quotes it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import symalloc
from symalloc import PoolError, SymallocError, UsageError
from symalloc.errors import require_whole, shown
from symalloc.linter.lint_options import LintKeywords
from symalloc.planner.memory_plan import PlanChoices
from symalloc.program.packed_contracts import contracts
from symalloc.session.api import FileKeywords, PlanKeywords
from tests.relax.built import MODULES

Chain = MODULES.Chain


class Unshowable:
    """Its repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError


NONSENSE: Mapping[str, object] = {
    "none": None,
    "true": True,
    "fraction": 1.5,
    "nan": float("nan"),
    "negative": -1,
    "huge": 10**30,
    "half a character": "\ud800",
    "null character": "a\0b",
    "long text": "a" * 5000,
    "bytes": b"bytes",
    "list of None": [None],
    "mapping": {3: "x"},
    "type": int,
    "array": np.zeros(3),
    "object": object(),
    "unshowable": Unshowable(),
    "several lines": Chain,  # so is its repr
}
OPTIONAL = {"none"}
WHOLE = {"huge"}
TEXT = {"null character", "long text"}
SECONDS = {"none", "fraction"}


@dataclass(frozen=True, slots=True)
class Case:
    """A function, arguments that it takes, and by parameter the labels of what is no nonsense there."""

    function: Callable[..., object]
    given: Mapping[str, object] = field(default_factory=dict)
    sense: Mapping[str, set[str]] = field(default_factory=dict)


def _by_name(*cases: Case, **others: Case) -> Mapping[str, Case]:
    return {case.function.__name__: case for case in cases} | others


LINTING = {
    "trust": {"true"},
    "strict": {"true"},
    "target": {"several lines"},
    "timeout": {"fraction", "huge"},
    "jobs": OPTIONAL | WHOLE,
    "budget": OPTIONAL,
    "cache": OPTIONAL,
    "executor": OPTIONAL,
    "baseline": OPTIONAL,
    "exclude": TEXT | {"half a character"},
}
PLANNING = {
    "seed": WHOLE,
    "trust": {"true"},
    "module_name": OPTIONAL,
    "certificate": OPTIONAL,
    "max_buffer": OPTIONAL,
    "max_arena": OPTIONAL,
}
PROBLEM = {"symbols": {"n": {}}, "buffers": [{"id": "a", "size": "n", "lower": 0, "upper": 1}]}


KEYWORDS: Mapping[str, type] = {
    each.__name__: each for each in (FileKeywords, LintKeywords, PlanChoices, PlanKeywords)
}


def _with(name: str) -> Callable[[object], object]:
    return lambda value: symalloc.Pool(**{name: value})  # type: ignore[arg-type]


def _ignore(*_: object) -> bool:
    return False


@cache
def models() -> Mapping[str, Case]:
    """What takes models, and problems."""
    planned, model = symalloc.plan(Chain), {"several lines"}
    running = {"check": {"true"}, "function": OPTIONAL, "pool": OPTIONAL}
    packing = {"capacity": OPTIONAL, "seed": WHOLE, "certificate": OPTIONAL}
    compared = {"before": planned, "after": planned}
    at = {"binding": {"n": 1}, "function": None}
    return _by_name(
        Case(symalloc.lint, {"target": Chain}, LINTING),
        Case(symalloc.plan, {"module": Chain}, {**PLANNING, "module": model}),
        Case(symalloc.run, {"module": Chain, "binding": {"n": 1}}, {**PLANNING, "module": model, **running}),
        Case(symalloc.budget, {"module": Chain, "device": "1GiB"}, {**PLANNING, "module": model}),
        Case(
            symalloc.graph,
            {"module": Chain},
            {**PLANNING, "module": model, "times": OPTIONAL, "budget": OPTIONAL},
        ),
        Case(symalloc.packed_function, {"name": "f"}, {"name": TEXT | {"half a character"}}),
        Case(symalloc.diff, compared, {**PLANNING, "before": model, "after": model}),
        Case(symalloc.prove, {"constraint": "n <= 4"}),
        Case(symalloc.symbols, {"names": "n"}, {"names": {"long text"}}),
        Case(symalloc.pack, {"problem": PROBLEM}, packing),
        Case(symalloc.save_program, {"program": None, "path": "x.pt2"}),
        Case(symalloc.assert_memory_safe, {"target": Chain}, LINTING),
        at=Case(lambda binding, function: planned.at(binding, function=function), at, {"function": OPTIONAL}),
        fits=Case(
            lambda limit, binding, function: planned.fits(limit, binding, function=function),
            {"limit": "1MiB", **at},
            {"function": OPTIONAL},
        ),
    )


@cache
def passes() -> Mapping[str, Case]:
    """What makes passes, and connects them with pools."""
    planning = {"max_buffer": OPTIONAL, "max_arena": OPTIONAL, "seed": WHOLE, "names": {"true"}}
    return _by_name(
        Case(symalloc.pipeline, sense={"target": OPTIONAL, **planning}),
        Case(symalloc.replace_tvm_planner, sense=planning),
        Case(symalloc.VerifyMemory, sense=LINTING),
        Case(symalloc.memory_cfg),
        PlanMemory=Case(lambda options: symalloc.PlanMemory(options)),
        ShrinkKernels=Case(lambda level: symalloc.ShrinkKernels(level)),
    )


def _pool(options: Any = None, huge: Any = True, guard: Any = False, wait: Any = 0) -> symalloc.Pool:
    return symalloc.Pool(options, huge=huge, guard=guard, wait=wait)


@cache
def pools() -> Mapping[str, Case]:
    """What makes pools."""
    soft = {"none", "fraction"}
    making = {"options": OPTIONAL, "huge": {"true"}, "guard": {"true"}, "wait": {"fraction"}}
    options = {"soft_limit": soft, "limit": OPTIONAL, "capacity": OPTIONAL, "decay": SECONDS}
    by_keyword = Case(_with("limit"), sense={"value": OPTIONAL})
    return _by_name(
        Case(symalloc.PoolOptions, sense=options),
        Case(symalloc.ReservedBuffer),
        **{"Pool": Case(_pool, sense=making), "Pool, by keyword": by_keyword},
    )


@cache
def uses_of_pools() -> Mapping[str, Case]:
    """What is asked of pools."""
    pool = symalloc.Pool("64MiB")
    block = pool.alloc(8)
    with symalloc.pool.statistics() as scope:
        pass
    made, shape = {"tag": TEXT, "timeout": SECONDS}, {"shape": (2,), "dtype": "float32"}
    crossed, watching = {"at": 100, "callback": _ignore}, {"callback": {"type"}, "rearm": OPTIONAL}
    return _by_name(
        Case(symalloc.pool_report, {"pool": pool}, {"scope": OPTIONAL}),
        Case(symalloc.prometheus_text, {"pools": {}}, {"limits": OPTIONAL}),
        Case(pool.alloc, {"nbytes": 8}, made),
        *map(Case, (pool.free, pool.record, scope.figures_of)),
        Case(pool.empty, shape, made),
        Case(block.view, sense={"dtype": {"none", "type"}, "shape": {"none", "true"}}),
        Case(pool.trim, sense={"max_seconds": SECONDS}),
        Case(pool.on_high, crossed, watching),
        Case(pool.on_low, crossed, watching),
        Case(pool.on_oom, {"callback": _ignore}, {"callback": {"none", "type"}}),
        Case(pool.admit, {"nbytes": 8}, {"name": TEXT, "timeout": SECONDS}),
        Case(pool.session, {"name": "s"}, {"name": TEXT, "limit": OPTIONAL}),
        limit=Case(lambda limit: setattr(pool, "limit", limit), sense={"limit": OPTIONAL}),
        statistics=Case(lambda pools: symalloc.pool.statistics(pools).__enter__()),
    )


ROOMS = (models, passes, pools, uses_of_pools)
WITHOUT_ARGUMENTS = {"NameTensors", "cmake_dir"}
RESULTS = {"DeviceBudget", "Diagnostic", "Fix", "PlanDiff", "Proof", "Report", "Severity", "Verdict"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In a folder of its own; contracts that are stated go no further."""
    monkeypatch.chdir(tmp_path)
    with contracts({}):
        yield


def _parameters(case: Case) -> Iterator[str]:
    for parameter in inspect.signature(case.function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            name = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
            yield from KEYWORDS[name].__annotations__ if name in KEYWORDS else ()
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            yield parameter.name


def _answer(case: Case, name: str, label: str) -> str:
    """ "taken", "refused", or what is wrong with the refusal."""
    try:
        case.function(**{**case.given, name: NONSENSE[label]})
    except (SymallocError, PoolError) as error:
        text = str(error)
        return "refused" if text and "\n" not in text else f"says {text!r}"
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    return "taken"


@pytest.mark.parametrize("room", ROOMS)
def test_nonsense_is_refused_in_a_line(room: Callable[[], Mapping[str, Case]]) -> None:
    wrong = [
        f"{name}: {parameter} = {label}: {answer}"
        for name, case in room().items()
        for parameter in _parameters(case)
        for label in NONSENSE
        for answer in [_answer(case, parameter, label)]
        if answer != ("taken" if label in case.sense.get(parameter, set()) else "refused")
    ]
    assert not wrong, "\n".join(wrong)


def test_no_public_function_is_left_out() -> None:
    public = {
        name
        for name in symalloc.__all__
        for value in [getattr(symalloc, name)]
        if callable(value) and not (isinstance(value, type) and issubclass(value, BaseException | Warning))
    }
    names = {name for room in ROOMS for name in room()}
    assert public - WITHOUT_ARGUMENTS - RESULTS <= names
    pool: Any = symalloc.Pool
    methods = {
        name
        for name in dir(pool)
        if not name.startswith("_")
        and inspect.isfunction(getattr(pool, name))
        and len(inspect.signature(getattr(pool, name)).parameters) > 1
    }
    assert methods <= names


WRONG: Sequence[tuple[Callable[..., object], dict[str, object], str]] = (
    (symalloc.prove, {"constraint": "n <= 4", "assume": 3}, "assume is 3; it must be a condition or a list"),
    (symalloc.lint, {"target": 3}, "cannot lint int objects"),
    (symalloc.lint, {"target": []}, "nothing to lint"),
    (symalloc.lint, {"assume": "n <= -1"}, "contradict each other for dimensions"),
    (symalloc.lint, {"jobs": True}, "jobs is True"),
    (symalloc.lint, {"cache": True}, "cache is True; it must be a path"),
    (symalloc.lint, {"cache": __file__}, "test_arguments.py is not a folder"),
    (symalloc.lint, {"baseline": 3}, "baseline is 3; it must be a path"),
    (symalloc.lint, {"executor": "dask://x:1"}, "must be a concurrent.futures.Executor"),
    (symalloc.lint, {"trust": "no"}, "trust is 'no'; it must be True or False"),
    (symalloc.lint, {"pipeline": "targt"}, "must be one of default, target; did you mean 'target'?"),
    (symalloc.plan, {"seed": "x"}, "seed is 'x'"),
    (symalloc.plan, {"alias": 3}, "alias is 3; it must be a text or a list of texts"),
    (symalloc.plan, {"certificate": 5}, "certificate is 5; it must be a path"),
    (symalloc.plan, {"module": "a" * 5000}, "File name too long"),
    (symalloc.run, {"guards": "asserts"}, "native, none; did you mean 'assert'?"),
    (symalloc.run, {"module": None}, "NoneType objects: give an IRModule"),
    (symalloc.run, {"module": "missing.py"}, "no such file: missing.py"),
    (symalloc.run, {"binding": [1]}, "binding is [1]; it must map symbols to whole numbers"),
    (symalloc.run, {"binding": {"n": 1.5}}, "the binding of 'n' is 1.5"),
    (symalloc.run, {"plan": "tvmm"}, "must be one of symalloc, tvm, none; did you mean 'tvm'?"),
    (symalloc.run, {"repeat": 0}, "repeat is 0; it must be a whole number of at least 1"),
    (symalloc.run, {"repeat": 10**7}, "repeat is 10000000; it must be at most"),
    (symalloc.run, {"pool": 3}, "pool is 3; it must be a symalloc.Pool"),
    (symalloc.diff, {"bind": 3}, "binding is 3; it must map symbols"),
    (symalloc.pipeline, {"target": 3}, "target is 3; it must be the name of a target"),
    (symalloc.pipeline, {"target": "lvm"}, "target is 'lvm': Target kind"),
    (symalloc.pack, {"capacity": -1}, "capacity is -1; it must be from 0 to"),
    (symalloc.pack, {"seed": None}, "seed is None"),
    (symalloc.pack, {"certificate": 3}, "certificate is 3; it must be a path"),
    (symalloc.pack, {"certificate": f"{__file__}/proof"}, "cannot write certificates to"),
    (symalloc.pack, {"problem": [1]}, "a problem is a dictionary or the path of a file, not a list"),
    (symalloc.VerifyMemory, {"assume": "n"}, "assumption `n`"),
    (symalloc.pool_report, {"form": "yaml"}, "form is 'yaml'; it must be one of"),
)


@pytest.mark.parametrize(("function", "given", "said"), WRONG)
def test_the_text_says_what_would_do(
    function: Callable[..., object], given: dict[str, object], said: str
) -> None:
    cases = {**models(), **passes(), **uses_of_pools()}
    with pytest.raises(UsageError) as refused:
        function(**{**cases[function.__name__].given, **given})
    assert said in str(refused.value)


def test_numbers_of_numpy_are_numbers() -> None:
    assert type(require_whole("x", np.int64(3), 0)) is int
    packed = symalloc.pack(PROBLEM, capacity=np.int64(3))  # type: ignore[arg-type]
    assert packed.overrun is not None


def test_values_are_shown_in_one_short_line() -> None:
    assert shown(Unshowable()) == "a Unshowable"
    assert shown("x" * 100) == "'" + "x" * 59 + "…"
    assert shown(Chain).endswith("…") and "\n" not in shown(Chain)
    assert shown(tvm.cpu()) == repr(tvm.cpu())

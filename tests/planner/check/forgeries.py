"""Certificates that prove less than they say, each made of a right one."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["FORGERIES", "SCRIPT", "checker", "forged"]

Plan: TypeAlias = dict[str, Any]
Forgery: TypeAlias = Callable[[Plan, dict[str, str]], bool]
"""Changes a plan of an index, and the files; False where the certificate has nothing to be forged so."""

SCRIPT = Path(__file__).parents[3] / "examples" / "check_certificate.py"
FORGERIES: dict[str, Forgery] = {}


def checker() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("check_certificate", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_CHECKER = checker()


def forged(right: Path, folder: Path, forgery: str) -> bool:
    """Write a forged copy of a certificate; False where there is nothing to be forged so."""
    index = json.loads((right / "index.json").read_text())
    found = (path for path in right.rglob("*.*") if path.is_file())
    files = {path.relative_to(right).as_posix(): path.read_text() for path in found}
    done = any(FORGERIES[forgery](plan, files) for plan in index["plans"])
    files["index.json"] = json.dumps(index)
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files.items() if done else ():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return done


def _forgery(make: Forgery) -> Forgery:
    FORGERIES[make.__name__.strip("_")] = make
    return make


def _rewritten(plan: Plan, files: dict[str, str]) -> bool:
    """Make all claims and scripts anew for what the index says now."""
    for row in plan["claims"]:
        del files[row["file"]]
    plan["claims"] = []
    for (kind, arena, about), text in _CHECKER.wanted(plan, True).items():
        if isinstance(about, tuple) and about != tuple(sorted(about)):
            continue
        name = f"{plan['function']}/{len(plan['claims'])}.smt2"
        files[name] = text
        value, buffers = (about, [[]]) if isinstance(about, str) else (None, [about])
        row = {"file": name, "kind": kind, "arena": arena, "buffers": buffers, "value": value}
        plan["claims"].append({**row, "excludes": "", "expected": "unsat"})
    return True


def _buffers(plan: Plan) -> Iterator[tuple[Plan, Plan]]:
    """The buffers of arenas that are storages, each with its arena."""
    return ((a, b) for a in plan["arenas"] if not a["result"] for b in a["buffers"])


def _met(plan: Plan) -> Iterator[tuple[Plan, Plan, Plan]]:
    """The pairs of buffers that are live together, with their arena."""
    for arena in plan["arenas"]:
        for n, one in enumerate(arena["buffers"]):
            for other in arena["buffers"][n + 1 :]:
                if not arena["result"] and _CHECKER.together(one, other):
                    yield arena, one, other


def _of_kind(plan: Plan, *kinds: str) -> list[Any]:
    return [row for row in plan["claims"] if row["kind"] in kinds]


# -- the index alone -----------------------------------------------------------------------------------------


def _of_first(
    found: Callable[[Plan], Iterable[Any]], change: Callable[..., object], *, anew: bool
) -> Forgery:
    """A forgery of the first thing of its kind that a plan has; `anew` makes claims and scripts agree."""

    def forge(plan: Plan, files: dict[str, str]) -> bool:
        for one in found(plan):
            change(plan, *one)
            return not anew or _rewritten(plan, files)
        return False

    return forge


_in_index, _first = (partial(_of_first, anew=anew) for anew in (False, True))


def _left_out(kind: str) -> Forgery:
    """A forgery without the first claim of a kind, and its script."""

    def forge(plan: Plan, files: dict[str, str]) -> bool:
        for row in _of_kind(plan, kind):
            plan["claims"].remove(row)
            return bool(files.pop(row["file"]))
        return False

    return forge


def _of_several(plan: Plan) -> Iterator[tuple[list[Any]]]:
    return ((row["buffers"],) for row in plan["claims"] if len(row["buffers"]) > 1)


def _swapped_offset(_plan: Plan, _arena: Plan, buffer: Plan) -> None:
    buffer["offset"] = "64" if buffer["offset"] == "0" else "0"


def _lives_longer(_plan: Plan, _arena: Plan, buffer: Plan, _other: Plan) -> None:
    buffer["live"][-1][1] += 1


FORGERIES |= {
    "offset_in_the_index": _in_index(_buffers, _swapped_offset),
    "live_range_in_the_index": _in_index(_met, _lives_longer),
    "pair_left_out": _left_out("apart"),
    "bound_left_out": _left_out("most"),
    "one_of_several_left_out": _in_index(_of_several, lambda _, buffers: buffers.pop()),
    "memory_of_a_result": _in_index(_buffers, lambda _, arena, __: arena.update(result=True)),
}


# -- the scripts alone ---------------------------------------------------------------------------------------


def _scripts(pattern: str, replacement: str, *kinds: str) -> Forgery:
    """A forgery of the scripts of all claims of some kinds."""

    def forge(plan: Plan, files: dict[str, str]) -> bool:
        rows = _of_kind(plan, *kinds)
        for row in rows:
            files[row["file"]] = re.sub(pattern, replacement, files[row["file"]])
        return bool(rows)

    return forge


FORGERIES |= {
    "claim_weakened": _scripts(r"\(not \(<= \(\+ %offset %size\)", "(not (<= (+ %offset 0)", "inside"),
    "claim_that_is_true": _scripts(r"\(assert \(not .*", "(assert false)", "apart", "inside"),
    "assumption_added": _scripts(r"\(check-sat\)", "(assert (= 0 1))\n(check-sat)", "holds"),
}


@_forgery
def scripts_swapped(plan: Plan, files: dict[str, str]) -> bool:
    for one, other in zip(_of_kind(plan, "inside"), _of_kind(plan, "start"), strict=False):
        files[one["file"]], files[other["file"]] = files[other["file"]], files[one["file"]]
        return True
    return False


@_forgery
def script_added(plan: Plan, files: dict[str, str]) -> bool:
    files[f"{plan['function']}-more.smt2"] = "(assert false)\n(check-sat)\n"
    return True


# -- index and scripts, made to agree ------------------------------------------------------------------------


@_forgery
def dead_too_early(plan: Plan, files: dict[str, str]) -> bool:
    for _, one, other in _met(plan):
        first, second = sorted((one, other), key=lambda buffer: buffer["live"])
        first["live"] = [[first["live"][0][0], max(second["live"][0][0], first["live"][0][0] + 1)]]
        second["live"] = [[max(second["live"][0][0], first["live"][0][1]), second["live"][-1][1] + 1]]
        return _rewritten(plan, files)
    return False


@_forgery
def guard_dropped(plan: Plan, files: dict[str, str]) -> bool:
    if not plan["guards"]:
        return False
    plan["guards"] = []
    return _rewritten(plan, files)


def _symbols(plan: Plan) -> Iterator[tuple[str]]:
    return ((name,) for name in plan["symbols"])


def _guards(plan: Plan) -> Iterator[tuple[Plan]]:
    return ((guard,) for guard in plan["guards"])


def _moved(_: Plan, arena: Plan, buffer: Plan) -> None:
    buffer["offset"] = arena["size"] if buffer["offset"] == "0" else "0"


def _apart(plan: Plan, arena: Plan, one: Plan, _: Plan) -> None:
    arena["buffers"].remove(one)
    plan["arenas"].append({**arena, "buffers": [one]})


def _tightened(plan: Plan, guard: Plan) -> None:
    name = next(iter(plan["symbols"]))
    guard["check"] = guard["condition"] = f"(and {guard['condition']} (<= (+ |{name}| (- 1)) 0))"


def _buffer(**changes: Any) -> Forgery:
    """A forgery of the first buffer."""
    return _first(_buffers, lambda _plan, _arena, buffer: buffer.update(changes))


FORGERIES |= {
    "offset_everywhere_but_in_the_function": _first(_buffers, _moved),
    "smaller_buffer": _buffer(bytes="0", size="0"),
    "not_aligned": _buffer(alignment=1),
    "buffer_left_out": _first(_buffers, lambda _, arena, buffer: arena["buffers"].remove(buffer)),
    "smaller_arena": _first(
        _buffers, lambda _, arena, buffer: arena.update(size="64" if arena["size"] != "64" else "0")
    ),
    "never_live": _first(_met, lambda _, arena, one, other: one.update(live=[[0, 0]])),
    "arena_of_its_own": _first(_met, _apart),
    "overlap_that_nothing_asks_about": _first(
        _met, lambda _, arena, one, other: one.update(offset=other["offset"], live=[[10_000, 10_001]])
    ),
    "guard_tightened": _first(_guards, _tightened),
    "guard_after_the_fact": _first(_guards, lambda _, guard: guard.update(condition="(<= 1 0)")),
    "symbol_limited": _first(_symbols, lambda plan, name: plan["symbols"].update({name: [0, 1]})),
}


# -- texts that a script would read as more than they are ----------------------------------------------------

_ABSURD = "0) (assert false) (define-fun %more () Int 0"


def _absurd_symbol(plan: Plan, *_: Plan) -> None:
    plan["symbols"]["q| Int) (assert false) (declare-const |r"] = [-(2**63), 2**63 - 1]


def _absurd_guard(plan: Plan, *_: Plan) -> None:
    condition = "true) (push 1) (assert false) (check-sat) (assert true"
    plan["guards"].append({"condition": condition, "check": "true", "declared": True, "behind": None})


FORGERIES |= {f"absurd_{key}": _buffer(**{key: _ABSURD}) for key in ("size", "bytes", "alignment")}
FORGERIES |= {
    "absurd_symbol": _first(_buffers, _absurd_symbol),
    "absurd_guard": _first(_buffers, _absurd_guard),
    "rest_of_a_line": _buffer(size="(* 0 1 ;)"),
    "rest_of_a_line_at_an_offset": _buffer(offset="(* 0 1 ;)"),
    "named_in_scripts": _buffer(size="(* 0 %arena)"),
    "symbol_of_nobody": _buffer(size="(* 0 |nobody|)"),
    "alignment_of_0": _buffer(alignment=0),
    "no_term": _buffer(bytes=""),
}


# -- the index, at odds with its own claims ------------------------------------------------------------------


def _with(change: Callable[[Plan], object]) -> Forgery:
    """A forgery of the index alone."""
    return lambda plan, _: change(plan) is not False


FORGERIES |= {
    "claim_twice": _with(lambda plan: plan["claims"].append(plan["claims"][0])),
    "answer_made_up": _with(lambda plan: plan["claims"][0].update(expected="sat")),
    "function_of_nobody": _with(lambda plan: plan.update(function="nobody")),
}


# -- the function, and functions that do more than their text seems to say -----------------------------------


def _edited(pattern: str, replacement: str, count: int = 0) -> Forgery:
    """A forgery of the function's text."""

    def forge(plan: Plan, files: dict[str, str]) -> bool:
        before = files[plan["text"]]
        files[plan["text"]] = re.sub(pattern, replacement, before, count=count, flags=re.M)
        return files[plan["text"]] != before

    return forge


_TENSOR = r"^( *)(\w+): (R\.Tensor\(.*\)) = R\.memory\.alloc_tensor\((arena\w*), (.*), (R\.shape.*)$"
_RESERVED = r"(arena: R\.Any = R\.memory\.alloc_storage\(R\.shape\(\[)"
_CHECKS = r'( *R\.call_packed\("(?:relax\.run\.assert_op|\w+_check)".*\n)'
FORGERIES |= {
    "guard_not_in_the_function": _edited(r'.*call_packed\("(relax\.run\.assert_op|\w+_check)".*\n', ""),
    "offset_in_the_function": _edited(r"alloc_tensor\((arena\w*), ", r"alloc_tensor(\1, 64 + ", 1),
    "storage_in_the_function": _edited(_RESERVED, r"\g<1>64 + ", 1),
    "one_more_tensor": _edited(
        _TENSOR, r"\g<0>\n\1other = \4\n\1more: \3 = R.memory.alloc_tensor(other, \5, \6", 1
    ),
    "one_more_on_the_same_line": _edited(_TENSOR, r"\g<0>; more = R.memory.alloc_tensor(\4, \5, \6", 1),
    "storage_given_away": _edited(_TENSOR, r"\g<0>\n\1fill(\4)", 1),
    "lanes": _edited(r'(alloc_tensor\(arena.*R\.dtype\("\w+)"', r'\1x4"', 1),
    "storage_of_no_bytes": _edited(r"(arena.*alloc_storage\(R\.shape\(\[.*?)\]", r"\1, 0]", 1),
    "check_of_other_symbols": _edited(r'(call_packed\("\w+_check", )\w+', r"\g<1>0"),
    "check_that_returns_first": _edited(r"^( +)assert ", r"\1T.ret(0)\n\1assert "),
    "check_behind_the_storage": _edited(_CHECKS + r"((?:.*\n)*)( +return .*)", r"\2\1\3"),
}


@_forgery
def result_that_is_its_argument(plan: Plan, files: dict[str, str]) -> bool:
    """A function that is called may return what it is given: what lives in it lives on to the end."""
    behind = _edited(_TENSOR, r"\g<0>\n\1kept: \3 = same(\2)", 1)
    filled = _edited(r"^( +)return ", r"\1fill(kept)\n\1return ")
    return any(_met(plan)) and behind(plan, files) and filled(plan, files)

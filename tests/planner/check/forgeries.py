"""Certificates that prove less than they say, each made of a right one."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from collections.abc import Callable, Iterator
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


@_forgery
def offset_in_the_index(plan: Plan, _files: dict[str, str]) -> bool:
    for _, buffer in _buffers(plan):
        buffer["offset"] = "64" if buffer["offset"] == "0" else "0"
        return True
    return False


@_forgery
def live_range_in_the_index(plan: Plan, _files: dict[str, str]) -> bool:
    for _, buffer, _other in _met(plan):
        buffer["live"][-1][1] += 1
        return True
    return False


@_forgery
def pair_left_out(plan: Plan, files: dict[str, str]) -> bool:
    for row in _of_kind(plan, "apart"):
        plan["claims"].remove(row)
        del files[row["file"]]
        return True
    return False


@_forgery
def one_of_several_left_out(plan: Plan, _files: dict[str, str]) -> bool:
    for row in plan["claims"]:
        if len(row["buffers"]) > 1:
            row["buffers"].pop()
            return True
    return False


@_forgery
def bound_left_out(plan: Plan, files: dict[str, str]) -> bool:
    for row in _of_kind(plan, "most"):
        plan["claims"].remove(row)
        del files[row["file"]]
        return True
    return False


@_forgery
def memory_of_a_result(plan: Plan, _files: dict[str, str]) -> bool:
    for arena, _ in _buffers(plan):
        arena["result"] = True
        return True
    return False


# -- the scripts alone ---------------------------------------------------------------------------------------


@_forgery
def scripts_swapped(plan: Plan, files: dict[str, str]) -> bool:
    for one, other in zip(_of_kind(plan, "inside"), _of_kind(plan, "start"), strict=False):
        files[one["file"]], files[other["file"]] = files[other["file"]], files[one["file"]]
        return True
    return False


@_forgery
def claim_weakened(plan: Plan, files: dict[str, str]) -> bool:
    for row in _of_kind(plan, "inside"):
        files[row["file"]] = files[row["file"]].replace(
            "(not (<= (+ %offset %size)", "(not (<= (+ %offset 0)"
        )
        return True
    return False


@_forgery
def claim_that_is_true(plan: Plan, files: dict[str, str]) -> bool:
    for row in _of_kind(plan, "apart", "inside"):
        files[row["file"]] = re.sub(r"\(assert \(not .*", "(assert false)", files[row["file"]])
        return True
    return False


@_forgery
def assumption_added(plan: Plan, files: dict[str, str]) -> bool:
    for row in _of_kind(plan, "holds"):
        files[row["file"]] = files[row["file"]].replace("(check-sat)", "(assert (= 0 1))\n(check-sat)")
        return True
    return False


@_forgery
def script_added(plan: Plan, files: dict[str, str]) -> bool:
    files[f"{plan['function']}-more.smt2"] = "(assert false)\n(check-sat)\n"
    return True


# -- index and scripts, made to agree ------------------------------------------------------------------------


@_forgery
def offset_everywhere_but_in_the_function(plan: Plan, files: dict[str, str]) -> bool:
    for arena, buffer in _buffers(plan):
        buffer["offset"] = arena["size"] if buffer["offset"] == "0" else "0"
        return _rewritten(plan, files)
    return False


@_forgery
def smaller_buffer(plan: Plan, files: dict[str, str]) -> bool:
    for _, buffer in _buffers(plan):
        buffer["bytes"] = buffer["size"] = "0"
        return _rewritten(plan, files)
    return False


@_forgery
def dead_too_early(plan: Plan, files: dict[str, str]) -> bool:
    for _, one, other in _met(plan):
        first, second = sorted((one, other), key=lambda buffer: buffer["live"])
        first["live"] = [[first["live"][0][0], max(second["live"][0][0], first["live"][0][0] + 1)]]
        second["live"] = [[max(second["live"][0][0], first["live"][0][1]), second["live"][-1][1] + 1]]
        return _rewritten(plan, files)
    return False


@_forgery
def never_live(plan: Plan, files: dict[str, str]) -> bool:
    for _, one, _other in _met(plan):
        one["live"] = [[0, 0]]
        return _rewritten(plan, files)
    return False


@_forgery
def guard_dropped(plan: Plan, files: dict[str, str]) -> bool:
    if not plan["guards"]:
        return False
    plan["guards"] = []
    return _rewritten(plan, files)


@_forgery
def guard_tightened(plan: Plan, files: dict[str, str]) -> bool:
    for guard in plan["guards"]:
        name = next(iter(plan["symbols"]))
        guard["check"] = guard["condition"] = f"(and {guard['condition']} (<= (+ |{name}| (- 1)) 0))"
        return _rewritten(plan, files)
    return False


@_forgery
def guard_after_the_fact(plan: Plan, files: dict[str, str]) -> bool:
    for guard in plan["guards"]:
        guard["condition"] = "(<= 1 0)"
        return _rewritten(plan, files)
    return False


@_forgery
def symbol_limited(plan: Plan, files: dict[str, str]) -> bool:
    for name in plan["symbols"]:
        plan["symbols"][name] = [0, 1]
        return _rewritten(plan, files)
    return False


@_forgery
def not_aligned(plan: Plan, files: dict[str, str]) -> bool:
    for _, buffer in _buffers(plan):
        buffer["alignment"] = 1
        return _rewritten(plan, files)
    return False


@_forgery
def smaller_arena(plan: Plan, files: dict[str, str]) -> bool:
    for arena, _ in _buffers(plan):
        arena["size"] = "64" if arena["size"] != "64" else "0"
        return _rewritten(plan, files)
    return False


@_forgery
def arena_of_its_own(plan: Plan, files: dict[str, str]) -> bool:
    for arena, one, _ in _met(plan):
        arena["buffers"].remove(one)
        plan["arenas"].append({**arena, "buffers": [one]})
        return _rewritten(plan, files)
    return False


@_forgery
def buffer_left_out(plan: Plan, files: dict[str, str]) -> bool:
    for arena, buffer in _buffers(plan):
        arena["buffers"].remove(buffer)
        return _rewritten(plan, files)
    return False


@_forgery
def overlap_that_nothing_asks_about(plan: Plan, files: dict[str, str]) -> bool:
    for _, one, other in _met(plan):
        one["offset"], one["live"] = other["offset"], [[10_000, 10_001]]
        return _rewritten(plan, files)
    return False


# -- the function --------------------------------------------------------------------------------------------


def _edited(plan: Plan, files: dict[str, str], change: Callable[[str], str]) -> bool:
    before = files[plan["text"]]
    files[plan["text"]] = change(before)
    return files[plan["text"]] != before


@_forgery
def guard_not_in_the_function(plan: Plan, files: dict[str, str]) -> bool:
    return _edited(
        plan, files, lambda text: re.sub(r'.*call_packed\("(relax\.run\.assert_op|\w+_check)".*\n', "", text)
    )


@_forgery
def offset_in_the_function(plan: Plan, files: dict[str, str]) -> bool:
    placed, moved = r"alloc_tensor\((arena\w*), ", r"alloc_tensor(\1, 64 + "
    return _edited(plan, files, lambda text: re.sub(placed, moved, text, count=1))


@_forgery
def storage_in_the_function(plan: Plan, files: dict[str, str]) -> bool:
    reserved = "arena: R.Any = R.memory.alloc_storage(R.shape(["
    return _edited(plan, files, lambda text: text.replace(reserved, f"{reserved}64 + ", 1))

"""The page is one file without requests; its numbers are those of the plan's JSON; names stay names."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import pytest

from symalloc.errors import UsageError, require_bytes
from symalloc.linter.diagnostic import Diagnostic, LintSummary, Report
from symalloc.planner.memory_plan import Plan
from symalloc.planner.memory_report.function_report import FunctionReport, function_report
from symalloc.planner.memory_report.non_arena import NonArenaMemory
from symalloc.report.map.page import exact, map_page, plan_data
from symalloc.report.plan_json import plans_as_json
from symalloc.report.quantities import human_bytes
from symalloc.size.expr import symbol
from tests.report import plan_samples, samples
from tests.report.map.scripts import needs_node, run_scripts

HOSTILE = "</script><script>alert(1)</script><!--{{script}}\u2028&\"'"
CLEAN = Report(diagnostics=(), summary=LintSummary())
RECKONED = {
    *("arena", "floor", "unshared", "returned", "made", "unplanned", "carried", "workspace", "refused"),
    *("call", "call_unplanned", "known_call", "known_unplanned"),
    *("call_tvm_bounded", "call_tvm_unbounded"),
}
CODE = """given.functions.map((fn) => fn.samples.map((sample) => {
  const binding = Object.fromEntries(fn.symbols.map(({ name }) => [name, BigInt(sample.binding[name])]));
  const values = evaluated(given.nodes, binding);
  return numbersOf(fn, (size) => (size === null ? null : values[given.formulas[size.f][1]]));
}))"""


class _Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def _data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def hostile_report() -> FunctionReport:
    """A report in which every name that can be is hostile."""
    report = plan_samples.everything()
    arenas = tuple(
        replace(
            arena,
            placements=tuple(replace(p, buffer=replace(p.buffer, name=HOSTILE)) for p in arena.placements),
        )
        for arena in report.plan.arenas
    )
    return replace(report, plan=replace(report.plan, function=HOSTILE, arenas=arenas))


def finding(function: str, binds: str, message: str = HOSTILE) -> Diagnostic:
    at = {"n": 5}
    return replace(samples.PLAIN, message=message, function=function, binds=binds, counterexample=at)


@needs_node
@pytest.mark.parametrize("name", plan_samples.SAMPLES)
def test_numbers_are_those_of_the_plans_json_at_every_binding(name: str) -> None:
    report = plan_samples.SAMPLES[name]()
    data = _data(map_page(plan_data([report], CLEAN, title=name)))
    samples = json.loads(plans_as_json([report]))["functions"][0]["samples"]
    symbols = {one["name"] for one in data["functions"][0]["symbols"]}
    for sample in data["functions"][0]["samples"]:
        for name_ in symbols - sample["binding"].keys():  # known only during the call
            sample["binding"][name_] = 3
    (found,) = run_scripts(("formulas.js", "plan.js"), CODE, data)
    assert len(found) == len(samples) > 0
    for sample, numbers in zip(samples, found, strict=True):
        for key in RECKONED:
            expected = sample[key] if isinstance(sample[key], bool | None) else str(sample[key])
            if symbols <= sample["binding"].keys() or expected is not None:
                assert numbers[key] == expected, (key, sample["binding"])


@needs_node
def test_bytes_are_written_as_in_the_text_report() -> None:
    counts = [0, 1, 1023, 1024, 1075, 1076, 1077, 160000, 2**20 - 1, 2**20 * 5 // 4, 2**53 + 1, 2**62, 10**30]
    counts += [1024 * i + 1024 * j // 20 for i in range(1, 40) for j in range(20)]
    code = "given.map((count) => humanBytes(BigInt(count)))"
    found = run_scripts(("drawing.js",), code, [exact(count) for count in counts])
    assert found == [human_bytes(count) for count in counts]


def test_the_page_is_one_file_that_loads_nothing() -> None:
    page = map_page(plan_data([plan_samples.everything()], CLEAN, title="model.py"))
    elements = _Elements(page)
    loading = {"src", "href", "srcset", "action", "data", "style", "onload", "onclick"}
    assert [attrs for _, attrs in elements.found if loading & attrs.keys()] == []
    assert not {tag for tag, _ in elements.found} & {"link", "iframe", "img", "object", "embed", "base"}
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page) == []
    assert "{{" not in page.replace(HOSTILE, "")


def test_the_policy_permits_this_script_and_this_style_alone() -> None:
    page = map_page(plan_data([plan_samples.small()], CLEAN, title="model.py"))
    policy = next(a["content"] for _, a in _Elements(page).found if a.get("http-equiv"))
    style, script = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", page, re.DOTALL)
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy == f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'"


def test_hostile_names_stay_names() -> None:
    report = hostile_report()
    lint = Report(diagnostics=(finding(HOSTILE, HOSTILE),), summary=LintSummary())
    page = map_page(plan_data([report], lint, title=HOSTILE))
    tags = [tag for tag, _ in _Elements(page).found]
    assert tags == [
        tag for tag, _ in _Elements(map_page(plan_data([plan_samples.small()], CLEAN, title=""))).found
    ]
    data = _data(page)
    assert data["title"] == data["functions"][0]["function"] == HOSTILE
    assert {b["name"] for a in data["functions"][0]["arenas"] for b in a["buffers"]} == {HOSTILE}
    assert data["findings"] == [
        {
            "rule": "SYM101",
            "severity": "error",
            "message": " ".join(HOSTILE.split()),
            "function": HOSTILE,
            "binds": HOSTILE,
            "at": "n = 5",
        }
    ]


STARTS: dict[str, tuple[Callable[[], FunctionReport], dict[str, str]]] = {
    "the declared bound": (plan_samples.everything, {"k": "128", "n": "64"}),
    "what was asked for": (plan_samples.refused, {"n": "100"}),
    "typical": (plan_samples.small, {"n": "128"}),
    "static": (plan_samples.static, {}),
}


@pytest.mark.parametrize("name", STARTS)
def test_it_starts_at_sensible_sizes(name: str) -> None:
    report, start = STARTS[name]
    assert plan_data([report()], CLEAN, title="x")["functions"][0]["start"] == start


def test_what_no_call_chooses_starts_at_its_usual_size() -> None:
    size = 64 * symbol("vocab_size")
    plan = Plan(function="main", arenas=(plan_samples.arena(size, plan_samples.placed(0, size, 0, (0, 2))),))
    report = function_report(plan, plan_samples.function(), NonArenaMemory())
    assert plan_data([report], CLEAN, title="x")["functions"][0]["start"] == {"vocab_size": "131072"}


PEAKS = """given.functions.map((fn) => fn.samples.map((sample) => {
  const binding = Object.fromEntries(fn.symbols.map(({ name }) => [name, BigInt(sample.binding[name] ?? 3)]));
  const values = evaluated(given.nodes, binding);
  const value = (size) => (size === null ? null : values[given.formulas[size.f][1]]);
  const steps = heldOver(fn.calls.unplanned, value);
  if (steps === null) return null;
  const most = peakOf(steps), at = stepOf(steps, most);
  return { most, held: fn.calls.unplanned.held.filter((t) => t.live.some(([a, b]) => a <= at && at < b))
    .map((t) => [t.name, padded(value(t.bytes)), t.kind, t.until]) };
}))"""


@needs_node
@pytest.mark.parametrize("name", plan_samples.SAMPLES)
def test_the_tensors_of_the_peak_are_those_of_the_report(name: str) -> None:
    report = plan_samples.SAMPLES[name]()
    data = _data(map_page(plan_data([report], CLEAN, title=name)))
    (found,) = run_scripts(("formulas.js", "plan.js"), PEAKS, data)
    for sample, peak in zip(report.samples, found, strict=True):
        assert (sample.peak is None) == (peak is None)
        if sample.peak is not None:
            assert int(peak["most"]) == sample.peak.nbytes
            held = sorted((tuple(one) for one in peak["held"] if one[1] != "0"), key=str)
            told = [(t.name, str(t.nbytes), t.kind, t.until) for t in sample.peak.tensors]
            assert held == sorted(told, key=str)


@needs_node
def test_a_budget_is_read_as_the_command_line_reads_it() -> None:
    texts = ["0", "4096", "64KiB", "1.5GiB", "10KB", " 1 tib ", "0.1MiB", "7b"]
    texts += ["", "GiB", "1k", "-1", "1e3", "1.GiB"]

    def expected(text: str) -> str | None:
        try:
            return str(require_bytes("budget", text))
        except UsageError:
            return None

    found = run_scripts(("formulas.js", "plan.js"), "given.map(bytesIn)", texts)
    assert found == [expected(text) for text in texts]

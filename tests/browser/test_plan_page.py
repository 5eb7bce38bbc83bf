"""The page of a plan: its numbers are Python's at every size; pointer and keyboard reach everything."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace as changed

from symalloc.linter.diagnostic import LintSummary, Report
from symalloc.planner.memory_plan import Buffer
from symalloc.planner.memory_report.function_report import FunctionReport, MemorySample
from symalloc.report.document import as_json
from symalloc.report.map.page import map_page, plan_data
from symalloc.report.plan_json import function_document
from symalloc.report.plan_text import gain_text
from symalloc.report.quantities import human_bytes
from tests.browser.conftest import Model, Open
from tests.report import plan_samples
from tests.report.map.scripts import scripts_text
from tests.report.map.test_formulas import CODE, random_formulas
from tests.report.map.test_page import CLEAN, HOSTILE, RECKONED, finding, hostile_report

pytestmark = pytest.mark.browser

BOXES = """(selector) => [...document.querySelectorAll(selector)].map((e) => {
  const { left, top, right, bottom } = e.getBoundingClientRect();
  return [left, top, right, bottom, e.textContent];
})"""
# label, lower edge, height
PLACES = """(selector) => [...document.querySelectorAll(selector)].map((e) => {
  const height = e.height.baseVal.value;
  return [e.getAttribute("aria-label"), e.y.baseVal.value + height, height];
})"""
# the contrast of the text in a rectangle to the rectangle, after WCAG 2
CONTRASTS = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/\\d+/g).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const text = light(getComputedStyle(document.querySelector("#map text")).fill);
  const fills = ["tint0", "tint1", "tint2", "peak tint0", "peak tint1", "peak tint2", "result"];
  return fills.map((name) => {
    const block = document.querySelector("#map .block").cloneNode();
    block.setAttribute("class", `block ${name}`);
    document.querySelector("#map").append(block);
    const [a, b] = [text, light(getComputedStyle(block).fill)].sort((x, y) => y - x);
    block.remove();
    return (a + 0.05) / (b + 0.05);
  });
}"""


def _name(label: str) -> str:
    """The tensor of which a rectangle says `lv (matmul): 64 B at …`."""
    return label.partition(":")[0].partition(" ")[0]


def _page(folder: Path, reports: Sequence[FunctionReport], lint: Report = CLEAN, title: str = "x") -> Path:
    """The page of some reports, in a file."""
    file = folder / "page.html"
    file.write_text(map_page(plan_data(reports, lint, title=title)), encoding="utf-8")
    return file


def _buffers(model: Model) -> dict[str, tuple[Buffer, Any]]:
    return {p.buffer.name: (p.buffer, p.offset) for a in model.report.plan.arenas for p in a.placements}


def test_numbers_and_tensors_are_those_of_the_plans_json(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    document = json.loads(as_json(function_document(model.report)))
    buffers = _buffers(model)
    for told in model.report.samples:
        opened.set(**told.binding)
        assert opened.page.locator("#gain").inner_text() == gain_text(changed(told, binding=ordered(told)))
    operators = {b["name"]: b["operator"] for arena in document["arenas"] for b in arena["buffers"]}
    assert len(document["samples"]) >= 3
    for sample in document["samples"]:
        opened.set(**sample["binding"])
        numbers = opened.numbers()
        compared = numbers.keys() & RECKONED
        assert {"arena", "floor", "unshared", "call", "call_unplanned", "call_tvm_unbounded"} <= compared
        assert {key: numbers[key] for key in compared} == {key: sample[key] for key in compared}
        label = opened.page.locator("#profile").get_attribute("aria-label") or ""
        assert f"peak {human_bytes(sample['floor'])} at" in label
        rows = opened.rows("#tensors", "#tables")
        assert {row[0] for row in rows} == buffers.keys()
        for name, operator, size, formula, _, offset, *_ in rows:
            buffer, at = buffers[name]
            assert operator == operators[name]
            assert size == human_bytes(buffer.size.evaluate(sample["binding"]))
            assert (formula, offset) == (str(buffer.size), human_bytes(at.evaluate(sample["binding"])))


def test_a_slider_computes_everything_again(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    before = opened.numbers()
    symbol = sorted(model.report.samples[0].binding)[0]
    slider = opened.page.locator(f'[data-symbol="{symbol}"]')
    slider.focus()
    for _ in range(60):
        slider.press("ArrowLeft")
    opened.settle()
    moved = int(opened.page.locator(f'[data-entry="{symbol}"]').input_value())
    start = {
        name: int(opened.page.locator(f'[data-entry="{name}"]').input_value())
        for name in model.report.samples[0].binding
    }
    assert start[symbol] == moved
    after = opened.numbers()
    assert after != before
    buffers = (p.buffer for a in model.report.plan.arenas for p in a.placements)
    assert after["unshared"] == sum(b.size.evaluate(start) for b in buffers if not b.returned)


def test_rectangles_are_where_the_formulas_put_them(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    page, buffers = opened.page, _buffers(model)
    sample = model.report.samples[-1].binding
    opened.set(**sample)
    for number, arena in enumerate(model.report.plan.arenas):
        if page.locator("#part select").is_visible():
            page.locator("#part select").select_option(str(number))
            opened.settle()
        ((_, bottom, size),) = page.evaluate(PLACES, "#map .band")
        unit = size / arena.size.evaluate(sample)
        drawn = page.evaluate(PLACES, "#map .block[tabindex]")
        assert len(drawn) == len(arena.placements)
        for label, below, height in drawn:
            buffer, offset = buffers[_name(label)]
            assert bottom - below == pytest.approx(offset.evaluate(sample) * unit, abs=0.01)
            assert height == pytest.approx(max(buffer.size.evaluate(sample) * unit, 0.75), abs=0.01)


@pytest.mark.parametrize("size", [(1280, 900), (420, 800)], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_can_be_read(
    model: Model, open_page: Open, size: tuple[int, int], scheme: Literal["dark", "light"]
) -> None:
    opened = open_page(model.page, size=size, scheme=scheme)
    for sample in model.report.samples[1:]:
        opened.set(**sample.binding)
        for chart in ("#map", "#profile", "#call svg"):
            boxes = opened.page.evaluate(BOXES, f"{chart} text")
            assert boxes
            for i, a in enumerate(boxes):
                assert a[0] >= -1 and a[2] <= size[0] + 1, a
                for b in boxes[:i]:
                    apart = a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 3 or b[3] <= a[1] + 3
                    assert apart, (chart, a, b)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert min(opened.page.evaluate(CONTRASTS)) >= 4.5


def test_the_tip_stays_on_the_screen_and_tells_the_tensor(model: Model, open_page: Open) -> None:
    opened = open_page(model.page, size=(700, 600))
    page = opened.page
    blocks = page.locator("#map .block[tabindex]")
    for i in range(0, blocks.count(), 9):
        block = blocks.nth(i)
        block.scroll_into_view_if_needed()
        box = block.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 0.2, box["y"] + box["height"] / 2)
        if page.locator("#tip").is_hidden():  # under the pointer is a neighbour, or nothing
            continue
        (left, top, right, bottom, text) = page.evaluate(BOXES, "#tip")[0]
        assert 0 <= left <= right <= 700 and 0 <= top <= bottom <= 600
        assert page.locator("#details h2").inner_text() == _name(text)
        assert re.search(r"\d B", page.locator("#details dl").inner_text())
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()


def test_search_finds_tensors_by_name_and_formula(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    page, buffers = opened.page, _buffers(model)
    name, (buffer, _) = sorted(buffers.items())[len(buffers) // 2]
    page.keyboard.press("/")
    page.keyboard.type(name)
    found = sum(name in f"{other}\n{b.size}\n{offset}" for other, (b, offset) in buffers.items())
    assert page.locator("#found").inner_text() == f"{found} of {len(buffers)}"
    assert page.locator("#map .block[tabindex]:not(.dim)").count() == found
    page.keyboard.press("Enter")
    assert name in (page.locator("#map .block:focus").get_attribute("aria-label") or "")
    page.locator("#search").fill(str(buffer.size))
    same = sum(str(buffer.size) in f"{b.size}\n{offset}" for b, offset in buffers.values())
    assert page.locator("#found").inner_text() == f"{same} of {len(buffers)}"
    page.keyboard.press("Escape")
    assert page.locator("#found").inner_text() == ""
    assert page.locator("#map .dim").count() == 0


def test_the_keyboard_reaches_every_tensor(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    page = opened.page
    first = page.locator('#map .block[tabindex="0"]')
    assert first.count() == 1
    first.focus()
    page.keyboard.press("Home")
    seen = set()
    for _ in range(len(_buffers(model)) + 1):
        seen.add(page.locator("#map .block:focus").get_attribute("data-key"))
        page.keyboard.press("ArrowRight")
    assert len(seen) == page.locator("#map .block[tabindex]").count()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    held = page.locator("#details h2").inner_text()
    page.keyboard.press("End")
    assert page.locator("#details h2").inner_text() == held  # kept until Esc
    links = page.locator("#details .link")
    if links.count():
        wanted = links.first.inner_text()
        links.first.press("Enter")
        assert page.locator("#details h2").inner_text() == wanted
    page.keyboard.press("Escape")
    assert page.locator("#details h2").count() == 0


def test_the_step_under_the_pointer_has_its_edges(model: Model, open_page: Open) -> None:
    page, graph = open_page(model.page).page, model.report.graph
    assert graph is not None
    blocks, seen = page.locator("#map .block[tabindex]"), set[str]()
    for i in range(0, blocks.count(), 7):
        block = blocks.nth(i)
        block.scroll_into_view_if_needed()
        box = block.bounding_box()
        assert box is not None
        for share in (0.1, 0.9):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            if not page.locator("#step").count():
                continue
            title = page.locator("#step").inner_text()
            step, number = map(int, re.findall(r"step (\d+):.*call (\d+)", title)[0])
            begin, end = graph.nodes[number].live
            assert begin <= step < end and graph.nodes[number].operator in title
            told = page.locator("#details li[class^=edge]").all_inner_texts()
            edges = [e for e in graph.edges if e.target == number] + [
                e for e in graph.edges if e.source == number
            ]
            assert len(told) == len(edges)
            for text, edge in zip(told, edges, strict=True):
                other = edge.source if edge.target == number else edge.target
                assert f"(call {other}): {edge.kind}" in text
            seen.add(title)
    assert len(seen) > 5


def test_the_peak_and_its_tensors_are_those_of_the_report(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    opened.show("Without a plan")
    for sample in model.report.samples:
        opened.set(**sample.binding)
        rows = opened.rows("#peak", "#peaks")
        head = opened.page.locator("#peaks h2").inner_text()
        assert sample.peak is not None
        assert f": {human_bytes(sample.peak.nbytes)}, the largest first" in head
        told = [(t.name, t.operator or "", human_bytes(t.nbytes)) for t in sample.peak.tensors]
        assert sorted((row[0], row[1], row[2]) for row in rows) == sorted(told)
        assert [row[2] for row in rows] == [size for *_, size in told], "the largest first"


def test_tensors_bear_their_operator_in_every_view(model: Model, open_page: Open) -> None:
    opened = open_page(model.page, size=(1600, 1000))
    operators = {origin.operator for origin in model.report.origins.values() if origin.operator}
    drawn = set()
    for label in ("Our plan", "Without a plan", "TVM, no bounds"):
        opened.show(label)
        drawn.add(opened.page.locator("#map").inner_html())
        shown = opened.page.locator("#map text:not(.axis):not(.note)").all_text_contents()
        assert operators & {text.split()[0] for text in shown if text}, label
        said = opened.page.locator("#map .block").first.get_attribute("aria-label") or ""
        assert re.search(r" \((\w+)\): ", said), said
    assert len(drawn) == 3


def test_sizes_view_and_budget_are_in_the_address(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    sizes = {name: 7 + i for i, name in enumerate(sorted(model.report.samples[0].binding))}
    opened.set(**sizes)
    opened.show("Without a plan")
    opened.type("#budget", "1 MiB")
    numbers, address = opened.numbers(), opened.page.url
    assert all(f"{name}={size}" in address for name, size in sizes.items())
    again = open_page(model.page)
    again.go(address.partition("#")[2])
    assert again.numbers() == numbers
    assert again.page.locator('#views [aria-pressed="true"]').inner_text() == "Without a plan"
    assert again.page.locator("#budget").input_value() == "1 MiB"
    again.go("nonsense&--view=x&--function=y&--budget=z&%")
    assert again.numbers() == numbers


def test_a_budget_is_drawn_and_compared(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    sample = model.report.samples[-1]
    opened.set(**sample.binding)
    assert sample.call is not None
    for budget, said in (
        (sample.call, "with our plan a call fits, 0 B are left"),
        (sample.call - 1, "takes 1 B too much"),
    ):
        opened.type("#budget", budget)
        assert said in opened.page.locator("#fits").inner_text()
        assert opened.page.locator("#call .budget").count() == 1
    assert "weights, inputs and workspace not counted" in opened.page.locator("#fits").inner_text()
    opened.type("#budget", "much")
    assert opened.page.locator('#budget[aria-invalid="true"]').count() == 1
    assert (opened.page.locator("#fits").inner_text(), opened.page.locator(".budget").count()) == ("", 0)


def test_a_part_of_the_time_is_enlarged(model: Model, open_page: Open) -> None:
    opened = open_page(model.page)
    page = opened.page
    blocks = "#map .block[tabindex]"
    all_of_them = page.locator(blocks).count()
    box = page.locator("#map").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 40)
    page.mouse.up()
    opened.settle()
    inside = page.locator(blocks).count()
    assert 0 < inside < all_of_them
    page.evaluate("document.activeElement.blur()")
    for key, fewer in (("+", True), ("-", False)):
        before = page.locator(blocks).count()
        page.keyboard.press(key)
        opened.settle()
        assert (page.locator(blocks).count() <= before) is fewer or page.locator(blocks).count() == before
    page.get_by_role("button", name="earlier").click()
    page.get_by_role("button", name="later").click()
    page.keyboard.press("0")
    opened.settle()
    assert page.locator(blocks).count() == all_of_them


ADDRESSES = (
    "n=99999999999999999999",
    "n=9999999999999999999&--budget=1GiB",
    "n=-5&k=0&--view=__proto__",
    "n=0x10&--view=tvm_bounded&--budget=70KB",
    "--function=%3C%2Fscript%3E&%E0%A4%A&n=1&n=2",
    "--budget=9999999999999999999999TiB",
)


def test_no_address_breaks_the_page(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(_page(tmp_path, [hostile_report(), plan_samples.everything()]))
    for address in ADDRESSES:
        opened.go(address)
        assert opened.page.locator("#gain").inner_text().startswith("At k = ")


def ordered(sample: MemorySample) -> dict[str, int]:
    """The sizes of a sample as the page orders them."""
    return dict(sorted(sample.binding.items()))


def test_every_function_and_view_can_be_chosen(open_page: Open, tmp_path: Path) -> None:
    made = {
        name: getattr(plan_samples, name)() for name in ("everything", "small", "refused", "static", "large")
    }
    reports = [replace(r, plan=replace(r.plan, function=name)) for name, r in made.items()]
    file = _page(tmp_path, reports)
    opened = open_page(file)
    page = opened.page
    assert page.locator("#summary").inner_text().startswith("large: "), "it has most tensors"
    for name, report in made.items():
        page.locator("#functions button", has_text=name).click()
        assert page.locator("#summary").inner_text().startswith(f"{name}: ")
        for i in range(page.locator("#views button").count()):
            page.locator("#views button").nth(i).click()
            for key in ("Home", "+", "+", "0"):
                page.keyboard.press(key)
            opened.settle()
        for sample in report.samples:
            opened.set(**sample.binding)
            assert page.locator("#gain").inner_text() == gain_text(changed(sample, binding=ordered(sample)))
    page.locator("#functions button", has_text="small").click()
    assert "--function=small" in page.url
    again = open_page(file)
    again.go(page.url.partition("#")[2])
    assert again.page.locator("#summary").inner_text().startswith("small: ")


def test_ten_thousand_tensors_can_be_read(open_page: Open, tmp_path: Path) -> None:
    opened = open_page(_page(tmp_path, [plan_samples.many(10_000)]))
    page = opened.page
    assert 0 < page.locator("#stage .block").count() <= 3400
    assert page.locator("#stage .rest").count() == 1
    page.keyboard.press("/")
    page.keyboard.type("alloc7380")
    page.keyboard.press("Enter")  # it is drawn then, with what is beside it
    opened.settle()
    focused = page.locator("#map .block:focus").get_attribute("aria-label") or ""
    assert focused.startswith("alloc7380:")
    assert page.locator("#map text", has_text="alloc7380").count() == 1
    opened.show("Without a plan")
    assert 0 < page.locator("#map .block").count() <= 400


def test_it_prints_in_light_colours(model: Model, open_page: Open, tmp_path: Path) -> None:
    opened = open_page(model.page, scheme="dark")
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not opened.page.locator("#search").is_visible()
    assert len(opened.page.pdf()) > 10_000


def test_hostile_names_are_shown_as_they_are(open_page: Open, tmp_path: Path) -> None:
    page = open_page(_page(tmp_path, [hostile_report()], title=HOSTILE)).page
    assert page.locator("script").count() == 2
    page.locator("#map .block").first.hover(force=True)
    assert HOSTILE in (page.locator("#tip").text_content() or "")
    assert page.locator("#details h2").text_content() == HOSTILE
    assert HOSTILE in (page.locator("h1").text_content() or "")


def test_findings_lead_to_their_rectangles(open_page: Open, tmp_path: Path) -> None:
    found = (finding("main", "", "`k` reads `alloc1`"), finding("main", "alloc3"), finding("other", "alloc0"))
    lint = Report(diagnostics=found, summary=LintSummary())
    page = open_page(_page(tmp_path, [plan_samples.everything()], lint)).page
    faulty = page.locator("#map .fault[tabindex]")
    labels = [faulty.nth(i).get_attribute("aria-label") or "" for i in range(faulty.count())]
    assert [label.partition(":")[0] for label in labels] == ["alloc1", "alloc3"]
    assert page.locator("#findings li").count() == 3
    assert page.locator("#findings .link").count() == 2
    page.locator("#findings .link").first.click()
    assert page.locator("#details h2").inner_text() == "alloc1"
    assert "SYM101: `k` reads `alloc1`" in page.locator("#details").inner_text()


def test_the_browser_evaluates_formulas_as_python_does(open_page: Open, model: Model) -> None:
    given, expected = random_formulas(300)
    page = open_page(model.page).page
    plain = "JSON.parse(JSON.stringify(found, (_, v) => (typeof v === 'bigint' ? String(v) : v)))"
    body = f"{scripts_text(('formulas.js',))}\nconst found = {CODE};\nreturn {plain};"
    assert page.evaluate(f"(given) => {{{body}}}", given) == expected

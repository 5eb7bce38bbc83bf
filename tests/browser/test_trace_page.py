"""The page of a trace: who holds what at a moment is what the events say."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from symalloc.pool.pool_options import PoolOptions
from symalloc.pool.trace import Alloc, Free, PoolTimeline, Trace, timeline_of
from symalloc.report.map.page import map_page, trace_data
from symalloc.report.quantities import human_bytes
from tests.browser.conftest import Open
from tests.pool.steps import peak_live
from tests.pool.workloads import make_trace

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def timeline() -> PoolTimeline:
    return timeline_of(make_trace("mixed", 3), PoolOptions())


@pytest.fixture(scope="module")
def page(timeline: PoolTimeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pages") / "trace.html"
    data = trace_data(timeline, title="trace.json")
    file.write_text(map_page(data), encoding="utf-8")
    return file


def test_a_moment_shows_what_is_live_and_who_holds_it(
    timeline: PoolTimeline, page: Path, open_page: Open
) -> None:
    opened = open_page(page)
    moments, trace = timeline.moments, timeline.trace
    events = [i for i, event in enumerate(trace.events) if isinstance(event, Alloc | Free)]
    peak = max(range(len(moments)), key=lambda i: moments[i].live)
    slider = opened.page.locator('#controls input[type="range"]')
    assert int(slider.input_value()) == peak
    for index in (peak, 0, len(moments) // 3, len(moments) - 1):
        slider.fill(str(index))
        moment, numbers = moments[index], opened.numbers()
        shown = (numbers["live"], numbers["used"], numbers["reserved"])
        assert shown == (moment.live, moment.used, moment.reserved)
        said = opened.page.locator("#controls output").inner_text()
        event = int(said.split()[1])
        assert (said.startswith("event "), index) == (True, events.index(event))
        held: Counter[str] = Counter()
        for each in moments[: index + 1]:
            nbytes = timeline.blocks[each.block].nbytes
            held[timeline.name(each.block)] += nbytes if each.allocates else -nbytes
        largest = [human_bytes(size) for _, size in (+held).most_common(100)]
        assert [row[1] for row in opened.rows("#held")] == largest
    assert numbers["peak_live"] == peak_live(timeline.trace)
    assert numbers["peak_reserved"] == timeline.statistics.peak_reserved


TRACES = {
    "nothing": Trace(name="t", events=()),
    "what does not fit": Trace(name="t", events=tuple(Alloc(block=i, nbytes=2**20) for i in range(5))),
    "more than is drawn": Trace(
        name="t",
        events=tuple(e for i in range(12_000) for e in (Alloc(block=i, nbytes=i % 7), Free(block=i))),
        times=tuple(range(0, 24_000_000, 1000)),
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_any_trace_opens_and_a_part_of_it_is_enlarged(name: str, open_page: Open, tmp_path: Path) -> None:
    timeline = timeline_of(TRACES[name], PoolOptions(limit=3 * 2**20))
    file = tmp_path / "trace.html"
    file.write_text(map_page(trace_data(timeline, title="t")), encoding="utf-8")
    page = open_page(file).page
    for key in ("+", "+", "-", "0", "+"):
        page.keyboard.press(key)
    page.get_by_role("button", name="later").click()
    assert page.locator("#summary").inner_text().startswith(f"t: {len(timeline.blocks)} blocks")
    assert ("does not fit" in name) == ("It ends there" in page.locator("#summary").inner_text())
    assert page.locator("#stage .block").count() <= 3000


def test_blocks_are_found_and_kept(page: Path, open_page: Open, timeline: PoolTimeline) -> None:
    opened = open_page(page, scheme="dark")
    name = timeline.name(timeline.moments[0].block)
    opened.page.locator("#search").fill(name)
    opened.page.locator("#search").press("Enter")
    opened.page.keyboard.press("Enter")
    assert name in opened.page.locator("#details h2").inner_text()

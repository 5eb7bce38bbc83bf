"""Pictures: well-formed, to scale, nothing overlaps, names stay names."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest

from symalloc.errors import UsageError
from symalloc.report.map import page
from symalloc.report.map.page import as_png, require_png
from symalloc.report.map.picture import Scene, picture, plan_scene
from tests.report import plan_samples

NAMESPACE = "{http://www.w3.org/2000/svg}"
Box = tuple[float, float, float, float]


def _blocks(text: str) -> list[tuple[str, Box]]:
    """The title and the place (left, top, right, bottom) of each block."""
    found = []
    for rect in ElementTree.fromstring(text).iter(f"{NAMESPACE}rect"):
        if "block" in rect.get("class", "").split():
            x, y, width, height = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
            found.append((rect[0].text or "", (x, y, x + width, y + height)))
    return found


def _scene(n: int) -> Scene:
    return plan_scene(plan_samples.everything().plan, {"n": n, "k": 3})


@pytest.mark.parametrize("n", [1, 16, 64, 1000])
def test_every_live_range_of_every_tensor_is_drawn_to_scale(n: int) -> None:
    scene = _scene(n)
    drawn = _blocks(picture(scene))
    assert len(drawn) == sum(len(b.spans) for band in scene.bands for b in band.blocks) == 6
    (_, tall), (_, half) = (
        next(d for d in drawn if d[0].startswith(f"{name}:")) for name in ("alloc2", "alloc1")
    )
    sizes = {block.name: block.size for band in scene.bands for block in band.blocks}
    ratio = (tall[3] - tall[1]) / (half[3] - half[1])
    assert ratio == pytest.approx(sizes["alloc2"] / sizes["alloc1"], rel=0.05)


@pytest.mark.parametrize("n", [1, 64, 1000])
def test_rectangles_do_not_overlap(n: int) -> None:
    for (_, a), (_, b) in combinations(_blocks(picture(_scene(n))), 2):
        gap = 0.9  # the thinnest rectangle is 0.75 wide, whatever it stands for
        apart = a[2] <= b[0] + gap or b[2] <= a[0] + gap or a[3] <= b[1] + gap or b[3] <= a[1] + gap
        assert apart, (a, b)


def test_the_peak_is_where_most_is_live() -> None:
    scene = _scene(64)
    assert scene.peak is not None
    assert dict(scene.live)[scene.peak] == max(size for _, size in scene.live)
    at_peak = {b.name for band in scene.bands for b in band.blocks if b.at_peak}
    assert at_peak == {"alloc2", "alloc0", "alloc3"}


def test_hostile_names_stay_names() -> None:
    scene = _scene(4)
    band = scene.bands[0]
    hostile = "</title><script>alert(1)</script>\x00\ud800&"
    block = replace(band.blocks[0], name=hostile)
    text = picture(replace(scene, title=hostile, bands=(replace(band, title=hostile, blocks=(block,)),)))
    tags = {element.tag.removeprefix(NAMESPACE) for element in ElementTree.fromstring(text).iter()}
    assert tags <= {"svg", "title", "style", "rect", "text", "line", "path"}
    assert text.encode()


def test_nothing_planned_is_drawn_too() -> None:
    scene = plan_scene(plan_samples.static().plan, {})
    assert scene.peak is None
    assert _blocks(picture(scene)) == []


def test_a_png_needs_cairosvg(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(page, "import_module", missing)
    with pytest.raises(UsageError, match=r"pip install \"symalloc\[png\]\""):
        require_png()


def test_png() -> None:
    pytest.importorskip(
        "cairosvg", exc_type=(ImportError, OSError), reason="the extra `png` is not installed"
    )
    data = as_png(picture(_scene(64)))
    assert data.startswith(b"\x89PNG") and len(data) > 5000

"""A plan as SVG, for documents: no script, light colours, a title for each block."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, count
from zlib import crc32

from symalloc.analysis.tensor_origin import NO_ORIGIN, TensorOrigin
from symalloc.planner.memory_plan import Placement, Plan
from symalloc.program.ir import Var
from symalloc.report.quantities import binding_text, human_bytes
from symalloc.size.evaluation import evaluated

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBlock:
    """`size` bytes at `offset`, in use during each of `spans`, half-open.

    `label`: what writes it, and for which place of the source; `kind`: `tensor` or `result`; `at_peak`: live
    when most is.
    """

    name: str
    label: str = ""
    spans: tuple[Span, ...]
    offset: int
    size: int
    kind: str = "tensor"
    at_peak: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBand:
    """A stretch of memory of `size` bytes, and the blocks in it."""

    title: str
    size: int
    blocks: tuple[DrawnBlock, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Bands over the steps of a call from 0 to `end`; `peak` is where most bytes are live, None where none
    are.

    `live` holds the live bytes from each step on at which they change.
    """

    title: str
    subtitle: str
    bands: tuple[DrawnBand, ...]
    end: int
    live: tuple[tuple[int, int], ...]
    peak: int | None


def plan_scene(plan: Plan, binding: Mapping[str, int], origins: Mapping[Var, TensorOrigin] = {}) -> Scene:
    """Return the plan of a function at `binding`; buffers and arenas of unknown size there are left out."""
    live = _live_bytes(plan, binding)
    peak, most = max(live, key=lambda point: (point[1], -point[0]), default=(None, 0))
    bands = []
    for number, arena in enumerate(plan.arenas, 1):
        size = evaluated(arena.size, binding)
        if size is not None:
            placed = (_placed_block(p, binding, peak, origins) for p in arena.placements)
            blocks = tuple(block for block in placed if block is not None)
            where = f"device {arena.device} ({arena.scope})"
            if arena.result is not None:
                where = f"in the memory of the result {arena.result.name}"
            bands.append(DrawnBand(title=f"arena {number}, {where}", size=size, blocks=blocks))
    ends = [end for band in bands for block in band.blocks for _, end in block.spans]
    at = f"{binding_text(binding)}: " if binding else ""
    return Scene(
        title=plan.function,
        subtitle=f"{at}at most {human_bytes(most)} of planned tensors are live",
        bands=tuple(bands),
        end=max(ends, default=1),
        live=live,
        peak=peak,
    )


def _live_bytes(plan: Plan, binding: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    changes: dict[int, int] = {}
    for buffer in (p.buffer for arena in plan.arenas for p in arena.placements if not p.buffer.returned):
        size = evaluated(buffer.size, binding)
        if size is not None:
            for begin, end in buffer.live:
                changes[begin] = changes.get(begin, 0) + size
                changes[end] = changes.get(end, 0) - size
    times = sorted(changes)
    return tuple(zip(times, accumulate(changes[time] for time in times), strict=True))


def _placed_block(
    placement: Placement, binding: Mapping[str, int], peak: int | None, origins: Mapping[Var, TensorOrigin]
) -> DrawnBlock | None:
    buffer = placement.buffer
    origin = NO_ORIGIN if buffer.var is None else origins.get(buffer.var, NO_ORIGIN)
    offset, size = evaluated(placement.offset, binding), evaluated(buffer.size, binding)
    if offset is None or size is None:
        return None
    return DrawnBlock(
        name=buffer.name,
        label=f"{origin.operator} {origin.source}".strip(),
        spans=buffer.live,
        offset=offset,
        size=size,
        kind="result" if buffer.returned else "tensor",
        at_peak=size > 0 and peak is not None and any(begin <= peak < end for begin, end in buffer.live),
    )


LEFT, RIGHT, WIDTH = 78, 14, 960
MAP, PROFILE = 360, 60  # heights of the bands together, and of the live bytes
TITLE, LEAST, GAP = 18, 16, 8  # of a band
LETTER = 6.2  # pixels of one, about
MOST_BANDS = 12

# colours that all kinds of sight tell apart, after Okabe and Ito
STYLE = (
    "text{font:11px 'DejaVu Sans',Verdana,sans-serif;fill:#1b1f24}.head{font-size:15px;font-weight:bold}"
    ".axis{fill:#57606a}.band{fill:#f6f8fa;stroke:#d0d7de}.rule{stroke:#d0d7de}.block{stroke:#fff}"
    ".thin{stroke-width:.25}.tensor0{fill:#b5daf2}.tensor1{fill:#9fcdec}.tensor2{fill:#c9e5f7}"
    ".peak0{fill:#f4bc55}.peak1{fill:#eeae3a}.peak2{fill:#f7c977}.result{fill:#e2b5cf}"
    ".line{stroke:#b5560a;stroke-width:1.5;stroke-dasharray:5 3}.area{fill:#b5daf2;stroke:#0072b2}"
)

_FORBIDDEN = re.compile("[^\t\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML


def picture(scene: Scene) -> str:
    """Return the SVG of a scene: bytes upwards, time to the right, and the live bytes below."""
    body: list[str] = [
        _text(LEFT, 22, scene.title, "head"),
        _text(LEFT, 40, _fitted(scene.subtitle, WIDTH - LEFT - RIGHT), "axis"),
    ]
    y, labels = 48.0, list[str]()
    largest = sorted(scene.bands, key=lambda band: -band.size)[:MOST_BANDS]
    bands = [band for band in scene.bands if band in largest]
    for band, (height, scaled) in zip(bands, _heights([b.size for b in bands]), strict=True):
        y += TITLE
        body += _band(band, scene, (y, height, scaled or len(bands) == 1), labels)
        y += height + GAP
    if len(scene.bands) > len(bands):
        body.append(_text(LEFT, y + 8, f"and {len(scene.bands) - len(bands)} smaller ones", "axis"))
        y += 16
    body += _profile(scene, y + 12)
    y += 12 + PROFILE
    if scene.peak is not None:
        x = _x(scene.peak, scene)
        body.append(f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="66" y2="{y:.1f}"/>')
    body += labels
    body += _time_axis(scene, y)
    height = round(y + 36)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img"><title>{_plain(f"{scene.title}: {scene.subtitle}")}</title>'
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{"".join(body)}</svg>\n'
    )


def _heights(sizes: Sequence[int]) -> list[tuple[float, bool]]:
    """Return the height of each band, and whether it is to scale: small ones are enlarged."""
    small: set[int] = set()
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):  # each that is enlarged leaves less room
        rest = sum(size for i, size in enumerate(sizes) if i not in small)
        scale = (MAP - LEAST * len(small)) / rest if rest else 0
        if sizes[index] * scale >= LEAST:
            break
        small.add(index)
    return [(LEAST, False) if i in small else (size * scale, True) for i, size in enumerate(sizes)]


def _band(
    band: DrawnBand, scene: Scene, place: tuple[float, float, bool], labels: list[str]
) -> Iterator[str]:
    """`place`: from where on, how high, and whether to scale; names go to `labels`, which are drawn last."""
    top, height, scaled = place
    enlarged = "" if scaled else " (enlarged)"
    title = f"{band.title}: {human_bytes(band.size)}{enlarged}"
    width = WIDTH - LEFT - RIGHT
    yield _text(LEFT, top - 5, _fitted(title, width))
    yield f'<rect class="band" x="{LEFT}" y="{top:.1f}" width="{width}" height="{height:.1f}"/>'
    unit = height / band.size if band.size else 0.0
    if scaled:
        for tick in _byte_ticks(band.size, max(1, int(height / 45))):
            y = top + height - tick * unit
            yield f'<line class="rule" x1="{LEFT - 4}" x2="{LEFT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield _text(LEFT - 7, y + 4, human_bytes(tick), "axis", "end")
    for block in band.blocks:
        yield from _block(block, scene, top + height - block.offset * unit, block.size * unit, labels)


def _block(block: DrawnBlock, scene: Scene, bottom: float, size: float, labels: list[str]) -> Iterator[str]:
    tall = max(size, 0.75)
    tint = crc32(block.name.encode(errors="replace")) % 3
    kind = f"peak{tint}" if block.at_peak else f"tensor{tint}" if block.kind == "tensor" else block.kind
    live = " ".join(f"[{begin}, {end})" for begin, end in block.spans)
    by = f" ({block.label})" if block.label else ""
    said = f"{block.name}{by}: {human_bytes(block.size)} at {human_bytes(block.offset)}, live {live}"
    for begin, end in block.spans:
        left = _x(begin, scene)
        wide = max(_x(end, scene) - left, 0.75)
        thin = " thin" if tall < 3 or wide < 3 else ""
        yield (
            f'<rect class="block {kind}{thin}" x="{left:.2f}" y="{bottom - tall:.2f}" width="{wide:.2f}" '
            f'height="{tall:.2f}"><title>{_plain(said)}</title></rect>'
        )
        name = _title(block, wide - 8) if tall >= 13 and wide >= 30 else ""
        if name:
            labels.append(_text(left + 4, bottom - tall + min(tall / 2 + 4, 13), name))
        elif wide >= 13 and tall >= 40:
            x, y = left + wide / 2 + 4, bottom - 5
            turned = f'<text transform="translate({x:.1f} {y:.1f}) rotate(-90)">'
            labels.append(f"{turned}{_plain(_title(block, tall - 10))}</text>")


def _profile(scene: Scene, top: float) -> Iterator[str]:
    most = max((size for _, size in scene.live), default=0) or 1
    path = f"M{LEFT},{top + PROFILE:.1f}"
    for time, size in scene.live:
        path += f"H{_x(time, scene):.2f}V{top + PROFILE * (1 - size / most):.2f}"
    width = WIDTH - LEFT - RIGHT
    yield f'<rect class="band" x="{LEFT}" y="{top:.1f}" width="{width}" height="{PROFILE}"/>'
    yield f'<path class="area" d="{path}V{top + PROFILE:.1f}Z"/>'
    yield _text(LEFT - 7, top + 8, human_bytes(most), "axis", "end")
    yield _text(LEFT - 7, top + PROFILE, "live", "axis", "end")


def _time_axis(scene: Scene, y: float) -> Iterator[str]:
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    step = next(step for step in steps if scene.end / step <= 9)
    for tick in range(0, scene.end + 1, step):
        yield _text(_x(tick, scene), y + 14, str(tick), "axis", "middle")
    yield _text(LEFT, y + 29, "step of the call", "axis")


def _x(time: int, scene: Scene) -> float:
    return LEFT + time / scene.end * (WIDTH - LEFT - RIGHT)


def _byte_ticks(most: int, wanted: int) -> range:
    """Return multiples of a power of two, at most `wanted` above 0."""
    step = 1 << max(0, (most // wanted).bit_length() - 1)
    while most // step > wanted:
        step *= 2
    return range(0, most + 1, step)


def _fitted(text: str, width: float) -> str:
    """Return what of `text` fits into `width` pixels; nothing where that says nothing."""
    most = int(width / LETTER)
    return text if len(text) <= most else "" if most < 4 else f"{text[: most - 1]}…"


def _title(block: DrawnBlock, width: float) -> str:
    """Return the operator and place of a block, or of its operator or name as much as fits, and the number at
    its end, in which many differ.
    """
    most, name = int(width / LETTER), block.label.partition(" ")[0] or block.name
    if 0 < len(block.label) <= most:
        return block.label
    if len(name) <= most:
        return name
    number = name[len(name.rstrip("0123456789")) :]
    head = most - 1 - len(number)
    return f"{name[:head]}…{number}" if head > 0 else ""


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    place = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{name}{place}>{_plain(text)}</text>'


def _plain(text: str) -> str:
    """Return `text` as XML holds it; characters that XML forbids become question marks."""
    return escape(_FORBIDDEN.sub("?", text))

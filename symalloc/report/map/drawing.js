// Elements, numbers for people, and the charts.  Text goes in as text nodes only: no name becomes markup.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 74, RIGHT = 10;

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
const html = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);
const at = (id) => document.getElementById(id);

// as symalloc.report.quantities writes them
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
function humanBytes(count) {
  if (count === null) return "-";
  let unit = 0, value = Number(count);
  while (value >= 1024 && unit < UNITS.length - 1) [unit, value] = [unit + 1, value / 1024];
  if (unit === 0) return `${count} B`;
  return `${value < 1e6 ? oneDecimal(value) : value.toExponential(1)} ${UNITS[unit]}`;
}
// a tie goes to the even digit, as Python has it
function oneDecimal(value) {
  const below = Math.floor(value * 10);
  return value * 10 - below === 0.5 ? ((below + (below % 2)) / 10).toFixed(1) : value.toFixed(1);
}
const exactBytes = (count) =>
  count === null ? "not known here" : count < 1024 ? `${count} B` : `${humanBytes(count)} (${grouped(count)} B)`;
const grouped = (count) => String(count).replace(/\B(?=(\d{3})+$)/g, "\u202f");

// `text` in at most `width` pixels of the map's font
function fitted(text, width) {
  const most = Math.floor(width / 6.4);
  return text.length <= most ? text : most < 4 ? "" : `${text.slice(0, most - 1)}…`;
}

// what a block is called in at most `width` pixels: its operator and place, else of that or its name as much as fits,
// and the number at its end, in which many differ
function titled({ label, short }, width) {
  const most = Math.floor(width / 6.8), [number] = /\d*$/.exec(short), head = most - 1 - number.length;
  return label.length <= most ? label : short.length <= most ? short : head > 0 ? `${short.slice(0, head)}…${number}` : "";
}

// steps of a power of two, about `count` of them
function byteTicks(most, count) {
  if (most <= 0) return [];
  const step = 2 ** Math.ceil(Math.log2(Math.max(most / count, 1)));
  return Array.from({ length: Math.floor(most / step) }, (_, i) => (i + 1) * step);
}

function roundTicks(low, high, count) {
  const raw = (high - low) / count || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

// -- the map: bands of rectangles ---------------------------------------------------------------------------
// scene: { bands: [{ title, size, blocks }], span: all of the time, x: the part that is shown, format, peak, label }
// block: { key, name, label, short, spans: [[begin, end]], offset, size, kind, atPeak, fault, text }

const BAND_TITLE = 20, LEAST_BAND = 18, GAP = 6, MOST_BANDS = 40;
const MOST_DRAWN = 3000, MOST_STACKED = 400;

function bandHeights(sizes, height) {
  const small = new Set();
  for (;;) {
    const rest = sizes.reduce((sum, size, i) => sum + (small.has(i) ? 0 : size), 0);
    const scale = rest ? (height - small.size * LEAST_BAND) / rest : 0;
    const next = sizes.findIndex((size, i) => !small.has(i) && size * scale < LEAST_BAND);
    if (next < 0) return sizes.map((size, i) => ({ height: small.has(i) ? LEAST_BAND : size * scale, scaled: !small.has(i) }));
    small.add(next);
  }
}

// the blocks that are drawn: of those within a part of the time the `most` that cover the largest areas
function visible(blocks, [low, high], most) {
  const shown = (b) => b.spans.reduce((sum, [begin, end]) => sum + Math.max(0, Math.min(end, high) - Math.max(begin, low)), 0);
  const inside = blocks.map((block, i) => [(Number(block.size) + 1) * shown(block), i]).filter(([area]) => area > 0);
  if (inside.length > most) inside.sort((a, b) => b[0] - a[0]).length = most;
  return inside.sort((a, b) => a[1] - b[1]).map(([, i]) => blocks[i]);
}

// places in time by pixels; what lies outside of the part that is shown is at its border
function timeScale(target, [low, high]) {
  const plot = (target.clientWidth || 800) - LEFT - RIGHT;
  const x = (value) => LEFT + ((Math.min(Math.max(value, low), high) - low) / (high - low || 1)) * plot;
  const ticks = (y, format) => roundTicks(low, high, Math.max(2, plot / 90))
    .map((tick) => svg("text", { class: "axis", x: x(tick), y, "text-anchor": "middle" }, format(tick)));
  return { plot, x, ticks, within: (value) => low <= value && value <= high };
}

function drawMap(target, scene, state) {
  const { plot, x, ticks, within } = timeScale(target, scene.x);
  const wanted = Math.min(560, Math.max(300, window.innerHeight * 0.55));
  const shown = [...scene.bands].sort((a, b) => b.size - a.size).slice(0, MOST_BANDS);
  const bands = scene.bands.filter((band) => shown.includes(band));
  const heights = bandHeights(bands.map((band) => band.size), wanted);
  const drawn = new Set(visible(bands.flatMap((band) => band.blocks), scene.x, MOST_DRAWN));
  const parts = [], labels = [];
  let y = 0;
  bands.forEach((band, i) => {
    const { height, scaled } = heights[i];
    y += BAND_TITLE;
    const note = scaled || bands.length === 1 ? "" : "  (enlarged)";
    parts.push(
      svg("text", { x: LEFT, y: y - 6 }, fitted(`${band.title}: ${humanBytes(band.bytes)}${note}`, plot)),
      svg("rect", { class: "band", x: LEFT, y, width: plot, height }),
    );
    const top = y, unit = band.size ? height / band.size : 0;
    if (scaled || bands.length === 1) {
      for (const tick of [0, ...byteTicks(band.size, Math.max(1, height / 45))]) {
        const line = top + height - tick * unit;
        parts.push(
          svg("line", { class: "rule", x1: LEFT - 4, x2: LEFT, y1: line, y2: line }),
          svg("text", { class: "axis", x: LEFT - 7, y: line + 4, "text-anchor": "end" }, humanBytes(tick)),
        );
      }
    }
    for (const block of band.blocks.filter((block) => drawn.has(block))) {
      drawBlock(block, { x, range: scene.x, top, height, unit }, parts, labels, state);
    }
    y += height + GAP;
  });
  const hidden = scene.bands.length - bands.length;
  if (hidden) {
    parts.push(svg("text", { class: "note", x: LEFT, y: y + 10 }, `and ${hidden} smaller ones`));
    y += 16;
  }
  if (scene.peak !== null && within(scene.peak)) {
    const line = x(scene.peak + (scene.discrete ? 0.5 : 0));
    parts.push(svg("line", { class: "peakline", x1: line, x2: line, y1: BAND_TITLE, y2: y }));
  }
  parts.push(...ticks(y + 12, scene.format), svg("text", { class: "note", x: LEFT, y: y + 27 }, scene.xTitle));
  target.setAttribute("height", y + 32);
  target.setAttribute("aria-label", scene.label);
  target.replaceChildren(...parts, ...labels);
}

function blockElement(tag, block, state, attributes, again = false) {
  const names = ["block", block.kind, block.atPeak ? "peak" : "", block.fault ? "fault" : "", ...state.classes(block)];
  const button = again ? {} : { role: "button", tabindex: block.key === state.focus ? 0 : -1, "aria-label": block.text() };
  return svg(tag, { class: names.filter(Boolean).join(" "), "data-key": block.key, ...button, ...attributes });
}

function drawBlock(block, { x, range: [low, high], top, height, unit }, parts, labels, state) {
  const bottom = top + height - Number(block.offset) * unit;
  const tall = Math.max(Number(block.size) * unit, 0.75);
  let again = false;
  for (const [begin, end] of block.spans) {
    if (end <= low || begin >= high) continue;
    const left = x(begin), wide = Math.max(x(end) - left, 0.75);
    const element = blockElement("rect", block, state, { x: left, y: bottom - tall, width: wide, height: tall }, again);
    if (tall < 3 || wide < 3) element.classList.add("hair");
    parts.push(element);
    again = true;
    const text = tall >= 13 && wide >= 34 ? titled(block, wide - 8) : "";
    if (text) labels.push(svg("text", { x: left + 4, y: bottom - tall + Math.min(tall / 2 + 4, 13) }, text));
    else if (wide >= 13 && tall >= 40) {
      const turn = `translate(${left + wide / 2 + 4} ${bottom - 5}) rotate(-90)`;
      labels.push(svg("text", { transform: turn }, titled(block, tall - 10)));
    }
  }
}

// -- charts: bytes over time ------------------------------------------------------------------------------------
// levels: [{ value, text }]; `draw(x, y)` returns what stands in the frame

function drawFrame(target, { highest, x: range, levels = [], format, height = 130, unit = humanBytes, peak = null, label }, draw) {
  const { plot, x, ticks, within } = timeScale(target, range), top = 16;
  const y = (value) => top + height - (value / highest) * height;
  const parts = [svg("rect", { class: "band", x: LEFT, y: top, width: plot, height })];
  for (const tick of unit === humanBytes ? byteTicks(highest, height / 32) : roundTicks(0, highest, height / 32)) {
    parts.push(
      svg("line", { class: "rule", x1: LEFT, x2: LEFT + plot, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "axis", x: LEFT - 7, y: y(tick) + 4, "text-anchor": "end" }, unit(tick)),
    );
  }
  parts.push(...draw(x, y));
  for (const { value, text, anchor = "end", name = "level" } of levels) {
    parts.push(
      svg("line", { class: name, x1: LEFT, x2: LEFT + plot, y1: y(value), y2: y(value) }),
      svg("text", { x: anchor === "end" ? LEFT + plot - 4 : LEFT + 4, y: y(value) - 4, "text-anchor": anchor }, text),
    );
  }
  if (peak !== null && within(peak)) parts.push(svg("line", { class: "peakline", x1: x(peak), x2: x(peak), y1: top, y2: top + height }));
  if (format) parts.push(...ticks(top + height + 14, format));
  target.setAttribute("height", top + height + (format ? 20 : 6));
  target.setAttribute("aria-label", label);
  target.replaceChildren(...parts);
}

// series: [{ name, points: [[x, y], …] (steps), area }]
function drawChart(target, { series, most, ...frame }) {
  const [low, high] = frame.x;
  const highest = most ?? Math.max(1, ...series.flatMap((s) => s.points.map((p) => p[1])), ...(frame.levels ?? []).map((l) => l.value));
  const path = ({ name, points, area }, x, y) => {
    const shown = points.filter(([px], i) => px < high && (points[i + 1]?.[0] ?? high) >= low);
    if (!shown.length) return null;
    const line = shown.map(([px, py]) => `H${x(px).toFixed(2)}V${y(py).toFixed(2)}`).join("");
    const d = `M${x(shown[0][0])},${area ? y(0) : y(shown[0][1])}${line}H${x(high).toFixed(2)}`;
    return svg("path", { class: area ? "area" : `line ${name}`, d: area ? `${d}V${y(0)}Z` : d });
  };
  drawFrame(target, { ...frame, highest }, (x, y) => series.map((one) => path(one, x, y)).filter(Boolean));
}

// the first number below `count` for which something holds that holds for all behind it; `count` where it holds for none
function firstWhere(count, holds) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

// the steps that a chart shows: where there are more than pixels, of several the one with most bytes
function columnsOf(steps, [low, high], most) {
  const columns = [];
  steps.forEach(([step, bytes], i) => {
    const from = Math.max(step, low), until = steps[i + 1]?.[0] ?? high;
    if (until <= low || step >= high) return;
    const slot = Math.floor(((from - low) / (high - low)) * most), last = columns.at(-1);
    if (last?.slot !== slot) columns.push({ slot, from, at: step, bytes: Number(bytes) });
    else if (bytes > last.bytes) Object.assign(last, { at: step, bytes: Number(bytes) });
  });
  return columns;
}

// `blocks` above one another at each step, those that live longest at the bottom; the smallest of many are one area
function drawStack(target, { blocks, steps, buttons, ...frame }, state) {
  const { plot, x } = timeScale(target, frame.x), columns = columnsOf(steps, frame.x, plot), base = columns.map(() => 0);
  const right = (column) => x(columns[column + 1]?.from ?? frame.x[1]);
  const column = (step) => firstWhere(columns.length, (c) => columns[c].at >= step);
  // parts of equal height: `tall(column)` bytes on what lies there already
  const placed = ([begin, end], tall) => {
    const runs = [];
    for (let c = begin; c < end; c += 1) {
      const low = base[c], last = runs.at(-1);
      base[c] += tall(c);
      if (last && last.low === low && last.high === base[c]) last.right = right(c);
      else runs.push({ low, high: base[c], left: x(columns[c].from), right: right(c) });
    }
    return runs;
  };
  const life = (block) => block.spans.reduce((sum, [begin, end]) => sum + end - begin, 0);
  const chosen = visible(blocks, frame.x, MOST_STACKED).sort((a, b) => life(b) - life(a) || a.spans[0][0] - b.spans[0][0]);
  drawFrame(target, frame, (_, y) => {
    const outline = (runs) => (runs.length ? `M${runs[0].left.toFixed(1)},${y(runs[0].low).toFixed(1)}` : "") +
      runs.map((r) => `V${y(r.high).toFixed(1)}H${r.right.toFixed(1)}`).join("") +
      runs.map((r) => `V${y(r.low).toFixed(1)}H${r.left.toFixed(1)}`).reverse().join("");
    const labels = [];
    const shapes = chosen.map((block) => {
      const size = Number(block.size);
      const parts = block.spans.map(([begin, end]) => placed([column(begin), column(end)], () => size));
      const wide = parts.flat().reduce((a, b) => (a && a.right - a.left >= b.right - b.left ? a : b), null);
      const tall = wide ? y(wide.low) - y(wide.high) : 0;
      const text = tall >= 13 && wide.right - wide.left >= 34 ? titled(block, wide.right - wide.left - 8) : "";
      if (text) labels.push(svg("text", { x: wide.left + 4, y: y(wide.low) - tall / 2 + 4 }, text));
      const shape = blockElement("path", block, state, { d: parts.map(outline).join("") }, !buttons);
      if (tall < 3) shape.classList.add("hair");
      return shape;
    });
    const rest = placed([0, columns.length], (c) => Math.max(0, columns[c].bytes - base[c]));
    return [...shapes, svg("path", { class: "rest", d: outline(rest) }), ...labels];
  });
}

function keyOf(sample, text) {
  return html("span", { class: "key" }, sample, text);
}
const colourKey = (name, text) => keyOf(html("i", { class: name }), text);
const lineKey = (name, text) =>
  keyOf(svg("svg", { viewBox: "0 0 26 8", "aria-hidden": "true" }, svg("line", { class: `line ${name}`, x1: 0, x2: 26, y1: 4, y2: 4 })), text);

// rows of [label, class, bytes, data-key]
function bars(title, rows) {
  const known = rows.filter(([, , count]) => count !== null).map(([, , count]) => Number(count));
  const most = Math.max(1, ...known);
  const grid = html("div", { class: "bars" });
  for (const [label, name, count, key, note] of rows) {
    const fill = html("i", { class: name });
    fill.style.width = count === null ? "0" : `${(100 * Number(count)) / most}%`;
    grid.append(
      html("span", {}, label),
      html("span", { class: "track", "aria-hidden": "true" }, fill),
      html("b", { "data-key": key, "data-bytes": count === null ? "" : String(count), title: count === null ? "not known" : `${grouped(count)} B` }, note ?? humanBytes(count)),
    );
  }
  return html("div", {}, html("h2", {}, title), grid);
}

function table(heads, rows, attributes = {}) {
  const cell = (tag, value, i) =>
    html(tag, { class: heads[i].class ?? null }, value instanceof Node ? value : String(value));
  return html("div", { class: "scroll" }, html("table", attributes,
    html("thead", {}, html("tr", {}, ...heads.map((head, i) => cell("th", head.text, i)))),
    html("tbody", {}, ...rows.map((row) => html("tr", {}, ...row.map((value, i) => cell("td", value, i)))))));
}

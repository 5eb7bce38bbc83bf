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

// as much of a name as fits: names that end with a number differ at their end
function shortened(name, width) {
  const most = Math.floor(width / 6.8);
  if (name.length <= most || !/\d$/.test(name)) return fitted(name, width);
  return most < 3 ? "" : `…${name.slice(1 - most)}`;
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
// scene: { bands: [{ title, size, blocks }], x: [low, high], format, peak, label }
// block: { key, name, spans: [[begin, end]], offset, size, kind, atPeak, fault, text }

const BAND_TITLE = 20, LEAST_BAND = 18, GAP = 6, MOST_BANDS = 40;

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

function drawMap(target, scene, state) {
  const width = target.clientWidth || 800, plot = width - LEFT - RIGHT;
  const wanted = Math.min(560, Math.max(300, window.innerHeight * 0.55));
  const shown = [...scene.bands].sort((a, b) => b.size - a.size).slice(0, MOST_BANDS);
  const bands = scene.bands.filter((band) => shown.includes(band));
  const heights = bandHeights(bands.map((band) => band.size), wanted);
  const [low, high] = scene.x;
  const x = (value) => LEFT + ((value - low) / (high - low || 1)) * plot;
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
    for (const block of band.blocks) drawBlock(block, { x, top, height, unit }, parts, labels, state);
    y += height + GAP;
  });
  const hidden = scene.bands.length - bands.length;
  if (hidden) {
    parts.push(svg("text", { class: "note", x: LEFT, y: y + 10 }, `and ${hidden} smaller ones`));
    y += 16;
  }
  if (scene.peak !== null && scene.peak !== undefined) {
    const line = x(scene.peak + (scene.discrete ? 0.5 : 0));
    parts.push(svg("line", { class: "peakline", x1: line, x2: line, y1: BAND_TITLE, y2: y }));
  }
  for (const tick of roundTicks(low, high, Math.max(2, plot / 90))) {
    parts.push(svg("text", { class: "axis", x: x(tick), y: y + 12, "text-anchor": "middle" }, scene.format(tick)));
  }
  parts.push(svg("text", { class: "note", x: LEFT, y: y + 27 }, scene.xTitle));
  target.setAttribute("height", y + 32);
  target.setAttribute("aria-label", scene.label);
  target.replaceChildren(...parts, ...labels);
}

function drawBlock(block, { x, top, height, unit }, parts, labels, state) {
  const bottom = top + height - Number(block.offset) * unit;
  const tall = Math.max(Number(block.size) * unit, 0.75);
  block.spans.forEach(([begin, end], i) => {
    const left = x(begin), wide = Math.max(x(end) - left, 0.75);
    const names = ["block", block.kind, block.atPeak ? "peak" : "", block.fault ? "fault" : ""];
    if (tall < 3 || wide < 3) names.push("hair");
    parts.push(
      svg("rect", {
        class: [...names, ...state.classes(block)].filter(Boolean).join(" "),
        x: left, y: bottom - tall, width: wide, height: tall,
        "data-key": block.key,
        role: i ? null : "button",
        tabindex: i ? null : block.key === state.focus ? 0 : -1,
        "aria-label": i ? null : block.text(),
      }),
    );
    const text = tall >= 13 && wide >= 34 ? shortened(block.name, wide - 8) : "";
    if (text) labels.push(svg("text", { x: left + 4, y: bottom - tall + Math.min(tall / 2 + 4, 13) }, text));
    else if (wide >= 13 && tall >= 40) {
      const turn = `translate(${left + wide / 2 + 4} ${bottom - 5}) rotate(-90)`;
      labels.push(svg("text", { transform: turn }, shortened(block.name, tall - 10)));
    }
  });
}

// -- line charts ---------------------------------------------------------------------------------------------
// series: [{ name, points: [[x, y], …] (steps), area }]; levels: [{ value, text }]

function drawChart(target, { series, levels = [], x: [low, high], format, height = 130, unit = humanBytes, most, peak, label }) {
  const width = target.clientWidth || 800, plot = width - LEFT - RIGHT, top = 16;
  const highest = most ?? Math.max(1, ...series.flatMap((s) => s.points.map((p) => p[1])), ...levels.map((l) => l.value));
  const x = (value) => LEFT + ((value - low) / (high - low || 1)) * plot;
  const y = (value) => top + height - (value / highest) * height;
  const parts = [svg("rect", { class: "band", x: LEFT, y: top, width: plot, height })];
  const ticks = unit === humanBytes ? byteTicks(highest, height / 32) : roundTicks(0, highest, height / 32);
  for (const tick of ticks) {
    parts.push(
      svg("line", { class: "rule", x1: LEFT, x2: LEFT + plot, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "axis", x: LEFT - 7, y: y(tick) + 4, "text-anchor": "end" }, unit(tick)),
    );
  }
  for (const { name, points, area } of series) {
    if (!points.length) continue;
    let path = `M${x(points[0][0])},${area ? y(0) : y(points[0][1])}`;
    for (const [px, py] of points) path += `H${x(px).toFixed(2)}V${y(py).toFixed(2)}`;
    path += `H${x(high).toFixed(2)}`;
    parts.push(svg("path", { class: area ? "area" : `line ${name}`, d: area ? `${path}V${y(0)}Z` : path }));
  }
  for (const { value, text, anchor = "end" } of levels) {
    parts.push(
      svg("line", { class: "level", x1: LEFT, x2: LEFT + plot, y1: y(value), y2: y(value) }),
      svg("text", { x: anchor === "end" ? LEFT + plot - 4 : LEFT + 4, y: y(value) - 4, "text-anchor": anchor }, text),
    );
  }
  if (peak !== null && peak !== undefined) {
    parts.push(svg("line", { class: "peakline", x1: x(peak), x2: x(peak), y1: top, y2: top + height }));
  }
  if (format) {
    for (const tick of roundTicks(low, high, Math.max(2, plot / 90))) {
      parts.push(svg("text", { class: "axis", x: x(tick), y: top + height + 14, "text-anchor": "middle" }, format(tick)));
    }
  }
  target.setAttribute("height", top + height + (format ? 20 : 6));
  target.setAttribute("aria-label", label);
  target.replaceChildren(...parts);
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

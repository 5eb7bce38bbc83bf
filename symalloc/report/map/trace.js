// The page of an allocation trace: blocks by address over the events, fragmentation, and who holds what at a moment.

function tracePage(data) {
  const moments = data.moments.map(([event, time, ...sizes]) => [event, time, ...sizes.map(BigInt)]);
  const all = data.blocks.map(([name, begin, end, offset, bytes, call], i) => blockOf(i, name, begin, end ?? data.end, end === null, BigInt(offset), BigInt(bytes), call));
  const highest = moments.reduce((best, m, i) => (m[2] > moments[best][2] ? i : best), 0);
  let index = highest, scene = null;

  // an event, and when it was; of many only some are in the data
  function time(event) {
    if (!data.timed) return `event ${event}`;
    const since = moments[Math.max(0, firstWhere(moments.length, (i) => moments[i][0] > event) - 1)]?.[1] ?? 0;
    const said = since < 1e4 ? `${since} ns` : since < 1e7 ? `${(since / 1e3).toFixed(1)} µs` : since < 1e10 ? `${(since / 1e6).toFixed(1)} ms` : `${(since / 1e9).toFixed(2)} s`;
    return `event ${event} (${said})`;
  }

  function blockOf(i, name, begin, end, kept, offset, size, call) {
    const until = kept ? "never freed" : `freed at ${time(end)}`;
    return {
      key: String(i), name, label: name, short: name, band: 0, spans: [[begin, end]], size, offset, kind: `tint${i % 3}`, atPeak: false, fault: false, call, until,
      place: Number(offset), search: name.toLowerCase(),
      text: () => `${name}: ${humanBytes(size)}, allocated at ${time(begin)}, ${until}`,
    };
  }

  const heldAt = (moment) => all.filter(({ spans: [[begin, end]] }) => begin <= moment && moment < end);

  const model = {
    scene: () => scene, blocks: () => all, redraw: () => draw(), searched: () => drawHeld(), reveal: () => {},
    paint: (map, state) => drawMap(map, scene, state),
    hint: "Point at a block, or reach it with Tab and the arrow keys. Drag over a stretch of time to enlarge it.",
    sharing: (block) => all.filter((o) => o !== block && o.offset < block.offset + block.size && block.offset < o.offset + o.size),
    details: (block) => {
      const share = model.sharing(block);
      const rows = [["bytes", exactBytes(block.size)], ["address", exactBytes(block.offset)], ["allocated", `at ${time(block.spans[0][0])}`], ["freed", block.until]];
      if (block.call) rows.push(["call", String(block.call)]);
      const parts = [html("h2", {}, block.name), facts(rows)];
      if (share.length) parts.push(html("p", { class: "muted" }, `${share.length} others lie there at other times:`), blockLinks(share, explore.pick));
      return parts;
    },
  };
  const explore = explorer(model);

  function controls() {
    const slider = html("input", { type: "range", min: 0, max: Math.max(0, moments.length - 1), "aria-label": "moment" });
    const label = html("output", { class: "number" });
    const go = html("button", { type: "button" }, "the peak");
    const show = () => {
      slider.value = index;
      label.textContent = moments.length ? time(moments[index][0]) : "";
      slider.setAttribute("aria-valuetext", label.textContent);
    };
    slider.addEventListener("input", () => { index = Number(slider.value); show(); draw(); });
    go.addEventListener("click", () => { index = highest; show(); draw(); });
    show();
    at("controls").replaceChildren(html("div", { class: "symbol" }, html("span", {}, "moment"), slider, label), html("div", { class: "row presets" }, go));
  }

  function draw() {
    const now = moments[index] ?? [0, 0, 0n, 0n, 0n];
    const moment = now[0];
    for (const block of all) block.atPeak = block.spans[0][0] <= moment && moment < block.spans[0][1];
    const bytes = all.reduce((most, b) => (b.offset + b.size > most ? b.offset + b.size : most), 0n);
    const bands = all.length ? [{ title: "addresses", bytes, size: Number(bytes), blocks: all }] : [];
    const span = [0, Math.max(1, data.end)], x = explore.state.part ?? span;
    scene = { bands, span, x, format: String, xTitle: "event of the trace", peak: moment, label: `Blocks of ${data.name}, addresses against events` };
    explore.draw();
    const line = (column) => moments.map((m) => [m[0], Number(m[column])]);
    const share = moments.map((m) => [m[0], m[4] ? Number(m[4] - m[2]) / Number(m[4]) : 0]);
    drawChart(at("profile"), { series: [{ name: "ours", points: line(2), area: true }, { name: "bounded", points: line(4) }], x, height: 90, peak: moment, label: `Live and reserved bytes; at most ${humanBytes(BigInt(data.peak.live))} live, ${humanBytes(BigInt(data.peak.reserved))} reserved` });
    at("legend").replaceChildren(colourKey("k-block", "block"), colourKey("k-peak", "live at the moment"), "below: live bytes", lineKey("bounded", "reserved"));
    at("call").querySelector("h2").textContent = "Share of the reserved bytes that is not live";
    drawChart(at("call").querySelector("svg"), { series: [{ name: "free", points: share }], x, height: 70, most: 1, unit: (v) => `${Math.round(100 * v)} %`, peak: moment, label: "Reserved bytes that are not live, as a share" });
    at("call").querySelector("p").replaceChildren();
    const peak = data.peak;
    at("numbers").replaceChildren(
      bars(`At ${time(moment)}`, [["Live", "ours", now[2], "live"], ["Used, rounded", "free", now[3], "used"], ["Reserved", "bounded", now[4], "reserved"]]),
      bars("At most", [["Live", "ours", BigInt(peak.live), "peak_live"], ["Used, rounded", "free", BigInt(peak.used), "peak_used"], ["Reserved", "bounded", BigInt(peak.reserved), "peak_reserved"]]),
    );
    const ratio = Number(peak.live) ? ` (${(Number(peak.reserved) / Number(peak.live)).toFixed(3)} of it reserved)` : "";
    const left = data.all_blocks > all.length ? `, of which the page has the ${all.length} largest` : "";
    const failed = data.failed ? ` It ends there: ${data.failed}` : "";
    at("summary").textContent = `${data.name}: ${data.all_blocks} blocks${left}, at most ${humanBytes(BigInt(peak.live))} live${ratio}; ${humanBytes(BigInt(data.given_back))} given back in ${data.decommits} operations.${failed}`;
  }

  function drawHeld() {
    const query = explore.state.query, moment = moments[index]?.[0] ?? 0;
    const byName = new Map();
    for (const block of heldAt(moment)) {
      if (query && !block.search.includes(query)) continue;
      const so = byName.get(block.name) ?? { bytes: 0n, blocks: [] };
      byName.set(block.name, { bytes: so.bytes + block.size, blocks: [...so.blocks, block] });
    }
    const rows = [...byName].sort(([, a], [, b]) => (b.bytes > a.bytes ? 1 : b.bytes < a.bytes ? -1 : 0)).slice(0, 100).map(([name, { bytes, blocks }]) => {
      const link = html("button", { class: "link", type: "button" }, name);
      link.addEventListener("click", () => explore.pick(blocks[0].key, { pin: true, focus: true }));
      return [link, humanBytes(bytes), blocks.length];
    });
    const among = data.all_blocks > all.length ? ` (among the ${all.length} largest blocks)` : "";
    at("tables").replaceChildren(html("h2", {}, `Held at ${time(moment)}${among}`), table([{ text: "name" }, { text: "bytes", class: "number" }, { text: "blocks", class: "number" }], rows, { id: "held" }));
  }

  at("part").hidden = true;
  at("search").placeholder = "name  ( / )";
  controls();
  draw();
}

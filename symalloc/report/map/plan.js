// The page of a plan: sliders for the symbols; everything is computed again from the formulas.

const WHO = {
  ours: ["Our plan", "ours"], unplanned: ["Without a plan", "unplanned"],
  tvm_bounded: ["TVM, its bounds", "bounded"], tvm_unbounded: ["TVM, no bounds", "free"],
};
const largest = (values) => (values.includes(null) ? null : values.reduce((a, b) => (b > a ? b : a), 0n));
const sum = (values) => (values.includes(null) ? null : values.reduce((a, b) => a + b, 0n));
const padded = (size) => (size === null ? null : -floorDivided(-size, 64n) * 64n);

// the bytes of a call at each step, as [[step, bytes], …], results included or not; null: not known here, but for `known`,
// which leaves out what is not known
function heldOver(call, value, results, known = false) {
  const changes = new Array(call.steps + 1).fill(0n);
  for (const [bytes, begin, end, why] of call.held) {
    if (why === "result" && !results) continue;
    const size = padded(value(bytes));
    if (size === null && known) continue;
    if (size === null) return null;
    changes[begin] += size;
    changes[end] -= size;
  }
  let now = 0n;
  return changes.map((change, step) => [step, (now += change)]);
}
const peakOf = (steps) => steps.reduce((most, [, bytes]) => (bytes > most ? bytes : most), 0n);

// all numbers of a function at a binding, by the names that the samples of the plan's JSON have
function numbersOf(fn, value) {
  const all = (list) => list.map(value);
  const calls = Object.fromEntries(Object.keys(WHO).map((who) => [who, fn.calls[who]]));
  const peak = (who, results, known) => {
    const steps = calls[who] ? heldOver(calls[who], value, results, known) : null;
    return steps === null ? null : peakOf(steps);
  };
  const broken = fn.guards.filter((guard) => value(guard.condition) === false);
  const fallsBack = fn.calls.fallback && broken.some((guard) => guard.after === null);
  const planned = fn.arenas.flatMap((arena) => arena.buffers.filter((b) => !b.returned));
  return {
    arena: largest(all(fn.reserved)),
    floor: sum(fn.floor.map((floor) => largest(all(floor.sums)))),
    unshared: sum(planned.map((buffer) => value(buffer.bytes))),
    returned: sum(all(fn.returned)),
    made: sum(fn.made.map((m) => value(m.bytes))),
    unplanned: sum(fn.unplanned.map((u) => value(u.bytes))),
    carried: sum(fn.carried.map((c) => value(c.bytes))),
    workspace: largest(fn.kernels.map((k) => value(k.bytes))),
    tvm_bounded: peak("tvm_bounded", false),
    tvm_unbounded: peak("tvm_unbounded", false),
    call: peak(fallsBack ? "unplanned" : "ours", true),
    call_unplanned: peak("unplanned", true),
    known_call: peak(fallsBack ? "unplanned" : "ours", true, true),
    known_unplanned: peak("unplanned", true, true),
    call_tvm_bounded: peak("tvm_bounded", true),
    call_tvm_unbounded: peak("tvm_unbounded", true),
    refused: broken.length > 0,
    broken, fallsBack,
  };
}

// bytes of planned tensors that are live at each step, as [[step, bytes], …]
function liveOver(arenas, value) {
  const changes = new Map();
  for (const arena of arenas) {
    for (const buffer of arena.buffers) {
      const size = value(buffer.bytes);
      if (buffer.returned || size === null) continue;
      for (const [begin, end] of buffer.live) {
        changes.set(begin, (changes.get(begin) ?? 0n) + size);
        changes.set(end, (changes.get(end) ?? 0n) - size);
      }
    }
  }
  let now = 0n;
  return [...changes].sort((a, b) => a[0] - b[0]).map(([step, change]) => [step, (now += change)]);
}

function planPage(data) {
  let fn = data.functions[0], view = "ours", part = "all", numbers = {}, values = [], blocks = [], scene = null;
  const bindings = new Map(data.functions.map((f) => [f.function, mapped(f.start)]));
  const binding = () => bindings.get(fn.function);
  const value = (size) => (size === null ? null : values[data.formulas[size.f][1]]);
  const text = (size) => (size === null ? "not known" : data.formulas[size.f][0]);
  const names = (f, name) => f.function === fn.function && (f.binds === name || f.message.includes(`\`${name}\``));
  const faults = (name) => data.findings.filter((f) => names(f, name));

  function mapped(start) {
    return Object.fromEntries(Object.entries(start).map(([name, number]) => [name, BigInt(number)]));
  }

  const model = {
    scene: () => scene, blocks: () => blocks, redraw: () => draw(), searched: () => drawTable(),
    hint: "Point at a rectangle, or reach it with Tab and the arrow keys: its name, size and formula, when it is live, and which tensors share its bytes.",
    sharing(block) {
      return blocks.filter((other) => other !== block && other.band === block.band &&
        other.offset < block.offset + block.size && block.offset < other.offset + other.size);
    },
    details,
    reveal(block) {
      part = String(block.band);
      choices();
      draw();
    },
  };
  const explore = explorer(model);

  // -- scenes --

  function ourScene() {
    const live = liveOver(fn.arenas, value);
    const most = peakOf(live), peak = live.find(([, bytes]) => bytes === most)?.[0] ?? null;
    const last = Math.max(1, ...fn.arenas.flatMap((a) => a.buffers.flatMap((b) => b.live.flat())));
    const bands = fn.arenas.map((arena, i) => {
      const bytes = value(arena.bytes);
      const where = arena.result === null ? `device ${arena.device}, ${arena.scope}` : `in the memory of the result ${arena.result}`;
      const after = arena.after === null ? "" : `, reserved behind ${arena.after}`;
      const title = `arena ${i + 1} (${where}${after})`;
      return { title, bytes, size: Number(bytes ?? 0n), blocks: arena.buffers.flatMap((b) => ourBlock(b, i, title, peak)) };
    });
    return { bands, x: [0, last], discrete: true, peak, live };
  }

  function ourBlock(buffer, band, title, peak) {
    const size = value(buffer.bytes), offset = value(buffer.offset);
    if (size === null || offset === null) return [];
    const atPeak = peak !== null && size > 0n && buffer.live.some(([begin, end]) => begin <= peak && peak < end);
    const { name } = buffer;
    const live = buffer.live.map(([begin, end]) => `[${begin}, ${end})`).join(" ");
    const found = faults(name);
    const kind = buffer.returned ? "result" : `tint${buffer.id % 3}`;
    return [{
      key: String(buffer.id), name, operator: buffer.operator ?? null, source: buffer.source ?? null, band, title, size, offset, spans: buffer.live, kind, atPeak, live,
      fault: found.length > 0, faults: found, place: band * 1e18 + Number(offset), sizeText: text(buffer.bytes), offsetText: text(buffer.offset),
      search: [name, buffer.operator ?? "", buffer.source ?? "", text(buffer.bytes), text(buffer.offset)].join("\n").toLowerCase(),
      text: () => `${name}${buffer.operator ? ` (${buffer.operator})` : ""}: ${humanBytes(size)} at ${humanBytes(offset)} of arena ${band + 1}, live ${live}${atPeak ? ", at the peak" : ""}${found.length ? `, ${found.map((f) => f.rule).join(" ")}` : ""}`,
    }];
  }

  // what another planner reserves: every storage has bytes of its own, one above the other
  function otherScene(who) {
    const call = fn.calls[who];
    const steps = heldOver(call, value, true) ?? [];
    const most = peakOf(steps), peak = steps.find(([, bytes]) => bytes === most)?.[0] ?? null;
    const last = Math.max(1, call.steps);
    const groups = [["storages", "storage", ["storage"]], ["tensors with memory of their own", "tensor", ["tensor", "packed"]], ["results", "result", ["result"]]]
      .map(([title, word, kinds]) => [title, word, call.held.filter(([, , , why]) => kinds.includes(why))]);
    const bands = groups.filter(([, , held]) => held.length).map(([title, word, held], band) => {
      let offset = 0n;
      const inside = held.flatMap(([bytes, begin, end], i) => {
        const size = padded(value(bytes)), name = `${word} ${i + 1}`;
        if (size === null) return [];
        const atPeak = peak !== null && begin <= peak && peak < end;
        const block = {
          key: `${word}${i}`, name, operator: null, source: null, band, title, size, offset, spans: [[begin, end]], live: `[${begin}, ${end})`,
          kind: word === "result" ? "result" : `tint${i % 3}`, atPeak: atPeak && word !== "result", fault: false, faults: [], place: band * 1e18 + Number(offset),
          sizeText: text(bytes), offsetText: null, search: `${name}\n${text(bytes)}`.toLowerCase(),
          text: () => `${name}: ${humanBytes(size)}, held from ${begin} to ${end}`,
        };
        offset += size;
        return [block];
      });
      return { title, bytes: offset, size: Number(offset), blocks: inside };
    });
    return { bands, x: [0, last], discrete: false, peak, live: steps };
  }

  // -- details --

  function details(block) {
    const share = view === "ours" ? model.sharing(block) : [];
    const rows = [["bytes", exactBytes(block.size)], ["formula", `${block.sizeText} B`, true]];
    if (block.source) rows.unshift(["from", block.source]);
    if (block.operator !== null) rows.unshift(["operator", block.operator]);
    if (block.offsetText !== null) rows.push(["offset", exactBytes(block.offset)], ["formula", block.offsetText, true]);
    rows.push([view === "ours" ? "live" : "held", `${block.live}${block.atPeak ? ", at the peak" : ""}`], ["in", block.title]);
    const parts = [html("h2", {}, block.name), facts(rows)];
    for (const fault of block.faults) parts.push(html("p", { class: "notice" }, `${fault.rule}: ${fault.message}`));
    if (share.length) parts.push(html("p", { class: "muted" }, `shares bytes with ${share.length}, at other times:`), blockLinks(share, explore.pick));
    return parts;
  }

  // -- controls --

  function sliderRange(symbol) {
    const seen = fn.samples.map((s) => BigInt(s.binding[symbol.name] ?? 1));
    const high = [...seen, binding()[symbol.name], 1024n].reduce((a, b) => (b > a ? b : a));
    return Number(symbol.upper === null ? high : BigInt(symbol.upper) * 2n > high ? BigInt(symbol.upper) * 2n : high);
  }

  function controls() {
    const rows = fn.symbols.map((symbol) => {
      const high = sliderRange(symbol), { name } = symbol;
      const place = (number) => (number < 1n ? 0 : Math.min(1000, Math.round((1000 * Math.log(Number(number))) / Math.log(high))));
      const slider = html("input", { type: "range", min: 0, max: 1000, "aria-label": `${name}, slider`, "data-symbol": name });
      const entry = html("input", { type: "text", inputmode: "numeric", "aria-label": name, "data-entry": name });
      const show = (moved) => {
        const now = binding()[name];
        if (!moved) slider.value = place(now);
        slider.setAttribute("aria-valuetext", String(now));
        entry.value = String(now);
        entry.removeAttribute("aria-invalid");
      };
      slider.addEventListener("input", () => {
        set({ [name]: BigInt(Math.max(1, Math.round(high ** (slider.value / 1000)))) });
        show(true);
      });
      entry.addEventListener("change", () => {
        const given = /^\s*-?\d{1,19}\s*$/.test(entry.value) ? BigInt(entry.value.trim()) : null;
        if (given === null) return entry.setAttribute("aria-invalid", "true");
        set({ [name]: given });
        show();
      });
      show();
      const bound = symbol.upper === null ? "" : ` (declared at most ${symbol.upper})`;
      return { show, row: html("div", { class: "symbol" }, html("span", { class: "mono", title: `${name}${bound}` }, `${name} =`), slider, entry) };
    });
    const presets = fn.samples.filter((s) => fn.symbols.every(({ name }) => name in s.binding) && fn.symbols.length).map((sample) => {
      const what = fn.symbols.map(({ name }) => (fn.symbols.length === 1 ? sample.binding[name] : `${name}=${sample.binding[name]}`)).join(" ");
      const mark = sample.label === "bound" ? " (bound)" : sample.label === "beyond" ? " (past it)" : "";
      const button = html("button", { type: "button" }, `${what}${mark}`);
      button.addEventListener("click", () => {
        set(mapped(sample.binding));
        rows.forEach((row) => row.show());
      });
      return button;
    });
    at("controls").replaceChildren(...rows.map((r) => r.row), presets.length ? html("div", { class: "row presets" }, ...presets) : "", html("p", { id: "notice", class: "notice", role: "status" }));
  }

  let waiting = false;
  function set(changes) {
    Object.assign(binding(), changes);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      compute();
      draw();
    });
  }

  // -- drawing --

  function compute() {
    values = evaluated(data.nodes, binding());
    numbers = numbersOf(fn, value);
  }

  function draw() {
    if (view !== "ours" && !fn.calls[view]) view = "ours";
    const whole = view === "ours" ? ourScene() : otherScene(view);
    const bands = view === "ours" && part !== "all" ? whole.bands.filter((_, i) => String(i) === part) : whole.bands;
    const stepped = view === "ours" ? "step of the call, in the order of its text" : "program point";
    scene = { ...whole, bands, format: String, xTitle: stepped, label: `Map of ${fn.function}: ${bands.length} stretches of memory, bytes against time` };
    blocks = bands.flatMap((band) => band.blocks);
    explore.draw();
    drawNotice();
    drawNumbers();
    drawProfile(whole);
    drawCall();
  }

  function drawNotice() {
    const over = fn.symbols.filter((s) => s.upper !== null && binding()[s.name] > BigInt(s.upper)).map((s) => s.name);
    const parts = [];
    if (numbers.refused) parts.push(numbers.fallsBack ? "Here a call runs without the plan: " : "Here a call is refused: ", numbers.broken.map((guard) => text(guard.condition)).join("; "), " does not hold. ");
    if (over.length) parts.push(`Past the declared bound of ${over.join(", ")}.`);
    at("notice").textContent = parts.join("");
  }

  function drawNumbers() {
    const over = fn.symbols.some((s) => s.upper !== null && binding()[s.name] > BigInt(s.upper));
    const planned = [["Arenas", "ours", numbers.arena, "arena"], ["Floor", "free", numbers.floor, "floor"], ["Without reuse", "unplanned", numbers.unshared, "unshared"]];
    const least = (bytes, known) => (bytes === null && known !== null ? `>= ${humanBytes(known)}` : undefined);
    const call = [["Our plan", "ours", numbers.call, "call", least(numbers.call, numbers.known_call)], ["Without a plan", "unplanned", numbers.call_unplanned, "call_unplanned", least(numbers.call_unplanned, numbers.known_unplanned)]];
    if (fn.calls.tvm_bounded) call.push(["TVM, its bounds", "bounded", numbers.call_tvm_bounded, "call_tvm_bounded", over ? "overruns" : undefined]);
    if (fn.calls.tvm_unbounded) call.push(["TVM, no bounds", "free", numbers.call_tvm_unbounded, "call_tvm_unbounded"]);
    const other = [["Results", "returned"], ["In donated inputs", "carried"], ["Made by calls", "made"], ["Unplanned", "unplanned"], ["Workspace", "workspace"]]
      .filter(([, key]) => numbers[key] !== 0n).map(([label, key]) => [label, "unplanned", numbers[key], key]);
    at("numbers").replaceChildren(bars("Planned tensors", planned), bars("Whole call, with results", call), ...(other.length ? [bars("Outside the arenas", other)] : []));
    const less = numbers.floor !== null && numbers.arena !== null && numbers.arena < numbers.floor;
    const ratio = less ? "; the rest of the floor lies in results" : numbers.floor ? `, ${(Number(numbers.arena) / Number(numbers.floor)).toFixed(3)} of the floor` : "";
    at("summary").textContent = `${fn.function}: ${fn.arenas.reduce((n, a) => n + a.buffers.length, 0)} tensors in ${fn.arenas.length} ${fn.arenas.length === 1 ? "arena" : "arenas"}, ${humanBytes(numbers.arena)}${ratio}`;
  }

  function drawProfile(whole) {
    const asNumbers = whole.live.map(([step, bytes]) => [step, Number(bytes)]);
    const most = peakOf(whole.live);
    const levels = [{ value: Number(most), text: `peak ${humanBytes(most)} at ${Math.floor(whole.peak ?? 0)}`, anchor: "start" }];
    if (view === "ours" && numbers.arena !== null && numbers.arena !== most) levels.push({ value: Number(numbers.arena), text: `arenas ${humanBytes(numbers.arena)}` });
    const what = view === "ours" ? "Bytes of live planned tensors" : "Bytes held";
    drawChart(at("profile"), { series: [{ name: "ours", points: asNumbers, area: true }], levels, x: whole.x, height: 70, peak: whole.peak === null ? null : whole.peak + (whole.discrete ? 0.5 : 0), label: `${what}, ${levels[0].text}` });
    const kinds = new Set(blocks.map((b) => (b.fault ? "fault" : b.kind)));
    const texts = { result: "result", fault: "finding of the linter" };
    at("legend").replaceChildren(colourKey("k-block", "tensor"), colourKey("k-peak", "live at the peak"), ...["result", "fault"].filter((k) => kinds.has(k)).map((k) => colourKey(`k-${k}`, texts[k])), `below: ${what.toLowerCase()}`);
  }

  function drawCall() {
    const series = [];
    for (const who of Object.keys(WHO)) {
      const steps = fn.calls[who] ? heldOver(fn.calls[who], value, true) : null;
      if (steps === null || !steps.length) continue;
      const last = steps.at(-1)[0] || 1;
      series.push({ who, name: WHO[who][1], points: steps.map(([point, bytes]) => [point / last, Number(bytes)]) });
    }
    at("call").hidden = !series.length;
    at("call").querySelector("h2").textContent = "What the whole call holds, results included, from its beginning to its end";
    drawChart(at("call").querySelector("svg"), { series: series.reverse(), x: [0, 1], height: 150, label: series.map((s) => `${WHO[s.who][0]}: at most ${humanBytes(BigInt(Math.max(...s.points.map((p) => p[1]))))}`).join("; ") });
    at("call").querySelector("p").replaceChildren(...series.reverse().map((s) => lineKey(s.name, `${WHO[s.who][0]}, at most ${humanBytes(BigInt(Math.max(...s.points.map((p) => p[1]))))}`)));
  }

  let order = "size", rowsShown = 20;
  function drawTable() {
    const query = explore.state.query;
    const by = { name: (a, b) => a.name.localeCompare(b.name), size: (a, b) => (b.size > a.size ? 1 : b.size < a.size ? -1 : 0), offset: (a, b) => a.place - b.place, live: (a, b) => a.spans[0][0] - b.spans[0][0] }[order];
    const listed = blocks.filter((b) => !query || b.search.includes(query)).sort(by);
    const head = (key, label, name) => {
      const button = html("button", { type: "button", "aria-pressed": null }, `${label}${order === key ? " ▾" : ""}`);
      button.addEventListener("click", () => { order = key; drawTable(); });
      return { text: button, class: name };
    };
    const rows = listed.slice(0, rowsShown).map((b) => {
      const link = html("button", { class: "link", type: "button" }, b.name);
      link.addEventListener("click", () => explore.pick(b.key, { pin: true, focus: true }));
      return [link, b.operator ?? "", humanBytes(b.size), b.sizeText, `${b.band + 1}`, humanBytes(b.offset), b.live];
    });
    const heads = [head("name", "tensor"), { text: "operator" }, head("size", "bytes", "number"), { text: "formula", class: "mono" }, { text: view === "ours" ? "arena" : "group", class: "number" }, head("offset", "offset", "number"), head("live", "live", "live")];
    const skip = rows.some((row) => row[1]) ? [] : [1];
    const without = (row) => row.filter((_, i) => !skip.includes(i));
    const parts = [html("h2", {}, `Tensors${query ? ` that match “${query}”` : ""}: ${listed.length}`), table(without(heads), rows.map(without), { id: "tensors" })];
    if (listed.length > rowsShown) {
      const more = html("button", { type: "button" }, `show all ${listed.length}`);
      more.addEventListener("click", () => { rowsShown = Infinity; drawTable(); });
      parts.push(more);
    }
    at("tables").replaceChildren(...parts, ...outside());
  }

  function outside() {
    const parts = [];
    const add = (title, heads, rows) => {
      if (rows.length) parts.push(html("details", { open: true }, html("summary", {}, title), table(heads, rows)));
    };
    const sized = [{ text: "bytes", class: "number" }, { text: "formula", class: "mono" }];
    const both = (size) => [humanBytes(value(size)), text(size)];
    add("Results with memory of their own", sized, fn.returned.map(both));
    add("Results in donated inputs", [{ text: "result" }, { text: "input" }, ...sized], fn.carried.map((c) => [c.output, c.input, ...both(c.bytes)]));
    add("Made by calls", [{ text: "by" }, ...sized], fn.made.map((m) => [m.by, ...both(m.bytes)]));
    add("Unplanned", [{ text: "tensor" }, ...sized, { text: "why" }], fn.unplanned.map((u) => [u.name, ...both(u.bytes), u.reason]));
    add("Kernels with workspace", [{ text: "kernel" }, { text: "calls", class: "number" }, ...sized], fn.kernels.map((k) => [k.name, k.calls, ...(k.problem === null ? both(k.bytes) : ["-", k.problem])]));
    add("Packed functions, whose memory is not known", [{ text: "name" }], fn.packed.map((name) => [name]));
    return parts;
  }

  function drawFindings() {
    const list = data.findings.map((f) => {
      const block = blocks.find((b) => b.faults.includes(f));
      const label = `${f.severity}[${f.rule}] ${f.message}${f.at ? ` (at ${f.at})` : ""}`;
      if (!block) return html("li", {}, label);
      const link = html("button", { class: "link", type: "button" }, label);
      link.addEventListener("click", () => explore.pick(block.key, { pin: true, focus: true }));
      return html("li", {}, link);
    });
    at("findings").replaceChildren(...(list.length ? [html("h2", {}, `Findings of the linter: ${list.length}`), html("ul", {}, ...list)] : []));
  }

  function choices() {
    const buttons = (target, entries, now, choose) =>
      at(target).replaceChildren(...(entries.length < 2 ? [] : entries.map(([key, label]) => {
        const button = html("button", { type: "button", "aria-pressed": String(key === now()) }, label);
        button.addEventListener("click", () => choose(key));
        return button;
      })));
    buttons("functions", data.functions.map((f) => [f.function, f.function]), () => fn.function, (name) => {
      fn = data.functions.find((f) => f.function === name);
      [view, part] = ["ours", "all"];
      start();
    });
    buttons("views", Object.entries(WHO).filter(([who]) => fn.calls[who]).map(([who, [label]]) => [who, label]), () => view, (who) => {
      [view, part] = [who, "all"];
      choices();
      draw();
    });
    const select = at("part").querySelector("select");
    at("part").hidden = fn.arenas.length < 2 || view !== "ours";
    select.replaceChildren(html("option", { value: "all" }, "all arenas"), ...fn.arenas.map((_, i) => html("option", { value: i }, `arena ${i + 1}`)));
    select.value = part;
    select.onchange = () => { part = select.value; draw(); };
  }

  function start() {
    choices();
    controls();
    compute();
    draw();
    drawFindings();
  }
  start();
  return { numbers: () => numbers, binding, evaluate: (nodes, at) => evaluated(nodes, at) };
}

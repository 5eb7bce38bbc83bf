// The page of a plan: sliders for the symbols; everything is computed again from the formulas.

const WHO = {
  ours: ["Our plan", "ours"], unplanned: ["Without a plan", "unplanned"],
  tvm_bounded: ["TVM, its bounds", "bounded"], tvm_unbounded: ["TVM, no bounds", "free"],
};
const largest = (values) => (values.includes(null) ? null : values.reduce((a, b) => (b > a ? b : a), 0n));
const sum = (values) => (values.includes(null) ? null : values.reduce((a, b) => a + b, 0n));
const padded = (size) => (size === null ? null : -floorDivided(-size, 64n) * 64n);

// the bytes of a call at each step, as [[step, bytes], …], results included; null: not known here, but for `known`,
// which leaves out what is not known
function heldOver(call, value, known = false) {
  const changes = new Array(call.steps + 1).fill(0n);
  for (const { bytes, live } of call.held) {
    const size = padded(value(bytes));
    if (size === null && known) continue;
    if (size === null) return null;
    for (const [begin, end] of live) {
      changes[begin] += size;
      changes[end] -= size;
    }
  }
  let now = 0n;
  return changes.map((change, step) => [step, (now += change)]);
}
const peakOf = (steps) => steps.reduce((most, [, bytes]) => (bytes > most ? bytes : most), 0n);
// the first step at which most bytes are held; null where none are
const stepOf = (steps, most) => steps.find(([, bytes]) => bytes === most && most > 0n)?.[0] ?? null;

const wholeStep = (step) => (Number.isInteger(step) ? String(step) : "");
const wholeIn = (text) => (/^\s*-?\d{1,19}\s*$/.test(text) ? BigInt(text.trim()) : null);
// bytes as the command line takes them, such as 1.5GiB; null for anything else
function bytesIn(text) {
  const found = /^\s*(\d{1,18})(?:\.(\d{1,18}))? ?(?:b|([kmgt])(i?)b)?\s*$/i.exec(text);
  if (found === null) return null;
  const [, whole, part = "", unit = " ", binary] = found;
  const factor = BigInt(binary ? 1024 : 1000) ** BigInt(" kmgt".indexOf(unit.toLowerCase()));
  return (BigInt(whole + part) * factor) / 10n ** BigInt(part.length);
}

// what `ours` saves of some bytes
function saved(ours, other) {
  const change = other > 0n ? (100 * (Number(other) - Number(ours))) / Number(other) : 0;
  return Math.abs(change) < 0.05 ? " (the same)" : change > 0 ? ` (${change.toFixed(1)} % saved)` : ` (${(-change).toFixed(1)} % more with ours)`;
}
const MEMORY = { storage: "a storage", tensor: "memory of its own", callee: "a function that is called", result: "the result" };

// all numbers of a function at a binding, by the names that the samples of the plan's JSON have
function numbersOf(fn, value) {
  const all = (list) => list.map(value);
  const calls = Object.fromEntries(Object.keys(WHO).map((who) => [who, fn.calls[who]]));
  const peak = (who, known) => {
    const steps = calls[who] ? heldOver(calls[who], value, known) : null;
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
    call: peak(fallsBack ? "unplanned" : "ours"),
    call_unplanned: peak("unplanned"),
    known_call: peak(fallsBack ? "unplanned" : "ours", true),
    known_unplanned: peak("unplanned", true),
    call_tvm_bounded: peak("tvm_bounded"),
    call_tvm_unbounded: peak("tvm_unbounded"),
    refused: broken.length > 0,
    broken, fallsBack,
  };
}

function planPage(data) {
  const tensors = (f) => f.arenas.reduce((count, arena) => count + arena.buffers.length, 0);
  let fn = data.functions.reduce((most, f) => (tensors(f) > tensors(most) ? f : most)), view = "ours", part = "all", budget = "", numbers = {}, values = [], blocks = [], scene = null;
  const bindings = new Map(data.functions.map((f) => [f.function, mapped(f.start)]));
  const binding = () => bindings.get(fn.function);
  const value = (size) => (size === null ? null : values[data.formulas[size.f][1]]);
  const text = (size) => (size === null ? "not known" : data.formulas[size.f][0]);
  const names = (f, name) => f.function === fn.function && (f.binds === name || f.message.includes(`\`${name}\``));
  const faults = (name) => data.findings.filter((f) => names(f, name));
  const beyond = () => fn.symbols.filter((s) => s.upper !== null && binding()[s.name] > BigInt(s.upper)).map((s) => s.name);

  function mapped(start) {
    return Object.fromEntries(Object.entries(start).map(([name, number]) => [name, BigInt(number)]));
  }

  const model = {
    scene: () => scene, blocks: () => blocks, redraw: () => draw(), searched: () => drawTables(), details,
    hint: "Point at a tensor, or reach it with Tab and the arrow keys: what writes it, its size and formula, when it is held, and which tensors share its bytes. Drag over a stretch of time to enlarge it.",
    paint: (map, state) => (view === "ours" ? drawMap(map, scene, state) : drawStack(map, { ...stackFrame(), height: 380, buttons: true }, state)),
    sharing(block) {
      return blocks.filter((other) => other !== block && other.band === block.band && block.offset !== null &&
        other.offset < block.offset + block.size && block.offset < other.offset + other.size);
    },
    reveal(block) {
      if (view !== "ours") return;
      part = String(block.band);
      choices();
      draw();
    },
  };
  const explore = explorer(model);

  // -- scenes --

  // `tensor`: a buffer of ours, or what another plan holds, as the data has it
  function blockOf(tensor, key, kind, peak, place) {
    const { name, operator, source, live } = tensor, found = faults(name), short = operator || name, apart = place.offset === null;
    const atPeak = peak !== null && place.size > 0n && live.some(([begin, end]) => begin <= peak && peak < end);
    const spans = live.map(([begin, end]) => `[${begin}, ${end})`).join(" ");
    const said = `${apart ? ", held" : ` at ${humanBytes(place.offset)} of arena ${place.band + 1}, live`} ${spans}${atPeak ? ", at the peak" : ""}`;
    return {
      ...place, key, name, operator, source, short, label: source ? `${short} ${source}` : short, until: tensor.until, spans: live, live: spans,
      kind, atPeak, fault: found.length > 0, faults: found, place: place.band * 1e18 + Number(place.offset ?? 0), sizeText: text(tensor.bytes),
      search: [name, operator, source, text(tensor.bytes), place.offsetText].join("\n").toLowerCase(),
      text: () => `${name}${operator ? ` (${operator})` : ""}: ${humanBytes(place.size)}${said}${found.map((f) => `, ${f.rule}`).join("")}`,
    };
  }

  function ourScene() {
    const held = fn.arenas.flatMap((arena) => arena.buffers.filter((b) => !b.returned));
    const last = fn.arenas.flatMap((arena) => arena.buffers).reduce((most, b) => Math.max(most, b.live.at(-1)?.[1] ?? 0), 1);
    const live = heldOver({ steps: last, held }, value, true), peak = stepOf(live, peakOf(live));
    const bands = fn.arenas.map((arena, band) => {
      const bytes = value(arena.bytes);
      const where = arena.result === null ? `device ${arena.device}, ${arena.scope}` : `in the memory of the result ${arena.result}`;
      const title = `arena ${band + 1} (${where}${arena.after === null ? "" : `, reserved behind ${arena.after}`})`;
      const inside = arena.buffers.map((buffer) => {
        const place = { band, title, size: value(buffer.bytes), offset: value(buffer.offset), offsetText: text(buffer.offset) };
        if (place.size === null || place.offset === null) return null;
        return blockOf(buffer, String(buffer.id), buffer.returned ? "result" : `tint${buffer.id % 3}`, buffer.returned ? null : peak, place);
      });
      return { title, bytes, size: Number(bytes ?? 0n), blocks: inside.filter(Boolean) };
    });
    return { bands, span: [0, last], discrete: true, peak, live };
  }

  // what a call holds by another plan, or by none: memory by itself has no place
  function otherScene(who) {
    const call = fn.calls[who], live = heldOver(call, value, true), peak = stepOf(live, peakOf(live));
    const held = call.held.map((tensor, i) => {
      const size = padded(value(tensor.bytes)), kind = tensor.kind === "result" ? "result" : `tint${i % 3}`;
      return size === null ? null : blockOf(tensor, String(i), kind, peak, { band: 0, title: MEMORY[tensor.kind], size, offset: null, offsetText: null });
    });
    return { bands: [{ blocks: held.filter(Boolean) }], span: [0, Math.max(1, call.steps)], discrete: true, peak, live };
  }

  // -- details --

  function details(block, time) {
    const share = model.sharing(block);
    const rows = [["operator", block.operator], ["from", block.source], ["bytes", exactBytes(block.size)], ["formula", `${block.sizeText} B`, true]];
    if (block.offset !== null) rows.push(["offset", exactBytes(block.offset)], ["formula", block.offsetText, true]);
    rows.push([view === "ours" ? "live" : "held", `${block.live}${block.atPeak ? ", at the peak" : ""}`], ["until", block.until], ["in", block.title]);
    const parts = [html("h2", {}, block.name), facts(rows.filter(([, said]) => said))];
    for (const fault of block.faults) parts.push(html("p", { class: "notice" }, `${fault.rule}: ${fault.message}`));
    if (share.length) parts.push(html("p", { class: "muted" }, `shares bytes with ${share.length}, at other times:`), blockLinks(share, explore.pick));
    const step = view === "ours" ? fn.graph?.nodes.find(({ live: [begin, end] }) => begin <= time && time < end) : undefined;
    if (step) parts.push(...edgesOf(step, time));
    return parts;
  }

  // what a step waits for, and what waits for it
  function edgesOf(step, time) {
    const side = (title, from, to) => {
      const found = fn.graph.edges.filter((edge) => edge[from] === step.number);
      const items = found.map((edge) => html("li", { class: `edge-${edge.kind}` }, `${fn.graph.nodes[edge[to]].operator} (call ${edge[to]}): ${edge.kind}${edge.names.length ? `, ${edge.names.join(", ")}` : ""}`));
      return found.length ? [html("p", { class: "muted" }, title), html("ul", {}, ...items)] : [];
    };
    return [html("h3", { id: "step" }, `step ${time}: ${step.operator} (call ${step.number})`), ...side("waits for", "target", "source"), ...side("is waited for by", "source", "target")];
  }

  // -- controls --

  function sliderRange({ name, upper }) {
    const seen = fn.samples.map((s) => BigInt(s.binding[name] ?? 1));
    return Number([...seen, binding()[name], upper === null ? 1024n : BigInt(upper) * 2n].reduce((a, b) => (b > a ? b : a)));
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
        const given = wholeIn(entry.value);
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
    const limit = html("input", { type: "text", id: "budget", placeholder: "such as 512MiB", value: budget, size: 14 });
    limit.addEventListener("change", () => {
      limit.setAttribute("aria-invalid", String(limit.value.trim() !== "" && bytesIn(limit.value) === null));
      budget = limit.value.trim();
      set({});
    });
    at("controls").replaceChildren(...rows.map((r) => r.row), html("div", { class: "row presets" }, ...presets, html("label", {}, "Budget ", limit)), html("p", { id: "fits" }), html("p", { id: "notice", class: "notice", role: "status" }));
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
      writeAddress();
    });
  }

  // -- the address: sizes by name, and what else is chosen, as `#n=128&--view=unplanned&--budget=1GiB` --

  function readAddress() {
    const said = new URLSearchParams(location.hash.slice(1));
    fn = data.functions.find((f) => f.function === said.get("--function")) ?? fn;
    view = Object.hasOwn(WHO, said.get("--view") ?? "") ? said.get("--view") : view;
    budget = said.get("--budget") ?? budget;
    for (const { name } of fn.symbols) binding()[name] = wholeIn(said.get(name) ?? "") ?? binding()[name];
  }

  function writeAddress() {
    const said = new URLSearchParams(Object.entries(binding()));
    if (data.functions.length > 1) said.set("--function", fn.function);
    if (view !== "ours") said.set("--view", view);
    if (budget) said.set("--budget", budget);
    history.replaceState(null, "", `#${said}`);
  }

  // -- drawing --

  function compute() {
    values = evaluated(data.nodes, binding());
    numbers = numbersOf(fn, value);
  }

  function draw() {
    if (view !== "ours" && !fn.calls[view]) view = "ours";
    const ours = view === "ours", whole = ours ? ourScene() : otherScene(view);
    const bands = ours && part !== "all" ? whole.bands.filter((_, i) => String(i) === part) : whole.bands;
    const label = ours ? `Map of ${fn.function}: ${bands.length} stretches of memory, bytes against time` : `What a call of ${fn.function} holds, bytes against time`;
    scene = { ...whole, bands, x: explore.state.part ?? whole.span, format: wholeStep, xTitle: "step of the call, in the order of its text", label };
    blocks = bands.flatMap((band) => band.blocks);
    explore.draw();
    at("profile").toggleAttribute("hidden", !ours);
    if (ours) drawStack(at("profile"), { ...stackFrame(), blocks: whole.bands.flatMap((b) => b.blocks).filter((b) => b.kind !== "result"), height: 130 }, explore.state);
    drawNotice();
    drawNumbers();
    drawLegend();
    drawCall();
  }

  // a line for the budget, where it is not far above all else
  function budgetLine(most) {
    const limit = bytesIn(budget);
    return limit === null || limit > 2n * most ? [] : [{ value: Number(limit), text: `budget ${humanBytes(limit)}`, name: "budget" }];
  }

  function stackFrame() {
    const ours = view === "ours", most = peakOf(scene.live);
    const levels = [{ value: Number(most), text: `peak ${humanBytes(most)} at ${scene.peak ?? 0}`, anchor: "start", name: "level" }];
    if (ours && numbers.arena !== null && numbers.arena !== most) levels.push({ value: Number(numbers.arena), text: `arenas ${humanBytes(numbers.arena)}`, name: "level" });
    if (!ours) levels.push(...budgetLine(most));
    const label = `${ours ? "Bytes of live planned tensors" : scene.label}, ${levels[0].text}`;
    return { blocks, steps: scene.live, x: scene.x, levels, highest: Math.max(1, ...levels.map((l) => l.value)), peak: scene.peak === null ? null : scene.peak + 0.5, format: ours ? null : wholeStep, label };
  }

  // what the plan gains, in one sentence, and how it does within the budget
  function drawNotice() {
    const over = beyond(), refused = numbers.refused && !numbers.fallsBack, limit = bytesIn(budget), parts = [];
    if (numbers.refused) parts.push(numbers.fallsBack ? "Here a call runs without the plan: " : "Here a call is refused: ", numbers.broken.map((guard) => text(guard.condition)).join("; "), " does not hold. ");
    if (over.length) parts.push(`Past the declared bound of ${over.join(", ")}.`);
    at("notice").textContent = parts.join("");
    const tvm = fn.calls.tvm_bounded && !over.length ? numbers.call_tvm_bounded : numbers.call_tvm_unbounded;
    const others = [["without a plan", numbers.call_unplanned], ["with TVM's plan", tvm]].filter(([, bytes]) => bytes !== null);
    const sizes = fn.symbols.map(({ name }) => `${name} = ${binding()[name]}`).join(", ");
    const held = refused ? "is refused" : numbers.call === null ? `holds ${numbers.known_call === null ? "" : `at least ${humanBytes(numbers.known_call)}, and `}not all of it is known`
      : [`holds at most ${humanBytes(numbers.call)}`, ...others.map(([how, bytes]) => `${how} ${humanBytes(bytes)}${saved(numbers.call, bytes)}`)].join("; ");
    at("gain").textContent = `${sizes ? `At ${sizes} a` : "A"} call ${held}.`;
    const fits = (bytes) => (bytes === null ? "takes what is not known" : bytes <= limit ? `fits, ${humanBytes(limit - bytes)} are left` : `takes ${humanBytes(bytes - limit)} too much`);
    const compared = () => [["with our plan", numbers.call], ...others].map(([how, bytes]) => `${how} a call ${fits(bytes)}`).join("; ");
    at("fits").textContent = limit === null || refused ? "" : `Budget ${humanBytes(limit)}, weights, inputs and workspace not counted: ${compared()}.`;
  }

  function drawNumbers() {
    const planned = [["Arenas", "ours", numbers.arena, "arena"], ["Floor", "free", numbers.floor, "floor"], ["Without reuse", "unplanned", numbers.unshared, "unshared"]];
    const least = (bytes, known) => (bytes === null && known !== null ? `>= ${humanBytes(known)}` : undefined);
    const call = [["Our plan", "ours", numbers.call, "call", least(numbers.call, numbers.known_call)], ["Without a plan", "unplanned", numbers.call_unplanned, "call_unplanned", least(numbers.call_unplanned, numbers.known_unplanned)]];
    if (fn.calls.tvm_bounded) call.push(["TVM, its bounds", "bounded", numbers.call_tvm_bounded, "call_tvm_bounded", beyond().length ? "overruns" : undefined]);
    if (fn.calls.tvm_unbounded) call.push(["TVM, no bounds", "free", numbers.call_tvm_unbounded, "call_tvm_unbounded"]);
    const other = [["Results", "returned"], ["In donated inputs", "carried"], ["Made by calls", "made"], ["Unplanned", "unplanned"], ["Workspace", "workspace"]]
      .filter(([, key]) => numbers[key] !== 0n).map(([label, key]) => [label, "unplanned", numbers[key], key]);
    at("numbers").replaceChildren(bars("Planned tensors", planned), bars("Whole call, with results", call), ...(other.length ? [bars("Outside the arenas", other)] : []));
    const less = numbers.floor !== null && numbers.arena !== null && numbers.arena < numbers.floor;
    const ratio = less ? "; the rest of the floor lies in results" : numbers.floor ? `, ${(Number(numbers.arena) / Number(numbers.floor)).toFixed(3)} of the floor` : "";
    at("summary").textContent = `${fn.function}: ${tensors(fn)} tensors in ${fn.arenas.length} ${fn.arenas.length === 1 ? "arena" : "arenas"}, ${humanBytes(numbers.arena)}${ratio}`;
  }

  function drawLegend() {
    const kinds = new Set(blocks.map((b) => (b.fault ? "fault" : b.kind))), ours = view === "ours";
    const texts = { result: "result", fault: "finding of the linter" };
    const found = ["result", "fault"].filter((kind) => kinds.has(kind)).map((kind) => colourKey(`k-${kind}`, texts[kind]));
    const few = blocks.length > (ours ? MOST_DRAWN : MOST_STACKED) ? "; only the largest are drawn by themselves, more of them in a part of the time" : "";
    at("legend").replaceChildren(colourKey("k-block", view.startsWith("tvm") ? "storage" : "tensor"), colourKey("k-peak", "at the peak"), ...found, `${ours ? "below: live bytes, tensor by tensor" : "bytes held, one above the other"}${few}`);
  }

  function drawCall() {
    const series = [];
    for (const who of Object.keys(WHO)) {
      const steps = fn.calls[who] ? heldOver(fn.calls[who], value) : null;
      if (steps === null || !steps.length) continue;
      const last = steps.at(-1)[0] || 1, most = peakOf(steps);
      series.push({ said: `${WHO[who][0]}, at most ${humanBytes(most)}`, most, name: WHO[who][1], points: steps.map(([point, bytes]) => [point / last, Number(bytes)]) });
    }
    at("call").hidden = !series.length;
    at("call").querySelector("h2").textContent = "What the whole call holds, results included, from its beginning to its end";
    drawChart(at("call").querySelector("svg"), { series: [...series].reverse(), levels: budgetLine(largest(series.map((s) => s.most))), x: [0, 1], height: 150, label: series.map((s) => s.said).join("; ") });
    at("call").querySelector("p").replaceChildren(...series.map((s) => lineKey(s.name, s.said)));
  }

  // -- tables --

  const ORDERS = {
    name: (a, b) => a.name.localeCompare(b.name), size: (a, b) => (b.size > a.size ? 1 : b.size < a.size ? -1 : 0),
    offset: (a, b) => a.place - b.place, live: (a, b) => a.spans[0][0] - b.spans[0][0],
  };
  let order = "size", rowsShown = 20;

  // by key: the head of a column, what it says of a block, its class
  function columns() {
    const most = Number(peakOf(scene.live)) || 1, placed = (said) => (b) => (b.offset === null ? "" : said(b));
    const link = (block) => {
      const button = html("button", { class: "link", type: "button" }, block.name);
      button.addEventListener("click", () => explore.pick(block.key, { pin: true, focus: true }));
      return button;
    };
    return {
      name: ["tensor", link], operator: ["operator", (b) => b.operator ?? ""], source: ["from", (b) => b.source ?? ""], until: ["held until", (b) => b.until ?? ""],
      size: ["bytes", (b) => humanBytes(b.size), "number"], share: ["of the peak", (b) => `${((100 * Number(b.size)) / most).toFixed(1)} %`, "number"], formula: ["formula", (b) => b.sizeText, "mono"],
      band: ["arena", placed((b) => `${b.band + 1}`), "number"], offset: ["offset", placed((b) => humanBytes(b.offset)), "number"], live: [view === "ours" ? "live" : "held", (b) => b.live, "live"],
    };
  }

  // a table of the first blocks; columns with nothing in them are left out, and where it is `sorted` heads sort
  function section(title, id, found, wanted, sorted) {
    const known = columns(), listed = found.slice(0, rowsShown), used = wanted.filter((key) => listed.some((block) => known[key][1](block)));
    const heads = used.map((key) => {
      const [label, , name] = known[key];
      if (!sorted || !ORDERS[key]) return { text: label, class: name };
      const button = html("button", { type: "button" }, `${label}${order === key ? " ▾" : ""}`);
      button.addEventListener("click", () => { order = key; drawTables(); });
      return { text: button, class: name };
    });
    const parts = [html("h2", {}, title), table(heads, listed.map((block) => used.map((key) => known[key][1](block))), { id })];
    if (found.length > rowsShown) {
      const more = html("button", { type: "button", class: "more" }, `show all ${found.length}`);
      more.addEventListener("click", () => { rowsShown = Infinity; drawTables(); });
      parts.push(more);
    }
    return parts;
  }

  function drawTables() {
    const query = explore.state.query, peak = blocks.filter((b) => b.atPeak).sort(ORDERS.size);
    const listed = blocks.filter((b) => !query || b.search.includes(query)).sort(ORDERS[order]);
    const all = `${view.startsWith("tvm") ? "Storages" : "Tensors"}${query ? ` that match “${query}”` : ""}: ${listed.length}`;
    const title = `At the peak, step ${scene.peak}: ${humanBytes(peakOf(scene.live))}, the largest first`;
    at("peaks").replaceChildren(...(peak.length ? section(title, "peak", peak, ["name", "operator", "size", "share", "until", "source"]) : []));
    at("tables").replaceChildren(...section(all, "tensors", listed, ["name", "operator", "size", "formula", "band", "offset", "live", "source"], true), ...outside());
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
    const open = data.findings.some((f) => f.severity !== "note");
    at("findings").replaceChildren(...(list.length ? [html("details", { open }, html("summary", {}, `Findings of the linter: ${list.length}`), html("ul", {}, ...list))] : []));
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
      [view, part, explore.state.part] = ["ours", "all", null];
      start();
      writeAddress();
    });
    buttons("views", Object.entries(WHO).filter(([who]) => fn.calls[who]).map(([who, [label]]) => [who, label]), () => view, (who) => {
      [view, part, explore.state.part] = [who, "all", null];
      choices();
      draw();
      writeAddress();
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
  const reread = () => {
    [part, explore.state.part] = ["all", null];
    readAddress();
    start();
  };
  window.addEventListener("hashchange", reread);
  reread();
  return { numbers: () => numbers, binding, evaluate: (nodes, at) => evaluated(nodes, at) };
}

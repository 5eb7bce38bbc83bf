// What both kinds of page share: picking a block by pointer, keyboard or search, its details, its tip, and the part of
// the time that is shown.

// `model` has: scene (see drawing.js), blocks (of the scene), paint(map, state), details(block, time) -> elements, redraw(),
// and sharing(block) -> the blocks that lie in the same bytes at other times
function explorer(model) {
  const map = at("map"), stage = at("stage"), tip = at("tip"), search = at("search"), found = at("found");
  const state = { focus: null, hover: null, pinned: null, query: "", part: null, time: null, classes };
  let marked = new Set(), byKey = new Map(), plain = true;

  const blockOf = (key) => byKey.get(key) ?? null;
  const drawn = (key) => [...map.querySelectorAll("[tabindex]")].find((one) => one.dataset.key === key);
  const current = () => blockOf(state.pinned) ?? blockOf(state.hover);
  const matches = (block) => block.search.includes(state.query);

  function classes(block) {
    const picked = state.pinned ?? state.hover;
    if (picked !== null) return block.key === picked ? ["picked"] : marked.has(block.key) ? ["shares"] : state.query && !matches(block) ? ["dim"] : [];
    return state.query && !matches(block) ? ["dim"] : [];
  }

  function refresh() {
    const block = current();
    marked = new Set(block ? model.sharing(block).map((other) => other.key) : []);
    const before = plain;
    plain = block === null && !state.query;
    for (const element of before && plain ? [] : stage.querySelectorAll(".block")) {
      const of = classes(blockOf(element.dataset.key));
      for (const name of ["picked", "shares", "dim"]) element.classList.toggle(name, of.includes(name));
    }
    at("details").replaceChildren(...(block ? model.details(block, state.time ?? block.spans[0][0]) : [html("p", { class: "muted" }, model.hint)]));
  }

  function pick(key, { pin = false, focus = false } = {}) {
    state.hover = key;
    if (pin) state.pinned = state.pinned === key ? null : key;
    if (focus && key !== null) {
      const old = map.querySelector('[tabindex="0"]');
      if (old) old.setAttribute("tabindex", -1);
      state.focus = key;
      if (!drawn(key)) reveal(blockOf(key)); // it is one of those that are left out
      const element = drawn(key);
      if (element) {
        element.setAttribute("tabindex", 0);
        element.setAttribute("aria-label", blockOf(key).text());
        element.focus({ preventScroll: false });
      }
    }
    refresh();
  }

  function showTip(block, left, top) {
    tip.textContent = block.text();
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const beside = left + 14 + width > window.innerWidth ? left - width - 14 : left + 14;
    const under = top + 16 + height > window.innerHeight ? top - height - 10 : top + 16;
    tip.style.left = `${Math.min(Math.max(4, beside), Math.max(4, window.innerWidth - width - 4))}px`;
    tip.style.top = `${Math.max(4, under)}px`;
  }

  // the block beside `block` in a direction: in time, or in the same stretch of time by its place
  function neighbour(block, key) {
    const all = model.blocks();
    const byTime = [...all].sort((a, b) => a.spans[0][0] - b.spans[0][0] || a.place - b.place);
    if (key === "Home") return byTime[0];
    if (key === "End") return byTime.at(-1);
    if (key === "ArrowRight") return byTime[byTime.indexOf(block) + 1];
    if (key === "ArrowLeft") return byTime[byTime.indexOf(block) - 1];
    const meet = ([a, b]) => block.spans.some(([c, d]) => a < d && c < b);
    const column = all.filter((other) => other === block || other.spans.some(meet)).sort((a, b) => a.place - b.place);
    return column[column.indexOf(block) + (key === "ArrowUp" ? 1 : -1)];
  }

  stage.addEventListener("pointermove", (event) => {
    const key = event.target.dataset?.key ?? null;
    if (key === null) return leave();
    const before = state.time;
    state.time = Math.floor(timeAt(event.clientX));
    if (key !== state.hover || state.time !== before) pick(key);
    showTip(blockOf(key), event.clientX, event.clientY);
  });
  const leave = () => {
    tip.hidden = true;
    if (state.hover !== null && document.activeElement?.dataset?.key !== state.hover) pick(null);
  };
  stage.addEventListener("pointerleave", leave);
  stage.addEventListener("click", (event) => {
    const key = event.target.dataset?.key;
    if (key !== undefined && !swept) pick(key, { pin: true, focus: true });
  });
  map.addEventListener("focusin", (event) => {
    const key = event.target.dataset?.key;
    if (key === undefined || key === state.hover) return;
    state.time = null;
    pick(key, { focus: true });
  });
  map.addEventListener("keydown", (event) => {
    const block = blockOf(event.target.dataset?.key);
    if (block === null) return;
    if (event.key === "Enter" || event.key === " ") pick(block.key, { pin: true });
    else if (/^(Arrow|Home|End)/.test(event.key)) {
      const next = neighbour(block, event.key);
      if (next) pick(next.key, { focus: true });
    } else return;
    event.preventDefault();
  });
  const KEYS = { "+": () => zoom(0.5), "-": () => zoom(2), "0": whole };
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT)$/.test(document.activeElement?.tagName);
    if (event.key === "Escape") {
      tip.hidden = true;
      state.pinned = state.hover = null;
      if (document.activeElement === search) search.value = "";
      find();
    } else if (event.key === "/" && !typing) {
      event.preventDefault();
      search.focus();
    } else if (Object.hasOwn(KEYS, event.key) && !typing && !event.ctrlKey && !event.metaKey) KEYS[event.key]();
  });

  // -- a part of the time --

  function show(low, high) {
    const [first, last] = model.scene().span, wide = Math.max(high - low, Math.min(2, last - first));
    const from = Math.max(first, Math.min(low, last - wide));
    state.part = wide < last - first ? [from, from + wide] : null;
    model.redraw();
  }
  // about the block that is kept, or the peak, or the middle
  function zoom(factor, around = null) {
    const { x: [low, high], peak } = model.scene(), kept = blockOf(state.pinned);
    const wanted = around ?? (kept ? (kept.spans[0][0] + kept.spans[0][1]) / 2 : peak);
    const middle = low <= wanted && wanted <= high && wanted !== null ? wanted : (low + high) / 2;
    show(middle - (middle - low) * factor, middle + (high - middle) * factor);
  }
  function whole() {
    show(...model.scene().span);
  }
  function move(share) {
    const [low, high] = model.scene().x;
    show(low + (high - low) * share, high + (high - low) * share);
  }
  function reveal(block) {
    model.reveal(block);
    const begin = block.spans[0][0], wide = block.spans[0][1] - begin;
    if (state.part || model.blocks().length > MOST_DRAWN) show(begin - wide, begin + 2 * wide);
  }
  const timeAt = (pixel) => {
    const { left, width } = map.getBoundingClientRect(), [low, high] = model.scene().x;
    return low + ((pixel - left - LEFT) / (width - LEFT - RIGHT)) * (high - low);
  };
  let dragged = null, swept = false;
  stage.addEventListener("pointerdown", (event) => { dragged = event.pointerType === "mouse" && event.button === 0 ? event.clientX : null; });
  stage.addEventListener("pointerup", (event) => {
    swept = dragged !== null && Math.abs(event.clientX - dragged) > 6;
    if (swept) show(...[timeAt(dragged), timeAt(event.clientX)].sort((a, b) => a - b));
    dragged = null;
  });
  stage.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(event.clientX));
  }, { passive: false });
  const ZOOM = [["◀", "earlier", () => move(-0.5)], ["−", "more of the time ( - )", () => zoom(2)], ["+", "less of the time ( + )", () => zoom(0.5)], ["▶", "later", () => move(0.5)], ["whole", "all of the time ( 0 )", whole]];
  at("zoom").replaceChildren(...ZOOM.map(([text, title, go]) => {
    const button = html("button", { type: "button", title, "aria-label": title }, text);
    button.addEventListener("click", go);
    return button;
  }));

  function find() {
    state.query = search.value.trim().toLowerCase();
    const count = state.query ? model.blocks().filter(matches).length : 0;
    found.textContent = state.query ? `${count} of ${model.blocks().length}` : "";
    refresh();
    model.searched(state.query);
  }
  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const first = model.blocks().find(matches);
    if (state.query && first) pick(first.key, { focus: true });
  });

  let waiting = false;
  window.addEventListener("resize", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      model.redraw();
    });
  });

  function draw() {
    const held = map.contains(document.activeElement) ? state.focus : null;
    byKey = new Map(model.blocks().map((block) => [block.key, block]));
    if (!byKey.has(state.pinned)) state.pinned = null;
    if (!byKey.has(state.hover)) state.hover = null;
    if (!byKey.has(state.focus)) state.focus = model.blocks()[0]?.key ?? null;
    model.paint(map, state);
    if (held !== null && drawn(held)) pick(held, { focus: true });
    find();
  }
  return { draw, pick, state };
}

// a list of buttons that pick blocks
function blockLinks(blocks, pick, most = 40) {
  const items = blocks.slice(0, most).map((block) => {
    const link = html("button", { class: "link", type: "button" }, block.name);
    link.addEventListener("click", () => pick(block.key, { pin: true, focus: true }));
    return html("li", {}, link, ` ${humanBytes(block.size)}`);
  });
  if (blocks.length > most) items.push(html("li", {}, `and ${blocks.length - most} more`));
  return html("ul", {}, ...items);
}

function facts(rows) {
  const list = html("dl");
  for (const [name, value, mono] of rows) {
    list.append(html("dt", {}, name), html("dd", { class: mono ? "mono" : null }, value));
  }
  return list;
}

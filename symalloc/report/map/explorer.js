// What both kinds of page share: picking a rectangle by pointer, keyboard or search, its details, its tip.

// `model` has: scene (see drawing.js), blocks (of the scene), details(block) -> elements, redraw(), and
// sharing(block) -> keys of the blocks that lie in the same bytes at other times
function explorer(model) {
  const map = at("map"), tip = at("tip"), search = at("search"), found = at("found");
  const state = { focus: null, hover: null, pinned: null, query: "", classes };
  let marked = new Set(), byKey = new Map(), plain = true;

  const blockOf = (key) => byKey.get(key) ?? null;
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
    for (const element of before && plain ? [] : map.querySelectorAll(".block")) {
      const of = classes(blockOf(element.dataset.key));
      for (const name of ["picked", "shares", "dim"]) element.classList.toggle(name, of.includes(name));
    }
    at("details").replaceChildren(...(block ? model.details(block) : [html("p", { class: "muted" }, model.hint)]));
  }

  function pick(key, { pin = false, focus = false } = {}) {
    state.hover = key;
    if (pin) state.pinned = state.pinned === key ? null : key;
    if (focus && key !== null) {
      const old = map.querySelector('[tabindex="0"]');
      if (old) old.setAttribute("tabindex", -1);
      state.focus = key;
      const drawn = () => [...map.querySelectorAll("[tabindex]")].find((one) => one.dataset.key === key);
      if (!drawn()) model.reveal(blockOf(key)); // its band is one of those that are left out
      const element = drawn();
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

  map.addEventListener("pointermove", (event) => {
    const key = event.target.dataset?.key ?? null;
    if (key === null) return leave();
    if (key !== state.hover) pick(key);
    showTip(blockOf(key), event.clientX, event.clientY);
  });
  const leave = () => {
    tip.hidden = true;
    if (state.hover !== null && document.activeElement?.dataset?.key !== state.hover) pick(null);
  };
  map.addEventListener("pointerleave", leave);
  map.addEventListener("click", (event) => {
    const key = event.target.dataset?.key;
    if (key !== undefined) pick(key, { pin: true, focus: true });
  });
  map.addEventListener("focusin", (event) => {
    const key = event.target.dataset?.key;
    if (key !== undefined && key !== state.hover) pick(key, { focus: true });
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
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      tip.hidden = true;
      state.pinned = state.hover = null;
      if (document.activeElement === search) search.value = "";
      find();
    } else if (event.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement?.tagName)) {
      event.preventDefault();
      search.focus();
    }
  });

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
    drawMap(map, model.scene(), state);
    if (held !== null && byKey.has(held)) pick(held, { focus: true });
    find();
  }
  return { draw, pick, find, state };
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

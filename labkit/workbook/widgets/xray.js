// The block pool of each state: a grid, and the block tables of the requests.

const HATCH_AFTER = COLOURS.length; // requests beyond have hatched blocks

function render({ model, el }) {
  const data = model.get("data");
  const parts = frame(el, data.title);
  let width = 0;
  const draw = (i) => {
    if (!width) return;
    parts.stage.replaceChildren(drawState(data, data.states[i], width));
    parts.words.textContent = data.states[i].words;
  };
  const control = player(parts, model, {
    last: data.states.length - 1,
    step: 1,
    perSecond: 1,
    speeds: [1, 2, 5, 10, 0.5],
    counter: (i) => `state ${i + 1} of ${data.states.length}`,
    show: draw,
  });
  const stop = whenResized(parts.stage, (now) => ((width = now), control.redraw()));
  return () => (stop(), control.stop());
}

function drawState(data, state, width) {
  const most = data.numBlocks;
  const cell = most <= 64 ? 40 : most <= 256 ? 28 : 14;
  const beside = width >= 620;
  const fits = Math.floor((beside ? width * 0.5 : width - 4) / cell);
  const columns = fits >= 8 ? fits - (fits % 8) : Math.max(fits, 1);
  const used = Math.min(columns, most);
  const high = Math.ceil(most / used) * cell;
  const root = svg("svg", { width, role: "img", "aria-label": state.words });
  const defs = root.appendChild(svg("defs"));
  const looks = data.names.map((name, i) => {
    const hatch = i >= HATCH_AFTER ? pattern("hatch", "#ffffffb0") : null;
    if (hatch) defs.append(hatch.made);
    return { colour: COLOURS[i % COLOURS.length], hatch: hatch && hatch.fill };
  });
  for (let block = 0; block < most; block++) {
    const [x, y] = [(block % used) * cell, 16 + Math.floor(block / used) * cell];
    const found = state.blocks[block] || [];
    const free = state.cached.includes(block) ? "cached" : "free";
    root.append(drawBlock(data, looks, x, y, cell, found, block, free));
    if (block === state.hit) root.append(wrong(x, y, cell));
  }
  root.append(label(0, 10, `pool: ${most} blocks of ${data.blockSize} tokens`));
  const [left, top] = beside ? [used * cell + 24, 0] : [0, high + 28];
  const bottom = drawTables(root, data, looks, state, left, top, width);
  root.setAttribute("height", Math.max(16 + high, bottom) + 6);
  return root;
}

// One block: its holders' colours, as wide as it is full, their names, its number.
function drawBlock(data, looks, x, y, cell, holders, block, free) {
  const group = svg("g");
  const side = cell - 3;
  const share = side / Math.max(holders.length, 1);
  holders.forEach(([place, filled], i) => {
    const { colour, hatch } = looks[place];
    const wide = (side * filled) / data.blockSize;
    group.append(rect(x, y + i * share, side, share, { fill: colour, opacity: 0.2 }));
    group.append(rect(x, y + i * share, wide, share, { fill: colour }));
    if (hatch) group.append(rect(x, y + i * share, wide, share, { fill: hatch }));
  });
  const edge = holders.length ? { stroke: looks[holders[0][0]].colour } : { stroke: "currentColor", "stroke-dasharray": "2 3", opacity: 0.5 };
  if (!holders.length && free === "cached") group.append(rect(x, y, side, side, { fill: "currentColor", opacity: 0.25 }));
  group.append(rect(x, y, side, side, { fill: "none", ...edge }));
  const names = holders.map(([place]) => data.labels[place]);
  const text = names.length > 2 ? `${names.length}×` : names.join("+");
  const about = holders.map(([place, filled]) => `${data.names[place]}: ${filled} of ${data.blockSize}`);
  group.append(svg("title", {}, `block ${block}, ${about.join("; ") || free}`));
  const middle = { "text-anchor": "middle" };
  if (cell >= 28) group.append(label(x + side / 2, y + 9, block, { ...middle, "font-size": 8, ...halo(holders) }));
  if (cell >= 28 && text)
    group.append(label(x + side / 2, y + side - 7, text, { ...middle, "font-weight": 700, "font-size": text.length > 3 ? 9 : 12, ...halo(holders) }));
  if (cell >= 28 && !text && free === "cached")
    group.append(label(x + side / 2, y + side - 8, cell >= 40 ? "cached" : "c.", { ...middle, "font-size": 9 }));
  return group;
}

// White with a dark edge reads on a colour and on its pale part, on light pages and on dark ones.
const halo = (holders) =>
  holders.length ? { fill: "white", stroke: "#444444", "stroke-width": 2.5, "paint-order": "stroke" } : {};

function wrong(x, y, cell) {
  const style = { fill: "none", stroke: VERMILLION, "stroke-width": 3.5 };
  const mark = { fill: VERMILLION, "font-weight": 900, "font-size": 15, stroke: "white", "stroke-width": 2, "paint-order": "stroke" };
  return svg("g", {}, rect(x - 1, y - 1, cell - 1, cell - 1, style), label(x + cell - 11, y + cell - 7, "!", mark));
}

function drawTables(root, data, looks, state, left, top, width) {
  const cell = 26;
  const longest = Math.max(...data.names.map((name, i) => heading(data, i).length), 4);
  const names = Math.min(Math.max(6.6 * longest + 8, 40), 130);
  root.append(label(left, top + 10, "block tables"));
  const fits = Math.max(Math.floor((width - left - names - 30) / cell), 1);
  let y = top + 18;
  for (const [place, table] of state.tables) {
    root.append(label(left + names - 6, y + 16, shorten(heading(data, place), 18), { "text-anchor": "end" }));
    const bad = state.bad && state.bad[0] === place ? state.bad[1] : -1;
    const cells = Math.max(table.length, bad + 1);
    const rows = Math.max(1, Math.ceil(cells / fits));
    for (let i = 0; i < cells; i++) {
      const [x, line] = [left + names + (i % fits) * cell, y + Math.floor(i / fits) * cell];
      if (i < table.length) {
        const [block, filled] = table[i];
        const own = { ...data, labels: data.names.map(() => String(block)) };
        root.append(drawBlock(own, looks, x, line, cell, [[place, filled]], block, "free"));
        const style = { "text-anchor": "middle", "font-weight": 700, "font-size": block > 99 ? 9 : 11 };
        root.append(label(x + 11.5, line + 16, block, { ...style, ...halo([1]) }));
      }
      if (i === bad) root.append(wrong(x, line, cell));
    }
    y += rows * cell + 3;
  }
  return y;
}

const heading = (data, place) =>
  data.labels[place] === data.names[place] ? data.names[place] : `${data.labels[place]}: ${data.names[place]}`;

export default { render };

// A schedule: a row for each request, tokens and blocks of each step below, a cursor to move.
// What is before the cursor is in full colour, what comes after it is pale.

const KINDS = { prefill: [BLUE, 0.8], decode: [ORANGE, 0.4], waiting: ["dots", 0.2], preempted: ["hatch", 0.3] };
const CHART = 46; // pixels of the height of tokens and of blocks

function render({ model, el }) {
  const data = model.get("data");
  const parts = frame(el, data.title);
  const { steps, rows } = data;
  let picture = null;
  const control = player(parts, model, {
    last: Math.max(steps.length - 1, 0),
    step: 1,
    perSecond: Math.max(2, steps.length / 40), // all of it in 40 seconds at most
    speeds: [1, 2, 5, 10, 0.5],
    counter: (i) => `step ${steps.length ? i + 1 : 0} of ${steps.length}`,
    show: (i) => picture && steps.length && picture.show(i),
  });
  const stop = whenResized(parts.stage, (width) => {
    picture = drawTimeline(data, width, parts.words, control);
    parts.stage.replaceChildren(picture.root);
    control.redraw();
  });
  if (!steps.length) parts.words.textContent = data.story;
  return () => (stop(), control.stop());
}

function layout(data, width) {
  const { rows } = data;
  const names = Math.max(...rows.map((row) => Math.min(row.name.length, 14)), 4);
  const left = Math.min(Math.max(7 * names + 12, 58), width < 520 ? 84 : 112);
  const right = width < 640 ? 6 : 158;
  const high = rows.length <= 16 ? 22 : rows.length <= 36 ? 14 : Math.max(4, 520 / rows.length);
  const x = (time) => left + (time / data.last) * (width - left - right);
  return { left, right, high, x, top: 22, bottom: 22 + rows.length * high };
}

function drawTimeline(data, width, words, control) {
  const at = layout(data, width);
  const tokensTop = at.bottom + 18;
  const blocksTop = tokensTop + CHART + 18;
  const height = blocksTop + CHART + 30;
  const root = svg("svg", { width, height, role: "img", "aria-label": data.story });
  const waiting = pattern("dots", "currentColor");
  const preempted = pattern("hatch", VERMILLION);
  const fills = { dots: waiting.fill, hatch: preempted.fill };
  const clip = `labkit-pattern-${page}-${numPatterns++}`;
  const past = rect(0, 0, 0, height);
  root.append(svg("defs", {}, waiting.made, preempted.made, svg("clipPath", { id: clip }, past)));
  const now = rect(0, at.top - 4, 0, height - at.top - 22, { fill: "currentColor", opacity: 0.13 });
  root.append(now, axes(data, at, width, tokensTop, blocksTop));
  const bars = drawBars(data, at, fills);
  for (const chart of [tokens(data, at, tokensTop), blocks(data, at, blocksTop)]) bars.append(chart);
  const pale = bars.cloneNode(true);
  pale.setAttribute("opacity", 0.22);
  bars.setAttribute("clip-path", `url(#${clip})`);
  root.append(pale, bars, legend(width, fills));
  const states = data.rows.map((row, i) => {
    const y = at.top + (i + 0.5) * at.high + 4;
    return root.appendChild(label(width - at.right + 8, y, ""));
  });
  root.addEventListener("click", (event) => {
    const clicked = event.clientX - root.getBoundingClientRect().left;
    const found = data.steps.findIndex((step) => clicked < at.x(step.end));
    if (found >= 0 && clicked >= at.left) control.go(found);
  });
  const show = (i) => {
    const step = data.steps[i];
    past.setAttribute("width", at.x(step.end));
    now.setAttribute("x", at.x(step.begin));
    now.setAttribute("width", Math.max(at.x(step.end) - at.x(step.begin), 1.5));
    words.textContent = step.words;
    if (at.right > 100 && at.high >= 10) states.forEach((text, row) => (text.textContent = step.states[row]));
  };
  return { root, show };
}

function axes(data, at, width, tokensTop, blocksTop) {
  const group = svg("g");
  const end = blocksTop + CHART;
  for (const time of ticks(data.last, (width - at.left - at.right) / 70)) {
    group.append(line(at.x(time), at.top, at.x(time), end, { opacity: 0.15 }));
    group.append(label(at.x(time), end + 14, plain(time), { "text-anchor": "middle" }));
  }
  group.append(label(width - at.right, end + 27, "time (s)", { "text-anchor": "end" }));
  data.rows.forEach((row, i) => {
    const y = at.top + (i + 0.5) * at.high + 4;
    const text = label(at.left - 8, y, shorten(row.name, 14), { "text-anchor": "end" });
    text.append(svg("title", {}, row.about));
    if (at.high >= 10) group.append(text);
  });
  const side = { "text-anchor": "end", opacity: 0.85 };
  for (const [top, name, most] of [
    [tokensTop, "tokens", data.mostTokens],
    [blocksTop, "blocks", data.mostBlocks],
  ]) {
    group.append(label(at.left - 8, top + CHART / 2 + 4, name, side));
    group.append(label(at.left - 8, top + 8, most, side));
    group.append(line(at.left, top + CHART, width - at.right, top + CHART, { opacity: 0.5 }));
    group.append(
      line(at.left, top, width - at.right, top, { "stroke-dasharray": "5 4", opacity: 0.6 }),
    );
  }
  const notes = [
    [tokensTop, data.tokensNote],
    [blocksTop, data.blocksNote],
  ];
  if (at.right > 100)
    for (const [top, note] of notes) group.append(label(width - at.right + 8, top + 4, note));
  return group;
}

function drawBars(data, at, fills) {
  const group = svg("g");
  data.rows.forEach((row, i) => {
    const middle = at.top + (i + 0.5) * at.high;
    for (const [kind, begin, end, count] of row.bars) {
      const [look, share] = KINDS[kind];
      const wide = at.x(end) - at.x(begin);
      const high = share * at.high;
      const fill = fills[look] || look;
      const bar = rect(at.x(begin), middle - high / 2, wide - (kind === "prefill" && wide > 3), high, { fill });
      group.append(bar);
      if (kind === "prefill" && at.high >= 14 && wide >= 7 * String(count).length + 4) {
        const look = { fill: "white", "text-anchor": "middle", "font-size": 10 };
        group.append(label(at.x(begin) + wide / 2, middle + 3.5, count, look));
      }
    }
    const reach = (KINDS.decode[1] * at.high) / 2; // a gap between marks is what a reader waits for
    const ink = { stroke: "black", opacity: 0.6, "stroke-width": 0.8 };
    if (at.high >= 10)
      for (const time of row.tokens)
        group.append(line(at.x(time), middle - reach, at.x(time), middle + reach, ink));
    const x = at.x(row.arrival);
    group.append(svg("path", { d: `M${x - 6},${middle - 4} l6,4 l-6,4 z`, fill: "currentColor" }));
    if (row.end !== null) {
      const [y1, y2] = [middle - 0.4 * at.high, middle + 0.4 * at.high];
      group.append(line(at.x(row.end), y1, at.x(row.end), y2, { "stroke-width": 2.5 }));
    }
  });
  return group;
}

function tokens(data, at, top) {
  const group = svg("g");
  for (const step of data.steps) {
    let floor = top + CHART;
    for (const [count, fill] of [[step.prefill, BLUE], [step.decode, ORANGE]]) {
      const high = (count / data.mostTokens) * CHART;
      floor -= high;
      if (count) group.append(rect(at.x(step.begin), floor, at.x(step.end) - at.x(step.begin), high, { fill }));
    }
  }
  return group;
}

function blocks(data, at, top) {
  const group = svg("g", { fill: "currentColor", opacity: 0.55 });
  for (const step of data.steps) {
    const high = (step.used / data.mostBlocks) * CHART;
    group.append(rect(at.x(step.begin), top + CHART - high, at.x(step.end) - at.x(step.begin), high));
  }
  return group;
}

function legend(width, fills) {
  const group = svg("g");
  let x = 4;
  for (const [kind, [look, share]] of Object.entries(KINDS)) {
    const fill = fills[look] || look;
    group.append(rect(x, 8 - 6 * share, 18, 12 * share, { fill }));
    group.append(label(x + 22, 12, kind));
    x += 28 + 6.4 * kind.length;
  }
  if (x + 200 < width) group.append(label(x + 4, 12, "│ token   ▶ arrives   ┃ has ended"));
  return group;
}

export default { render };

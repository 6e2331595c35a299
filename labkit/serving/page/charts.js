// The last 60 seconds as small line charts in SVG.

import { find, element, percent, whole, write } from "./format.js";

const SPAN_S = 60;
const GAP_S = 2; // a longer silence breaks the line
const HEIGHT = 116;
const MARGIN = { left: 40, right: 6, top: 8, bottom: 18 };
const MOMENTS = [[60, "−60 s", "start"], [30, "−30 s", "middle"], [0, "now", "end"]];
const SVG = "http://www.w3.org/2000/svg";

const CHARTS = [
  {
    title: "Tokens per second",
    lines: [{ name: "tokens/s", look: "one", value: (s) => s.tokens_per_s }],
    least: 10,
    tick: whole,
  },
  {
    title: "Requests",
    lines: [
      { name: "running", look: "one", value: (s) => s.running },
      { name: "waiting", look: "two", value: (s) => s.waiting },
    ],
    least: 4,
    tick: whole,
  },
  {
    title: "KV cache in use",
    lines: [{ name: "used", look: "one", value: (s) => s.kv_usage }],
    filled: true,
    top: 1,
    tick: percent,
  },
];

/** Draws one chart into a figure of its own; `points` are the states of the last minute. */
class Chart {
  constructor(spec) {
    this.spec = spec;
    this.svg = svg("svg", { role: "img" });
    this.grid = this.svg.appendChild(svg("g", { class: "grid" }));
    this.area = this.svg.appendChild(svg("path", { class: "area" }));
    this.paths = spec.lines.map(({ look }) => this.svg.appendChild(svg("path", { class: look })));
    this.values = spec.lines.map(() => element("b"));
    find("charts").append(element("figure", {}, this.caption(), this.svg));
    this.width = 0;
    new ResizeObserver(([entry]) => this.resize(entry.contentRect.width)).observe(this.svg);
  }

  caption() {
    const { lines, title } = this.spec;
    const entries = lines.map(({ name, look }, place) => {
      const sample = svg("svg", { class: "sample", viewBox: "0 0 18 8", "aria-hidden": "true" });
      sample.append(svg("path", { class: look, d: "M0 4H18" }));
      return element("span", {}, sample, `${name} `, this.values[place]);
    });
    return element("figcaption", {}, element("h2", {}, title), ...entries);
  }

  resize(width) {
    if (Math.abs(width - this.width) < 1) return;
    this.width = width;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawn = null;
    this.draw(this.points ?? []);
  }

  draw(points) {
    this.points = points;
    if (!this.width) return;
    const { lines, top, least, tick, title } = this.spec;
    const highest = Math.max(0, ...points.flatMap((s) => lines.map((line) => line.value(s) ?? 0)));
    const full = top ?? roundUp(Math.max(highest, least));
    if (this.drawn !== full) this.drawGrid(full, tick);
    const last = points.at(-1);
    lines.forEach((line, place) => {
      const runs = this.runs(points, line, full);
      this.paths[place].setAttribute("d", runs.map(pathOf).join(""));
      if (this.spec.filled) this.area.setAttribute("d", runs.map((run) => this.fill(run)).join(""));
      write(this.values[place], last ? tick(line.value(last)) : "");
    });
    const now = last ? lines.map(({ name, value }) => `${name} ${tick(value(last))}`) : ["no data"];
    this.svg.setAttribute("aria-label", `${title}, last 60 seconds. Now: ${now.join(", ")}`);
  }

  x(secondsAgo) {
    return this.width - MARGIN.right - (secondsAgo / SPAN_S) * this.plotWidth;
  }

  y(share) {
    return HEIGHT - MARGIN.bottom - share * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  get plotWidth() {
    return this.width - MARGIN.left - MARGIN.right;
  }

  drawGrid(full, tick) {
    this.drawn = full;
    const marks = [];
    for (const share of [0, 0.5, 1]) {
      const y = this.y(share);
      marks.push(svg("path", { d: `M${MARGIN.left} ${y}H${this.width - MARGIN.right}` }));
      marks.push(label(tick(share * full), { x: MARGIN.left - 6, y: y + 4, class: "end" }));
    }
    for (const [ago, words, side] of MOMENTS) {
      marks.push(label(words, { x: this.x(ago), y: HEIGHT - 4, class: side }));
    }
    this.grid.replaceChildren(...marks);
  }

  /** Places of a line's points, one list for each stretch without a gap. */
  runs(points, { value }, full) {
    const now = points.at(-1)?.time;
    const known = points.filter((state) => value(state) != null);
    const place = (state) => [this.x(now - state.time), this.y(value(state) / full)];
    return unbroken(known).map((run) => run.map(place));
  }

  fill(run) {
    return `${pathOf(run)}V${this.y(0)}H${run[0][0].toFixed(1)}Z`;
  }
}

function pathOf(run) {
  return `M${run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
}

function svg(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function label(words, attributes) {
  const made = svg("text", attributes);
  made.textContent = words;
  return made;
}

/** 1, 2, 4 or 10 times a power of ten: half of it is a round number too. */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 4, 6, 8, 10].find((step) => step * power >= value);
}

function unbroken(points) {
  const runs = [];
  points.forEach((point, place) => {
    const previous = points[place - 1];
    if (!previous || point.time - previous.time > GAP_S) runs.push([]);
    runs.at(-1).push(point);
  });
  return runs;
}

const charts = CHARTS.map((spec) => new Chart(spec));
let history = [];

export function showHistory(state) {
  if (history.length && state.time < history.at(-1).time) history = []; // the server is a new one
  history.push(state);
  history = history.filter(({ time }) => time > state.time - SPAN_S);
  for (const chart of charts) chart.draw(history);
}

// What the widgets share: elements, colours, and a player that is operated by mouse and keyboard.
// The colours are those of Okabe and Ito, as in labkit/workbook/plots.py.

const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"];
const [BLUE, ORANGE, GREEN, VERMILLION] = COLOURS;
// Ids are unique in a page. It may show many widgets, and each has this script for itself.
const page = Math.random().toString(36).slice(2, 8);
let numPatterns = 0;

function element(namespace, name, attributes, children) {
  const made = document.createElementNS(namespace, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const svg = (name, attributes = {}, ...children) =>
  element("http://www.w3.org/2000/svg", name, attributes, children);
const html = (name, attributes = {}, ...children) =>
  element("http://www.w3.org/1999/xhtml", name, attributes, children);

function rect(x, y, width, height, attributes = {}) {
  const size = { x, y, width: Math.max(width, 0), height: Math.max(height, 0) };
  return svg("rect", { ...size, ...attributes });
}

function line(x1, y1, x2, y2, attributes = {}) {
  return svg("line", { x1, y1, x2, y2, stroke: "currentColor", ...attributes });
}

function label(x, y, text, attributes = {}) {
  return svg("text", { x, y, fill: "currentColor", ...attributes }, String(text));
}

// A <pattern> for `fill: url(#id)`: hatching or dots that stay as fine on every screen.
function pattern(kind, colour) {
  const id = `labkit-pattern-${page}-${numPatterns++}`;
  const mark =
    kind === "dots"
      ? svg("circle", { cx: 2, cy: 2, r: 1, fill: colour })
      : svg("path", { d: "M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2", stroke: colour, "stroke-width": 1.5 });
  const size = kind === "dots" ? 4 : 6;
  const made = svg("pattern", { id, width: size, height: size, patternUnits: "userSpaceOnUse" }, mark);
  return { made, fill: `url(#${id})` };
}

const shorten = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

function plain(value) {
  return value >= 100 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
}

// Round numbers from 0 to `last`, about `count` of them.
function ticks(last, count) {
  const rough = last / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let i = 0; i * step <= last * 1.0001; i++) found.push(+(i * step).toPrecision(6));
  return found;
}

// The frame of a widget: a heading, controls, a stage to draw on, a line of words.
function frame(el, title) {
  const root = html("div", { class: "labkit-widget", role: "group", "aria-label": title });
  root.setAttribute("data-lm-suppress-shortcuts", "true"); // JupyterLab leaves our keys to us
  const controls = html("div", { class: "labkit-controls" });
  const stage = html("div", { class: "labkit-stage" });
  const words = html("div", { class: "labkit-words", role: "status", "aria-live": "polite" });
  root.append(html("div", { class: "labkit-title" }, title), controls, stage, words);
  el.append(root);
  return { root, controls, stage, words };
}

// Calls `draw(width)` now and whenever the stage gets wider or narrower; returns what ends that.
function whenResized(stage, draw) {
  let width = 0;
  const look = () => {
    const now = Math.floor(stage.clientWidth);
    if (now > 40 && Math.abs(now - width) > 1) draw((width = now));
  };
  const observer = new ResizeObserver(look);
  observer.observe(stage);
  look();
  return () => observer.disconnect();
}

// Buttons, a slider and a speed for a place from 0 to `last`. `show(place)` draws it; playing moves
// it by `perSecond` times the speed. Where `step` is 1 places are whole numbers. Keys: space plays
// and pauses, arrows step, Home and End go to the ends.
function player(parts, model, { last, step, perSecond, speeds, counter, show }) {
  const { root, controls } = parts;
  const play = html("button", { type: "button", class: "labkit-play" });
  const back = html("button", { type: "button", "aria-label": "One step back" }, "‹ Back");
  const next = html("button", { type: "button", "aria-label": "One step on" }, "Next ›");
  const slider = html("input", { type: "range", min: 0, max: last, step, value: 0 });
  slider.setAttribute("aria-label", "Place");
  const speed = html("select", { "aria-label": "Speed" });
  speed.append(...speeds.map((factor) => html("option", { value: factor }, `×${factor}`)));
  const count = html("span", { class: "labkit-count" });
  controls.append(play, back, next, slider, count, speed);

  let place = Math.min(model.get("place") || 0, last);
  let playing = false;
  let request = 0;

  function go(to) {
    place = Math.min(Math.max(to, 0), last);
    const shown = step === 1 ? Math.floor(place + 1e-9) : place;
    slider.value = shown;
    slider.setAttribute("aria-valuetext", counter(shown));
    count.textContent = counter(shown);
    model.set("place", shown);
    show(shown);
  }

  function set(on) {
    cancelAnimationFrame(request);
    playing = on;
    play.textContent = on ? "❚❚ Pause" : "▶ Play";
    root.classList.toggle("labkit-playing", on);
    if (!on) return;
    if (place >= last) go(0);
    let before = performance.now();
    const tick = (now) => {
      if (!root.isConnected) return set(false); // its cell was cleared
      go(place + ((now - before) / 1000) * perSecond * Number(speed.value));
      before = now;
      if (place >= last) set(false);
      else request = requestAnimationFrame(tick);
    };
    request = requestAnimationFrame(tick);
  }

  const jump = (to) => (set(false), go(to));
  const steps = (number) => jump((step === 1 ? Math.floor(place) : place) + number * step);
  play.addEventListener("click", () => set(!playing));
  back.addEventListener("click", () => steps(-1));
  next.addEventListener("click", () => steps(1));
  slider.addEventListener("input", () => jump(Number(slider.value)));
  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target === speed) return;
    const onButton = event.target instanceof HTMLButtonElement;
    const actions = {
      " ": () => (onButton ? null : set(!playing)),
      ArrowLeft: () => steps(-1),
      ArrowDown: () => steps(-1),
      ArrowRight: () => steps(1),
      ArrowUp: () => steps(1),
      Home: () => jump(0),
      End: () => jump(last),
    };
    event.stopPropagation();
    if (!(event.key in actions) || (event.key === " " && onButton)) return;
    event.preventDefault();
    actions[event.key]();
  });
  set(false);
  return { go: jump, redraw: () => go(place), stop: () => set(false) };
}

// The load panel: sliders, Start and Stop, and what became of the requests.

import { NONE, duration, element, find, percentile, whole, write } from "./format.js";
import { CLASSES, Traffic } from "./traffic.js";

const SLIDERS = [
  { key: "rate", label: "Requests per second", min: 0, max: 10, step: 0.1, value: 2 },
  { key: "promptTokens", label: "Prompt tokens", min: 1, max: 1024, step: 1, value: 64 },
  { key: "outputTokens", label: "Output tokens", min: 1, max: 512, step: 1, value: 64 },
  { key: "samePercent", label: "Same start, % of prompt", min: 0, max: 100, step: 5, value: 25 },
];
const SHARES = { chat: 60, agent: 20, batch: 20 };
const COUNTS = ["sent", "in flight", "finished", "cancelled", "refused", "failed", "skipped"];
const MEANINGS = {
  refused: "429: the server's line is full",
  skipped: "not sent: too many of this page's requests are in flight",
};
const MOST_TOKENS = 2048;
const FEW =
  "Each streamed answer takes a connection, and a browser keeps six to a server: " +
  "this page sends three requests at a time.";
const REDRAW_MS = 250;

const settings = { shares: { ...SHARES } };
const sliders = {};
let traffic = null;
let limited = 0; // the context that the sliders' ends are set for

/** `model()` resolves to the name that the server serves. */
export function startLoad(model) {
  for (const spec of SLIDERS) addSlider(spec);
  const cells = Object.fromEntries(CLASSES.map((kind) => [kind.name, addClass(kind)]));
  const counts = Object.fromEntries(COUNTS.map((name) => [name, addCount(name)]));
  traffic = new Traffic(settings, model);
  find("load-form").addEventListener("submit", toggle);
  find("load-cancel").addEventListener("click", () => traffic.cancel());
  setInterval(() => showResults(cells, counts), REDRAW_MS);
  return traffic;
}

export function isLoading() {
  return Boolean(traffic && (traffic.running || traffic.inFlight.size));
}

/** Prompt and output together fit into the model's context, whatever the sliders say. */
export function limitLoad({ max_model_len: context, requests }) {
  traffic.followed.observe({ requests });
  if (!context || context === limited) return;
  limited = context;
  for (const key of ["promptTokens", "outputTokens"]) {
    const slider = sliders[key];
    slider.max = Math.max(1, Math.min(Math.floor(context / 2), MOST_TOKENS));
    slider.dispatchEvent(new Event("input"));
  }
}

function addSlider({ key, label, ...range }) {
  const output = element("output");
  const input = element("input", { type: "range", id: `load-${key}`, ...range });
  const name = element("label", { for: input.id }, label);
  output.htmlFor = input.id;
  input.addEventListener("input", () => {
    settings[key] = input.valueAsNumber;
    write(output, input.value);
    if (key === "rate" && traffic?.running) traffic.retime();
  });
  find("load-sliders").append(name, input, output);
  sliders[key] = input;
  input.dispatchEvent(new Event("input"));
}

function addClass({ name, priority }) {
  const range = { type: "range", min: 0, max: 100, step: 5, value: SHARES[name] };
  const input = element("input", range);
  input.setAttribute("aria-label", `Share of ${name}`);
  input.addEventListener("input", () => {
    settings.shares[name] = input.valueAsNumber;
  });
  const cells = ["sent", "finished", "p50", "p99"].map((key) => [
    key,
    element("td", { class: "number", "data-class": name, "data-count": key }, NONE),
  ]);
  const head = element("th", { scope: "row" }, name, " ");
  head.append(element("small", {}, String(priority)));
  const row = element("tr", {}, head, element("td", {}, input), ...cells.map(([, cell]) => cell));
  find("load-classes").append(row);
  return Object.fromEntries(cells);
}

function addCount(name) {
  const value = element("dd", { "data-count": name }, "0");
  const attributes = MEANINGS[name] ? { title: MEANINGS[name] } : {};
  find("load-counts").append(element("div", attributes, element("dt", {}, name), value));
  return value;
}

function toggle(event) {
  event.preventDefault();
  if (traffic.running) traffic.stop();
  else traffic.start();
  showButtons();
}

function showButtons() {
  const { running } = traffic;
  const inFlight = traffic.inFlight.size;
  write(find("load-toggle"), running ? "Stop" : "Start");
  find("load-toggle").classList.toggle("stop", running);
  find("load-cancel").hidden = running || !inFlight;
  write(find("load-cancel"), `Cancel ${whole(inFlight)}`);
}

function showResults(cells, counts) {
  const values = { ...traffic.counts, "in flight": traffic.inFlight.size };
  for (const name of COUNTS) {
    write(counts[name], whole(values[name]));
    counts[name].parentElement.classList.toggle("zero", !values[name]);
  }
  for (const { name } of CLASSES) showClass(cells[name], traffic.classes[name]);
  write(find("load-note"), noteOf(traffic));
  showButtons();
}

function showClass(cells, { sent, finished, ttfts }) {
  write(cells.sent, whole(sent));
  write(cells.finished, whole(finished));
  write(cells.p50, duration(percentile(ttfts, 0.5)));
  write(cells.p99, duration(percentile(ttfts, 0.99)));
}

function noteOf({ dropPriority, followable, counts, note }) {
  const notes = [];
  if (dropPriority) notes.push("This policy reads no priority: requests are sent without one.");
  if (counts.skipped && followable === false) {
    notes.push(FEW);
  }
  if (note) notes.push(note);
  return notes.join(" ");
}

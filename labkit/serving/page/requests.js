// The table of requests that the engine holds, each row kept as long as its request lives.

import { cancelRequest } from "./api.js";
import { NONE, age, element, find, plural, shortId, whole, write } from "./format.js";
import { dress, lookOf } from "./looks.js";
import { onSelect, selectsOn } from "./selection.js";

const ORDER = ["running", "preempted", "waiting"];
const MARKS = { running: "●", preempted: "◐", waiting: "○" };
const body = find("request-rows");
const scroll = body.closest(".scroll");
const rows = new Map(); // request id → Row

class Row {
  constructor(request) {
    this.id = request.id;
    this.swatch = element("span", { class: "swatch" });
    this.cells = {};
    this.button = element("button", { type: "button", class: "quiet" }, "Cancel");
    this.button.setAttribute("aria-label", `Cancel request ${shortId(request.id)}`);
    this.button.addEventListener("click", () => this.cancel());
    this.node = element("tr", { "data-id": request.id }, element("td", {}, this.swatch));
    for (const name of Object.keys(valuesOf(request))) this.addCell(name);
    this.node.append(element("td", {}, this.button));
    this.cells.name.title = request.id;
    selectsOn(this.node, () => this.id);
  }

  addCell(name) {
    const kind = ["name", "state", "label", "tenant"].includes(name) ? {} : { class: "number" };
    this.cells[name] = element("td", kind);
    this.node.append(this.cells[name]);
  }

  show(request) {
    const look = lookOf(request.id);
    dress(this.swatch, look);
    write(this.swatch, String(look.number));
    this.node.dataset.state = request.state;
    for (const [name, value] of Object.entries(valuesOf(request))) write(this.cells[name], value);
  }

  async cancel() {
    this.button.disabled = true;
    try {
      const answer = await (await cancelRequest(this.id)).json();
      const name = shortId(this.id);
      const fate = answer.cancelled ? "is cancelled" : `was ${answer.state} already`;
      write(find("requests-note"), `${name} ${fate}`);
    } catch (error) {
      this.button.disabled = false;
      write(find("requests-note"), error.message);
    }
  }
}

function valuesOf(request) {
  const onHost = request.host_blocks ? ` + ${whole(request.host_blocks)} on host` : "";
  return {
    name: shortId(request.id),
    state: `${MARKS[request.state] ?? ""} ${request.state}`,
    label: request.label || NONE,
    tenant: request.tenant || NONE,
    priority: String(request.priority ?? NONE),
    tokens: `${whole(request.prompt_tokens)} + ${whole(request.output_tokens)}`,
    blocks: `${whole(request.blocks)}${onHost}`,
    age: age(request.age_s),
    preemptions: whole(request.preemptions),
  };
}

export function showRequests(state) {
  const here = state.requests.filter(({ state: name }) => name !== "finished").sort(inOrder);
  const ids = new Set(here.map(({ id }) => id));
  for (const [id, row] of rows) {
    if (ids.has(id)) continue;
    row.node.remove();
    rows.delete(id);
  }
  here.forEach((request, place) => {
    if (!rows.has(request.id)) rows.set(request.id, new Row(request));
    const row = rows.get(request.id);
    row.show(request);
    putAt(row.node, place);
  });
  countRows(here.length, (state.running ?? 0) + (state.waiting ?? 0));
}

/** Running ones first, and within a state the oldest: a row moves only when its state changes. */
function inOrder(one, other) {
  return ORDER.indexOf(one.state) - ORDER.indexOf(other.state) || other.age_s - one.age_s;
}

/** A row that stands where it should is left alone: moving it would take its focus away. */
function putAt(node, place) {
  if (body.children[place] !== node) body.insertBefore(node, body.children[place] ?? null);
}

function countRows(shown, all) {
  const more = all > shown ? ` of ${whole(all)}` : "";
  write(find("requests-count"), shown ? `${plural(shown, "request")}${more}` : "none now");
}

/** Brings a row into the table's view without moving the page. */
function reveal(node) {
  const head = scroll.querySelector("thead").offsetHeight;
  const top = node.offsetTop - head;
  const bottom = node.offsetTop + node.offsetHeight - scroll.clientHeight;
  if (scroll.scrollTop > top) scroll.scrollTop = top;
  else if (scroll.scrollTop < bottom) scroll.scrollTop = bottom;
}

onSelect((id) => {
  for (const row of rows.values()) row.node.classList.toggle("chosen", row.id === id);
  const row = rows.get(id);
  if (row && !row.node.matches(":hover, :focus-within")) reveal(row.node);
});

// The block map: every block of the KV cache as a square in the look of the request that holds it.

import { find, plural, shortId, whole, write } from "./format.js";
import { blockAt, cornerOf, layOut, neighbour } from "./grid.js";
import { fillOf, lookOf } from "./looks.js";
import { onSelect, select, selected } from "./selection.js";

const canvas = find("block-map");
const context = canvas.getContext("2d");
const readout = find("blocks-readout");
const HELP = readout.textContent;
const HEIGHT = 222; // CSS pixels that the map may take
const MOST_SQUARES = 20_000; // a larger cache has several blocks in a square
const NUMBERED = 18; // a cell so large shows its request's number

let state = null;
let perSquare = 1; // blocks that a square stands for
let holders = new Map(); // square → the requests that hold it
let grid = layOut(0, 1, HEIGHT);
let pointed = null; // the block under the pointer or the keys

export function showBlocks(newState) {
  state = newState;
  perSquare = Math.max(1, Math.ceil((state.num_blocks ?? 0) / MOST_SQUARES));
  const ofBlocks = holdersOf(state.requests, 1);
  const shared = [...ofBlocks.values()].filter((requests) => requests.length > 1).length;
  count(ofBlocks.size, shared);
  holders = perSquare === 1 ? ofBlocks : holdersOf(state.requests, perSquare);
  redraw();
  describe();
}

function holdersOf(requests, blocks) {
  const found = new Map();
  for (const request of requests) {
    const squares = new Set((request.block_ids ?? []).map((block) => Math.floor(block / blocks)));
    for (const square of squares) {
      if (found.has(square)) found.get(square).push(request);
      else found.set(square, [request]);
    }
  }
  return found;
}

function count(held, shared) {
  const free = Math.max(0, (state.num_blocks ?? 0) - held);
  const cached = state.cached_blocks ? `, ${whole(state.cached_blocks)} of them still cached` : "";
  Object.assign(canvas.dataset, { blocks: state.num_blocks ?? 0, held, shared });
  write(find("blocks-held"), `${whole(held)} held`);
  write(find("blocks-shared"), `${whole(shared)} held by several`);
  write(find("blocks-free"), `${whole(free)} free${cached}`);
  const all = plural(state.num_blocks ?? 0, "block");
  canvas.setAttribute("aria-label", `Map of ${all}: ${held} held, ${shared} by several requests`);
}

function redraw() {
  if (!state) return;
  if (!state.num_blocks) return showNoBlocks();
  canvas.hidden = false;
  fit();
  const inks = inksOf();
  context.clearRect(0, 0, canvas.width, canvas.height);
  for (let block = 0; block < grid.count; block += 1) drawBlock(block, inks);
  if (pointed !== null) outline(pointed, inks.ink, 2);
}

function showNoBlocks() {
  canvas.hidden = true;
  const unpaged = `The rung ${state.rung} keeps no blocks: its memory isn't paged.`;
  write(readout, state.rung ? unpaged : "No engine runs yet.");
}

function fit() {
  const width = canvas.parentElement.clientWidth - paddingOf(canvas.parentElement);
  const scale = devicePixelRatio;
  grid = layOut(Math.ceil(state.num_blocks / perSquare), width, HEIGHT);
  const [across, down] = [grid.columns * grid.cell, grid.rows * grid.cell];
  const size = [Math.round(across * scale), Math.round(down * scale)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) {
    [canvas.width, canvas.height] = size;
    canvas.style.width = `${across}px`;
    canvas.style.height = `${down}px`;
  }
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `${Math.round(grid.cell * 0.45)}px system-ui, sans-serif`;
}

function paddingOf(node) {
  const style = getComputedStyle(node);
  return parseFloat(style.paddingLeft) + parseFloat(style.paddingRight);
}

/** Colours of the theme and fills of the requests, made once for a whole drawing. */
function inksOf() {
  const style = getComputedStyle(document.body);
  const fills = new Map();
  const fill = (id) => {
    if (!fills.has(id)) {
      const look = lookOf(id);
      const plain = grid.cell < 6 ? look.colour : fillOf(context, look);
      fills.set(id, { ...look, fill: plain });
    }
    return fills.get(id);
  };
  return { free: style.getPropertyValue("--free"), ink: style.getPropertyValue("--ink"), fill };
}

function drawBlock(block, inks) {
  const [x, y] = cornerOf(grid, block);
  const side = grid.cell - grid.gap;
  const held = holders.get(block);
  const chosen = selected();
  const ours = held?.find(({ id }) => id === chosen);
  context.globalAlpha = chosen === null || ours ? 1 : 0.18;
  if (!held) {
    context.globalAlpha = 1;
    context.fillStyle = inks.free;
    context.fillRect(x, y, side, side);
    return;
  }
  const look = inks.fill((ours ?? held[0]).id);
  context.fillStyle = look.fill;
  context.fillRect(x, y, side, side);
  if (held.length > 1 && perSquare === 1) outline(block, inks.ink, grid.cell >= 10 ? 2 : 1);
  if (grid.cell >= NUMBERED) number(look, x + side / 2, y + side / 2, side);
  context.globalAlpha = 1;
}

function outline(block, ink, width) {
  const [x, y] = cornerOf(grid, block);
  const side = grid.cell - grid.gap - width;
  context.strokeStyle = ink;
  context.lineWidth = width;
  context.strokeRect(x + width / 2, y + width / 2, side, side);
}

function number(look, x, y, side) {
  if (look.pattern !== "solid") {
    context.fillStyle = look.colour; // a plain plate: figures on a pattern are hard to read
    context.fillRect(x - side * 0.36, y - side * 0.28, side * 0.72, side * 0.56);
  }
  context.fillStyle = look.ink;
  context.fillText(String(look.number), x, y + 0.5);
}

function point(block) {
  pointed = block;
  const held = block === null ? null : holders.get(block);
  // Of several holders, the one already pointed at stays.
  select(held ? (held.find(({ id }) => id === selected()) ?? held[0]).id : null);
  describe();
  redraw();
}

function describe() {
  if (!state?.num_blocks) return;
  if (pointed !== null) describeBlock();
  else write(readout, wordsOfSelected() ?? help());
}

function help() {
  return perSquare === 1 ? HELP : HELP.replace("one block", `${perSquare} blocks`);
}

function nameOf(square) {
  const first = square * perSquare;
  const last = Math.min(first + perSquare, state.num_blocks) - 1;
  return first === last ? `Block ${whole(first)}` : `Blocks ${whole(first)} to ${whole(last)}`;
}

/** What is said while a row or an answer is pointed at. */
function wordsOfSelected() {
  const request = state.requests.find(({ id }) => id === selected());
  if (!request) return null;
  const held = plural(request.block_ids?.length ?? 0, "block");
  return `No. ${lookOf(request.id).number} (${shortId(request.id)}) holds ${held}`;
}

function describeBlock() {
  const held = holders.get(pointed);
  if (!held) return write(readout, `${nameOf(pointed)}: free`);
  const names = held.slice(0, 4).map((request) => describeHolder(request));
  const more = held.length > 4 ? `, and ${held.length - 4} more` : "";
  const several = held.length > 1 ? `held by ${held.length} requests: ` : "";
  write(readout, `${nameOf(pointed)}: ${several}${names.join("; ")}${more}`);
}

function describeHolder(request) {
  const tenant = request.tenant ? `, ${request.tenant}` : "";
  const name = `No. ${lookOf(request.id).number} (${shortId(request.id)}${tenant})`;
  if (perSquare > 1) return name;
  const [place, all] = [request.block_ids.indexOf(pointed) + 1, request.block_ids.length];
  return `${name}, its block ${place} of ${all}`;
}

canvas.addEventListener("pointermove", (event) => {
  const block = blockAt(grid, event.offsetX, event.offsetY);
  if (block !== pointed) point(block);
});
for (const name of ["pointerleave", "blur"]) canvas.addEventListener(name, () => point(null));
canvas.addEventListener("keydown", (event) => {
  const next = neighbour(grid, pointed ?? 0, event.key);
  if (next === null) return;
  event.preventDefault();
  point(pointed === null ? 0 : next);
});
onSelect(() => {
  redraw();
  describe();
});
new ResizeObserver(redraw).observe(canvas.parentElement);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

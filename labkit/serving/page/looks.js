// How a request looks: a number, a colour and a pattern that it keeps as long as it lives.

// Told apart by the colour-blind, and by their lightness (Okabe and Ito, 2008).
const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442"];
const PATTERNS = ["solid", "rising", "dots", "falling", "bars"];
const MARK = "rgba(0, 0, 0, 0.32)";
const TILE = 6; // pixels after which a pattern repeats

const numbers = new Map(); // request id → number, from 1

/** Keeps the numbers of those still here, and gives the smallest free ones to the new. */
export function assign(ids) {
  const here = new Set(ids);
  for (const id of numbers.keys()) if (!here.has(id)) numbers.delete(id);
  const taken = new Set(numbers.values());
  let next = 1;
  for (const id of here) {
    if (numbers.has(id)) continue;
    while (taken.has(next)) next += 1;
    numbers.set(id, next);
    taken.add(next);
  }
}

export function lookOf(id) {
  const number = numbers.get(id) ?? 0;
  const place = Math.max(0, number - 1);
  const colour = place % COLOURS.length;
  return {
    number,
    colour: COLOURS[colour],
    ink: colour === 0 ? "#FFFFFF" : "#101418",
    pattern: PATTERNS[Math.floor(place / COLOURS.length) % PATTERNS.length],
  };
}

/** What a canvas fills a block with. */
export function fillOf(context, look) {
  if (look.pattern === "solid") return look.colour;
  const tile = document.createElement("canvas");
  tile.width = tile.height = TILE;
  const pen = tile.getContext("2d");
  pen.fillStyle = look.colour;
  pen.fillRect(0, 0, TILE, TILE);
  pen.strokeStyle = pen.fillStyle = MARK;
  pen.lineWidth = TILE / 4;
  draw[look.pattern](pen);
  return context.createPattern(tile, "repeat");
}

const draw = {
  rising: (pen) => diagonals(pen, TILE, 0),
  falling: (pen) => diagonals(pen, 0, TILE),
  dots: (pen) => {
    pen.beginPath();
    pen.arc(TILE / 2, TILE / 2, TILE / 4, 0, 2 * Math.PI);
    pen.fill();
  },
  bars: (pen) => pen.fillRect(0, 0, TILE / 3, TILE),
};

/** Three lines: where one leaves the tile, its neighbour comes in. */
function diagonals(pen, from, to) {
  pen.beginPath();
  for (const shift of [-TILE, 0, TILE]) {
    pen.moveTo(shift, from);
    pen.lineTo(shift + TILE, to);
  }
  pen.stroke();
}

/** Shows the look on a small element: its class carries the pattern. */
export function dress(node, look) {
  node.style.backgroundColor = look.colour;
  node.style.color = look.ink;
  node.dataset.pattern = look.pattern;
}

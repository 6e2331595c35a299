// Where the squares of a block map lie: as large as they may be, and all of them in view.

const LARGEST = 26; // CSS pixels, gap included
const SMALLEST = 2;

/** Columns, rows and the size of a cell for `count` squares in `width` by at most `height`. */
export function layOut(count, width, height) {
  let cell = LARGEST;
  while (cell > SMALLEST && rowsOf(count, width, cell) * cell > height) cell -= 1;
  const columns = Math.max(1, Math.floor(width / cell));
  const rows = Math.ceil(count / columns);
  return { cell, columns, rows, gap: cell >= 4 ? 1 : 0, count };
}

function rowsOf(count, width, cell) {
  return Math.ceil(count / Math.max(1, Math.floor(width / cell)));
}

export function cornerOf(grid, block) {
  return [(block % grid.columns) * grid.cell, Math.floor(block / grid.columns) * grid.cell];
}

/** The block at a place, or null beside the grid. */
export function blockAt(grid, x, y) {
  const column = Math.floor(x / grid.cell);
  const block = Math.floor(y / grid.cell) * grid.columns + column;
  return x >= 0 && y >= 0 && column < grid.columns && block < grid.count ? block : null;
}

/** Where an arrow key leads from `block`; null for other keys. */
export function neighbour(grid, block, key) {
  const steps = {
    ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns,
    Home: -block, End: grid.count - 1 - block,
  };
  if (!(key in steps)) return null;
  const next = block + steps[key];
  return next >= 0 && next < grid.count ? next : block;
}

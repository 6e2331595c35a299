// The request that is pointed at: block map, table and chat show the same one.

let chosen = null;
const listeners = [];

export function selected() {
  return chosen;
}

export function select(id) {
  if (id === chosen) return;
  chosen = id;
  for (const listener of listeners) listener(id);
}

export function onSelect(listener) {
  listeners.push(listener);
}

/** Pointing at `node`, or moving the focus into it, selects the request of `id()`. */
export function selectsOn(node, id) {
  for (const name of ["pointerenter", "focusin"]) node.addEventListener(name, () => select(id()));
  for (const name of ["pointerleave", "focusout"]) node.addEventListener(name, () => select(null));
}

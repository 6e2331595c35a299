// Numbers as a reader wants them, and elements made without innerHTML.

export const NONE = "–";

export function whole(value) {
  return value == null ? NONE : Math.round(value).toLocaleString("en-US");
}

export function percent(share) {
  return share == null ? NONE : `${Math.round(100 * share)} %`;
}

/** Milliseconds below a second, seconds above. */
export function duration(ms) {
  if (ms == null) return NONE;
  if (ms < 9.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${ms.toFixed(0)} ms`;
  return ms < 99_500 ? `${(ms / 1000).toPrecision(3)} s` : `${(ms / 1000).toFixed(0)} s`;
}

export function age(seconds) {
  if (seconds == null) return NONE;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

export function plural(count, noun) {
  return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** The end of an id: the start is the same for all. */
export function shortId(id) {
  return id.length > 10 ? `…${id.slice(-6)}` : id;
}

/** Of the values in any order, the one below which `share` of them lie; null for none. */
export function percentile(values, share) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function find(id) {
  return document.getElementById(id);
}

/** Writes only what has changed: nothing is selected, announced or laid out anew in vain. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

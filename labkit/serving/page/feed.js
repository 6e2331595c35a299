// The stream of /live: read by fetch, since EventSource can't send a key; connected again for ever.

import { call, events } from "./api.js";

const WAITS_MS = [500, 1000, 2000, 4000]; // then the last one again
const SILENCE_MS = 5000; // four states come a second: after so long the connection is dead

/**
 * Follows /live. `onState(state)` is told each state, `onLost(error)` that there is none now, and
 * `askForKey(error)` resolves when there is a new key. While the tab is hidden and `mayRest()`,
 * its connection is given back: a browser has six to a server, for all tabs together.
 */
export async function follow({ onState, onLost, askForKey, mayRest }) {
  for (let failures = 0; ; ) {
    await untilVisible(mayRest);
    try {
      await readStates((state) => {
        failures = 0;
        onState(state);
      }, mayRest);
    } catch (error) {
      if (error.status === 401) {
        await askForKey(error);
        continue;
      }
      if (document.hidden && mayRest()) continue;
      onLost(error);
    }
    await pause(WAITS_MS[Math.min(failures, WAITS_MS.length - 1)]);
    failures += 1;
  }
}

async function readStates(onState, mayRest) {
  const stop = new AbortController();
  let silence = setTimeout(() => stop.abort(), SILENCE_MS);
  const rest = () => document.hidden && mayRest() && stop.abort();
  document.addEventListener("visibilitychange", rest);
  try {
    const response = await call("live", { signal: stop.signal });
    for await (const state of events(response)) {
      clearTimeout(silence);
      silence = setTimeout(() => stop.abort(), SILENCE_MS);
      onState(state);
    }
    throw new Error("The stream of /live ended.");
  } finally {
    clearTimeout(silence);
    document.removeEventListener("visibilitychange", rest);
  }
}

function untilVisible(mayRest) {
  if (!document.hidden || !mayRest()) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, { once: true });
  });
}

/** Ends early when the machine says that it's on a network again. */
function pause(ms) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("online", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    addEventListener("online", end);
  });
}

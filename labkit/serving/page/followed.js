// Requests that the server took in without holding a connection: followed by id in /live.

import { call, cancelRequest } from "./api.js";
import { Timing } from "./completion.js";

const MISSED_STATES = 2; // one may have been written before the request came in

export class Followed {
  constructor() {
    this.waiting = new Map(); // request id → {timing, left, missed, resolve, reject}
  }

  /** The Timing of a request once it has ended: the server's TTFT, counted from when it left. */
  wait(id, { due, left, stop }) {
    const timing = new Timing(due);
    stop.signal.addEventListener("abort", () => cancelRequest(id).catch(() => {}));
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { timing, left, missed: 0, resolve, reject });
    });
  }

  /** Takes in a state of /live; who is no longer in it has ended, and is asked for its end. */
  observe(state) {
    const here = new Map(state.requests.map((request) => [request.id, request]));
    for (const [id, entry] of this.waiting) {
      const request = here.get(id);
      if (request) this.note(id, entry, request);
      else if ((entry.missed += 1) >= MISSED_STATES) this.lookUp(id, entry);
    }
  }

  note(id, { timing, left, resolve }, request) {
    if (request.ttft_s != null) timing.first = left + 1000 * request.ttft_s;
    if (request.state !== "finished") return;
    timing.reason = request.finish_reason;
    this.waiting.delete(id);
    resolve(timing);
  }

  async lookUp(id, entry) {
    this.waiting.delete(id);
    try {
      const request = await (await call(`v1/requests/${encodeURIComponent(id)}`)).json();
      if (request.state !== "finished") this.waiting.set(id, { ...entry, missed: 0 });
      this.note(id, entry, request);
    } catch (error) {
      entry.reject(error);
    }
  }
}

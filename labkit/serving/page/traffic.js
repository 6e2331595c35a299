// An open loop: requests leave at random moments, whether earlier ones have ended or not.

import { call } from "./api.js";
import { Timing, readAnswer, streamed } from "./completion.js";
import { Followed } from "./followed.js";

export const CLASSES = [
  { name: "chat", priority: 0 },
  { name: "agent", priority: 1 },
  { name: "batch", priority: 2 },
];
const MOST_FOLLOWED = 256;
// A browser has six connections to a server: the live engine, a chat and a cancel need theirs.
const MOST_STREAMED = 3;
const IDS = { first: 33, count: 90 }; // token ids of single characters, in most vocabularies

/**
 * `settings` may change at any time: `rate` (per second), `promptTokens`, `outputTokens`,
 * `samePercent` (of the prompt, the same for a class) and `shares` (by class).
 * Each request is counted once: finished, cancelled, refused (429), failed, or skipped unsent.
 */
export class Traffic {
  constructor(settings, model) {
    Object.assign(this, { settings, model, running: false, dropPriority: false, note: "" });
    this.followed = new Followed();
    this.followable = null; // whether the server lets go of the connection; known after the first
    this.inFlight = new Set();
    this.reset();
  }

  reset() {
    this.counts = { sent: 0, finished: 0, cancelled: 0, refused: 0, failed: 0, skipped: 0 };
    this.classes = Object.fromEntries(
      CLASSES.map(({ name }) => [name, { sent: 0, finished: 0, ttfts: [] }]),
    );
    this.note = "";
    this.dropPriority = false;
  }

  start() {
    this.reset();
    this.running = true;
    this.retime();
  }

  stop() {
    this.running = false;
    clearTimeout(this.timer);
  }

  cancel() {
    for (const sent of this.inFlight) sent.stop.abort();
  }

  /** A new rate counts from now on: gaps of an exponential distribution have no memory. */
  retime() {
    clearTimeout(this.timer);
    this.next = performance.now();
    this.schedule();
  }

  schedule() {
    const { rate } = this.settings;
    if (!this.running || rate <= 0) return;
    this.next += (-Math.log(1 - Math.random()) / rate) * 1000;
    const due = this.next; // the clock of a request starts here, even when a timer is late
    this.timer = setTimeout(() => {
      this.arrive(due);
      this.schedule();
    }, Math.max(0, due - performance.now()));
  }

  get most() {
    return this.followable ? MOST_FOLLOWED : MOST_STREAMED;
  }

  async arrive(due) {
    const kind = pick(this.settings.shares);
    if (!kind) return;
    if (this.inFlight.size >= this.most) {
      this.counts.skipped += 1;
      return;
    }
    const sent = { kind, due, stop: new AbortController(), results: this.classes[kind.name] };
    this.inFlight.add(sent);
    this.counts.sent += 1;
    sent.results.sent += 1;
    this.count(await this.outcome(sent), sent);
    this.inFlight.delete(sent);
  }

  count(outcome, { results }) {
    this.counts[outcome] += 1;
    if (outcome === "finished") results.finished += 1;
  }

  async outcome(sent) {
    try {
      const timing = await this.send(sent);
      if (timing.ttft !== null) sent.results.ttfts.push(timing.ttft);
      if (timing.reason === "abort") return "cancelled";
      return ["error", "deadline"].includes(timing.reason) ? "failed" : "finished";
    } catch (error) {
      if (error.name === "AbortError" || error.code === "cancelled") return "cancelled";
      this.note = error.message;
      return error.status === 429 ? "refused" : "failed";
    }
  }

  async send(sent) {
    const body = streamed({ ...this.bodyOf(sent.kind), model: await this.model() });
    if (!this.dropPriority) body.priority = sent.kind.priority;
    sent.left = performance.now();
    const response = await this.post(body, sent.stop.signal);
    this.followable = response.status === 202;
    if (this.followable) return this.followed.wait((await response.json()).id, sent);
    const timing = new Timing(sent.due);
    await readAnswer(response, timing);
    return timing;
  }

  /** Asks to be let go of at once (RFC 7240); a server that can't do so streams the answer. */
  async post(body, signal) {
    const options = { method: "POST", signal, headers: { Prefer: "respond-async" } };
    try {
      return await call("v1/completions", { ...options, body });
    } catch (error) {
      if (!namesPriority(error) || !("priority" in body)) throw error;
      this.dropPriority = true;
      const { priority, ...rest } = body;
      return call("v1/completions", { ...options, body: rest });
    }
  }

  bodyOf({ name, priority }) {
    const { promptTokens, outputTokens, samePercent } = this.settings;
    const same = Math.floor((promptTokens * samePercent) / 100);
    const prompt = Array.from({ length: promptTokens }, (_, place) => {
      const step = place < same ? place * 7 + priority * 31 : Math.floor(Math.random() * IDS.count);
      return IDS.first + (step % IDS.count);
    });
    return { prompt, max_tokens: outputTokens, ignore_eos: true, user: name };
  }
}

function namesPriority(error) {
  return error.status === 400 && (error.param === "priority" || /priority/.test(error.message));
}

/** One of the classes, as often as its share says; null when no share is above 0. */
function pick(shares) {
  const total = CLASSES.reduce((sum, { name }) => sum + shares[name], 0);
  let place = Math.random() * total;
  return CLASSES.find(({ name }) => (place -= shares[name]) < 0) ?? null;
}

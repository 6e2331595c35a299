// One streamed completion: its text, and when its tokens came.

import { ApiError, call, events } from "./api.js";

/**
 * Times of an answer in milliseconds, on the clock of performance.now().
 * `usage` says how many tokens there were: one chunk may carry several.
 */
export class Timing {
  constructor(start) {
    Object.assign(this, { start, first: null, last: null, chunks: 0, usage: null, reason: null });
  }

  get tokens() {
    return this.usage?.completion_tokens ?? this.chunks;
  }

  get ttft() {
    return this.first === null ? null : this.first - this.start;
  }

  /** The mean gap between tokens; an answer of one token has none. */
  get itl() {
    return this.tokens > 1 ? (this.last - this.first) / (this.tokens - 1) : null;
  }

  stamp() {
    this.last = performance.now();
    this.first ??= this.last;
    this.chunks += 1;
  }
}

/** Asks and reads to the end. `onChunk({id, text, timing})` is told of each piece of text. */
export async function complete(path, body, { signal, onChunk, start = performance.now() }) {
  const timing = new Timing(start);
  const response = await call(path, { method: "POST", body: streamed(body), signal });
  await readAnswer(response, timing, onChunk);
  return timing;
}

export function streamed(body) {
  return { ...body, stream: true, stream_options: { include_usage: true } };
}

export async function readAnswer(response, timing, onChunk = () => {}) {
  for await (const chunk of events(response)) {
    if (chunk === null) return; // [DONE]
    if (chunk.error) throw new ApiError(chunk.error.message, chunk.error);
    if (chunk.usage) timing.usage = chunk.usage;
    for (const choice of chunk.choices ?? []) takeIn(choice, chunk.id, timing, onChunk);
  }
  throw new ApiError("The answer broke off before its end.");
}

function takeIn(choice, id, timing, onChunk) {
  const text = choice.text ?? choice.delta?.content ?? "";
  if (choice.finish_reason) timing.reason = choice.finish_reason;
  if (text) timing.stamp(); // a chat's first chunk has a role only: no token yet
  onChunk({ id, text, timing });
}

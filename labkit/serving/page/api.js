// Calls to the server that served this page: the API key, errors in words, server-sent events.

const KEY = "labkit.key";

export class ApiError extends Error {
  constructor(message, { status = 0, param = null, code = null } = {}) {
    super(message);
    Object.assign(this, { status, param, code });
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** A response whose status is fine; ApiError otherwise. Paths are relative: a proxy may prefix. */
export async function call(path, { method = "GET", body, signal, headers = {} } = {}) {
  const sent = { ...headers };
  const key = sessionStorage.getItem(KEY);
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body) sent["Content-Type"] = "application/json";
  const options = { method, signal, headers: sent, body: body && JSON.stringify(body) };
  const response = await inWords(fetch(path, { ...options, cache: "no-store" }));
  if (!response.ok) throw await errorOf(response);
  return response;
}

export function cancelRequest(id) {
  return call(`v1/requests/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** Yields the JSON of each server-sent event until the stream ends; `[DONE]` comes as null. */
export async function* events(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await inWords(reader.read());
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const parts = text.split(/\r?\n\r?\n/);
      text = parts.pop();
      for (const part of parts) yield* dataOf(part);
    }
  } finally {
    reader.cancel().catch(() => {}); // left early: the connection is let go
  }
}

function* dataOf(event) {
  const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
  if (!lines.length) return; // a comment that keeps the connection alive
  const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
  yield data === "[DONE]" ? null : JSON.parse(data);
}

/** The browser's own words for a broken connection tell a reader nothing. */
async function inWords(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection to the server broke off. Is it still running?");
  }
}

async function errorOf(response) {
  const { status } = response;
  const { error } = await response.json().catch(() => ({}));
  const message = error?.message ?? `The server answered ${status} ${response.statusText}`.trim();
  return new ApiError(message, { ...error, status });
}

// The chat: one conversation, its answers streamed, stopped and timed.

import { complete } from "./completion.js";
import { duration, element, find, plural, write } from "./format.js";
import { selectsOn } from "./selection.js";

const log = find("chat-log");
const input = find("chat-input");
const EMPTY = log.firstElementChild;
const REASONS = { length: "cut at max tokens", abort: "cancelled", deadline: "past its deadline" };

let turns = []; // what the next question is asked upon: {role, content}
let stop = null; // AbortController of the answer under way

/** `model()` resolves to the name that the server serves. */
export function startChat(model) {
  find("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    send(model);
  });
  input.addEventListener("keydown", (event) => {
    // Enter also ends the composition of a Hangul syllable; then it sends nothing.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send(model);
  });
  find("chat-stop").addEventListener("click", () => stop?.abort());
  find("chat").addEventListener("keydown", (event) => event.key === "Escape" && stop?.abort());
  find("chat-clear").addEventListener("click", clear);
}

function clear() {
  stop?.abort();
  turns = [];
  log.replaceChildren(EMPTY);
  input.focus();
}

async function send(model) {
  const text = input.value.trim();
  if (!text || stop) return;
  input.value = "";
  const conversation = turns;
  const question = { role: "user", content: text };
  addMessage("You", "user").body.textContent = text;
  const answer = new Answer();
  busy(new AbortController());
  try {
    const body = { model: await model(), messages: messages(question), ...settings() };
    await answer.stream(body, stop.signal);
  } catch (error) {
    answer.fail(error);
  }
  busy(null);
  if (answer.text) conversation.push(question, { role: "assistant", content: answer.text });
  else if (!input.value && answer.failed) input.value = text; // to be sent again
}

function messages(question) {
  const system = find("chat-system").value.trim();
  const first = system ? [{ role: "system", content: system }] : [];
  return [...first, ...turns, question];
}

/** Only the fields that were filled in: for the others the server has its own defaults. */
function settings() {
  const fields = {
    priority: "chat-priority",
    temperature: "chat-temperature",
    max_tokens: "chat-max-tokens",
  };
  const filled = Object.entries(fields).filter(([, id]) => find(id).value !== "");
  return Object.fromEntries(filled.map(([name, id]) => [name, Number(find(id).value)]));
}

function busy(controller) {
  const hadFocus = document.activeElement === find("chat-stop");
  stop = controller;
  find("chat-send").hidden = Boolean(stop);
  find("chat-stop").hidden = !stop;
  if (hadFocus) input.focus();
}

function addMessage(who, kind) {
  EMPTY.remove();
  const body = element("div", { class: "text", dir: "auto" });
  const node = element("article", { class: kind }, element("h3", {}, who), body);
  log.append(node);
  log.scrollTop = log.scrollHeight;
  return { node, body };
}

/** One answer on its way: its text, its times, and how it ended. */
class Answer {
  constructor() {
    const { node, body } = addMessage("Answer", "assistant");
    this.node = node;
    this.body = body;
    this.figures = element("p", { class: "times" }, "waiting for the first token");
    node.append(this.figures);
    node.setAttribute("aria-busy", "true"); // read out when it's whole, not token by token
    this.text = "";
    this.id = null;
    this.failed = false;
    selectsOn(node, () => this.id);
  }

  async stream(body, signal) {
    const onChunk = (chunk) => this.takeIn(chunk);
    const timing = await complete("v1/chat/completions", body, { signal, onChunk });
    this.end(timing, REASONS[timing.reason]);
  }

  takeIn({ id, text, timing }) {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    this.id = id;
    this.timing = timing;
    this.text += text;
    this.body.append(text);
    if (timing.first !== null) write(this.figures, timesOf(timing));
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  fail(error) {
    if (error.name === "AbortError") return this.end(this.timing, "stopped");
    if (error.code === "cancelled") return this.end(this.timing, "cancelled");
    this.failed = true;
    this.node.append(element("p", { class: "error", role: "alert" }, error.message));
    this.end(this.timing);
  }

  end(timing, remark) {
    const times = timing?.first == null ? "" : timesOf(timing);
    write(this.figures, [times, remark].filter(Boolean).join(" · "));
    this.node.removeAttribute("aria-busy");
    log.scrollTop = log.scrollHeight;
  }
}

function timesOf(timing) {
  const itl = timing.itl === null ? "" : ` · ITL ${duration(timing.itl)} mean`;
  // Chunks stand for tokens until the server has counted them.
  const count = timing.usage ? plural(timing.tokens, "token") : plural(timing.chunks, "chunk");
  return `TTFT ${duration(timing.ttft)}${itl} · ${count}`;
}

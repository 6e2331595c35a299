// The header's badge and facts, and the big figures below it.

import { NONE, duration, element, find, percent, whole, write } from "./format.js";

const FIGURES = [
  { name: "Tokens/s", value: (s) => whole(s.tokens_per_s), note: () => "the last second" },
  {
    name: "Running",
    value: (s) => whole(s.running),
    note: (s) => `of at most ${whole(s.max_num_seqs)}`,
  },
  { name: "Waiting", value: (s) => whole(s.waiting), note: () => "in line" },
  {
    name: "KV use",
    value: (s) => percent(s.kv_usage),
    note: (s) => (s.num_blocks ? `of ${whole(s.num_blocks)} blocks` : "no blocks"),
  },
  { name: "TTFT p50", value: (s) => duration(s.ttft_p50_ms), note: (s) => p99(s.ttft_p99_ms) },
  { name: "ITL p50", value: (s) => duration(s.itl_p50_ms), note: (s) => p99(s.itl_p99_ms) },
  { name: "Step", value: (s) => duration(s.step_ms), note: () => "the last one" },
  { name: "Preemptions", value: (s) => whole(s.preemptions), note: () => "since the start" },
  {
    name: "Finished",
    value: (s) => whole(s.finished),
    note: (s) => `${whole(s.failed)} failed or cancelled`,
  },
];

const FACTS = [
  ["model", (s) => s.model],
  ["rung", (s) => s.rung],
  ["policy", (s) => s.policy],
  ["dtype", (s) => s.dtype],
  ["context", (s) => s.max_model_len && `${whole(s.max_model_len)} tokens`],
  ["block", (s) => s.block_size && `${whole(s.block_size)} tokens`],
  ["your parts", (s) => s.mine?.join(", ")],
];

const TITLES = {
  "TTFT p50": "Time to first token, from arrival; over the last 10 seconds",
  "ITL p50": "Inter-token latency: the gap between tokens of one request; over the last 10 seconds",
  Step: "How long the engine's last step took",
  "KV use": "Share of the KV cache's blocks that requests hold",
};

const shown = FIGURES.map(makeFigure);

function p99(ms) {
  return ms == null ? "none in 10 s" : `p99 ${duration(ms)}`;
}

function makeFigure({ name, value, note }) {
  const big = element("dd", { class: "value", "data-figure": name }, NONE);
  const small = element("dd", { class: "note" });
  const attributes = TITLES[name] ? { title: TITLES[name] } : {};
  find("figures").append(element("div", attributes, element("dt", {}, name), big, small));
  return (state) => {
    write(big, value(state));
    write(small, note(state));
  };
}

export function showFigures(state) {
  for (const show of shown) show(state);
  showFacts(state);
}

function showFacts(state) {
  const facts = FACTS.map(([name, value]) => [name, value(state)]).filter(([, value]) => value);
  const place = find("facts");
  const text = JSON.stringify(facts);
  if (place.dataset.facts === text) return;
  place.dataset.facts = text;
  place.replaceChildren(
    ...facts.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value)),
    ),
  );
}

/** `kind` colours the badge; `words` say it, for those who see no colour. */
export function showStatus(kind, words, detail = "") {
  document.body.dataset.status = kind;
  write(find("status"), words);
  write(find("status-detail"), detail);
}

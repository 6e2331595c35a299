// The page: the live engine's states go to every part that shows them.

import { call, setKey } from "./api.js";
import { showBlocks } from "./blocks.js";
import { showHistory } from "./charts.js";
import { startChat } from "./chat.js";
import { follow } from "./feed.js";
import { showFigures, showStatus } from "./figures.js";
import { find, write } from "./format.js";
import { isLoading, limitLoad, startLoad } from "./load.js";
import { assign } from "./looks.js";
import { showRequests } from "./requests.js";

const LOST = "connection lost; trying again";
let latest = null; // the newest state of /live

/** The name of the served model: from the live engine, or from the list of models without it. */
async function model() {
  if (latest?.model) return latest.model;
  const { data } = await (await call("v1/models")).json();
  return data[0].id;
}

function onState(state) {
  latest = state;
  find("key-form").hidden = true;
  showStatus(state.status, state.status, state.status === "ready" ? "" : state.detail);
  assign(state.requests.filter((request) => request.state !== "finished").map(({ id }) => id));
  for (const show of [showFigures, showHistory, showBlocks, showRequests, limitLoad]) show(state);
}

function onLost(error) {
  showStatus("lost", LOST, error.status >= 400 ? error.message : "");
}

function askForKey(error) {
  const form = find("key-form");
  showStatus("locked", "API key needed");
  write(find("key-note"), form.hidden ? "" : error.message);
  form.hidden = false;
  find("key").focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      setKey(find("key").value);
      resolve();
    }, { once: true });
  });
}

const traffic = startLoad(model);
startChat(model);
follow({ onState, onLost, askForKey, mayRest: () => !isLoading() });

// For tests and the curious: what the page knows.
window.labkit = {
  get state() {
    return latest;
  },
  traffic,
};

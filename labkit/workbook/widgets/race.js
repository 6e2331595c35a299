// Lanes of text that appears as it did, in real time or faster.

function render({ model, el }) {
  const data = model.get("data");
  const parts = frame(el, data.title);
  parts.words.removeAttribute("role"); // it changes with each word: too much to read aloud
  parts.words.setAttribute("aria-live", "off");
  parts.words.style.minHeight = "0";
  const grid = html("div", { class: "labkit-lanes" });
  parts.stage.append(grid);
  const lanes = data.lanes.map((lane, i) => addLane(grid, lane, COLOURS[i % COLOURS.length]));
  const control = player(parts, model, {
    last: data.last,
    step: data.last / 200, // of a press of an arrow key
    perSecond: 1,
    speeds: [1, 2, 5, 10],
    counter: (time) => `${time.toFixed(2)} s`,
    show: (time) => {
      for (const lane of lanes) lane.show(time);
      parts.words.textContent = time >= data.last ? data.story : "";
    },
  });
  control.redraw();
  return () => control.stop();
}

function addLane(grid, { name, pieces }, colour) {
  const told = html("span");
  const text = html("div", { class: "labkit-text", tabindex: -1 });
  const lane = html("div", { class: "labkit-lane", role: "group", "aria-label": name });
  lane.style.borderLeftColor = colour;
  lane.append(html("header", {}, html("b", {}, name), told), text);
  grid.append(lane);
  const shown = pieces.filter(([, piece]) => piece);
  const whole = shown.map(([, piece]) => piece).join("");
  const ends = [];
  let length = 0;
  for (const [, piece] of shown) ends.push((length += piece.length));
  let before = -1;
  return {
    show(time) {
      let count = 0; // pieces that are there
      while (count < shown.length && shown[count][0] <= time + 1e-9) count++;
      if (count === before) return;
      before = count;
      text.textContent = whole.slice(0, count ? ends[count - 1] : 0);
      text.scrollTop = text.scrollHeight;
      const first = count ? `first text ${shown[0][0].toFixed(2)} s` : "nothing yet";
      const all = count && count === shown.length ? `, all ${shown[count - 1][0].toFixed(2)} s` : "";
      told.textContent = first + all;
    },
  };
}

export default { render };

// Throughput and latency against batch size; a slider moves the SLO, and with it the best batch.

const LATENCIES = { e2e_s: ["E2E", BLUE], ttft_s: ["TTFT", "#56B4E9"], itl_s: ["ITL", "#CC79A7"] };

function render({ model, el }) {
  const data = model.get("data");
  const parts = frame(el, data.title);
  const which = html("select", { "aria-label": "Latency that the SLO limits" });
  for (const [key, [name]] of Object.entries(LATENCIES)) which.append(html("option", { value: key }, name));
  which.value = data.latency;
  const slider = html("input", { type: "range", min: 0, max: 100, step: 1, "aria-label": "SLO" });
  const count = html("span", { class: "labkit-count" });
  parts.controls.append(html("label", {}, "SLO:", which), slider, count);
  let width = 0;

  const bounds = () => {
    const all = data.points.map((point) => point[which.value]).filter((value) => value > 0);
    return [Math.min(...all) * 0.8, Math.max(...all) * 1.25];
  };
  const limit = () => {
    const [low, high] = bounds();
    return +(low * (high / low) ** (Number(slider.value) / 100)).toPrecision(3);
  };
  const set = (slo) => {
    const [low, high] = bounds();
    slider.value = Math.round((100 * Math.log(slo / low)) / Math.log(high / low));
  };
  const draw = () => {
    const slo = limit();
    const best = bestUnder(data.points, slo, which.value);
    const limited = `${LATENCIES[which.value][0]} <= ${span(slo)}`;
    count.textContent = limited;
    slider.setAttribute("aria-valuetext", limited);
    parts.words.textContent =
      `${data.story[which.value]} Within ${limited} ` +
      (best ? `the best is batch ${best.batch_size}, ${best.told[which.value]}.` : "there is no batch size: goodput is 0.");
    if (width) parts.stage.replaceChildren(drawCharts(data, slo, which.value, best, width));
  };
  slider.addEventListener("input", draw);
  which.addEventListener("change", () => {
    const [low, high] = bounds();
    set(Math.sqrt(low * high));
    draw();
  });
  parts.root.addEventListener("keydown", (event) => event.stopPropagation());
  const [low, high] = bounds();
  set(data.slo || Math.sqrt(low * high));
  return whenResized(parts.stage, (now) => ((width = now), draw()));
}

function bestUnder(points, slo, latency) {
  const fine = points.filter((point) => point[latency] <= slo);
  return fine.reduce((best, point) => (best && best.tokens_per_s >= point.tokens_per_s ? best : point), null);
}

const span = (seconds) =>
  seconds < 0.9995 ? `${+(1000 * seconds).toPrecision(3)} ms` : `${+seconds.toPrecision(3)} s`;

function drawCharts(data, slo, latency, best, width) {
  const beside = width >= 640;
  const wide = beside ? width / 2 - 10 : width;
  const high = 230;
  const root = svg("svg", { width, height: beside ? high : 2 * high, role: "img", "aria-label": data.title });
  const second = svg("g", { transform: beside ? `translate(${wide + 20},0)` : `translate(0,${high})` });
  root.append(speed(data, slo, latency, best, wide, high), second);
  second.append(latencies(data, slo, latency, best, wide, high));
  return root;
}

// A chart's scales: batch size (logarithmic) to the right, `y` from 0 to 1 upward.
function scales(data, wide, high) {
  const sizes = data.points.map((point) => Math.log2(point.batch_size));
  const [low, most] = [Math.min(...sizes), Math.max(...sizes)];
  const x = (size) => 60 + ((Math.log2(size) - low) / (most - low || 1)) * (wide - 90);
  const y = (share) => 36 + (1 - share) * (high - 84);
  const group = svg("g");
  for (const { batch_size: size } of data.points) {
    group.append(line(x(size), y(0), x(size), y(1), { opacity: 0.12 }));
    group.append(label(x(size), y(0) + 16, size, { "text-anchor": "middle" }));
  }
  group.append(label(60 + (wide - 90) / 2, y(0) + 32, "batch size", { "text-anchor": "middle" }));
  group.append(line(60, y(0), wide - 24, y(0), { opacity: 0.6 }));
  return { x, y, group };
}

const path = (points, style) =>
  svg("polyline", { points: points.map((p) => p.join(",")).join(" "), fill: "none", "stroke-width": 2, ...style });

function speed(data, slo, latency, best, wide, high) {
  const { x, y, group } = scales(data, wide, high);
  const most = 1.15 * Math.max(...data.points.map((point) => point.tokens_per_s));
  const up = (value) => y(value / most);
  for (const value of ticks(most, 4)) {
    group.append(line(56, up(value), wide - 24, up(value), { opacity: 0.12 }));
    group.append(label(52, up(value) + 4, plain(value), { "text-anchor": "end" }));
  }
  const fine = (point) => point[latency] <= slo;
  group.append(label(4, 14, "tokens/s: "), label(62, 14, "○ all", { fill: BLUE }), label(100, 14, "■ goodput, within the SLO", { fill: GREEN }));
  group.append(path(data.points.map((p) => [x(p.batch_size), up(p.tokens_per_s)]), { stroke: BLUE }));
  group.append(path(data.points.map((p) => [x(p.batch_size), up(fine(p) ? p.tokens_per_s : 0)]), { stroke: GREEN, "stroke-dasharray": "6 4" }));
  for (const point of data.points) {
    const [cx, cy] = [x(point.batch_size), up(point.tokens_per_s)];
    group.append(svg("circle", { cx, cy, r: 5, fill: "none", stroke: BLUE, "stroke-width": 2 }));
    const good = up(fine(point) ? point.tokens_per_s : 0);
    group.append(rect(cx - 3.5, good - 3.5, 7, 7, { fill: GREEN }));
    if (point.batch_size === data.knee)
      group.append(line(cx, cy + 8, cx, cy + 20), label(cx, cy + 33, "knee", { "text-anchor": "middle", "font-weight": 700 }));
  }
  if (best) {
    const [cx, cy] = [x(best.batch_size), up(best.tokens_per_s)];
    group.append(svg("circle", { cx, cy, r: 11, fill: "none", stroke: ORANGE, "stroke-width": 3 }));
    const text = `best: ${best.batch_size}`;
    group.append(label(cx, cy - 16, text, { "text-anchor": "middle", "font-weight": 700, fill: ORANGE, class: "labkit-best" }));
  }
  return group;
}

function latencies(data, slo, latency, best, wide, high) {
  const { x, y, group } = scales(data, wide, high);
  const all = data.points.flatMap((point) => Object.keys(LATENCIES).map((key) => point[key])).filter((value) => value > 0);
  const [low, most] = [Math.log10(Math.min(...all, slo) * 0.8), Math.log10(Math.max(...all, slo) * 1.25)];
  const up = (value) => y((Math.log10(value) - low) / (most - low));
  const marks = [0.0001, 0.001, 0.01, 0.1, 1, 10, 100, 1000].flatMap((power) => [power, 2 * power, 5 * power]);
  const shown = marks.filter((value) => Math.log10(value) >= low && Math.log10(value) <= most);
  for (const value of shown.filter((_, i) => i % Math.ceil(shown.length / 6) === 0)) {
    group.append(line(56, up(value), wide - 24, up(value), { opacity: 0.12 }));
    group.append(label(52, up(value) + 4, span(value), { "text-anchor": "end" }));
  }
  let place = 4;
  for (const [key, [name, stroke]] of Object.entries(LATENCIES)) {
    const points = data.points.filter((point) => point[key] > 0);
    const opacity = key === latency ? 1 : 0.45;
    group.append(path(points.map((p) => [x(p.batch_size), up(p[key])]), { stroke, opacity }));
    for (const p of points) group.append(svg("circle", { cx: x(p.batch_size), cy: up(p[key]), r: 4, fill: stroke, opacity }));
    group.append(label(place, 14, `● ${name}`, { fill: stroke, "font-weight": key === latency ? 700 : 400 }));
    place += 52;
  }
  group.append(line(56, up(slo), wide - 24, up(slo), { stroke: ORANGE, "stroke-width": 2.5, "stroke-dasharray": "7 4" }));
  group.append(label(place, 14, "╌ SLO", { fill: ORANGE, "font-weight": 700 }));
  return group;
}

export default { render };

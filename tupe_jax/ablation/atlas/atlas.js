"use strict";
// Sorts, filters and draws the numbers of the element "data".
const studies = JSON.parse(document.getElementById("data").textContent);
const DASHES = ["", "7 4", "2 3", "10 3 2 3"];
const state = { study: 0, sort: 0, descending: false, filter: "", hidden: new Set(), on: null };

function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const style = (index) => ({
  stroke: `var(--c${index % 7})`,
  "stroke-dasharray": DASHES[Math.floor(index / 7) % DASHES.length],
});
const number = (value, digits) => value.toLocaleString("en", {
  minimumFractionDigits: digits, maximumFractionDigits: digits });
const short = (value) => Math.abs(value) >= 1000 ? number(value, 0) : String(+value.toPrecision(4));
const signed = (value) => number(value, 2);

// The table. A column has a title, a value to sort by, and a text.
function columnsOf(study) {
  const columns = [
    { title: "variant", value: (v) => v.name },
    { title: "seeds", value: (v) => v.seeds, text: (v) => v.diverged
      ? `${v.seeds} (${v.diverged} diverged)` : String(v.seeds) },
    { title: "learning rate", value: (v) => v.rate },
  ];
  study.columns.forEach((column, index) => columns.push({
    title: column.title, value: (v) => v.values[index] && v.values[index].mean,
    text: (v) => withSpread(v.values[index], column.digits),
  }));
  const longest = Math.max(...study.variants.flatMap((v) => v.lengths.filter((l) => l.loss).map((l) => l.length)));
  if (longest > 0) columns.push({
    title: `loss at ${longest} tokens, best rule`,
    value: (v) => bestAt(v, longest)?.loss.mean, text: (v) => {
      const best = bestAt(v, longest);
      return best ? [number(best.loss.mean, 3), element("span", { class: "sd" }, ` ${rule(best.rule)}`)] : "";
    },
  });
  if (study.variants.some((v) => v.steps)) columns.push({
    title: `steps to ${study.first}'s final loss`, value: (v) => v.steps && v.steps.mean,
    text: (v) => !v.steps ? "" : v.steps.mean !== null ? number(v.steps.mean, 0)
      : v.steps.reached ? `${v.steps.reached} of ${v.seeds} seeds` : "never",
  }, {
    title: `speed-up (95 %)`, value: (v) => v.steps && v.steps.ratio,
    text: (v) => !v.steps || v.steps.ratio === null ? "" : [`${number(v.steps.ratio, 2)}x`,
      element("span", { class: "sd" }, v.steps.interval
        ? ` ${signed(v.steps.interval[0])} to ${signed(v.steps.interval[1])}` : "")],
  });
  columns.push(
    { title: "parameters", value: (v) => v.parameters,
      text: (v) => v.parameters === null ? "" : number(v.parameters, 0) },
    { title: "absolute", value: (v) => v.absolute }, { title: "relative", value: (v) => v.relative },
    { title: "[CLS]", value: (v) => v.cls }, { title: "settings", value: (v) => v.settings });
  return columns;
}

const rule = (name) => name.replace("_", " ");
const bestAt = (variant, length) => variant.lengths.filter((l) => l.length === length && l.loss)
  .sort((a, b) => a.loss.mean - b.loss.mean)[0];

function withSpread(cell, digits) {
  if (!cell) return "";
  const spread = cell.sd === null ? "" : ` ± ${number(cell.sd, digits)}`;
  return [number(cell.mean, digits), element("span", { class: "sd" }, spread)];
}

function compare(a, b) {
  const nothing = (x) => x === null || x === undefined || x === "";
  if (nothing(a) || nothing(b)) return nothing(a) - nothing(b);
  const order = typeof a === "string" ? a.localeCompare(b) : a - b;
  return state.descending ? -order : order;
}

function drawTable(study, columns, place, after) {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (v) => `${v.name} ${v.encoding} ${v.absolute} ${v.relative} ${v.settings}`.toLowerCase();
  const shown = study.variants.filter((v) => words.every((word) => text(v).includes(word)));
  if (state.sort !== null) {
    const { value } = columns[state.sort];
    shown.sort((a, b) => compare(value(a), value(b)));
  }
  const head = columns.map((column, index) => element("th", {
    scope: "col",
    ...(state.sort === index ? { "aria-sort": state.descending ? "descending" : "ascending" } : {}),
  }, element("button", { type: "button", onclick: () => {
    state.descending = state.sort === index && !state.descending;
    state.sort = index;
    after();
  } }, column.title)));
  const rows = shown.map((variant) => {
    const index = study.variants.indexOf(variant);
    const cells = columns.map((column, at) => {
      const shownAs = column.text ? column.text(variant) : column.value(variant) ?? "";
      const content = Array.isArray(shownAs) ? shownAs : [String(shownAs)];
      return element("td", {}, ...(at ? content : [swatch(index), ...content]));
    });
    return element("tr", {
      class: state.hidden.has(variant.name) ? "off" : "",
      "data-name": variant.name,
      onclick: () => {
        if (!state.hidden.delete(variant.name)) state.hidden.add(variant.name);
        after();
      },
      onmouseenter: () => highlight(variant.name),
      onmouseleave: () => highlight(null),
    }, ...cells);
  });
  place.replaceChildren(element("table", {},
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
  return new Set(shown.map((v) => v.name).filter((name) => !state.hidden.has(name)));
}

const swatch = (index) => svg("svg", { class: "swatch", viewBox: "0 0 30 12", "aria-hidden": "true" },
  svg("line", { x1: 0, x2: 30, y1: 6, y2: 6, "stroke-width": 3.5, ...style(index) }));

function highlight(name) {
  state.on = name;
  for (const node of document.querySelectorAll("[data-name]")) {
    const other = name !== null && node.dataset.name !== name;
    if (node.tagName === "TR") node.classList.toggle("on", node.dataset.name === name);
    else node.style.opacity = other ? .12 : "";
  }
}

// Plots. A series has a name, an index for its style, and points {x, mean, low, high}.
function ticks(low, high, count) {
  const step = 10 ** Math.floor(Math.log10((high - low) / count));
  const nice = [1, 2, 5, 10].map((m) => m * step).find((s) => (high - low) / s <= count) ?? 10 * step;
  const found = [];
  for (let k = Math.ceil(low / nice - 1e-9); k * nice <= high + 1e-9 * nice; k++) found.push(+(k * nice).toPrecision(9));
  return found;
}

function frame(place, { xs, ys, xLabel, yLabel, logX, logY, about }) {
  const width = Math.max(280, place.clientWidth), height = Math.round(Math.min(360, width * .68));
  const margin = { left: 52, right: 14, top: 22, bottom: 40 };
  const range = (values, log) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const pad = high > low ? (high - low) * .04 : Math.abs(high) * .1 || 1;
    return log ? [low / 1.08, high * 1.08] : [low - pad, high + pad];
  };
  const scaleOf = ([low, high], log, from, to) => {
    const f = log ? Math.log2 : (value) => value;
    return (value) => from + (f(value) - f(low)) / (f(high) - f(low)) * (to - from);
  };
  const [xRange, yRange] = [range(xs, logX), range(ys, logY)];
  const x = scaleOf(xRange, logX, margin.left, width - margin.right);
  const y = scaleOf(yRange, logY, height - margin.bottom, margin.top);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": about });
  const decades = (low, high) => {
    const found = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++)
      for (const m of [1, 2, 5]) found.push(m * 10 ** k);
    return found.filter((value) => value >= low && value <= high);
  };
  const yTicks = logY ? decades(...yRange) : ticks(...yRange, 6);
  const xTicks = logX ? [...new Set(xs)].sort((a, b) => a - b) : ticks(...xRange, width > 420 ? 7 : 4);
  for (const value of yTicks) root.append(
    svg("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: y(value), y2: y(value) }),
    svg("text", { x: margin.left - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  for (const value of xTicks) root.append(
    svg("text", { x: x(value), y: height - margin.bottom + 17, "text-anchor": "middle" }, short(value)));
  root.append(
    svg("text", { x: (margin.left + width - margin.right) / 2, y: height - 6, "text-anchor": "middle" }, xLabel),
    svg("text", { x: 4, y: 12 }, yLabel));
  return { root, x, y, width };
}

function linePlot(place, read, series, options) {
  const points = series.flatMap((s) => s.points);
  if (!points.length) return place.replaceChildren(element("p", { class: "soft" }, "No visible variant has these numbers."));
  const { root, x, y, width } = frame(place, {
    ...options, xs: points.map((p) => p.x), ys: points.flatMap((p) => [p.low, p.high]) });
  for (const { name, index, points: line, dots } of series) {
    const group = svg("g", { "data-name": name, fill: "none", "stroke-width": 1.9, ...style(index) });
    const path = (side) => line.map((p) => `${x(p.x).toFixed(1)},${y(p[side]).toFixed(1)}`);
    if (line.some((p) => p.high > p.low)) group.append(svg("polygon", {
      points: [...path("low"), ...path("high").reverse()].join(" "), fill: `var(--c${index % 7})`,
      "fill-opacity": .15, stroke: "none" }));
    group.append(svg("polyline", { points: path("mean").join(" ") }));
    if (dots) for (const p of line) group.append(svg("circle", {
      cx: x(p.x), cy: y(p.mean), r: 3, fill: `var(--c${index % 7})`, stroke: "none" }));
    root.append(group);
  }
  const all = series.flatMap((s) => s.points.map((p) => ({ ...p, name: s.name })));
  follow(place, root, read, width, all.map((p) => ({ ...p, px: x(p.x), py: y(p.mean) })), (p) =>
    [element("b", {}, p.name), `${p.note ? `, ${p.note}` : ""}: ${short(p.mean)}${
      p.high > p.low ? ` (${short(p.low)} to ${short(p.high)})` : ""} at ${short(p.x)}`]);
}

function follow(place, root, read, width, points, describe) {
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect(), scale = width / box.width;
    const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const near = (p) => (p.px - px) ** 2 + (p.py - py) ** 2;
    const nearest = points.reduce((best, p) => near(p) < near(best) ? p : best);
    read.replaceChildren(...describe(nearest));
    highlight(nearest.name);
  });
  root.addEventListener("pointerleave", () => { highlight(null); read.replaceChildren(); });
  place.replaceChildren(root);
}

function figure(title, caption, ...choices) {
  const place = element("div", { class: "plot" }), read = element("div", { class: "read" });
  const node = element("figure", {}, element("h3", {}, title),
    ...(choices.length ? [element("div", { class: "choose" }, ...choices)] : []),
    place, read, element("figcaption", {}, caption));
  return { node, place, read };
}

function chooser(label, options, change) {
  return element("select", { "aria-label": label, onchange: (event) => change(event.target.value) },
    ...options.map(([value, text]) => element("option", { value }, text)));
}

function lossFigure(study) {
  let from = 0;
  const last = Math.max(...study.variants.flatMap((v) => v.curve ? v.curve.step : []));
  const { node, place, read } = figure("Validation loss",
    "A line is the mean over seeds; the shaded area spans the lowest to the highest seed. Lower is better.",
    chooser("part of the run", [[0, "the whole run"], [last / 2, "second half"]], (value) => { from = +value; draw(); }));
  let visible = new Set();
  const draw = () => linePlot(place, read, seriesOf(study, visible, (v) => v.curve && v.curve.step
    .map((x, e) => ({ x, mean: v.curve.mean[e], low: v.curve.low[e], high: v.curve.high[e] }))
    .filter((p) => p.x >= from && p.mean !== null)),
  { xLabel: "step", yLabel: "nats per masked token", about: "validation loss by step" });
  return { node, draw: (names) => { visible = names; draw(); } };
}

function biasFigure(study) {
  const parts = [...new Set(study.variants.flatMap((v) => Object.keys(v.bias)))];
  if (!parts.length) return null;
  let part = parts.includes("relative") ? "relative" : parts[0], visible = new Set();
  const titles = { relative: "of the relative encoding", absolute: "of the absolute encoding" };
  const ordered = [part, ...parts.filter((p) => p !== part)];
  const { node, place, read } = figure("Growth of the position bias",
    "How much a head's bias distinguishes positions: the root mean square about the mean of its row, without [CLS]. " +
    "A line is the mean over heads and seeds; the shaded area spans all heads and seeds.",
    chooser("part of the encoding", ordered.map((p) => [p, titles[p] ?? p]), (value) => { part = value; draw(); }));
  const draw = () => linePlot(place, read, seriesOf(study, visible, (v) => (v.bias[part] ?? [])
    .filter((p) => p.low > 0).map((p) => ({ ...p, x: p.step }))),
  { xLabel: "step", yLabel: "size in logits, logarithmic", logY: true, about: "size of the position bias by step" });
  return { node, draw: (names) => { visible = names; draw(); } };
}

function lengthFigure(study) {
  const rules = [...new Set(study.variants.flatMap((v) => v.lengths.map((l) => l.rule)))];
  if (!rules.length) return null;
  let chosen = "best", quantity = "loss", visible = new Set();
  const labels = { loss: "nats per masked token", locality: "locality" };
  const { node, place, read } = figure("Inputs longer than in training",
    "Loss on the same masked tokens at every length, or locality of position-only attention, which is lower the longer " +
    "the input. Encodings with a table of positions are extended by a rule; the others define every length. " +
    "The best rule is the one with the lowest loss.",
    chooser("quantity", [["loss", "loss"], ["locality", "locality"]], (value) => { quantity = value; draw(); }),
    chooser("rule", [["best", "the best rule at each length"], ...rules.filter((r) => r !== "as_is")
      .map((r) => [r, `tables ${rule(r)}`]), ["as_is", "tables as they are"]], (value) => { chosen = value; draw(); }));
  const draw = () => linePlot(place, read, seriesOf(study, visible, (v) => {
    const lengths = [...new Set(v.lengths.map((l) => l.length))];
    return lengths.map((length) => {
      const here = v.lengths.filter((l) => l.length === length);
      const found = here.length === 1 ? here[0] : chosen === "best" ? bestAt(v, length) : here.find((l) => l.rule === chosen);
      return found?.[quantity] && { ...found[quantity], x: length, note: here.length > 1 ? rule(found.rule) : "" };
    }).filter(Boolean);
  }).map((s) => ({ ...s, dots: true })), { xLabel: "tokens with [CLS]", yLabel: labels[quantity], logX: true,
    about: `${quantity} by length of the input` });
  return { node, draw: (names) => { visible = names; draw(); } };
}

const seriesOf = (study, visible, points) => study.variants
  .map((v, index) => ({ name: v.name, index, points: visible.has(v.name) ? points(v) ?? [] : [] }))
  .filter((s) => s.points.length);

function correlationFigure(study, measure) {
  const found = study.correlations.filter((c) => c.measure === measure);
  if (!found.length) return null;
  let at = 0, visible = new Set();
  const caption = element("span");
  const { node, place, read } = figure(`${measure[0].toUpperCase()}${measure.slice(1)} against scores`, caption,
    chooser("score", found.map((c, index) => [index, c.over.length ? `${c.score} (${c.over.join(" and ")})` : c.score]), (value) => { at = +value; draw(); }));
  const draw = () => {
    const { points, rho, interval, chance, variants, score, within } = found[at];
    const inside = within.rho === null ? "" : ` Within families of encodings (${within.families}, with ${within.variants} variants): ` +
      `${signed(within.rho)}${within.interval ? ` (${signed(within.interval[0])} to ${signed(within.interval[1])})` : ""}.`;
    caption.textContent = `Spearman's rank correlation of ${variants} variants: ${signed(rho)}` +
      (interval ? ` (95 %, bootstrap over variants: ${signed(interval[0])} to ${signed(interval[1])})` : " (no interval)") +
      `; as strong by chance: ${chance < .001 ? "below 0.001" : number(chance, 3)}.${inside} A dot is a run. ` +
      "Hidden variants count in the correlation.";
    const { root, x, y, width } = frame(place, { xs: points.map((p) => p[1]), ys: points.map((p) => p[2]),
      xLabel: measure, yLabel: score, about: `${score} against ${measure}` });
    const own = (name) => study.variants.findIndex((v) => v.name === name);
    const drawn = points.filter(([name]) => visible.has(name) || own(name) < 0).map(([name, px, py]) => ({ name, mean: py, at: px, px: x(px), py: y(py) }));
    for (const p of drawn) root.append(svg("circle", { "data-name": p.name, cx: p.px, cy: p.py, r: 4.5,
      fill: own(p.name) < 0 ? "var(--soft)" : `var(--c${own(p.name) % 7})`, "fill-opacity": .75 }));
    if (drawn.length) follow(place, root, read, width, drawn, (p) =>
      [element("b", {}, p.name), `: ${measure} ${short(p.at)}, ${short(p.mean)}`]);
    else place.replaceChildren(root);
  };
  return { node, draw: (names) => { visible = names; draw(); } };
}

// Viridis at seven levels, interpolated; a byte b stands for 2^(b / 16 - 8) times uniform attention.
const VIRIDIS = [[68, 1, 84], [65, 68, 135], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]];
const LEVELS = [-3, 4];

function colourOf(byte) {
  const share = Math.min(1, Math.max(0, (byte / 16 - 8 - LEVELS[0]) / (LEVELS[1] - LEVELS[0])));
  const at = share * (VIRIDIS.length - 1), below = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return VIRIDIS[below].map((low, c) => Math.round(low + (at - below) * (VIRIDIS[below + 1][c] - low)));
}

function headsFigure(variant) {
  const { layers, heads, tile, bytes, kinds, seed, positions } = variant.heads;
  const gap = 2, side = tile + gap;
  const canvas = element("canvas", { width: heads * side - gap, height: layers * side - gap, role: "img",
    "aria-label": `attention by position of ${variant.name}: ${kinds}` });
  const context = canvas.getContext("2d"), levels = atob(bytes);
  for (let layer = 0; layer < layers; layer++) for (let head = 0; head < heads; head++) {
    const image = context.createImageData(tile, tile), start = (layer * heads + head) * tile * tile;
    for (let k = 0; k < tile * tile; k++) image.data.set([...colourOf(levels.charCodeAt(start + k)), 255], 4 * k);
    context.putImageData(image, head * side, layer * side);
  }
  return element("figure", {}, element("h3", {}, variant.name), canvas,
    element("figcaption", {}, `${kinds}; seed ${seed}, ${positions} positions`));
}

function headsSection(study) {
  if (!study.variants.some((v) => v.heads)) return null;
  const grid = element("div", { class: "grid heads" });
  const node = element("section", {}, element("h2", {}, "What heads learn about positions"),
    element("p", { class: "soft" }, "Attention when all tokens are the same, so that only the encoding tells positions apart: " +
      "each tile is a head, each row of tiles a layer; a position (down) attends to the others (across)."),
    element("div", { class: "scale" }), element("div", { class: "ends" },
      element("span", {}, "1/8 of uniform attention"), element("span", {}, "16 times")), grid);
  return { node, draw: (visible) => grid.replaceChildren(
    ...study.variants.filter((v) => v.heads && visible.has(v.name)).map(headsFigure)) };
}

function show(index) {
  const study = studies[index];
  Object.assign(state, { study: index, sort: null, descending: false, filter: "", hidden: new Set() });
  document.getElementById("studies").replaceChildren(...studies.map((s, at) => element("button", {
    type: "button", "aria-pressed": String(at === index), onclick: () => show(at) }, s.name)));
  const columns = columnsOf(study), wide = element("div", { class: "wide", tabindex: 0 });
  const measures = [...new Set(study.correlations.map((c) => c.measure))];
  const figures = [lossFigure(study), biasFigure(study), lengthFigure(study),
    ...measures.map((measure) => correlationFigure(study, measure))].filter(Boolean);
  const heads = headsSection(study);
  const refresh = () => {
    const visible = drawTable(study, columns, wide, refresh);
    for (const part of heads ? [...figures, heads] : figures) part.draw(visible);
  };
  const missing = study.missing ? ` ${study.missing} planned runs are not finished.` : "";
  document.getElementById("main").replaceChildren(
    element("h2", {}, study.name),
    element("p", { class: "soft" }, `${study.about}. ${study.runs} runs and ${study.tuningRuns} tuning runs, ` +
      `${short(study.cpuHours)} CPU hours.${missing}`),
    element("p", { class: "soft" }, element("code", {}, study.command)),
    element("div", { class: "tools" },
      element("input", { type: "search", placeholder: "Filter, for example: tupe gain", "aria-label": "Filter variants",
        oninput: (event) => { state.filter = event.target.value; refresh(); } }),
      element("button", { type: "button", onclick: () => {
        const all = state.hidden.size === study.variants.length;
        state.hidden = new Set(all ? [] : study.variants.map((v) => v.name));
        refresh();
      } }, "show or hide all")),
    wide, element("div", { class: "grid" }, ...figures.map((f) => f.node)), ...(heads ? [heads.node] : []));
  state.redraw = refresh;
  refresh();
}

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return; // a phone's address bar changes the height only
  width = window.innerWidth;
  state.redraw();
});
if (studies.length) show(0);

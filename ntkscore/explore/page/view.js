"use strict";
// The page: state in the address, plots by ECharts, everything else plain elements.

const content = JSON.parse(document.getElementById("content").textContent);
const $ = (id) => document.getElementById(id);
const N = content.names.length;

const SUM = content.sum;
const columns = new Map();

// All columns' float32 values: the bytes of one place together, compressed.
async function unpack() {
  const packed = Uint8Array.from(atob(content.values), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  content.columns.forEach((column, k) => {
    const bytes = new Uint8Array(4 * N), from = 4 * N * k;
    for (let b = 0; b < 4; b++)
      for (let i = 0; i < N; i++) bytes[4 * i + b] = planes[from + b * N + i];
    const values = new Float32Array(bytes.buffer);
    const whole = column.group === COUNTS && values.every((v) => !Number.isFinite(v) || Number.isInteger(v));
    columns.set(column.id, { ...column, whole, values });
  });
  columns.set(SUM, { id: SUM, group: "Your ranking", direction: 1, values: new Float32Array(N).fill(NaN) });
}

// Viridis, which survives colour blindness; on a dark ground without its darkest part.
const LIGHT = ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"];
const DARK = ["#31688e", "#21918c", "#35b779", "#90d743", "#fde725"];
const dark = matchMedia("(prefers-color-scheme: dark)");
const sequence = () => (dark.matches ? DARK : LIGHT);
// Drawings: of each network a word for each graph, its frame and its edges by their places.
const DRAWN = content.graphs || { frames: [], edges: [], operations: [], of: [], alike: false };
const OPERATIONS = DRAWN.operations.map(([label]) => label);
const OPERATION_COLOURS = DRAWN.operations.map(([, colour]) => colour);
const graphs = (i) => (DRAWN.of[i] || "").split(" ").filter(Boolean).map((word) => {
  const [frame, ...edges] = [...word].map((letter) => letter.charCodeAt(0) - 48), [title, nodes] = DRAWN.frames[frame];
  return { title, nodes, edges: edges.map((edge) => DRAWN.edges[edge]) };
});
// Edges that all networks have, where these differ in their operations alone.
const EDGES = DRAWN.alike ? graphs(0)[0].edges : [];
const digit = (i, edge) => DRAWN.edges[DRAWN.of[i].charCodeAt(edge + 1) - 48][2];
const POOLING = OPERATIONS.indexOf("pooling");
const poolings = (i) => EDGES.filter((_, e) => digit(i, e) === POOLING).length;

const COUNTS = "Costs and counts";

// A column of counts has whole numbers; any float32 above 2^24 looks like one.
const number = (value, id) => {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (columns.get(id)?.whole) return Math.round(value).toLocaleString("en");
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3);
  return String(Number(value.toPrecision(4)));
};
const correlation = (value) => (Number.isFinite(value) ? value.toFixed(3) : "–");
const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// ---- state, kept in the address so that a view can be sent ----

const START = content.start;
const state = {};

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const known = (name, fallback) => (columns.has(given.get(name)) ? given.get(name) : fallback);
  const colour = given.get("colour");
  const terms = new Map();
  for (const part of given.has("sum") ? given.get("sum").split(",") : []) {
    const [id, weight, way] = part.split("*").map(decodeURIComponent);
    if (columns.has(id) && id !== SUM && Number.isFinite(+weight))
      terms.set(id, { weight: Math.min(2, Math.max(0, +weight)), direction: way === "-" ? -1 : 1 });
  }
  if (!given.has("sum"))
    for (const [id, direction] of START.terms) terms.set(id, { weight: 1, direction });
  const box = (given.get("box") || "").split(",").map(Number);
  const edges = (given.get("edges") || "").padEnd(EDGES.length, "x");
  return {
    x: known("x", START.x),
    y: known("y", START.y),
    x2: known("x2", given.has("x") ? "" : START.x2),
    colour: coloured(colour) ? colour : START.colour,
    edges: EDGES.map((_, e) => (/[0-9]/.test(edges[e]) && +edges[e] < OPERATIONS.length ? +edges[e] : null)),
    ranges: new Map((given.get("ranges") || "").split(",").map((part) => part.split("*"))
      .filter(([id, ...ends]) => columns.get(id)?.group === COUNTS && ends.length === 2 && ends.every((v) => Number.isFinite(+v)))
      .map(([id, ...ends]) => [id, [0, 1].map((k) => (ends[k] ? +ends[k] : null))])),
    terms,
    sort: known("sort", SUM),
    ascending: given.get("order") === "ascending",
    network: Math.max(-1, content.names.findIndex((names) => names[0] === given.get("network"))),
    box: box.length === 4 && box.every(Number.isFinite) ? box : null,
    shown: 50,
  };
}

function write() {
  const put = new URLSearchParams();
  put.set("x", state.x);
  put.set("y", state.y);
  if (state.x2) put.set("x2", state.x2);
  put.set("colour", state.colour);
  if (state.edges.some((d) => d !== null)) put.set("edges", state.edges.map((d) => d ?? "x").join(""));
  if (state.ranges.size) put.set("ranges", [...state.ranges].map(([id, ends]) => [id, ...ends.map((v) => v ?? "")].join("*")).join(","));
  const terms = [...state.terms].map(([id, t]) => [encodeURIComponent(id), t.weight, t.direction < 0 ? "-" : "+"].join("*"));
  put.set("sum", terms.join(","));
  put.set("sort", state.sort);
  if (state.ascending) put.set("order", "ascending");
  if (state.network >= 0) put.set("network", content.names[state.network][0]);
  if (state.box) put.set("box", state.box.map((v) => Number(v.toPrecision(6))).join(","));
  history.replaceState(null, "", "#" + put);
}

// ---- what is shown: filtered networks, selected ones, correlations ----

let kept = [];
const whole = new Map();  // agreements of all that are kept, until something changes

function filter() {
  kept = [];
  whole.clear();
  const ranges = [...state.ranges].map(([id, [low, high]]) => [columns.get(id).values, low ?? -Infinity, high ?? Infinity]);
  for (let i = 0; i < N; i++)
    if (state.edges.every((d, e) => d === null || digit(i, e) === d) && ranges.every(([v, low, high]) => v[i] >= low && v[i] <= high)) kept.push(i);
}

function pairs(among, x, y) {
  const a = columns.get(x).values, b = columns.get(y).values;
  return among.filter((i) => Number.isFinite(a[i]) && Number.isFinite(b[i]));
}

function selected() {
  if (!state.box) return kept;
  const [x0, x1, y0, y1] = state.box;
  const a = columns.get(state.x).values, b = columns.get(state.y).values;
  return kept.filter((i) => a[i] >= x0 && a[i] <= x1 && b[i] >= y0 && b[i] <= y1);
}

function agreement(among, x, y) {
  const used = pairs(among, x, y);
  const a = used.map((i) => columns.get(x).values[i]), b = used.map((i) => columns.get(y).values[i]);
  return { n: used.length, spearman: spearman(a, b), kendall: kendall(a, b) };
}

function agreementOfAll(x, y) {
  const key = JSON.stringify([x, y]);
  if (!whole.has(key)) whole.set(key, agreement(kept, x, y));
  return whole.get(key);
}

const told = ({ n, spearman, kendall }) =>
  n < 3
    ? `${count(n, "network")}, too few to correlate`
    : `Spearman ${correlation(spearman)}, Kendall ${correlation(kendall)} over ${count(n, "network")}`;

function tellAgreement() {
  const chosen = state.box && selected();
  const lines = [state.x, state.x2].filter(Boolean).map((x) => {
    const all = agreementOfAll(x, state.y);
    const missing = kept.length - all.n;
    let line = `${x} and ${state.y}: ${told(all)}`;
    if (missing) line += `; ${count(missing, "network")} without one of the two`;
    if (chosen) line += `. In the selection: ${told(agreement(chosen, x, state.y))}`;
    return line + ".";
  });
  $("agreement").replaceChildren(...lines.map((line) => element("span", { style: "display:block" }, line)));
  return lines;
}

// ---- the sum of log-ranks ----

function rankSum() {
  whole.clear();
  const terms = [...state.terms].filter(([, t]) => t.weight > 0);
  const out = columns.get(SUM).values.fill(NaN);
  if (!terms.length) return;
  const used = [];
  for (let i = 0; i < N; i++)
    if (terms.every(([id]) => Number.isFinite(columns.get(id).values[i]))) used.push(i);
  const total = new Float64Array(used.length);
  for (const [id, { weight, direction }] of terms) {
    const at = ranks(used.map((i) => direction * columns.get(id).values[i]));
    for (let k = 0; k < used.length; k++) total[k] += weight * Math.log(at[k]);
  }
  used.forEach((i, k) => { out[i] = total[k]; });
}

function best(among, id) {
  const values = columns.get(id).values, direction = columns.get(id).direction || 1;
  let found = -1;
  for (const i of among)
    if (Number.isFinite(values[i]) && (found < 0 || direction * values[i] > direction * values[found])) found = i;
  return found;
}

function tellPick() {
  const pick = best(kept, SUM), y = columns.get(state.y);
  if (pick < 0) { $("pick").textContent = "No score counts: add one, or move a slider."; return -1; }
  const value = y.values[pick], top = best(kept, state.y);
  let text = `Pick: ${title(pick)}`;
  if (state.y !== SUM && Number.isFinite(value)) {
    const better = kept.filter((i) => (y.direction || 1) * (y.values[i] - value) > 0).length;
    text += `, ${state.y} ${number(value, state.y)}, rank ${(better + 1).toLocaleString("en")} of ${pairs(kept, state.y, state.y).length.toLocaleString("en")} (best ${number(y.values[top], state.y)})`;
    text += `. The sum and ${state.y}: ${told(agreementOfAll(SUM, state.y))}`;
  }
  $("pick").textContent = text + ".";
  return pick;
}

// ---- plots ----

const title = (i) => content.names[i].join(", ");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const charts = {};

// Colours that are no column, and what they are called.
const ofGraph = () => [...(EDGES.length && POOLING >= 0 ? [["poolings", "number of poolings"]] : []), ...EDGES.map(([a, b], e) => [`edge${e}`, `operation on ${a}→${b}`])];
const coloured = (id) => columns.has(id) || ofGraph().some(([own]) => own === id);

function colourOf() {
  const id = state.colour;
  if (id.startsWith("edge") && EDGES.length)
    return { pieces: OPERATIONS.map((label, value) => ({ value, label, color: OPERATION_COLOURS[value] })), of: (i) => digit(i, +id.slice(4)) };
  if (id === "poolings" && EDGES.length)
    return { pieces: [...Array(EDGES.length + 1).keys()].map((value) => ({ value, label: String(value), color: mix(value / EDGES.length) })), of: poolings };
  const values = columns.get(id).values;
  const known = kept.map((i) => values[i]).filter(Number.isFinite).sort((a, b) => a - b);
  // The middle 98 % decide, so that a few extremes leave colours for the others.
  const at = (q) => known[Math.round(q * (known.length - 1))] ?? 0;
  return { low: at(0.01), high: at(0.99), ends: [known[0], known[known.length - 1]], of: (i) => values[i] };
}

function mix(share) {
  const colours = sequence(), place = share * (colours.length - 1), k = Math.min(Math.floor(place), colours.length - 2);
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const [a, b] = [parts(colours[k]), parts(colours[k + 1])];
  return `rgb(${a.map((v, i) => Math.round(v + (place - k) * (b[i] - v))).join(",")})`;
}

function axis(id, used) {
  const values = used.map((i) => columns.get(id).values[i]);
  let low = Infinity, high = -Infinity;
  for (const v of values) { low = Math.min(low, v); high = Math.max(high, v); }
  const log = low > 0 && high / low > 300;
  return {
    type: log ? "log" : "value", scale: true, name: id, nameLocation: "middle", nameGap: 28,
    nameTextStyle: { color: css("--ink"), fontSize: 13 },
    axisLabel: { color: css("--faint"), hideOverlap: true, formatter: (v) => (log ? v.toExponential(0) : number(v, id)) },
    axisLine: { lineStyle: { color: css("--line") } }, splitLine: { lineStyle: { color: css("--line"), opacity: 0.5 } },
  };
}

// The ends of a legend, the upper one first: beyond them the last colour holds.
function legend({ low, high, ends: [least, most] }) {
  const id = state.colour;
  return [`${most > high ? "≥ " : ""}${number(high, id)}`, `${id}: ${least < low ? "≤ " : ""}${number(low, id)}`];
}

function plot(place, x) {
  const dom = $(`plot-${place}`);
  if (!x) { charts[place]?.dispose(); delete charts[place]; return; }
  charts[place] ??= start(place, dom);
  charts[place].resize();
  const chart = charts[place], used = pairs(kept, x, state.y), colour = colourOf();
  const a = columns.get(x).values, b = columns.get(state.y).values;
  const ground = css("--ground"), ink = css("--ink");
  const map = colour.pieces
    ? { type: "piecewise", pieces: colour.pieces, orient: "horizontal", left: "center", top: 4, itemSymbol: "circle", textGap: 3, itemGap: 8 }
    : { type: "continuous", min: colour.low, max: Math.max(colour.high, colour.low + 1e-30), calculable: false, orient: "horizontal",
        left: "center", top: 6, itemHeight: 120, itemWidth: 10, text: legend(colour), inRange: { color: sequence() } };
  const vertical = { ...axis(state.y, used), nameGap: 46 };
  chart.setOption({
    animation: false, backgroundColor: ground, textStyle: { color: ink },
    grid: { left: 64, right: 28, top: 48, bottom: 48 },
    xAxis: axis(x, used), yAxis: vertical,
    visualMap: { ...map, dimension: 2, seriesIndex: 0, textStyle: { color: css("--faint") } },
    brush: { xAxisIndex: 0, seriesIndex: 0, brushMode: "single", throttleType: "debounce", throttleDelay: 60, removeOnClick: true,
             outOfBrush: { colorAlpha: 0.12 },
             brushStyle: { color: "rgba(120,140,170,.18)", borderColor: css("--accent") } },
    toolbox: { show: false },
    // A layer of their own, so that a brush on its way does not draw all points again.
    series: [{ type: "scatter", silent: true, zlevel: 1, symbolSize: N > 2000 ? 4 : N > 200 ? 6 : 10, itemStyle: { opacity: 0.75 },
               data: used.map((i) => [a[i], b[i], colour.of(i)]), progressive: 0 }],
  }, true);
  chart.used = used;
  chart.x = x;
  chart.places = null;
  chart.dispatchAction({ type: "takeGlobalCursor", key: "brush", brushOption: { brushType: place === 1 ? "rect" : false, brushMode: "single" } });
  if (place === 1 && state.box) drawBox();
}

function drawBox() {
  const [x0, x1, y0, y1] = state.box ?? [];
  drawing = true;
  charts[1].dispatchAction({ type: "brush", areas: state.box ? [{ brushType: "rect", xAxisIndex: 0, yAxisIndex: 0, coordRange: [[x0, x1], [y0, y1]] }] : [] });
  drawing = false;
}

let drawing = false;

function start(place, dom) {
  const chart = echarts.init(dom, null, { renderer: "canvas" });
  const inside = (event) => chart.containPixel("grid", [event.offsetX, event.offsetY]);
  // Not while a brush is drawn: only the brush moves then.
  chart.getZr().on("mousemove", (event) => { if (!event.event.buttons && inside(event)) show(nearest(chart, event.offsetX, event.offsetY)); });
  chart.getZr().on("click", (event) => { if (inside(event)) show(nearest(chart, event.offsetX, event.offsetY), true); });
  if (place === 1) {
    chart.on("brush", (event) => {
      if (drawing) return;
      const area = event.areas[0];
      state.box = area && area.coordRange ? [...area.coordRange[0], ...area.coordRange[1]] : null;
      $("clear").hidden = !state.box;
      later(tellSelection);
    });
    chart.on("brushEnd", () => { if (!drawing) { write(); later(table); } });
  }
  dom.addEventListener("keydown", (event) => {
    const way = { ArrowRight: ["x", 1], ArrowLeft: ["x", -1], ArrowUp: ["y", 1], ArrowDown: ["y", -1] }[event.key];
    if (!way) return;
    event.preventDefault();
    const values = columns.get(way[0] === "x" ? chart.x : state.y).values;
    const order = [...chart.used].sort((i, j) => values[i] - values[j]);
    const at = order.indexOf(state.network);
    show(order[Math.max(0, Math.min(order.length - 1, at < 0 ? 0 : at + way[1]))], true);
  });
  return chart;
}

function nearest(chart, px, py) {
  chart.places ??= chart.used.map((i) => chart.convertToPixel("grid", [columns.get(chart.x).values[i], columns.get(state.y).values[i]]));
  let found = -1, least = 18 ** 2;
  chart.places.forEach(([a, b], k) => {
    const d = (a - px) ** 2 + (b - py) ** 2;
    if (d < least) { least = d; found = chart.used[k]; }
  });
  return found;
}

const waiting = new Set();
function later(work) {
  if (waiting.has(work)) return;
  waiting.add(work);
  requestAnimationFrame(() => { waiting.delete(work); work(); });
}

function tellSelection() { tellAgreement(); mark(); }

// A ring around the network that is shown and a diamond on the pick, over the plot.
function mark() {
  for (const chart of Object.values(charts)) {
    const a = columns.get(chart.x).values, b = columns.get(state.y).values;
    for (const [kind, i] of [["ring", state.network], ["pick", best(kept, SUM)]]) {
      const there = i >= 0 && Number.isFinite(a[i]) && Number.isFinite(b[i]);
      const own = chart.getDom().querySelector(`.${kind}`) ?? element("span", { class: kind, "aria-hidden": "true" });
      if (there) {
        const [left, top] = chart.convertToPixel("grid", [a[i], b[i]]);
        own.style.translate = `${left}px ${top}px`;
        chart.getDom().append(own);
      } else own.remove();
    }
  }
}

// ---- the network under the pointer ----

const grouped = (start) => [...columns.values()].filter((c) => c.group.startsWith(start)).map((c) => c.id);

function show(i, keep = false) {
  if (i < 0 || (i === state.network && !keep)) return;
  state.network = i;
  later(draw);
  if (keep) write();
}

function draw() {
  const i = state.network, box = $("network");
  mark();
  if (i < 0) { box.replaceChildren(element("h2", {}, "No network yet"), element("p", { class: "hint" }, "Point at one, or choose a row of the table.")); return; }
  const list = element("dl");
  // What is asked for first: the axes, size, rank, accuracies and counts; then every score.
  const first = [state.y, state.x, "params", SUM, ...grouped("Accuracy"), ...grouped(COUNTS)].filter((id) => columns.has(id));
  for (const id of new Set([...first, ...columns.keys()])) {
    const value = columns.get(id).values[i];
    if (Number.isFinite(value)) list.append(element("dt", {}, id), element("dd", {}, number(value, id)));
  }
  box.replaceChildren(element("h2", {}, title(i)), ...pictures(i), list);
  for (const row of document.querySelectorAll("#ranking tbody tr")) row.setAttribute("aria-selected", String(+row.dataset.network === i));
}

const svg = (tag, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
};

const pictures = (i) => graphs(i).map((graph) => (graph.nodes.length === 4 && graph.edges.every(([a, b]) => a < b) ? diamond : arcs)(graph));

// The words for screen readers, and the picture to draw on.
function blank({ title, nodes, edges }, height) {
  const picture = svg("svg", { viewBox: `0 0 300 ${height}`, role: "img" });
  const words = edges.map(([a, b, kind]) => `${nodes[a]}→${nodes[b]} ${OPERATIONS[kind]}`).join(", ");
  picture.append(svg("title", {}, `${title}: ${words}`));
  return picture;
}

const line = (d, kind) => svg("path", { d, fill: "none", stroke: OPERATION_COLOURS[kind],
  "stroke-width": OPERATIONS[kind] === "none" ? 1 : 2.5, "stroke-dasharray": OPERATIONS[kind] === "none" ? "2 4" : "" });

// A graph as arcs over its nodes: in turn above them and below.
function arcs(graph) {
  const { title, nodes, edges } = graph, picture = blank(graph, 180);
  const labels = [], at = (node) => 26 + (245 / (nodes.length - 1)) * node;
  picture.append(svg("text", { x: 4, y: 14 }, title));
  edges.forEach(([source, target, kind], e) => {
    const way = e % 2 ? 1 : -1, from = at(source), to = at(target), height = way * 14 * (1 + target - source);
    picture.append(line(`M${from},${90 + 11 * way} C${from},${90 + height * 1.3} ${to},${90 + height * 1.3} ${to},${90 + 11 * way}`, kind));
    if (OPERATIONS[kind] !== "none") labels.push(svg("text", { x: (from + to) / 2, y: 93 + height, "text-anchor": "middle", "paint-order": "stroke", stroke: css("--panel"), "stroke-width": 4, style: "font-size:9px" }, OPERATIONS[kind]));
  });
  picture.append(...labels);
  nodes.forEach((name, node) => {
    picture.append(svg("circle", { cx: at(node), cy: 90, r: 11, fill: css("--ground"), stroke: css("--ink") }));
    picture.append(svg("text", { x: at(node), y: 93, "text-anchor": "middle", style: "font-size:8px" }, name));
  });
  return picture;
}

const NODES = [[28, 80], [110, 138], [190, 138], [272, 80]];

// A graph of four nodes, whose six possible edges do not cross each other's labels.
function diamond(graph) {
  const { nodes, edges } = graph, picture = blank(graph, 190);
  const bends = { "0,1": [52, 128], "0,2": [108, 104], "1,2": [150, 168], "0,3": [150, 6], "1,3": [192, 104], "2,3": [248, 128] };
  const labels = { "0,1": [30, 132], "0,2": [92, 98], "1,2": [150, 180], "0,3": [150, 30], "1,3": [208, 98], "2,3": [268, 132] };
  edges.forEach(([a, b, kind]) => {
    const [x0, y0] = NODES[a], [x1, y1] = NODES[b], [cx, cy] = bends[`${a},${b}`], [x, y] = labels[`${a},${b}`];
    picture.append(line(`M${x0},${y0} Q${cx},${cy} ${x1},${y1}`, kind));
    if (OPERATIONS[kind] !== "none") picture.append(svg("text", { x, y, "text-anchor": "middle" }, OPERATIONS[kind]));
  });
  NODES.forEach(([x, y], node) => {
    picture.append(svg("circle", { cx: x, cy: y, r: 11, fill: css("--ground"), stroke: css("--ink") }));
    picture.append(svg("text", { x, y: y + 4, "text-anchor": "middle" }, nodes[node]));
  });
  return picture;
}

// ---- the table ----

function tableColumns() {
  const wanted = [SUM, state.x, ...(state.x2 ? [state.x2] : []), state.y, state.sort, ...state.terms.keys()];
  return [...new Set(wanted)].filter((id) => columns.has(id));
}

function sorted(among) {
  const values = columns.get(state.sort).values, way = state.ascending ? 1 : -1;
  return among.filter((i) => Number.isFinite(values[i])).sort((i, j) => way * (values[i] - values[j]) || i - j);
}

function table() {
  const among = selected(), order = sorted(among), ids = tableColumns();
  const head = element("tr", {}, element("th", { scope: "col" }, "rank"), element("th", { scope: "col" }, "network"));
  for (const id of ids) {
    const by = () => { if (state.sort === id) state.ascending = !state.ascending; else { state.sort = id; state.ascending = columns.get(id).direction < 0; } refresh(); };
    const way = state.sort === id ? (state.ascending ? "ascending" : "descending") : undefined;
    head.append(element("th", { scope: "col", "aria-sort": way }, element("button", { type: "button", onclick: by }, id + (way ? (state.ascending ? " ▲" : " ▼") : ""))));
  }
  document.querySelector("#ranking thead").replaceChildren(head);
  const rows = order.slice(0, state.shown).map((i, k) => {
    const choose = () => show(i, true);
    const row = element("tr", { tabindex: 0, "data-network": i, "aria-selected": String(i === state.network), onclick: choose,
      onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
        const next = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
        if (next) { event.preventDefault(); next.focus(); }
      } }, element("td", {}, String(k + 1)), element("td", {}, title(i)));
    for (const id of ids) row.append(element("td", {}, number(columns.get(id).values[i], id)));
    return row;
  });
  document.querySelector("#ranking tbody").replaceChildren(...rows);
  const left = among.length - order.length;
  $("ranking-title").textContent = `${count(order.length, "network")}${state.box ? " in the selection" : ""}` + (left ? `; ${left.toLocaleString("en")} more without ${state.sort}` : "");
  $("more").hidden = order.length <= state.shown;
}

// Every number of the networks that the table lists.
function download() {
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  const head = ["network", ...[...columns.keys()].map(quoted)];
  const lines = sorted(selected()).map((i) => [quoted(content.names[i][0]), ...[...columns.values()].map(({ values }) => (Number.isFinite(values[i]) ? values[i] : ""))]);
  const blob = new Blob([[head, ...lines].map((line) => line.join(",") + "\n").join("")], { type: "text/csv" });
  const link = element("a", { href: URL.createObjectURL(blob), download: "networks.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}

// ---- joint kernels over ρ and β ----

function families() {
  const found = new Map();
  for (const c of columns.values())
    if (c.family) found.set(c.family, [...(found.get(c.family) ?? []), c]);
  return [...found].filter(([, members]) => members.length > 1);
}

let heat = null;

function joint() {
  const all = families();
  $("joint").hidden = !all.length;
  if (!all.length) return;
  const select = $("family");
  if (!select.options.length) {
    for (const [name] of all) select.append(element("option", { value: name }, name));
    select.value = (all.find(([name]) => name.includes(".frobenius")) ?? all[0])[0];
  }
  const members = new Map(all).get(select.value);
  $("joint-hint").textContent = `Each number is the Spearman correlation of the score at this ρ and β with ${state.y}.`;
  const betas = [...new Set(members.map((c) => c.beta))].sort((a, b) => a - b);
  const rhos = [...new Set(members.map((c) => c.rho))];
  const data = members.map((c) => [betas.indexOf(c.beta), rhos.indexOf(c.rho), agreementOfAll(c.id, state.y).spearman]);
  const known = data.map((d) => d[2]).filter(Number.isFinite), ink = css("--ink");
  const low = Math.min(...known), high = Math.max(...known);
  $("map").style.height = `${100 + 50 * rhos.length}px`;
  heat ??= echarts.init($("map"), null, { renderer: "canvas" });
  const label = { color: css("--faint") };
  heat.resize();
  heat.setOption({
    animation: false, backgroundColor: css("--ground"),
    grid: { left: 90, right: 16, top: 30, bottom: 48 },
    xAxis: { type: "category", data: betas.map(String), name: "β", nameLocation: "middle", nameGap: 28, axisLabel: label, nameTextStyle: { color: ink } },
    yAxis: { type: "category", data: rhos, name: "ρ", axisLabel: label, nameTextStyle: { color: ink } },
    visualMap: { show: false, min: low, max: high + 1e-9, inRange: { color: LIGHT } },
    series: [{ type: "heatmap", label: { show: $("map").clientWidth / betas.length > 40, formatter: (p) => correlation(p.value[2]) },
               data: data.map((value) => ({ value, label: { color: value[2] > (low + high) / 2 ? "#000" : "#fff" } })) }],
  }, true);
  $("map").setAttribute("aria-label", `Spearman of ${select.value} with ${state.y}: ` + members.map((c, k) => `β ${c.beta}, ρ ${c.rho}: ${correlation(data[k][2])}`).join("; "));
}

// ---- controls ----

function fill(select, current, none, own = []) {
  const groups = new Map();
  for (const c of columns.values()) groups.set(c.group, [...(groups.get(c.group) ?? []), c.id]);
  const before = none ? [["", none]] : own;
  select.replaceChildren(...before.map(([value, text]) => element("option", { value }, text)));
  for (const [group, ids] of groups)
    select.append(element("optgroup", { label: group }, ...ids.map((id) => element("option", { value: id }, id))));
  select.value = current;
}

function terms() {
  const rows = [...state.terms].map(([id, term]) => {
    const shown = element("output", {}, String(term.weight));
    const arrow = element("button", { type: "button", "aria-label": `better: ${term.direction > 0 ? "larger" : "smaller"} ${id}`,
      onclick: () => { term.direction *= -1; refresh(); } }, term.direction > 0 ? "↑" : "↓");
    const slider = element("input", { type: "range", min: 0, max: 2, step: 0.1, value: term.weight, "aria-label": `weight of ${id}`,
      oninput: () => { term.weight = +slider.value; shown.textContent = slider.value; later(moved); } });
    const remove = element("button", { type: "button", "aria-label": `remove ${id}`, onclick: () => { state.terms.delete(id); refresh(); } }, "×");
    return element("div", { class: "term" }, arrow, element("span", {}, id), slider, shown, remove);
  });
  $("terms").replaceChildren(...rows);
}

function moved() {
  rankSum();
  if ([state.x, state.y, state.x2, state.colour].includes(SUM)) scatter();
  tellAgreement();
  tellPick();
  mark();
  table();
  write();
}

function scatter() {
  // Before either is drawn: a second plot halves the first.
  $("plot-2").hidden = !state.x2;
  plot(1, state.x);
  plot(2, state.x2);
  const lines = tellAgreement();
  $("plot-1").setAttribute("aria-label", `Scatter of ${lines[0]} Arrow keys walk from network to network.`);
  if (state.x2) $("plot-2").setAttribute("aria-label", `Scatter of ${lines[1]}`);
}

function refresh() {
  filter();
  rankSum();
  for (const name of ["x", "y", "colour", "x2", "sort"]) $(name).value = state[name];
  $("ascending").checked = state.ascending;
  $("clear").hidden = !state.box;
  for (const select of document.querySelectorAll("#edges select")) select.value = state.edges[+select.dataset.edge] ?? "";
  terms();
  scatter();
  joint();
  tellPick();
  table();
  draw();
  write();
}

function begin() {
  $("about").textContent = content.about;
  for (const name of ["x", "y", "sort"]) fill($(name), state[name]);
  fill($("x2"), state.x2, "none");
  fill($("add"), "", "a score…");
  fill($("colour"), state.colour, "", ofGraph());
  for (const name of ["x", "y", "x2"])
    $(name).addEventListener("change", (event) => { state[name] = event.target.value; if (name !== "x2") state.box = null; refresh(); });
  for (const name of ["colour", "sort"]) $(name).addEventListener("change", (event) => { state[name] = event.target.value; refresh(); });
  $("ascending").addEventListener("change", (event) => { state.ascending = event.target.checked; refresh(); });
  $("clear").addEventListener("click", () => { state.box = null; drawBox(); refresh(); });
  $("family").addEventListener("change", joint);
  $("find").addEventListener("change", ({ target }) => {
    const wanted = target.value.trim(), i = content.names.findIndex((names) => names.includes(wanted));
    target.setCustomValidity(wanted && i < 0 ? `No network ${wanted} on this page.` : "");
    target.reportValidity();
    show(i, true);
  });
  $("download").addEventListener("click", download);
  $("more").addEventListener("click", () => { state.shown += 200; table(); });
  $("add").addEventListener("change", (event) => {
    const id = event.target.value;
    if (id && id !== SUM) state.terms.set(id, { weight: 1, direction: columns.get(id).direction || 1 });
    event.target.value = "";
    refresh();
  });
  $("edges").hidden = !EDGES.length;
  EDGES.forEach(([a, b], e) => {
    const select = element("select", { "data-edge": e }, element("option", { value: "" }, "any"), ...OPERATIONS.map((name, k) => element("option", { value: k }, name)));
    select.addEventListener("change", () => { state.edges[e] = select.value === "" ? null : +select.value; refresh(); });
    $("edges").append(element("label", {}, `${a}→${b}`, select));
  });
  const counted = [...columns.values()].filter((column) => column.group === COUNTS);
  $("filters").hidden = !counted.length;
  for (const { id } of counted) {
    const ends = ["from", "to"].map((name, k) => element("input", { type: "number", step: "any", placeholder: name, "aria-label": `${id} ${name}`, "data-count": id,
      value: state.ranges.get(id)?.[k] ?? undefined,
      onchange: (event) => {
        const range = state.ranges.get(id) || [null, null];
        range[k] = event.target.value === "" ? null : +event.target.value;
        if (range.some((v) => v !== null)) state.ranges.set(id, range); else state.ranges.delete(id);
        refresh();
      } }));
    $("counts").append(element("label", {}, id, ...ends));
  }
  refresh();
  const resized = new ResizeObserver(() => { for (const chart of Object.values(charts)) { chart.resize(); chart.places = null; } heat?.resize(); mark(); });
  for (const drawn of document.querySelectorAll(".plot")) resized.observe(drawn);
  dark.addEventListener("change", refresh);
  addEventListener("hashchange", () => { Object.assign(state, read()); refresh(); });
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

unpack().then(() => { Object.assign(state, read()); begin(); });

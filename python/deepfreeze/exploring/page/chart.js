// Lines over steps, with axes, a legend, a readout for mouse and keyboard, and a table behind.

import { el, responsive, svg } from "./dom.js";
import { num } from "./format.js";
import { sortedTable } from "./table.js";

const MARGIN = { left: 62, right: 14, top: 10, bottom: 36 };
const HEIGHT = 230;

// series: {name, colour (0 to 5), dashed, points: [[x, y], ...]}; marks: {x, text, look}
export function lineChart({ title, xLabel = "step", yLabel = "", series, marks = [], log = false }) {
  const known = series.filter((each) => each.points.some(([, y]) => Number.isFinite(y)));
  const caption = el("figcaption", {}, title, yLabel ? el("span", { class: "note" }, ` ${yLabel}`) : "");
  if (!known.length) return el("figure", {}, caption, el("p", { class: "empty" }, "No finite values yet."));
  const plot = { title, xLabel, known, marks, ...axesOf(known, log) };
  const host = el("div");
  const readout = el("output", { class: "readout", "aria-live": "polite" }, readoutHint(plot));
  responsive(host, (width) => host.replaceChildren(drawn(plot, width, readout)));
  const key = known.length > 1 || marks.length ? legend(known, marks) : null;
  return el("figure", {}, caption, key, host, readout, tableBehind(plot));
}

function readoutHint(plot) {
  const points = plot.known.flatMap((each) => each.points);
  return `${points.length} values: point at them, or use the arrow keys`;
}

export function axesOf(known, log) {
  const points = known.flatMap((each) => each.points).filter(([, y]) => Number.isFinite(y) && (!log || y > 0));
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const range = (values) => [Math.min(...values), Math.max(...values)];
  const [x0, x1] = range(xs.length ? xs : [0, 1]);
  let [y0, y1] = range(ys.length ? ys : [log ? 0.1 : 0, 1]);
  // Values that differ by rounding alone are one value: between them there is no room for ticks.
  if (y1 - y0 <= 1e-12 * Math.max(Math.abs(y0), Math.abs(y1))) [y0, y1] = log ? [y0 / 2, y1 * 2] : [y0 - (Math.abs(y0) * 0.1 || 1), y1 + (Math.abs(y1) * 0.1 || 1)];
  const pad = log ? 0 : (y1 - y0) * 0.05;
  return { x0, x1: x1 === x0 ? x0 + 1 : x1, y0: y0 - pad, y1: y1 + pad, log };
}

function drawn(plot, width, readout) {
  const scale = scales(plot, width);
  const cursor = svg("g");
  const picture = svg(
    "svg",
    { width, height: HEIGHT, tabindex: 0, role: "img", "aria-label": `${plot.title} over ${plot.xLabel}; arrow keys read values` },
    axes(plot, scale, width),
    plot.marks.map((mark) => markLine(mark, scale)),
    plot.known.map((each) => curve(each, scale, plot.log)),
    cursor,
  );
  const xs = [...new Set(plot.known.flatMap((each) => each.points.map(([x]) => x)))].sort((a, b) => a - b);
  const read = reader(plot, xs, scale, cursor, readout);
  picture.addEventListener("pointermove", (event) => {
    const x = plot.x0 + ((event.clientX - picture.getBoundingClientRect().left - MARGIN.left) / scale.width) * (plot.x1 - plot.x0);
    read(nearest(xs, x));
  });
  picture.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (!(event.key in moves)) return;
    event.preventDefault();
    read(Math.max(0, Math.min(xs.length - 1, read.place + moves[event.key])));
  });
  return picture;
}

function scales(plot, width) {
  const inner = { width: Math.max(40, width - MARGIN.left - MARGIN.right), height: HEIGHT - MARGIN.top - MARGIN.bottom };
  const part = plot.log
    ? (y) => Math.log(y / plot.y0) / Math.log(plot.y1 / plot.y0)
    : (y) => (y - plot.y0) / (plot.y1 - plot.y0);
  return {
    ...inner,
    x: (x) => MARGIN.left + ((x - plot.x0) / (plot.x1 - plot.x0)) * inner.width,
    y: (y) => MARGIN.top + (1 - part(y)) * inner.height,
  };
}

function reader(plot, xs, scale, cursor, readout) {
  const read = (place) => {
    read.place = place;
    const x = xs[place];
    const texts = [];
    const dots = [];
    for (const each of plot.known) {
      const point = each.points.find(([at]) => at === x);
      if (!point) continue;
      texts.push(`${each.name} ${num(point[1], 4)}`);
      if (Number.isFinite(point[1]) && (!plot.log || point[1] > 0)) {
        dots.push(svg("circle", { cx: scale.x(x), cy: scale.y(point[1]), r: 3.5, class: `f${each.colour}` }));
      }
    }
    const at = scale.x(x);
    cursor.replaceChildren(svg("line", { x1: at, x2: at, y1: MARGIN.top, y2: MARGIN.top + scale.height, class: "cursor" }), ...dots);
    readout.textContent = `${plot.xLabel} ${x}: ${texts.join(" · ")}`;
  };
  read.place = -1;
  return read;
}

function nearest(xs, x) {
  let best = 0;
  xs.forEach((each, place) => {
    if (Math.abs(each - x) < Math.abs(xs[best] - x)) best = place;
  });
  return best;
}

function curve(each, scale, log) {
  let path = "";
  let pen = "M";
  const alone = [];
  const isDrawn = ([, y]) => Number.isFinite(y) && (!log || y > 0);
  each.points.forEach((point, place) => {
    if (!isDrawn(point)) {
      pen = "M";
      return;
    }
    path += `${pen}${scale.x(point[0]).toFixed(1)} ${scale.y(point[1]).toFixed(1)}`;
    const hasNeighbour = [each.points[place - 1], each.points[place + 1]].some((other) => other && isDrawn(other));
    if (!hasNeighbour) alone.push(svg("circle", { cx: scale.x(point[0]), cy: scale.y(point[1]), r: 2.5, class: `f${each.colour}` }));
    pen = "L";
  });
  return [svg("path", { d: path, class: `line c${each.colour} ${each.dashed ? "dashed" : ""}` }), ...alone];
}

function markLine(mark, scale) {
  const x = scale.x(mark.x);
  if (x < MARGIN.left - 1 || x > MARGIN.left + scale.width + 1) return null;
  return svg("g", {},
    svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: MARGIN.top + scale.height, class: `mark ${mark.look}` }),
    svg("title", {}, mark.text));
}

function axes(plot, scale, width) {
  const bottom = MARGIN.top + scale.height;
  const parts = [];
  const ticks = plot.log ? decades(plot.y0, plot.y1) : niceTicks(plot.y0, plot.y1, 5);
  for (const y of ticks) {
    parts.push(svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: scale.y(y), y2: scale.y(y), class: "grid" }));
    parts.push(svg("text", { x: MARGIN.left - 6, y: scale.y(y) + 4, "text-anchor": "end" }, tickText(y, ticks)));
  }
  for (const x of niceTicks(plot.x0, plot.x1, Math.max(2, Math.floor(scale.width / 80)))) {
    parts.push(svg("text", { x: scale.x(x), y: bottom + 15, "text-anchor": "middle" }, num(x)));
  }
  parts.push(svg("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom, class: "axis" }));
  parts.push(svg("text", { x: MARGIN.left + scale.width / 2, y: bottom + 31, "text-anchor": "middle" }, plot.xLabel));
  return parts;
}

export function niceTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= raw * 0.999) ?? raw;
  const first = Math.ceil(low / step);
  const ticks = [];
  for (let i = 0; i <= count + 1; i += 1) { // a sum may stay the same if a step is added
    const tick = (first + i) * step;
    if (!(tick <= high + step * 1e-9)) break;
    ticks.push(Math.abs(tick) < step * 1e-9 ? 0 : Number(tick.toPrecision(12)));
  }
  return [...new Set(ticks)];
}

// With as many digits as tell the ticks apart.
function tickText(value, ticks) {
  const step = Math.abs((ticks[1] ?? value * 2) - ticks[0]);
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step) - 1e-9)));
  const isPlain = Math.abs(value) < 1e5 && step >= 1e-6 && digits <= 4 && Math.max(...ticks) / (step || 1) < 1e4;
  return isPlain ? value.toFixed(digits).replace("-", "−") : num(value);
}

function decades(low, high) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  if (last - first < 1) return niceTicks(low, high, 4).filter((tick) => tick > 0);
  const step = Math.max(1, Math.ceil((last - first) / 6));
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => Number(`1e${first + i * step}`));
}

function legend(known, marks) {
  const items = known.map((each) => el("li", {},
    svg("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" }, svg("path", { d: "M0 4H20", class: `line c${each.colour} ${each.dashed ? "dashed" : ""}` })),
    each.name));
  const seen = new Map(marks.map((mark) => [mark.look, mark]));
  for (const mark of seen.values()) {
    items.push(el("li", {},
      svg("svg", { viewBox: "0 0 20 8", "aria-hidden": "true" }, svg("path", { d: "M10 0V8", class: `mark ${mark.look}` })), mark.legend));
  }
  return el("ul", { class: "legend" }, items);
}

function tableBehind(plot) {
  const rows = plot.known.flatMap((each) => each.points.map(([x, y]) => ({ x, y, name: each.name })));
  const columns = [
    { title: plot.xLabel, value: (row) => row.x, number: true },
    { title: "series", value: (row) => row.name, class: "key" },
    { title: "value", value: (row) => row.y, cell: (row) => num(row.y, 6), number: true },
  ];
  return lazyDetails("Table", () => sortedTable(columns, rows, { label: plot.title }));
}

// A long table is made when somebody looks.
export function lazyDetails(title, make) {
  const details = el("details", {}, el("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(make());
  });
  return details;
}

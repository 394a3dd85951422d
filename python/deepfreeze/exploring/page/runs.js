// All runs: the beginning of each, its forks, and how it went.

import { badge, el, responsive, svg, tile } from "./dom.js";
import { niceTicks } from "./chart.js";
import { asNumber, num, size, tail, utc } from "./format.js";
import { link } from "./model.js";
import { sortedTable } from "./table.js";

const LANE = 26;
const TOP = 12;

export async function runsView({ model }) {
  const steps = model.runs.flatMap((run) => run.steps);
  const bytes = steps.reduce((sum, step) => sum + step.bytes, 0);
  const bad = steps.filter((step) => step.fault).length;
  return el("div", {},
    el("h1", {}, "Runs"),
    el("p", { class: "lead" }, "Each line is a run; it leaves the line of the run that it started from at that step."),
    el("div", { class: "tiles" },
      tile(model.runs.length, "runs"), tile(model.runs.filter((run) => run.parent).length, "forks"),
      tile(steps.length, "checkpoints"), tile(size(bytes), "in all"), bad ? tile(bad, "bad steps") : null),
    el("section", { class: "card" }, el("h2", {}, "Graph"), graph(model)),
    el("section", { class: "card" }, el("h2", {}, "Table"), table(model)));
}

// Parents before their forks, each fork below its parent.
function ordered(model) {
  const order = [];
  const visit = (run, depth) => {
    if (order.some((each) => each.run === run)) return;
    order.push({ run, depth });
    const forks = run.forks.map((id) => model.byId.get(id));
    forks.sort((one, other) => one.parent.step - other.parent.step);
    for (const fork of forks) visit(fork, depth + 1);
  };
  for (const run of model.runs) if (!model.parentOf(run)) visit(run, 0);
  for (const run of model.runs) visit(run, 0); // the runs that are left started from each other
  return order;
}

function graph(model) {
  const order = ordered(model);
  const host = el("div", { class: "runs-graph", tabindex: 0, role: "region", "aria-label": "Graph of runs" });
  return responsive(host, (width) => host.replaceChildren(drawnGraph(model, order, width)));
}

function drawnGraph(model, order, width) {
  const labels = Math.min(210, Math.max(96, width * 0.26));
  const ends = order.flatMap(({ run }) => [...run.steps.map((step) => step.step), run.parent ? run.parent.step : 0]);
  const [low, high] = [Math.min(...ends, 0), Math.max(...ends, 1)];
  const height = TOP + order.length * LANE + 34;
  const x = (step) => labels + 10 + ((step - low) / (high - low)) * (width - labels - 30);
  const lanes = new Map(order.map(({ run }, place) => [run, TOP + place * LANE + LANE / 2]));
  const bottom = height - 30;
  const ticks = niceTicks(low, high, Math.max(2, Math.floor((width - labels) / 90)));
  return svg("svg", { width, height, role: "group", "aria-label": "Runs over steps" },
    ticks.map((tick) => svg("line", { x1: x(tick), x2: x(tick), y1: TOP, y2: bottom, class: "grid" })),
    order.map(({ run }, place) => fork(model, run, place, x, lanes)),
    order.map(({ run, depth }, place) => lane(run, depth, place, x, lanes.get(run), labels)),
    ticks.map((tick) => svg("text", { x: x(tick), y: bottom + 13, "text-anchor": "middle" }, num(tick))),
    svg("text", { x: labels + (width - labels) / 2, y: bottom + 27, "text-anchor": "middle" }, "step"));
}

function fork(model, run, place, x, lanes) {
  const parent = model.parentOf(run);
  if (!parent) return null;
  const [from, to] = [lanes.get(parent), lanes.get(run)];
  const at = x(run.parent.step);
  const bend = Math.min(12, (to - from) / 2);
  const path = `M${at} ${from}V${to - bend}Q${at} ${to} ${at + bend} ${to}`;
  return svg("path", { d: path, class: `fork-line c${place % 6}` });
}

function lane(run, depth, place, x, y, labels) {
  const steps = run.steps.map((step) => step.step);
  const begin = run.parent ? run.parent.step : Math.min(...steps);
  const parts = [];
  if (steps.length) {
    parts.push(svg("path", { d: `M${x(begin) + (run.parent ? 12 : 0)} ${y}H${x(Math.max(...steps))}`, class: `lane c${place % 6}` }));
    const newest = run.steps.findLast((step) => step.newest) ?? run.steps.at(-1);
    parts.push(svg("circle", { cx: x(newest.step), cy: y, r: 5, class: `f${place % 6}` }));
  }
  for (const step of run.steps.filter((each) => each.fault)) parts.push(cross(x(step.step), y, `step ${step.step} is bad`));
  const nan = run.steps.find((step) => step.non_finite > 0);
  if (nan) parts.push(svg("text", { x: x(nan.step), y: y - 6, "text-anchor": "middle", class: "strong" }, "NaN"));
  const name = tail(run.name, Math.floor((labels - 12 - depth * 10) / 7));
  return svg("a", { href: link("timeline", [run.id]) },
    svg("title", {}, `${run.name}: ${run.steps.length} checkpoints`),
    svg("rect", { x: 0, y: y - LANE / 2, width: labels, height: LANE, fill: "transparent" }),
    svg("text", { x: 4 + depth * 10, y: y + 4, class: "strong" }, name), parts);
}

function cross(x, y, text) {
  return svg("g", {}, svg("title", {}, text),
    svg("path", { d: `M${x - 5} ${y - 5}l10 10m0 -10l-10 10`, class: "cross" }));
}

function table(model) {
  const metrics = [...new Set(model.runs.flatMap((run) => run.steps.flatMap((step) => Object.keys(step.metrics))))].slice(0, 4);
  const columns = [
    { title: "run", value: (run) => run.name, cell: runCell, class: "key" },
    { title: "from", value: (run) => (run.parent ? `${run.parent.path}@${run.parent.step}` : ""), cell: (run) => parentCell(model, run), class: "key" },
    { title: "forks", value: (run) => run.forks.length, cell: (run) => forksCell(model, run) },
    { title: "steps", value: (run) => run.steps.length, number: true },
    { title: "newest", value: (run) => newestOf(run)?.step ?? null, number: true },
    ...metrics.map((name) => ({ title: name, value: (run) => lastMetric(run, name), cell: (run) => num(lastMetric(run, name)), number: true })),
    { title: "size", value: (run) => run.steps.reduce((sum, step) => sum + step.bytes, 0), cell: (run) => size(run.steps.reduce((sum, step) => sum + step.bytes, 0)), number: true },
    { title: "written", value: (run) => newestOf(run)?.time_micros ?? null, cell: (run) => utc(newestOf(run)?.time_micros), class: "short" },
    { title: "state", value: (run) => run.fault, cell: stateCell },
  ];
  return sortedTable(columns, model.runs, { label: "Runs" });
}

function newestOf(run) {
  return run.steps.findLast((step) => step.newest) ?? run.steps.at(-1);
}

function lastMetric(run, name) {
  const step = run.steps.findLast((each) => name in each.metrics && each.state !== "abandoned");
  return step ? asNumber(step.metrics[name]) : NaN;
}

function runCell(run) {
  return [el("a", { href: link("timeline", [run.id]), title: run.path }, run.name), run.named ? null : [" ", badge("ancestor")]];
}

export function parentCell(model, run) {
  if (!run.parent) return "–";
  const parent = model.parentOf(run);
  const text = `step ${run.parent.step} of ${parent ? parent.name : run.parent.path}`;
  if (parent) return el("a", { href: link("timeline", [parent.id]) }, text);
  return [text, " ", badge(run.parent.cause ? "can't be opened" : "not among these")];
}

export function forksCell(model, run) {
  const forks = run.forks.map((id) => model.byId.get(id));
  if (!forks.length) return "–";
  return forks.flatMap((fork, place) => [
    place ? ", " : null, el("a", { href: link("timeline", [fork.id]) }, fork.name), ` at ${fork.parent.step}`,
  ]);
}

function stateCell(run) {
  if (run.fault) return [badge("can't be read", "bad"), el("span", { class: "note" }, ` ${run.fault}`)];
  const found = [];
  if (run.steps.some((step) => step.fault)) found.push(badge("bad steps", "bad"), " ");
  if (run.steps.some((step) => step.non_finite > 0)) found.push(badge("NaN", "bad"), " ");
  if (run.steps.some((step) => step.state === "abandoned")) found.push(badge("abandoned steps"), " ");
  if (!run.steps.length) found.push(badge("no checkpoints"));
  return found.length ? found : badge("good", "good");
}

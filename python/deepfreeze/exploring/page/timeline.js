// One run: its metrics with those of the run that it left, and the fate of each step.

import { badge, el, tile } from "./dom.js";
import { lineChart } from "./chart.js";
import { asNumber, num, size, utc } from "./format.js";
import { link } from "./model.js";
import { forksCell, parentCell } from "./runs.js";
import { sortedTable } from "./table.js";

export async function timelineView({ model, run }) {
  const metrics = [...new Set(model.ancestry(run).flatMap((each) => each.run.steps.flatMap((step) => Object.keys(step.metrics))))];
  const facts = el("p", { class: "lead" }, run.path, " · run ", run.run_id || "–");
  const body = [el("h1", {}, run.name), facts];
  if (run.fault) return el("div", {}, body, el("p", { class: "error" }, run.fault));
  body.push(el("p", { class: "lead" }, "Started from: ", parentCell(model, run), " · Forks: ", forksCell(model, run),
    run.keep ? ` · Kept: ${run.keep}` : " · All checkpoints are kept"));
  if (!run.steps.length) return el("div", {}, body, el("p", { class: "empty" }, "This run has no checkpoints."));
  body.push(tiles(run));
  if (metrics.length) {
    body.push(el("div", { class: "cards" }, metrics.map((name) => el("section", { class: "card" }, metricChart(model, run, name)))));
  } else {
    body.push(el("p", { class: "note" }, "No metrics: give them to save(), as save(step, state, metrics={\"loss\": loss})."));
  }
  body.push(el("section", { class: "card" }, el("h2", {}, "Steps"), stepsTable(run)));
  return el("div", {}, body);
}

function tiles(run) {
  const count = (state) => run.steps.filter((step) => step.state === state).length;
  const bytes = run.steps.reduce((sum, step) => sum + step.bytes, 0);
  const best = run.steps.find((step) => step.best);
  const bad = run.steps.filter((step) => step.fault).length;
  const nan = run.steps.find((step) => step.non_finite > 0);
  return el("div", { class: "tiles" },
    tile(count("committed"), "committed"), count("abandoned") ? tile(count("abandoned"), "abandoned") : null,
    bad ? tile(bad, "bad") : null, count("undecided") ? tile(count("undecided"), "not finished") : null,
    tile(size(bytes), "in all"), best ? tile(best.step, "best step") : null,
    nan ? tile(nan.step, "first step with NaN") : null);
}

function metricChart(model, run, name) {
  const series = model.ancestry(run).reverse().map(({ run: each, until }, place, all) => ({
    name: each === run ? each.name : `${each.name} (before the fork)`,
    colour: (all.length - 1 - place) % 6,
    dashed: each !== run,
    points: pointsOf(each.steps.filter((step) => step.state !== "abandoned" && step.step <= until), name),
  }));
  const abandoned = pointsOf(run.steps.filter((step) => step.state === "abandoned"), name);
  if (abandoned.length) series.push({ name: "abandoned", colour: 5, dashed: true, points: abandoned });
  const marks = run.steps.filter((step) => step.fault).map((step) => ({ x: step.step, text: `step ${step.step} is bad`, look: "bad", legend: "bad step" }));
  if (run.parent) marks.push({ x: run.parent.step, text: `started from step ${run.parent.step}`, look: "fork", legend: "start of this run" });
  return lineChart({ title: name, series, marks });
}

function pointsOf(steps, name) {
  return steps.filter((step) => name in step.metrics).map((step) => [step.step, asNumber(step.metrics[name])]);
}

const LOOKS = { committed: "good", bad: "bad", fault: "bad", undecided: "look", aborted: "look" };

function stepsTable(run) {
  const metrics = [...new Set(run.steps.flatMap((step) => Object.keys(step.metrics)))].slice(0, 4);
  const columns = [
    { title: "step", value: (step) => step.step, number: true },
    { title: "state", value: (step) => step.state, cell: (step) => [badge(step.state, LOOKS[step.state]), step.fault || step.note ? el("div", { class: "note" }, step.fault || step.note) : null] },
    ...metrics.map((name) => ({ title: name, value: (step) => asNumber(step.metrics[name]), cell: (step) => num(step.metrics[name] ?? NaN, 4), number: true })),
    { title: "kept as", value: (step) => keptText(step), class: "short" },
    { title: "NaN, inf", value: (step) => step.non_finite, cell: (step) => step.non_finite === null ? "–" : num(step.non_finite), number: true },
    { title: "size", value: (step) => step.bytes, cell: (step) => size(step.bytes), number: true },
    { title: "generation", value: (step) => step.generation, number: true },
    { title: "written", value: (step) => step.time_micros, cell: (step) => utc(step.time_micros), class: "short" },
    { title: "last verified", value: (step) => step.read_micros, cell: readCell, class: "short" },
    { title: "tags", value: (step) => tagsText(step), class: "key" },
    { title: "with the newest", value: () => "", cell: (step) => compareLink(run, step) },
  ];
  return sortedTable(columns, run.steps, { label: "Steps", by: 0, down: true });
}

// By scrub or verify --deep, which read every byte.
function readCell(step) {
  if (!step.read_micros) return "–";
  return [utc(step.read_micros), step.read_good ? null : [" ", badge("fault", "bad")]];
}

function keptText(step) {
  const words = [...step.kept];
  if (step.newest && !words.includes("newest")) words.push("newest");
  if (step.best && !words.includes("best")) words.push("best");
  return words.join(", ") || "–";
}

function tagsText(step) {
  return Object.entries(step.tags).map(([name, value]) => `${name}=${value}`).join(", ") || "–";
}

function compareLink(run, step) {
  const line = run.steps.filter((each) => each.state === "committed");
  const newest = line.at(-1);
  if (!newest || newest === step || step.fault) return "";
  const words = [run.id, step.attempt, run.id, newest.attempt];
  return el("a", { href: link("compare", words) }, "compare");
}

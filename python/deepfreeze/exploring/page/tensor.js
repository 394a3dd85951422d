// One tensor: its numbers over the steps, and the sizes of its elements.

import { badge, el, tick } from "./dom.js";
import { lineChart } from "./chart.js";
import { asNumber, num, shortName, size } from "./format.js";
import { link, stepName, tensorLink } from "./model.js";
import { ridgeline } from "./ridgeline.js";
import { sortedTable } from "./table.js";

export async function tensorView(context) {
  const { model, run, words, options, go } = context;
  const found = await model.tensors(run);
  const key = words[1] ?? "";
  if (!found.byKey.has(key)) return chooser(run, found, key);
  const tensor = found.tensors[found.byKey.get(key)];
  const data = await model.source.tensor(run.id, found.byKey.get(key));
  const series = Object.fromEntries(Object.entries(data.series).map(([name, values]) => [name, values.map(asNumber)]));
  series.change = series.delta.map((delta, place) => (delta === 0 ? 0 : delta / series.norm[place]));
  series.spread = series.deviation;
  for (const [name, from] of [["changedShare", "changed"], ["zeroShare", "zeros"]]) {
    series[name] = series[from].map((count) => (100 * count) / Math.max(1, tensor.elements));
  }
  const log = options.log !== "no";
  return el("div", {},
    el("h1", {}, el("bdi", {}, shortName(tensor.key))),
    el("p", { class: "lead" }, el("a", { href: link("tensors", [run.id]) }, run.name), " · ", badge(tensor.kind),
      ` ${tensor.dtype} [${tensor.shape.join(", ")}] · ${num(tensor.elements)} elements, ${size(tensor.bytes)}`),
    el("div", { class: "bar" }, tick("Logarithmic", log, (on) => go(link("tensor", words, { ...options, log: on ? "" : "no" })))),
    el("div", { class: "cards" }, charts(found.steps, series, log).map((chart) => el("section", { class: "card" }, chart))),
    el("section", { class: "card" }, ridgeline(found.steps, data.histograms, model.bins)),
    el("section", { class: "card" }, el("h2", {}, "Numbers"), numbersTable(found.steps, series)));
}

function charts(steps, series, log) {
  const line = (name, values, colour = 0) => ({ name, colour, points: points(steps, values) });
  const marks = steps
    .filter((step, place) => series.non_finite[place] > 0 || step.fault)
    .map((step) => ({ x: step.step, text: `step ${step.step}: ${step.fault ? "bad" : "NaN or infinities"}`, look: "bad", legend: "bad step, or NaN or infinities" }));
  return [
    lineChart({ title: "Norm ‖w‖", series: [line("norm", series.norm)], marks, log }),
    lineChart({ title: "Change ‖Δ‖ / ‖w‖", yLabel: "since the save before", series: [line("change", series.change, 1)], marks, log }),
    lineChart({ title: "Range", yLabel: "of finite elements", series: [line("max", series.max, 4), line("mean", series.mean, 2), line("min", series.min, 0)], marks }),
    lineChart({ title: "Standard deviation", series: [line("standard deviation", series.spread, 3)], marks, log }),
    lineChart({ title: "Cosine to the save before", series: [line("cosine", series.cosine, 2)], marks }),
    lineChart({ title: "Elements", yLabel: "% of all", series: [line("changed", series.changedShare, 1), line("zero", series.zeroShare, 5)], marks }),
  ];
}

// Steps on the present line; abandoned ones would draw the line back and forth.
function points(steps, values) {
  return steps.flatMap((step, place) => (step.state === "abandoned" ? [] : [[step.step, values[place]]]));
}

function numbersTable(steps, series) {
  const rows = steps.map((step, place) => ({ step, place }));
  const names = { min: "min", max: "max", mean: "mean", spread: "std", norm: "norm", change: "‖Δ‖/‖w‖", cosine: "cosine", changed: "changed", zeros: "zeros", non_finite: "NaN, inf" };
  const columns = [
    { title: "step", value: ({ step }) => step.step, cell: ({ step }) => stepName(step), number: true },
    ...Object.entries(names).map(([name, title]) => ({ title, value: ({ place }) => series[name][place], cell: ({ place }) => num(series[name][place], 4), number: true })),
  ];
  return sortedTable(columns, rows, { label: "Numbers of the tensor" });
}

function chooser(run, found, key) {
  const columns = [
    { title: "tensor", value: (tensor) => tensor.key, cell: (tensor) => tensorLink(run, tensor.key), class: "key" },
    { title: "kind", value: (tensor) => tensor.kind },
    { title: "dtype", value: (tensor) => tensor.dtype },
    { title: "shape", value: (tensor) => tensor.shape.join(" × ") || "one element" },
    { title: "elements", value: (tensor) => tensor.elements, cell: (tensor) => num(tensor.elements), number: true },
    { title: "size", value: (tensor) => tensor.bytes, cell: (tensor) => size(tensor.bytes), number: true },
  ];
  return el("div", {}, el("h1", {}, "Tensors"),
    key ? el("p", { class: "error" }, `This run has no tensor ${key}.`) : el("p", { class: "lead" }, "Choose one."),
    found.tensors.length ? el("section", { class: "card" }, sortedTable(columns, found.tensors, { label: "Tensors" })) : el("p", { class: "empty" }, "No step was read yet."));
}

// Results of programs about a run: analysis/NAME.json beside its steps, one matrix each.

import { lazyDetails } from "./chart.js";
import { choice, el } from "./dom.js";
import { asNumber, num, shortName } from "./format.js";
import { HeatMap } from "./heatmap.js";
import { link } from "./model.js";
import { sortedTable } from "./table.js";

const ROW_HEIGHT = 18;

export async function analysisView({ model, run, words, go }) {
  const { analyses } = await model.source.json("analyses", run.id);
  const page = el("div", {}, el("h1", {}, "Analysis"),
    el("p", { class: "lead" }, run.name, " · Results of programs about this run, in its directory ", el("code", {}, "analysis"), "."));
  if (!analyses.length) {
    page.append(el("p", { class: "empty" }, "No program has left a result in this run. docs/explore.md says how one does."));
    return page;
  }
  const chosen = analyses.find((each) => each.name === words[1]) ?? analyses.find((each) => !each.fault) ?? analyses[0];
  const options = analyses.map((each) => [each.name, shortName(each.fault ? `${each.title} (can't be drawn)` : each.title)]);
  page.append(el("div", { class: "bar" }, choice("Result", options, chosen.name, (name) => go(link("analysis", [run.id, name])))));
  if (chosen.fault) page.append(el("p", { class: "error", role: "alert" }, chosen.fault));
  else page.append(matrixCard(await model.source.json("analysis", run.id, chosen.name)));
  return page;
}

function matrixCard(found) {
  const show = { name: found.value, log: found.log };
  const steps = found.columns.names.map((name) => ({ step: name, state: "", fault: "" }));
  const map = new HeatMap({ steps, show, rowHeight: ROW_HEIGHT, columns: { title: found.columns.title, word: found.columns.title } });
  map.setRows(found.rows.names.map((name, row) => {
    const values = found.values[row].map(asNumber);
    const hot = values.map((value) => (Math.abs(value) === Infinity ? 1 : 0));
    return { label: name, path: `${found.rows.title} ${name}`, depth: 1, canOpen: false, values, hot };
  }), false);
  return el("section", { class: "card" }, el("h2", {}, el("bdi", {}, found.title)),
    found.about ? el("p", { class: "note" }, found.about) : null,
    map.element, lazyDetails("Table", () => cellsTable(found)));
}

// A line for each number, so that a click on its title finds the greatest and the least.
function cellsTable(found) {
  const cells = found.values.flatMap((row, y) => row.map((value, x) => ({ x, y, value: asNumber(value) })));
  const columns = [
    { title: found.rows.title, value: (cell) => found.rows.names[cell.y], cell: (cell) => named(found.rows.names[cell.y]), class: "key" },
    { title: found.columns.title, value: (cell) => found.columns.names[cell.x], cell: (cell) => named(found.columns.names[cell.x]), class: "key" },
    { title: found.value, value: (cell) => cell.value, cell: (cell) => num(cell.value, 4), number: true },
  ];
  return sortedTable(columns, cells, { label: found.title });
}

function named(name) {
  return el("bdi", {}, shortName(name));
}

// Tensors over steps: one heat map of the whole run.

import { choice, el, tick } from "./dom.js";
import { lazyDetails } from "./chart.js";
import { num, percent, shortName } from "./format.js";
import { HeatMap } from "./heatmap.js";
import { link, tensorLink } from "./model.js";
import { SHOWN, depthOf, fittingDepth, needsOf, rowValues, treeOf, visibleRows } from "./rows.js";
import { sortedTable } from "./table.js";

const ROWS_AT_FIRST = 48;
const PATTERN_MAX = 200;

export async function tensorsView(context) {
  const { model, run, options } = context;
  const found = await model.tensors(run);
  const page = el("div", {}, el("h1", {}, "Tensors × steps"),
    el("p", { class: "lead" }, run.name, " · ", `${found.tensors.length} tensors, ${found.steps.length} steps. Modules show their tensors together; open one with a click.`));
  if (!found.tensors.length) {
    page.append(el("p", { class: "empty" }, found.steps.length ? "The first step is being read…" : "This run has no checkpoints."));
    return page;
  }
  if (found.left_out) page.append(el("p", { class: "note" }, `${found.left_out} steps in between are left out of this file.`));
  const state = settings(found, options);
  const host = el("section", { class: "card" });
  page.append(controls(context, found, state), host);
  await fill(context, found, state, host);
  return page;
}

function settings(found, options) {
  const kinds = [...new Set(found.tensors.map((tensor) => tensor.kind))];
  const shown = options.show in SHOWN ? options.show : "change";
  const kind = options.kind ?? (kinds.includes("weights") ? "weights" : "all");
  const filter = (options.filter ?? "").slice(0, PATTERN_MAX);
  const chooses = pattern(filter);
  const places = found.tensors.flatMap((tensor, place) =>
    (kind === "all" || tensor.kind === kind) && chooses(tensor.key) ? [place] : []);
  const root = treeOf(found.tensors, places);
  const depth = Number(options.depth) || fittingDepth(root, ROWS_AT_FIRST);
  return { kinds, shown, kind, filter, root, depth, perRow: options.scale === "row", dense: options.rows === "dense", turned: new Set() };
}

// A word is looked for anywhere; with * or ? the whole name must match.
export function pattern(text) {
  if (!text) return () => true;
  if (!/[*?]/.test(text)) return (key) => key.includes(text);
  const escaped = text.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  const expression = new RegExp(`^${escaped}$`, "su");
  return (key) => expression.test(key);
}

function controls({ run, options, go }, found, state) {
  const change = (more) => go(link("tensors", [run.id], { ...options, ...more }));
  const depths = Array.from({ length: depthOf(state.root) }, (_, i) => [String(i + 1), String(i + 1)]);
  const input = el("input", { type: "search", value: state.filter, placeholder: "name, or *.weight", onchange: () => change({ filter: input.value }) });
  return el("div", { class: "bar" },
    choice("Show", Object.entries(SHOWN).map(([key, each]) => [key, each.name]), state.shown, (show) => change({ show })),
    choice("Kind", [["all", "all"], ...state.kinds.map((kind) => [kind, kind])], state.kind, (kind) => change({ kind, depth: "" })),
    el("label", {}, "Filter", input),
    choice("Open to depth", depths, String(Math.min(state.depth, Math.max(1, depths.length))), (depth) => change({ depth })),
    tick("Colours for each row", state.perRow, (on) => change({ scale: on ? "row" : "" })),
    tick("Every tensor, dense", state.dense, (on) => change({ rows: on ? "dense" : "" })));
}

async function fill({ model, run, go }, found, state, host) {
  const names = needsOf(state.shown);
  const loaded = await Promise.all(names.map((name) => model.matrix(run, name)));
  const matrices = Object.fromEntries(names.map((name, place) => [name, loaded[place]]));
  const columns = found.steps.length;
  const known = Math.floor(matrices.non_finite.length / columns); // steps may be added meanwhile
  const show = SHOWN[state.shown];
  const valuesOf = (node, shown) => rowValues(shown, { tensors: node.tensors.filter((place) => place < known) }, matrices, columns, found.tensors);
  const map = new HeatMap({ steps: found.steps, show, rowHeight: state.dense ? denseHeight(state.root.tensors.length) : 18, onopen: opened });
  const table = el("div");
  refresh();
  host.replaceChildren(el("h2", {}, show.name), el("p", { class: "note" }, show.about), map.element, table);
  exposed(map);

  function rowsNow() {
    if (!state.dense) return visibleRows(state.root, state.depth, state.turned);
    return visibleRows(state.root, Infinity, new Set()).filter(({ node }) => node.isLeaf);
  }

  function refresh() {
    const rows = rowsNow().map(({ node, isOpen }) => ({
      node, isOpen, label: node.name, path: node.path, depth: node.depth, canOpen: !node.isLeaf, count: node.tensors.length,
      values: valuesOf(node, state.shown), hot: valuesOf(node, "non_finite"),
    }));
    map.setRows(rows, state.perRow);
    table.replaceChildren(lazyDetails("Table of these rows", () => rowsTable(run, found, rows, show)));
    if (!rows.length) map.readout.textContent = "No tensor has such a name and kind.";
  }

  function opened(row) {
    if (!row.canOpen) {
      go(link("tensor", [run.id, row.path]));
      return;
    }
    if (!state.turned.delete(row.path)) state.turned.add(row.path);
    refresh();
  }
}

function denseHeight(count) {
  return Math.max(1, Math.min(18, Math.floor((window.innerHeight * 0.6) / Math.max(1, count))));
}

// The page's own check of its speed reads this.
function exposed(map) {
  window.deepfreezeHeatMap = map;
}

function rowsTable(run, found, rows, show) {
  const text = (value) => (show.share ? percent(value) : num(value));
  const last = (row) => row.values.findLast((value) => !Number.isNaN(value)) ?? NaN;
  const first = (row) => row.values.find((value) => !Number.isNaN(value)) ?? NaN;
  const most = (row) => row.values.reduce((best, value) => (value > best || Number.isNaN(best) ? value : best), NaN);
  const bad = (row) => found.steps[row.hot.findIndex((count) => count > 0)]?.step ?? null;
  const columns = [
    { title: "tensor or module", value: (row) => row.path, cell: (row) => (row.canOpen ? shortName(row.path) : tensorLink(run, row.path)), class: "key" },
    { title: "tensors", value: (row) => row.count, number: true },
    { title: "first", value: first, cell: (row) => text(first(row)), number: true },
    { title: "greatest", value: most, cell: (row) => text(most(row)), number: true },
    { title: "last", value: last, cell: (row) => text(last(row)), number: true },
    { title: "first NaN at step", value: bad, cell: (row) => bad(row) ?? "–", number: true },
  ];
  return sortedTable(columns, rows, { label: show.name });
}

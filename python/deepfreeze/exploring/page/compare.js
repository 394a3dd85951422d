// Two steps, of one run or of two: the tensors that changed, and by how much.

import { badge, choice, el, responsive, svg, tile } from "./dom.js";
import { asNumber, num, percent, tail } from "./format.js";
import { link, stepName, tensorLink } from "./model.js";
import { sortedTable } from "./table.js";

const BARS = 16;

export async function compareView(context) {
  const { model, run, words } = context;
  const [one, other] = sides(model, run, words);
  const page = el("div", {}, el("h1", {}, "Compare two steps"),
    el("p", { class: "lead" }, "What became of the first on the way to the second: in one run, or between two."), compareControls(context, one, other));
  if (!one.step || !other.step) return append(page, el("p", { class: "empty" }, "One of these runs has no checkpoint that can be read."));
  const host = el("div", {}, el("p", { class: "empty" }, "Both steps are being read…"));
  page.append(host);
  if (one.run !== other.run) page.append(hint(one.run, other.run));
  load(context, one, other, host);
  return page;
}

function hint(one, other) {
  return el("p", { class: "note" }, "At which step two runs part, and what that points to: ",
    el("code", {}, `deepfreeze explain-divergence ${one.path} ${other.path}`));
}

function append(page, child) {
  page.append(child);
  return page;
}

async function load({ model }, one, other, host) {
  try {
    const found = await model.source.json("compare", one.run.id, one.step.attempt, other.run.id, other.step.attempt);
    host.replaceChildren(...results(other.run, found));
  } catch (error) {
    host.replaceChildren(el("p", { class: "error", role: "alert" }, error.message));
  }
}

function readable(run) {
  return run.steps.filter((step) => step.state === "committed" || step.state === "abandoned");
}

// The steps of the address; else the first and the last of the run.
function sides(model, run, words) {
  const [, oneStep, otherRun, otherStep] = words;
  const second = model.byId.get(otherRun) ?? run;
  const pick = (each, attempt, last) => each.byAttempt.get(attempt) ?? readable(each).at(last ? -1 : 0);
  return [{ run, step: pick(run, oneStep, false) }, { run: second, step: pick(second, otherStep, true) }];
}

function compareControls({ model, go }, one, other) {
  const move = (first, second) => go(link("compare", [first.run.id, first.step?.attempt ?? "", second.run.id, second.step?.attempt ?? ""]));
  const runs = model.runs.map((run) => [run.id, run.name]);
  const steps = (run) => readable(run).toReversed().map((step) => [step.attempt, `step ${stepName(step)}`]);
  const side = (label, own, set) => [
    choice(`${label}: run`, runs, own.run.id, (id) => {
      const run = model.byId.get(id);
      set({ run, step: readable(run).at(-1) });
    }),
    choice("step", steps(own.run), own.step?.attempt, (attempt) => set({ run: own.run, step: own.run.byAttempt.get(attempt) })),
  ];
  return el("div", { class: "bar" },
    side("From", one, (side) => move(side, other)), side("To", other, (side) => move(one, side)),
    el("button", { class: "plain", type: "button", onclick: () => move(other, one) }, "Swap"));
}

function results(run, found) {
  const rows = found.tensors.map((row) => ({
    ...row,
    relative: relativeOf(row),
    share: asNumber(row.changed) / Math.max(1, row.elements),
  }));
  const count = (change) => rows.filter((row) => row.change === change).length;
  const weights = rows.filter((row) => row.kind === "weights" && row.relative > 0);
  const shown = (weights.length ? weights : rows.filter((row) => row.relative > 0)).toSorted((a, b) => b.relative - a.relative).slice(0, BARS);
  return [
    el("div", { class: "tiles" },
      tile(count("changed"), "tensors changed"), tile(count("same"), "the same"),
      ...["added", "removed", "another form", "damaged"].filter(count).map((change) => tile(count(change), change)),
      tile(found.values.length, "other values differ")),
    el("section", { class: "card" }, el("h2", {}, weights.length ? "Weights that changed most" : "What changed most"),
      shown.length ? bars(run, shown) : el("p", { class: "empty" }, "No tensor of the same form differs.")),
    el("section", { class: "card" }, el("h2", {}, "Tensors"), tensorsTable(run, rows)),
    el("section", { class: "card" }, el("h2", {}, "Other values"),
      found.values.length ? valuesTable(found.values) : el("p", { class: "empty" }, "All other values are equal.")),
  ];
}

function relativeOf(row) {
  const [delta, norm] = [asNumber(row.delta), asNumber(row.norm)];
  if (delta === 0) return 0;
  return norm > 0 ? delta / norm : NaN;
}

function bars(run, rows) {
  const host = el("div");
  const line = 24;
  const most = rows[0].relative;
  return responsive(host, (width) => {
    const labels = Math.min(340, width * 0.5);
    host.replaceChildren(svg("svg", { width, height: rows.length * line + 22, role: "group", "aria-label": "Relative change" },
      rows.map((row, place) => svg("a", { href: link("tensor", [run.id, row.key]) },
        svg("title", {}, row.key),
        svg("text", { x: labels - 8, y: place * line + 15, "text-anchor": "end", class: "strong" }, tail(row.key, Math.floor(labels / 6.6))),
        svg("rect", { x: labels, y: place * line + 4, height: line - 9, rx: 2, width: Math.max(1, (row.relative / most) * (width - labels - 64)), class: "barline" }),
        svg("text", { x: labels + Math.max(1, (row.relative / most) * (width - labels - 64)) + 5, y: place * line + 15 }, num(row.relative)))),
      svg("text", { x: labels, y: rows.length * line + 14 }, "‖Δ‖ / ‖w‖ of the second step")));
  });
}

function tensorsTable(run, rows) {
  const number = (title, of, text = (row) => num(of(row))) => ({ title, value: of, cell: text, number: true });
  const columns = [
    { title: "tensor", value: (row) => row.key, cell: (row) => tensorLink(run, row.key), class: "key" },
    { title: "kind", value: (row) => row.kind },
    { title: "what", value: (row) => row.change, cell: changeCell },
    number("‖Δ‖/‖w‖", (row) => row.relative),
    number("cosine", (row) => asNumber(row.cosine), (row) => num(asNumber(row.cosine), 5)),
    number("elements changed", (row) => row.share, (row) => percent(row.share)),
    number("‖Δ‖", (row) => asNumber(row.delta)),
    number("‖w‖", (row) => asNumber(row.norm)),
    number("NaN, inf", (row) => asNumber(row.non_finite)),
  ];
  return sortedTable(columns, rows, { label: "Tensors that differ", by: 3, down: true });
}

function changeCell(row) {
  if (row.change === "another form") return [badge("another form", "look"), ` ${row.before} → ${row.after}`];
  return badge(row.change, { damaged: "bad", added: "look", removed: "look" }[row.change] ?? "");
}

function valuesTable(values) {
  const columns = [
    { title: "value", value: (row) => row.path, class: "key" },
    { title: "first", value: (row) => row.before ?? "absent", class: "text" },
    { title: "second", value: (row) => row.after ?? "absent", class: "text" },
  ];
  return sortedTable(columns, values, { label: "Other values" });
}

// Starts the page, and shows the view that its address names.

import { el } from "./dom.js";
import { analysisView } from "./analysis.js";
import { compareView } from "./compare.js";
import { flagsView } from "./flags.js";
import { link, Model, parsedLink } from "./model.js";
import { follow } from "./polling.js";
import { runsView } from "./runs.js";
import { openSource } from "./source.js";
import { tensorView } from "./tensor.js";
import { tensorsView } from "./tensors.js";
import { timelineView } from "./timeline.js";

const VIEWS = {
  runs: ["Runs", runsView],
  timeline: ["Timeline", timelineView],
  tensors: ["Tensors × steps", tensorsView],
  tensor: ["Tensor", tensorView],
  compare: ["Compare", compareView],
  flags: ["Flags", flagsView],
  analysis: ["Analysis", analysisView],
};
const POLL_MILLISECONDS = 1000;
const THEMES = ["auto", "light", "dark"];
const part = (id) => document.getElementById(id);
const shown = { run: null, view: "", turn: 0 };

start();

async function start() {
  setTheme(stored("theme") ?? "auto");
  part("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "auto";
    setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
    if (shown.model) show(shown.model);
  });
  try {
    const model = (shown.model = await Model.open(await openSource()));
    fillRuns(model);
    window.addEventListener("hashchange", () => parsedLink(location.hash).view in VIEWS && show(model));
    await show(model);
    if (model.source.live) poll(model);
  } catch (error) {
    fail(error);
  }
}

// A file from disk may have no storage.
function stored(name) {
  try {
    return localStorage.getItem(`deepfreeze.${name}`);
  } catch {
    return null;
  }
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  part("theme").textContent = `Theme: ${theme}`;
  try {
    localStorage.setItem("deepfreeze.theme", theme);
  } catch {
    // then it holds until the page is closed
  }
}

function fillRuns(model) {
  const select = part("run");
  select.append(...model.runs.map((run) => el("option", { value: run.id }, run.name)));
  select.addEventListener("change", () => {
    const view = ["runs", "tensor", "compare"].includes(shown.view) ? (shown.view === "runs" ? "timeline" : shown.view) : shown.view;
    const { words, options } = parsedLink(location.hash);
    go(link(view, view === "tensor" ? [select.value, words[1] ?? ""] : [select.value], view === "compare" ? {} : options));
  });
}

function go(address) {
  if (location.hash === address) show(shown.model);
  else location.hash = address;
}

async function show(model, keepsPlace = false) {
  const asked = parsedLink(location.hash);
  const view = asked.view in VIEWS ? asked.view : model.runs.length === 1 ? "timeline" : "runs";
  const run = model.byId.get(asked.words[0]) ?? shown.run ?? model.runs.find((each) => each.named) ?? model.runs[0];
  const turn = (shown.turn += 1);
  const isNew = view !== shown.view || run !== shown.run;
  Object.assign(shown, { run, view });
  part("run").value = run.id;
  drawNavigation(view, run);
  try {
    const made = await VIEWS[view][1]({ model, run, words: asked.words, options: asked.options, go });
    if (turn !== shown.turn) return; // another view was asked for meanwhile
    part("main").replaceChildren(made);
    document.title = `${VIEWS[view][0]} · ${view === "runs" ? "all" : run.name} · DeepFreeze`;
    if (isNew && !keepsPlace) window.scrollTo(0, 0);
  } catch (error) {
    if (turn === shown.turn) fail(error);
  }
}

function drawNavigation(view, run) {
  const words = view === "runs" ? [] : [run.id];
  part("views").replaceChildren(...Object.entries(VIEWS).map(([name, [title]]) =>
    el("a", { href: link(name, name === "runs" ? [] : words.length ? words : [run.id]), "aria-current": name === view ? "page" : null }, title)));
}

function fail(error) {
  part("main").replaceChildren(el("p", { class: "error", role: "alert" }, error.message));
}

// While numbers are computed, says how far they are, and shows those that have come.
async function poll(model) {
  try {
    await follow({
      progress: () => model.source.json("progress"),
      runs: model.runs,
      forget: (run) => model.forget(run),
      tell: (found) => tellProgress(found, shown.run),
      isBusy,
      redraw: () => ["tensors", "tensor", "flags"].includes(shown.view) && show(model, true),
      pause: () => new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS)),
    });
  } catch {
    part("progress").hidden = false;
    part("progress").textContent = "The program has ended.";
  }
}

// Nobody is disturbed while typing, or with a row open.
function isBusy() {
  return ["INPUT", "SELECT", "CANVAS"].includes(document.activeElement?.tagName) && document.activeElement.id !== "run";
}

function tellProgress(found, run) {
  const own = found.runs[run.id];
  const isDone = !found.computing || !own;
  part("progress").hidden = isDone;
  if (!isDone) part("progress").textContent = `Reading tensors: ${own.done} of ${own.total} steps of this run`;
}

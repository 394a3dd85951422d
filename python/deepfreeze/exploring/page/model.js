// Runs and their numbers, as the views ask for them.

import { el } from "./dom.js";
import { shortName } from "./format.js";

export class Model {
  #tensors = new Map(); // by run: the promise of its tensors
  #matrices = new Map();

  constructor(source, document) {
    this.source = source;
    this.bins = document.bins;
    this.runs = document.runs;
    this.byId = new Map(this.runs.map((run) => [run.id, run]));
    for (const run of this.runs) run.byAttempt = new Map(run.steps.map((step) => [step.attempt, step]));
  }

  static async open(source) {
    return new Model(source, await source.json("model"));
  }

  parentOf(run) {
    return run.parent && run.parent.run ? this.byId.get(run.parent.run) : undefined;
  }

  // The run, its parent, and so on; each with the step at which the one before left it.
  ancestry(run) {
    const found = [{ run, until: Infinity }];
    for (let here = run; found.length < 64; ) {
      const parent = this.parentOf(here);
      if (!parent || found.some((each) => each.run === parent)) break;
      found.push({ run: parent, until: here.parent.step });
      here = parent;
    }
    return found;
  }

  tensors(run) {
    if (!this.#tensors.has(run.id)) this.#tensors.set(run.id, this.#loadTensors(run));
    return this.#tensors.get(run.id);
  }

  async #loadTensors(run) {
    const found = await this.source.json("tensors", run.id);
    found.steps = found.columns.map((attempt) => run.byAttempt.get(attempt));
    found.byKey = new Map(found.tensors.map((tensor, place) => [tensor.key, place]));
    for (const [attempt, fate] of Object.entries(found.fates)) Object.assign(run.byAttempt.get(attempt), fate);
    return found;
  }

  // A row for each tensor, a column for each step.
  matrix(run, quantity) {
    const key = `${run.id}/${quantity}`;
    if (!this.#matrices.has(key)) this.#matrices.set(key, this.source.floats("matrix", run.id, quantity));
    return this.#matrices.get(key);
  }

  // Numbers that were computed meanwhile are asked for anew.
  forget(run) {
    this.#tensors.delete(run.id);
    for (const key of this.#matrices.keys()) {
      if (key.startsWith(`${run.id}/`)) this.#matrices.delete(key);
    }
  }
}

export function stepName(step) {
  return `${step.step}${step.state === "abandoned" ? " (abandoned)" : step.fault ? " (bad)" : ""}`;
}

// Addresses of views: #/view/words?options
export function link(view, words = [], options = {}) {
  const query = new URLSearchParams(Object.entries(options).filter(([, value]) => value !== ""));
  const path = [view, ...words].map((word) => encodeURIComponent(word)).join("/");
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function parsedLink(hash) {
  const [path, query = ""] = hash.replace(/^#\//, "").split("?");
  const [view = "", ...words] = path.split("/").map(decoded);
  return { view, words, options: Object.fromEntries(new URLSearchParams(query)) };
}

// A name keeps its own direction, whatever stands beside it.
export function tensorLink(run, key) {
  const title = key === shortName(key) ? null : key;
  return el("a", { href: link("tensor", [run.id, key]), title }, el("bdi", {}, shortName(key)));
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

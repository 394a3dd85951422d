// Findings in a run that deserve a look.

import { badge, el, tile } from "./dom.js";
import { tensorLink } from "./model.js";
import { sortedTable } from "./table.js";

const MEANINGS = {
  damaged: "bytes of the step do not verify; a restore takes an older step",
  "replicas differ": "copies that should be the same on all ranks are not",
  "non-finite": "NaN or infinities; the first step and the first tensors",
  exploding: "a change more than ten times the median before it, or a value near the end of its type",
  dead: "no change while the optimizer's state for it changes, or nearly all zeros",
  vanishing: "a change less than a ten-thousandth of that of half of the weights, to the last step",
  "lost to rounding": "a short type without a longer copy: many elements keep their bits from save to save",
};

export async function flagsView({ model, run }) {
  const found = await model.source.json("flags", run.id);
  const kinds = [...new Set(found.flags.map((flag) => flag.kind))];
  const page = el("div", {}, el("h1", {}, "Flags"),
    el("p", { class: "lead" }, run.name, " · Rules of thumb point here; whether something is wrong is for you to judge."),
    found.missing ? el("p", { class: "note" }, `${found.missing} steps are not read yet; more may be found.`) : null);
  if (!found.flags.length) {
    page.append(el("p", { class: "empty" }, "Nothing found on the present line of this run."));
  } else {
    page.append(el("div", { class: "tiles" }, kinds.map((kind) => tile(found.flags.filter((flag) => flag.kind === kind).length, kind))),
      el("section", { class: "card" }, flagsTable(run, found.flags)));
  }
  page.append(el("section", { class: "card" }, el("h2", {}, "What is looked for"),
    el("dl", {}, Object.entries(MEANINGS).flatMap(([kind, text]) => [el("dt", {}, el("b", {}, kind)), el("dd", {}, text)]))));
  return page;
}

function flagsTable(run, flags) {
  const columns = [
    { title: "flag", value: (flag) => flag.kind, cell: (flag) => badge(flag.kind, flag.weight) },
    { title: "from step", value: (flag) => flag.step, number: true },
    { title: "tensor", value: (flag) => flag.key, cell: (flag) => (flag.key ? tensorLink(run, flag.key) : "the whole step"), class: "key" },
    { title: "what", value: (flag) => flag.text, class: "text" },
  ];
  return sortedTable(columns, flags, { label: "Flags" });
}

// Histograms by exponent, one ridge a step, the newest in front.

import { el, responsive, svg } from "./dom.js";
import { percent } from "./format.js";
import { lazyDetails } from "./chart.js";
import { sortedTable } from "./table.js";

const RIDGES_MAX = 28;
const RIDGE_MARGIN = { left: 62, right: 14, top: 46, bottom: 36 };
const GAP = 13;
const VISIBLE = 0.001; // of the elements

// A histogram holds 255 times the square root of each bin's share.
export function shareOf(byte) {
  return (byte / 255) ** 2;
}

export function ridgeline(steps, histograms, bins) {
  const known = steps
    .map((step, column) => ({ step, bars: histograms[column] }))
    .filter((each) => each.step.state !== "abandoned" && each.bars && each.bars.some((bar) => bar > 0));
  const caption = el("figcaption", {}, "Sizes of the elements", el("span", { class: "note" }, " share by power of two; zeros are left out"));
  if (!known.length) {
    return el("figure", {}, caption, el("p", { class: "empty" }, "No histogram: no element is finite and other than zero, or this file has none."));
  }
  const chosen = thinned(known);
  const [low, high] = extent(known);
  const host = el("div");
  responsive(host, (width) => host.replaceChildren(drawnRidges(chosen, low, high, bins, width)));
  return el("figure", {}, caption, host, ridgesTable(known, bins));
}

function thinned(known) {
  if (known.length <= RIDGES_MAX) return known;
  const places = Array.from({ length: RIDGES_MAX }, (_, i) => Math.round((i * (known.length - 1)) / (RIDGES_MAX - 1)));
  return [...new Set(places)].map((place) => known[place]);
}

function extent(known) {
  let [low, high] = [Infinity, -Infinity];
  for (const { bars } of known) {
    bars.forEach((bar, bin) => {
      if (shareOf(bar) < VISIBLE) return;
      low = Math.min(low, bin);
      high = Math.max(high, bin);
    });
  }
  return [Math.max(0, low - 1), high + 1];
}

function drawnRidges(chosen, low, high, bins, width) {
  const inner = width - RIDGE_MARGIN.left - RIDGE_MARGIN.right;
  const height = RIDGE_MARGIN.top + RIDGE_MARGIN.bottom + GAP * (chosen.length - 1);
  const x = (bin) => RIDGE_MARGIN.left + ((bin - low + 0.5) / (high - low + 1)) * inner;
  const parts = chosen.map((each, place) => ridge(each, place, low, high, x));
  const labels = Math.max(2, Math.floor(inner / 60));
  const every = Math.max(1, Math.ceil((high - low) / labels));
  for (let bin = low; bin <= high; bin += every) {
    parts.push(svg("text", { x: x(bin), y: height - 20, "text-anchor": "middle" }, power(bins.first + bin)));
  }
  parts.push(svg("text", { x: RIDGE_MARGIN.left + inner / 2, y: height - 4, "text-anchor": "middle" }, "size of an element"));
  const label = `Ridgeline of ${chosen.length} steps; the table below has the values`;
  return svg("svg", { width, height, role: "img", "aria-label": label }, parts);
}

function power(exponent) {
  const digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  return `2${exponent < 0 ? "⁻" : ""}${[...String(Math.abs(exponent))].map((digit) => digits[digit]).join("")}`;
}

function ridge({ step, bars }, place, low, high, x) {
  const base = RIDGE_MARGIN.top + place * GAP;
  let path = `M${x(low - 0.5).toFixed(1)} ${base}`;
  for (let bin = low; bin <= high; bin += 1) {
    const rise = shareOf(bars[bin] ?? 0) * 85;
    path += `L${x(bin).toFixed(1)} ${(base - Math.min(rise, 42)).toFixed(1)}`;
  }
  path += `L${x(high + 0.5).toFixed(1)} ${base}Z`;
  return svg("g", {},
    svg("path", { d: path, class: "ridge-ground" }),
    svg("path", { d: path, class: "ridge" }),
    svg("text", { x: RIDGE_MARGIN.left - 6, y: base + 3, "text-anchor": "end" }, step.step),
    svg("title", {}, `step ${step.step}`));
}

function ridgesTable(known, bins) {
  const rows = known.flatMap(({ step, bars }) => bars
    .map((bar, bin) => ({ step: step.step, exponent: bins.first + bin, share: shareOf(bar) }))
    .filter((row) => row.share > 0));
  const columns = [
    { title: "step", value: (row) => row.step, number: true },
    { title: "size from", value: (row) => row.exponent, cell: (row) => power(row.exponent), number: true },
    { title: "share", value: (row) => row.share, cell: (row) => percent(row.share), number: true },
  ];
  return lazyDetails("Table", () => sortedTable(columns, rows, { label: "Sizes of the elements" }));
}

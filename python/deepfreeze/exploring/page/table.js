// A table that sorts by a click on a title, and shows a hundred rows at a time.

import { el } from "./dom.js";

const ROWS_SHOWN = 100;

// columns: {title, value(row) to sort by, cell(row) to show, number, class}
export function sortedTable(columns, rows, options = {}) {
  const state = { by: options.by ?? -1, down: options.down ?? false, shown: ROWS_SHOWN };
  const body = el("tbody");
  const more = el("button", { class: "more", type: "button", onclick: showMore }, "");
  const heads = columns.map((column, place) => head(column, () => sortBy(place)));
  draw();
  return el(
    "div",
    {},
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": options.label ?? "Table" },
      el("table", {}, el("thead", {}, el("tr", {}, heads)), body)),
    more,
  );

  function showMore() {
    state.shown += 5 * ROWS_SHOWN;
    draw();
  }

  function sortBy(place) {
    state.down = state.by === place ? !state.down : Boolean(columns[place].number);
    state.by = place;
    draw();
  }

  function draw() {
    const order = state.by < 0 ? rows : rows.toSorted(comparison(columns[state.by], state.down));
    body.replaceChildren(...order.slice(0, state.shown).map((row) => line(columns, row)));
    more.hidden = rows.length <= state.shown;
    more.textContent = `Show more (${rows.length - state.shown} left)`;
    heads.forEach((element, place) => {
      const sort = state.down ? "descending" : "ascending";
      element.setAttribute("aria-sort", place === state.by ? sort : "none");
      element.querySelector("span").textContent = place !== state.by ? "" : state.down ? " ▾" : " ▴";
    });
  }
}

function head(column, onclick) {
  const button = el("button", { type: "button", onclick }, column.title, el("span", { "aria-hidden": "true" }));
  return el("th", { scope: "col", class: column.number ? "number" : "" }, button);
}

function line(columns, row) {
  return el("tr", {}, columns.map((column) => el(
    "td",
    { class: column.class ?? (column.number ? "number" : "") },
    column.cell ? column.cell(row) : column.value(row),
  )));
}

function comparison(column, down) {
  const sign = down ? -1 : 1;
  return (one, other) => {
    const [a, b] = [column.value(one), column.value(other)];
    const [isLast, isOtherLast] = [isUnknown(a), isUnknown(b)];
    if (isLast || isOtherLast) return isLast - isOtherLast;
    return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
  };
}

function isUnknown(value) {
  return value === null || value === undefined || Number.isNaN(value);
}

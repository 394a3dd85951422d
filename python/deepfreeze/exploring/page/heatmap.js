// Rows over steps as colours. Draws only the rows that are in sight, from one value a pixel.

import { colourAt, cssAt, packedHex, placeIn, rangeOf } from "./colour.js";
import { cssColour, el, responsive, svg } from "./dom.js";
import { niceTicks } from "./chart.js";
import { num, percent, shortName, tail } from "./format.js";
import { stepName } from "./model.js";

const AXIS_HEIGHT = 34;
const STRIP = 5; // marks of bad and abandoned steps, above the cells

const OF_STEPS = { title: "step, in the order of the saves", word: "step" };

// columns: their title, and the word for one. Without `onopen` no row can be opened.
// rows: {label, depth, isOpen, canOpen, values, hot, path}; hot: columns with NaN or infinities.
export class HeatMap {
  #rows = [];
  #cursor = null;
  #top = 0;

  constructor({ steps, show, rowHeight, onopen, columns = OF_STEPS }) {
    Object.assign(this, { steps, show, onopen, columns });
    this.rowHeight = rowHeight;
    this.canvas = el("canvas", { tabindex: 0, role: "img" });
    this.spacer = el("div");
    this.scroller = el("div", { class: "heat-scroll" }, this.canvas, this.spacer);
    this.axis = el("div");
    this.readout = el("output", { class: "readout", "aria-live": "polite" });
    this.legend = el("div", { class: "scale" });
    this.element = el("div", { class: "heat" }, this.legend, this.scroller, this.axis, this.readout);
    this.#listen();
    responsive(this.element, (width) => this.#resize(width));
  }

  setRows(rows, perRow) {
    this.#rows = rows;
    this.perRow = perRow;
    const log = Boolean(this.show.log);
    const all = rows.flatMap((row) => Array.from(row.values));
    this.range = this.show.share ? { least: 0, most: 1, log: false } : rangeOf(all, log, 0.02);
    for (const row of rows) row.range = perRow ? rangeOf(row.values, log) : this.range;
    this.#drawLegend();
    if (this.width) this.#resize(this.width);
    this.canvas.setAttribute("aria-label", `Heat map of ${rows.length} rows over ${this.steps.length} columns (${this.columns.word}): ${this.show.name}. Arrow keys move${this.onopen ? ", Enter opens" : ""}.`);
    this.readout.textContent = `Point at a cell, or focus the map and use the arrow keys${this.onopen ? "; Enter or a click opens a row" : ""}.`;
  }

  #resize(width) {
    this.width = width;
    this.labels = Math.round(Math.max(104, Math.min(300, width * 0.3)));
    const total = this.#rows.length * this.rowHeight;
    const fitting = Math.max(3, Math.floor((window.innerHeight * 0.62) / this.rowHeight)) * this.rowHeight;
    this.height = STRIP + Math.min(total, fitting);
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(this.height * ratio) });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${this.height}px` });
    this.scroller.style.height = `${this.height}px`;
    this.spacer.style.height = `${Math.max(0, total + STRIP - this.height)}px`;
    this.draw();
    this.#drawAxis();
  }

  draw() {
    const began = performance.now();
    const ratio = window.devicePixelRatio || 1;
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.#top = this.scroller.scrollTop;
    const first = Math.floor(this.#top / this.rowHeight);
    const count = Math.min(this.#rows.length - first, Math.ceil(this.height / this.rowHeight) + 1);
    if (count > 0) this.#drawCells(context, first, count);
    this.#drawLabels(context, first, count);
    this.#drawStrip(context);
    this.#drawCursor(context);
    this.drawMilliseconds = performance.now() - began;
  }

  #drawCells(context, first, count) {
    const pixels = Math.max(1, Math.round(this.width - this.labels));
    const image = new ImageData(pixels, count);
    const words = new Uint32Array(image.data.buffer);
    const hot = packedHex(cssColour("--hot"));
    const columns = this.steps.length;
    for (let place = 0; place < count; place += 1) {
      paintRow(words.subarray(place * pixels, (place + 1) * pixels), this.#rows[first + place], columns, hot);
    }
    const buffer = new OffscreenCanvas(pixels, count);
    buffer.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    const top = STRIP + first * this.rowHeight - this.#top;
    context.drawImage(buffer, this.labels, top, pixels, count * this.rowHeight);
    if (this.rowHeight < 10) return;
    context.fillStyle = cssColour("--card");
    for (let place = 0; place <= count; place += 1) context.fillRect(this.labels, top + place * this.rowHeight - 1, pixels, 1);
  }

  #drawLabels(context, first, count) {
    context.fillStyle = cssColour("--card");
    context.fillRect(0, 0, this.labels - 4, this.height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    if (this.rowHeight < 10) {
      this.#drawGroups(context, first, count);
      return;
    }
    for (let place = 0; place < count; place += 1) {
      const row = this.#rows[first + place];
      const indent = 12 * Math.max(0, Math.min(row.depth - 1, 4));
      const y = STRIP + (first + place + 0.5) * this.rowHeight - this.#top;
      const arrow = row.canOpen ? (row.isOpen ? "▾ " : "▸ ") : "  ";
      const room = this.labels - indent - 26;
      context.fillStyle = cssColour(row.canOpen ? "--text" : "--dim");
      context.fillText(arrow + tail(row.label, Math.max(6, Math.floor(room / 6.3))), indent + 2, y);
    }
  }

  // Rows too low for names have the names of their modules, if there is room for one.
  #drawGroups(context, first, count) {
    let [last, free] = ["", -Infinity];
    context.fillStyle = cssColour("--dim");
    for (let place = 0; place < count; place += 1) {
      const group = this.#rows[first + place].path.split(".").slice(0, 3).join(".");
      const y = STRIP + (first + place) * this.rowHeight - this.#top + 7;
      if (group === last || y < free) continue;
      [last, free] = [group, y + 15];
      context.fillText(tail(group, Math.floor((this.labels - 12) / 6.5)), 2, y);
    }
  }

  #drawStrip(context) {
    context.fillStyle = cssColour("--card");
    context.fillRect(0, 0, this.width, STRIP);
    this.steps.forEach((step, column) => {
      if (!step.fault && step.state !== "abandoned") return;
      context.fillStyle = cssColour(step.fault ? "--bad" : "--dim");
      const [x, width] = this.#columnAt(column);
      context.fillRect(x, 0, Math.max(1.5, width), STRIP - 1);
    });
  }

  #drawCursor(context) {
    if (!this.#cursor) return;
    const [x, width] = this.#columnAt(this.#cursor.column);
    const y = STRIP + this.#cursor.row * this.rowHeight - this.#top;
    context.lineWidth = 2;
    context.strokeStyle = cssColour("--text");
    context.strokeRect(x - 1, y - 1, Math.max(3, width) + 1, Math.max(3, this.rowHeight) + 1);
  }

  #columnAt(column) {
    const width = (this.width - this.labels) / this.steps.length;
    return [this.labels + column * width, width];
  }

  #drawAxis() {
    const columns = this.steps.length;
    const width = this.width - this.labels;
    const count = Math.max(2, Math.min(columns, Math.floor(width / 70)));
    const places = columns === 1 ? [0] : niceTicks(0, columns - 1, count).filter(Number.isInteger);
    const texts = places.map((column) => {
      const [x, cell] = this.#columnAt(column);
      return svg("text", { x: x + cell / 2, y: 14, "text-anchor": "middle" }, tail(String(this.steps[column].step), 10));
    });
    texts.push(svg("text", { x: this.labels + width / 2, y: 30, "text-anchor": "middle" }, this.columns.title));
    this.axis.replaceChildren(svg("svg", { width: this.width, height: AXIS_HEIGHT, "aria-hidden": "true" }, texts));
  }

  #drawLegend() {
    const bar = el("canvas", { width: 192, height: 1, "aria-hidden": "true" });
    const context = bar.getContext("2d");
    for (let x = 0; x < 192; x += 1) {
      context.fillStyle = cssAt(x / 191);
      context.fillRect(x, 0, 1, 1);
    }
    const text = (value) => (this.show.share ? percent(value) : num(value));
    const ends = this.perRow ? ["least of the row", "greatest"] : [this.show.share ? text(0) : `≤ ${text(this.range.least)}`, this.show.share ? text(1) : `≥ ${text(this.range.most)}`];
    this.legend.replaceChildren(
      el("span", {}, `${this.show.name}${this.show.log ? " (log)" : ""}:`), el("span", {}, ends[0]), bar, el("span", {}, ends[1]),
      el("span", {}, el("i", { class: "swatch hot" }), "has NaN or infinities"),
      el("span", {}, el("i", { class: "swatch" }), "not known"),
    );
  }

  #listen() {
    this.scroller.addEventListener("scroll", () => this.draw());
    this.canvas.addEventListener("pointermove", (event) => this.#moveTo(this.#hit(event)));
    this.canvas.addEventListener("click", (event) => {
      const hit = this.#hit(event);
      if (hit) this.onopen?.(this.#rows[hit.row], this.steps[hit.column]);
    });
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #hit(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - STRIP + this.#top) / this.rowHeight);
    const part = (event.clientX - box.left - this.labels) / (this.width - this.labels);
    if (row < 0 || row >= this.#rows.length) return null;
    return { row, column: Math.max(0, Math.min(this.steps.length - 1, Math.floor(part * this.steps.length))) };
  }

  #moveTo(cursor) {
    if (!cursor) return;
    this.#cursor = cursor;
    const row = this.#rows[cursor.row];
    const value = row.values[cursor.column];
    const shown = this.show.share ? percent(value) : num(value, 4);
    const extra = row.hot[cursor.column] > 0 ? `; ${num(row.hot[cursor.column])} NaN or infinite` : "";
    const unit = row.canOpen ? ` (${row.count} tensors)` : "";
    this.readout.textContent = `${shortName(row.path)}${unit} · ${this.columns.word} ${shortName(stepName(this.steps[cursor.column]))} · ${this.show.name} ${shown}${extra}`;
    this.draw();
  }

  #key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -Infinity], End: [0, Infinity] };
    const cursor = this.#cursor ?? { row: 0, column: 0 };
    if (event.key === "Enter") this.onopen?.(this.#rows[cursor.row], this.steps[cursor.column]);
    if (!(event.key in moves)) return;
    event.preventDefault();
    const [down, right] = this.#cursor ? moves[event.key] : [0, 0];
    const row = Math.max(0, Math.min(this.#rows.length - 1, cursor.row + down));
    const column = Math.max(0, Math.min(this.steps.length - 1, cursor.column + right));
    const y = row * this.rowHeight;
    if (y < this.scroller.scrollTop) this.scroller.scrollTop = y;
    const bottom = y + this.rowHeight + STRIP - this.height;
    if (bottom > this.scroller.scrollTop) this.scroller.scrollTop = bottom;
    this.#moveTo({ row, column });
  }
}

// If several steps share a pixel, the greatest shows; one with NaN shows before all others.
function paintRow(words, row, columns, hot) {
  const { values, range } = row;
  for (let x = 0; x < words.length; x += 1) {
    const begin = Math.floor((x * columns) / words.length);
    const end = Math.max(begin + 1, Math.floor(((x + 1) * columns) / words.length));
    let most = NaN;
    let isHot = false;
    for (let column = begin; column < end; column += 1) {
      const value = values[column];
      if (!(value <= most)) most = Number.isNaN(value) ? most : value;
      isHot ||= row.hot[column] > 0;
    }
    if (isHot) words[x] = hot;
    else if (!Number.isNaN(most)) words[x] = colourAt(placeIn(most, range));
  }
}

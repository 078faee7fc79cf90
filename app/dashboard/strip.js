// The strip of batch sizes: a column a second, darker where more of its batches are of that size; beside it the sizes now.

import { drawn, onWidth, set } from "./dom.js";
import { batches, WINDOW_S } from "./history.js";
import { percent, sizes } from "./words.js";

const PLOT = 250;
const LEAST_ROW = 16;
const MOST_ROW = 34;
const LEAST_ROWS = 7;
const LEFT = 62;
const RIGHT = 92;
const BETWEEN = 14;
const FOOT = 18;

export class SizeStrip {
  #box;
  #moment;
  #svg = drawn("svg", { role: "img" });
  #width = 0;
  #samples = [];
  #now = [];
  #bounds = [];
  #row = MOST_ROW;

  constructor(box, moment) {
    this.#box = box;
    this.#moment = moment;
    box.append(this.#svg);
    box.addEventListener("pointermove", (event) => this.#point(event));
    box.addEventListener("pointerleave", () => moment.point(null));
    onWidth(box, (width) => {
      this.#width = width;
      this.draw(this.#samples, this.#now, this.#bounds);
    });
  }

  /** `samples` make the strip, `now` the bars beside it; `bounds` are the largest sizes of each row. */
  draw(samples, now, bounds) {
    [this.#samples, this.#now, this.#bounds] = [samples, now, bounds];
    const seen = batches(samples).reduce((last, n, i) => (n > 0 ? i + 1 : last), 0);
    const rows = Math.max(LEAST_ROWS, Math.min(seen + 1, bounds.length + 1));
    this.#row = Math.min(MOST_ROW, Math.max(LEAST_ROW, Math.floor(PLOT / rows)));
    const height = rows * this.#row + FOOT;
    set(this.#svg, { width: this.#width, height, "aria-label": this.#description(batches(now)) });
    if (this.#width === 0 || bounds.length === 0) return;
    const y = (row) => (rows - 1 - row) * this.#row;
    this.#svg.replaceChildren(...this.#labels(rows, y), ...this.#cells(y), ...this.#bars(rows, y), ...this.#pointer(rows));
  }

  get #plot() {
    return Math.max(40, this.#width - LEFT - RIGHT - BETWEEN);
  }

  #x(at) {
    const latest = this.#samples[this.#samples.length - 1].at;
    return LEFT + this.#plot * (1 - (latest - at) / WINDOW_S);
  }

  #labels(rows, y) {
    const names = Array.from({ length: rows }, (_, row) =>
      drawn("text", { class: "tick", x: LEFT - 8, y: y(row) + this.#row / 2 + 4, "text-anchor": "end" }, sizes(this.#bounds, row)),
    );
    const base = rows * this.#row;
    const field = drawn("rect", { class: "field", x: LEFT, y: 0, width: this.#plot, height: base });
    const foot = [[LEFT, "start", "2 min ago"], [LEFT + this.#plot, "end", "now"]].map(([x, anchor, text]) =>
      drawn("text", { class: "tick", x, y: base + 14, "text-anchor": anchor }, text),
    );
    return [field, ...names, ...foot];
  }

  #cells(y) {
    const wide = this.#plot / WINDOW_S;
    const shares = this.#samples.flatMap(({ batches }) => batches.map((n) => n / batches.reduce((sum, one) => sum + one, 0)));
    const most = Math.max(...shares.filter(Number.isFinite));
    return this.#samples.flatMap((sample) => {
      const all = sample.batches.reduce((sum, n) => sum + n, 0);
      const x = this.#x(sample.at) - wide;
      return sample.batches.flatMap((n, row) =>
        n === 0 ? [] : [drawn("rect", { class: "cell", x, y: y(row) + 1, width: wide + 0.3, height: this.#row - 2, "fill-opacity": shade(n / all / most) })],
      );
    });
  }

  #bars(rows, y) {
    const counts = batches(this.#now);
    const all = counts.reduce((sum, n) => sum + n, 0);
    if (all === 0) return [];
    const x = LEFT + this.#plot + BETWEEN;
    const room = RIGHT - 40;
    return counts.slice(0, rows).flatMap((n, row) => [
      drawn("rect", { class: "field", x, y: y(row) + 3, width: room, height: this.#row - 6 }),
      drawn("rect", { class: "cell", x, y: y(row) + 3, width: (room * n) / all, height: this.#row - 6 }),
      n === 0 ? "" : drawn("text", { class: "tick", x: x + room + 5, y: y(row) + this.#row / 2 + 4 }, percent(n / all)),
    ]);
  }

  #pointer(rows) {
    const sample = this.#moment.sample;
    if (this.#moment.at === null || sample === null) return [];
    const x = this.#x(sample.at) - this.#plot / WINDOW_S / 2;
    return [drawn("line", { class: "pointer", x1: x, x2: x, y1: 0, y2: rows * this.#row })];
  }

  #point(event) {
    if (this.#samples.length === 0) return;
    const x = event.clientX - this.#box.getBoundingClientRect().left - LEFT;
    const latest = this.#samples[this.#samples.length - 1].at;
    this.#moment.point(x < 0 || x > this.#plot ? null : latest - WINDOW_S * (1 - x / this.#plot));
  }

  #description(counts) {
    const all = counts.reduce((sum, n) => sum + n, 0);
    if (all === 0) return "Inputs in a batch: no batches in the last seconds.";
    const parts = counts.flatMap((n, row) => (n === 0 ? [] : [`${sizes(this.#bounds, row)}: ${percent(n / all)}`]));
    return `Inputs in a batch, share of the batches of the last seconds. ${parts.join(", ")}.`;
  }
}

/** How dark a part of the darkest is: even the smallest can be seen. */
function shade(part) {
  return (0.15 + 0.85 * part).toFixed(2);
}

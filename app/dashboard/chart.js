// A chart of the last two minutes: lines, or areas one upon another, drawn as SVG.

import { drawn, onWidth, set } from "./dom.js";
import { WINDOW_S } from "./history.js";

const HEIGHT = 118;
const TOP = 8;
const BOTTOM = 18;
const RIGHT = 5;
/** Samples that lie further apart are not joined: nothing is known of the time between. */
const GAP_S = 3;
/** Narrower charts have no label in the middle of the axis. */
const ROOMY = 200;
const TICKS = [[120, "2 min ago"], [60, "1 min"], [0, "now"]];

export class TimeChart {
  #box;
  #options;
  #moment;
  #svg = drawn("svg", { role: "img", height: HEIGHT });
  #width = 0;
  #samples = [];

  /**
   * `label` and `format(value)` are for the description in words, `tick(value)` for the axis.
   * `series`: {name, look, value(sample) → number or null} each; `look` is a class; the first is drawn uppermost.
   * `stacked`: areas that add up. `washed`: the lines have a tint below them.
   * `reference()`: a line to compare with, {value, text}, or null. `least`: the scale reaches at least so far.
   */
  constructor(box, moment, options) {
    this.#box = box;
    this.#moment = moment;
    this.#options = { tick: options.format, stacked: false, washed: false, reference: () => null, least: 1, ...options };
    box.append(this.#svg);
    box.addEventListener("pointermove", (event) => this.#point(event));
    box.addEventListener("pointerleave", () => moment.point(null));
    onWidth(box, (width) => {
      this.#width = width;
      this.draw(this.#samples);
    });
  }

  draw(samples) {
    this.#samples = samples;
    set(this.#svg, { "aria-label": this.#description(), width: this.#width });
    if (this.#width === 0 || samples.length === 0) return;
    const columns = samples.map((sample) => this.#levels(sample));
    const reference = this.#options.reference();
    const top = ceiling(Math.max(this.#options.least, reference?.value ?? 0, ...columns.flat().map((one) => one.top ?? 0)));
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - TOP);
    this.#svg.replaceChildren(
      ...[0, top / 2, top].map((value) => this.#rule("rule", y(value))),
      ...this.#options.series.flatMap((series, i) => this.#trace(series, columns.map((column) => column[i]), y)).reverse(),
      ...(reference ? this.#reference(reference, y) : []),
      ...this.#ticks(top, y),
      ...this.#pointer(y),
    );
  }

  /** From where to where each series reaches in one sample. */
  #levels(sample) {
    let base = 0;
    return this.#options.series.map((series) => {
      const value = series.value(sample);
      if (value === null) return { base: null, top: null };
      const level = { base, top: base + value };
      if (this.#options.stacked) base = level.top;
      return level;
    });
  }

  #x(at) {
    const latest = this.#samples[this.#samples.length - 1].at;
    return (this.#width - RIGHT) * (1 - (latest - at) / WINDOW_S);
  }

  #trace(series, levels, y) {
    const runs = this.#runs(levels);
    const points = (run, edge) => run.map((i) => `${this.#x(this.#samples[i].at).toFixed(1)} ${y(levels[i][edge]).toFixed(1)}`);
    const upper = runs.map((run) => `M${points(run, "top").join("L")}${run.length === 1 ? "h.01" : ""}`).join("");
    const areas = runs.map((run) => `M${points(run, "top").join("L")}L${points(run, "base").reverse().join("L")}Z`).join("");
    if (this.#options.stacked) return [drawn("path", { class: `area ${series.look}`, d: areas })];
    const line = drawn("path", { class: `line ${series.look}`, d: upper });
    return this.#options.washed ? [line, drawn("path", { class: `wash ${series.look}`, d: areas })] : [line];
  }

  /** Indexes of samples that can be joined, in runs. */
  #runs(levels) {
    const runs = [];
    let previous = -Infinity;
    levels.forEach((level, i) => {
      if (level.top === null) return;
      const at = this.#samples[i].at;
      if (i === 0 || levels[i - 1].top === null || at - previous > GAP_S) runs.push([]);
      runs[runs.length - 1].push(i);
      previous = at;
    });
    return runs;
  }

  #rule(look, y) {
    return drawn("line", { class: look, x1: 0, x2: this.#width, y1: y, y2: y });
  }

  #ticks(top, y) {
    const rows = [top / 2, top].map((value) => drawn("text", { class: "tick", x: 0, y: y(value) + 11 }, this.#options.tick(value)));
    const latest = this.#samples[this.#samples.length - 1].at;
    const columns = TICKS.map(([back, text], i) =>
      back === 60 && this.#width < ROOMY ? "" : drawn("text", { class: "tick", x: this.#x(latest - back), y: HEIGHT - 4, "text-anchor": ["start", "middle", "end"][i] }, text),
    );
    return [...rows, ...columns];
  }

  #reference({ value, text }, y) {
    const beside = y(value) > TOP + 14 ? y(value) - 4 : y(value) + 12;
    return [
      this.#rule("reference", y(value)),
      drawn("text", { class: "tick", x: this.#width - RIGHT, y: beside, "text-anchor": "end" }, text),
    ];
  }

  #pointer(y) {
    const sample = this.#moment.sample;
    if (this.#moment.at === null || sample === null) return [];
    const x = this.#x(sample.at);
    const dots = this.#levels(sample).map((level, i) =>
      level.top === null ? "" : drawn("circle", { class: `dot ${this.#options.series[i].look}`, cx: x, cy: y(level.top), r: 3 }),
    );
    return [drawn("line", { class: "pointer", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }), ...dots];
  }

  #point(event) {
    if (this.#samples.length === 0) return;
    const x = event.clientX - this.#box.getBoundingClientRect().left;
    const latest = this.#samples[this.#samples.length - 1].at;
    this.#moment.point(latest - WINDOW_S * (1 - Math.min(1, x / (this.#width - RIGHT))));
  }

  #description() {
    const { label, series, format } = this.#options;
    const parts = series.map(({ name, value }) => {
      const values = this.#samples.map(value).filter((one) => one !== null);
      if (values.length === 0) return `${name}: nothing yet`;
      const [last, least, most] = [values[values.length - 1], Math.min(...values), Math.max(...values)].map(format);
      return `${name}: ${last} now, between ${least} and ${most}`;
    });
    return `${label} over the last two minutes. ${parts.join(". ")}.`;
  }
}

/** The next round number: 1, 2, 4, 6 or 8 times a power of ten, so that its half is round too. */
export function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 4, 6, 8, 10].find((one) => one * power >= value * 0.999);
  return step * power;
}

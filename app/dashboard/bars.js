// Stacked bars: what a whole is made of, with a legend that says so in words and numbers.

import { drawn, element, onWidth, set, write } from "./dom.js";
import { percent } from "./words.js";

const THIN = 10;
const THICK = 34;
const BETWEEN = 2;
const PER_LETTER = 7;

export class StackedBar {
  #box;
  #format;
  #meanings;
  #label;
  #svg = drawn("svg", { role: "img", height: THICK, class: "bar" });
  #legend = element("dl", { class: "legend" });
  #rows = new Map();
  #width = 0;
  #values = null;

  /** A bar of named parts in `box`; `meanings`: what each name means, in their order; `format` writes a value. */
  constructor(box, { label, meanings, format }) {
    this.#box = box;
    this.#label = label;
    this.#meanings = meanings;
    this.#format = format;
    box.append(this.#svg, this.#legend);
    onWidth(box, (width) => {
      this.#width = width;
      this.draw(this.#values);
    });
  }

  /** `values` by name, or null when there is nothing to show. */
  draw(values) {
    this.#values = values;
    const names = Object.keys(this.#meanings).filter((name) => values === null || name in values);
    const whole = values === null ? 0 : names.reduce((sum, name) => sum + values[name], 0);
    for (const name of names) this.#row(name, values?.[name] ?? null, whole);
    set(this.#svg, { width: this.#width, "aria-label": described(this.#label, names, values, whole, this.#format) });
    if (this.#width === 0) return;
    const parts = whole > 0 ? segments(names, values, this.#width, THICK) : [];
    this.#svg.replaceChildren(...parts.flatMap((part) => [part.shape, ...this.#caption(part, values[part.name])]));
    if (whole <= 0) this.#svg.append(drawn("rect", { class: "blank", width: this.#width, height: THICK, rx: 3 }));
  }

  #row(name, value, whole) {
    let row = this.#rows.get(name);
    if (row === undefined) {
      const figure = element("span", { class: "figure" });
      const share = element("span", { class: "share" });
      row = { figure, share };
      this.#rows.set(name, row);
      const term = element("dt", {}, element("i", { class: `swatch of-${name}`, "aria-hidden": "true" }), name);
      const meaning = element("span", { class: "meaning" }, this.#meanings[name]);
      this.#legend.append(element("div", {}, term, element("dd", {}, figure, " ", share, " ", meaning)));
    }
    write(row.figure, value === null ? "–" : this.#format(value));
    write(row.share, value === null || whole === 0 ? "" : percent(value / whole));
  }

  /** As much text as fits into a part. */
  #caption({ name, x, width }, value) {
    const fits = [`${name} ${this.#format(value)}`, name].find((text) => text.length * PER_LETTER + 12 < width);
    return fits ? [drawn("text", { class: `on-${name}`, x: x + 8, y: THICK / 2 + 4.5 }, fits)] : [];
  }
}

/** A small bar as long as its part of `most`, without a legend. */
export function thinBar(label, meanings, values, most, width, format) {
  const names = Object.keys(meanings).filter((name) => name in values);
  const whole = names.reduce((sum, name) => sum + values[name], 0);
  const svg = drawn("svg", { role: "img", width, height: THIN, class: "bar" });
  set(svg, { "aria-label": described(label, names, values, whole, format) });
  svg.append(...segments(names, values, most > 0 ? (width * whole) / most : 0, THIN).map((part) => part.shape));
  return svg;
}

function segments(names, values, width, height) {
  const whole = names.reduce((sum, name) => sum + Math.max(0, values[name]), 0);
  let x = 0;
  const parts = [];
  for (const name of names) {
    const wide = (Math.max(0, values[name]) / whole) * width;
    if (wide > 0.3) {
      const shown = Math.max(0.8, wide - BETWEEN);
      parts.push({ name, x, width: shown, shape: drawn("rect", { class: `of-${name}`, x, width: shown, height, rx: Math.min(2, shown / 2) }) });
    }
    x += wide;
  }
  return parts;
}

function described(label, names, values, whole, format) {
  if (values === null || whole <= 0) return `${label}: nothing yet.`;
  return `${label}: ${names.map((name) => `${name} ${format(values[name])}`).join(", ")}.`;
}

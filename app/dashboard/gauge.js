// The gauge: one share as an arc.

import { drawn, set, write } from "./dom.js";
import { percent } from "./words.js";

const R = 44;
const LENGTH = Math.PI * R;
const ARC = `M ${60 - R} 58 A ${R} ${R} 0 0 1 ${60 + R} 58`;

export class Gauge {
  #svg = drawn("svg", { role: "img", viewBox: "0 0 120 66", class: "gauge" });
  #arc = drawn("path", { class: "gauge-value", d: ARC, "stroke-dasharray": `0 ${LENGTH}` });
  #text = drawn("text", { class: "gauge-text", x: 60, y: 57, "text-anchor": "middle" });
  #label;

  constructor(box, label) {
    this.#label = label;
    this.#svg.append(drawn("path", { class: "gauge-track", d: ARC }), this.#arc, this.#text);
    box.append(this.#svg);
  }

  /** `share` from 0 to 1, or null. */
  draw(share) {
    const shown = Math.min(1, Math.max(0, share ?? 0));
    set(this.#arc, { "stroke-dasharray": `${shown * LENGTH} ${LENGTH}`, visibility: shown > 0.002 ? "visible" : "hidden" });
    set(this.#svg, { "aria-label": `${this.#label}: ${percent(share)}.` });
    write(this.#text, percent(share));
  }
}

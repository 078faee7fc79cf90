// The moment: which second the figures show, the latest one or one that somebody points at.

import { KEPT } from "./history.js";
import { byId, write } from "./dom.js";
import { clock } from "./words.js";

export class Moment {
  #history;
  #changed;
  #slider = byId("moment");
  #at = null;
  #held = false;

  /** `changed()` is called when another moment is pointed at. */
  constructor(history, changed) {
    this.#history = history;
    this.#changed = changed;
    this.#slider.min = 1 - KEPT;
    this.#slider.addEventListener("input", () => {
      const back = -this.#slider.valueAsNumber;
      const samples = history.samples;
      this.#held = back > 0;
      this.#show(back > 0 ? (samples[Math.max(0, samples.length - 1 - back)]?.at ?? null) : null);
    });
  }

  /** When it is, in seconds since 1970; null for now. */
  get at() {
    return this.#at;
  }

  /** The sample of the moment. */
  get sample() {
    if (this.#at === null) return this.#history.latest;
    return nearest(this.#history.samples, this.#at);
  }

  /** The samples whose mean is shown: the recent ones now, or that of the moment alone. */
  get samples() {
    if (this.#at === null) return this.#history.recent;
    const sample = this.sample;
    return sample === null ? [] : [sample];
  }

  /** A pointer is over this time, or has left (null); what the slider holds stays. */
  point(at) {
    if (!this.#held) this.#show(at);
  }

  #show(at) {
    this.#at = at;
    this.describe();
    this.#changed();
  }

  /** Say which moment it is; to be called with each new sample, since the moment may have left the history. */
  describe() {
    const samples = this.#history.samples;
    if (this.#at !== null && samples.length > 0 && this.#at < samples[0].at) {
      this.#at = null;
      this.#held = false;
    }
    const back = this.#at === null ? 0 : samples.length - 1 - samples.indexOf(this.sample);
    this.#slider.value = -back;
    const text = this.#at === null ? "now" : `${clock(this.sample.at)}, ${back} s ago`;
    this.#slider.setAttribute("aria-valuetext", text);
    write(byId("moment-text"), text);
  }
}

function nearest(samples, at) {
  let best = null;
  for (const sample of samples) {
    if (best === null || Math.abs(sample.at - at) < Math.abs(best.at - at)) best = sample;
  }
  return best;
}

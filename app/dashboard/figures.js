// The figures: which panel shows what of the samples.

import { StackedBar } from "./bars.js";
import { TimeChart } from "./chart.js";
import { byId, element, write } from "./dom.js";
import { Gauge } from "./gauge.js";
import * as past from "./history.js";
import { SizeStrip } from "./strip.js";
import { CAUSES, count, ENDS, mean, ms, number, percent, plural, SEGMENTS, tick } from "./words.js";

const perS = (value) => `${number(value)}/s`;
const tickPerS = (value) => `${tick(value)}/s`;
const tickMs = (value) => `${tick(value)} ms`;
const latency = (name) => (sample) => sample.latency_ms?.[name] ?? null;
const lane = (name) => (sample) => sample.queue[name]?.items ?? 0;

const REQUESTS = [
  { name: "answered", look: "line-1", value: past.requestsPerS },
  { name: "not answered", look: "line-bad", value: past.unansweredPerS },
];
const LATENCY = [
  { name: "p50", look: "line-1", value: latency("p50") },
  { name: "p95", look: "line-2", value: latency("p95") },
  { name: "p99", look: "line-3", value: latency("p99") },
];
const QUEUE = [
  { name: "interactive", look: "line-1", value: lane("interactive") },
  { name: "bulk", look: "line-2", value: lane("bulk") },
];
const BUSY = [{ name: "busy", look: "line-1", value: (sample) => sample.device_busy }];
const TOKENS = [{ name: "tokens", look: "line-1", value: past.tokensPerS }];
const LAG = [{ name: "longest in a second", look: "line-1", value: (sample) => sample.loop_lag_ms }];
const BILL = Object.keys(SEGMENTS).map((name) => ({ name, look: `of-${name}`, value: (sample) => sample.bill_ms?.[name] ?? null }));

export class Figures {
  #history;
  #moment;
  #charts;
  #gauge = new Gauge(byId("device-gauge"), "The device is busy");
  #bill = new StackedBar(byId("bill-bar"), { label: "The mean bill of a request", meanings: SEGMENTS, format: ms });
  #waits = new StackedBar(byId("waits-bar"), { label: "What requests waited for", meanings: CAUSES, format: count });
  #strip;

  constructor(history, moment) {
    this.#history = history;
    this.#moment = moment;
    const chart = (id, series, label, format, options = {}) => ({
      series,
      short: options.short ?? format,
      readouts: byId(`${id}-now`),
      chart: new TimeChart(byId(`${id}-chart`), moment, { series, label, format, ...options }),
    });
    this.#charts = [
      chart("requests", REQUESTS, "Requests a second", perS, { washed: true, short: number, tick: tickPerS }),
      chart("latency", LATENCY, "Time from a request's arrival to its answer", ms, { short: number, tick: tickMs }),
      chart("queue", QUEUE, "Inputs that wait, by lane", count, { stacked: true, least: 4 }),
      chart("device", BUSY, "Share of the time in which the device is busy", percent, { washed: true }),
      chart("tokens", TOKENS, "Tokens a second", perS, { washed: true, short: number, tick: tickPerS, reference: () => this.#ceiling() }),
      chart("lag", LAG, "How late the event loop was", ms, { washed: true, least: 4, tick: tickMs }),
    ];
    this.#charts.push({
      series: [],
      chart: new TimeChart(byId("bill-chart"), moment, { series: BILL, label: "The mean bill", format: ms, tick: tickMs, stacked: true }),
    });
    this.#strip = new SizeStrip(byId("sizes-chart"), moment);
  }

  draw() {
    const { window, hello } = this.#history;
    const { sample, samples } = this.#moment;
    for (const { chart, series, short, readouts } of this.#charts) {
      chart.draw(window);
      if (readouts && sample) read(readouts, series, sample, short);
    }
    if (!sample) return;
    this.#gauge.draw(sample.device_busy);
    this.#bill.draw(past.meanBill(samples));
    this.#waits.draw(past.sums(samples, (one) => one.waited_for));
    this.#strip.draw(window, samples, hello?.batch_bounds ?? []);
    for (const span of document.querySelectorAll(".span")) write(span, this.#moment.at === null ? "last 10 s" : "this second");
    this.#notes(sample, samples);
  }

  #ceiling() {
    const value = this.#history.hello?.ceiling_tokens_per_s;
    return value ? { value, text: `ceiling ${count(value)}/s` } : null;
  }

  #notes(sample, samples) {
    const ends = past.sums(samples, (one) => one.requests);
    const told = ENDS.filter((name) => ends[name] > 0).map((name) => `${count(ends[name])} ${name}`);
    write(byId("requests-note"), told.length ? `Not answered: ${told.join(", ")}.` : "All were answered.");
    const tokens = past.total(samples, (one) => one.tokens);
    const padding = past.total(samples, (one) => one.padding_tokens);
    const ceiling = this.#history.hello?.ceiling_tokens_per_s;
    const reached = ceiling ? `${percent(past.tokensPerS(sample) / ceiling)} of the ceiling measured at warm-up. ` : "No ceiling was measured at warm-up. ";
    write(byId("tokens-note"), `${reached}${percent(padding / Math.max(1, tokens + padding))} of what runs is padding.`);
    const waiting = Object.values(sample.queue).reduce((sum, one) => sum + one.tokens, 0);
    write(byId("queue-note"), `${plural(past.queued(sample), "input waits", "inputs wait")}, with ${plural(waiting, "token")}.`);
    const n = past.batches(samples).reduce((sum, one) => sum + one, 0);
    const items = past.total(samples, (one) => one.items);
    write(byId("sizes-note"), n ? `${mean(items / n)} inputs and ${count(tokens / n)} tokens in a mean batch.` : "No batches.");
    const bill = past.meanBill(samples);
    const whole = bill && Object.values(bill).reduce((sum, one) => sum + one, 0);
    write(byId("bill-note"), bill ? `${ms(whole)} in all, from the request's arrival to its answer.` : "Nothing was answered.");
  }
}

/** The values of a chart's series at a moment, which is its legend too. */
function read(box, series, sample, format) {
  if (box.childElementCount !== series.length) {
    const one = ({ name, look }) =>
      element("span", { class: "readout" }, element("i", { class: `key ${look}`, "aria-hidden": "true" }), `${name} `, element("b"));
    box.replaceChildren(...series.map(one));
  }
  series.forEach(({ value }, i) => write(box.children[i].lastChild, format(value(sample))));
}

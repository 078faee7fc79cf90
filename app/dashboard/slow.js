// The slowest requests of the last minute, each with its bill.

import { thinBar } from "./bars.js";
import { byId, element } from "./dom.js";
import { clock, count, ms, number, SEGMENTS } from "./words.js";

const BAR = 150;

export class SlowRequests {
  #body = byId("slow-rows");
  #shown = "";

  /** `slow` as the service has it, the slowest first; those above `slowMs` are marked, 0 for none. */
  draw(slow, slowMs) {
    const shown = JSON.stringify([slowMs, slow.map((one) => [one.at, one.request_id])]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const most = Math.max(0, ...slow.map((one) => one.total_ms));
    this.#body.replaceChildren(...slow.map((one) => row(one, most, slowMs > 0 && one.total_ms > slowMs)));
    byId("slow-table").hidden = slow.length === 0;
    byId("slow-none").hidden = slow.length > 0;
  }
}

function row(one, most, isSlow) {
  const took = element("td", { class: "right" }, number(one.total_ms));
  if (isSlow) took.prepend(element("strong", { class: "mark" }, "slow"), " ");
  return element(
    "tr",
    isSlow ? { class: "is-slow" } : {},
    element("th", { scope: "row" }, clock(one.at)),
    took,
    element("td", {}, thinBar(`The bill of ${one.request_id}`, SEGMENTS, one.bill_ms, most, BAR, ms)),
    element("td", {}, one.waited_for),
    element("td", { class: "right" }, count(one.batch_items)),
    element("td", { class: "right" }, count(one.batch_tokens)),
    element("td", { class: "right" }, count(one.inputs)),
    element("td", {}, one.lane),
    element("td", {}, one.path),
    element("td", {}, element("code", {}, one.request_id)),
  );
}

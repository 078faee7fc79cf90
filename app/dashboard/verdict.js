// The verdict: what holds the service back, in words that somebody can read from across the room.

import { byId, element, set, write } from "./dom.js";
import * as past from "./history.js";
import { count, ms, percent, number, plural, STATION_OF, VERDICTS } from "./words.js";

/** What is read aloud changes no more often than this. */
const SAID_EVERY_MS = 10_000;

export class Verdict {
  #history;
  #said = { by: null, at: -Infinity };

  constructor(history) {
    this.#history = history;
  }

  draw() {
    const { latest, hello, recent, samples } = this.#history;
    if (hello) about(hello);
    const held = latest?.held_back ?? (hello?.state === "loading" ? { by: "loading", text: "" } : null);
    if (held === null) return;
    write(byId("verdict"), VERDICTS[held.by] ?? "");
    write(byId("sentence"), held.text);
    set(byId("held-back"), { "data-by": held.by });
    this.#say(held);
    this.#stations(held.by, recent);
    const isQuiet = !samples.some((sample) => Object.values(sample.requests).some((n) => n > 0));
    byId("empty").hidden = !(isQuiet && hello?.state === "ready");
  }

  #say({ by, text }) {
    const now = performance.now();
    if (by === this.#said.by || now - this.#said.at < SAID_EVERY_MS) return;
    this.#said = { by, at: now };
    write(byId("said"), text);
  }

  #stations(by, recent) {
    const limit = STATION_OF[by];
    for (const station of byId("way").children) {
      const name = station.dataset.station;
      const is = name === limit && by !== "idle";
      station.classList.toggle("limit", is);
      station.querySelector(".badge").hidden = !is;
    }
    write(byId("way-clients"), `${number(past.mean(recent, past.requestsPerS))} requests/s`);
    write(byId("way-host"), `event loop ${ms(past.median(recent, (sample) => sample.loop_lag_ms))} late`);
    const waiting = past.mean(recent, past.queued);
    write(byId("way-queue"), waiting === null ? "–" : `${plural(Math.round(waiting), "input waits", "inputs wait")}`);
    write(byId("way-device"), `${percent(past.mean(recent, (sample) => sample.device_busy))} busy`);
  }
}

/** The line that says what is served, and where. */
function about(hello) {
  const facts = [
    ["model", hello.model ?? "no model yet"],
    ["device", hello.device],
    ["dtype", hello.dtype],
    ["workers", hello.workers && plural(hello.workers, "worker")],
    ["devices", hello.devices > 1 && plural(hello.devices, "device")],
    ["budget", hello.max_batch_tokens && `up to ${count(hello.max_batch_tokens)} tokens a batch`],
    ["simulated", hello.simulated && "simulated: its answers mean nothing"],
    ["batching", hello.batching === false && "batching is off"],
    ["version", `Convoy ${hello.version}`],
  ].filter(([, text]) => text);
  const line = byId("about");
  if (line.textContent === facts.map(([, text]) => text).join("")) return;
  line.replaceChildren(...facts.map(([name, text]) => element("li", { class: `about-${name}` }, text)));
}

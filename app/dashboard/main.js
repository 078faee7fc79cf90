// The page: the events go into the history, and what the history says is drawn once for each of them.

import { apiKey, Connection } from "./connection.js";
import { byId, set, write } from "./dom.js";
import { Figures } from "./figures.js";
import { History } from "./history.js";
import { Moment } from "./moment.js";
import { Playground } from "./playground.js";
import { SlowRequests } from "./slow.js";
import { Verdict } from "./verdict.js";
import { plural } from "./words.js";

const LINKS = { connecting: "connecting …", live: "live", locked: "needs a key", lost: "not connected" };

const history = new History();
const moment = new Moment(history, draw);
const figures = new Figures(history, moment);
const verdict = new Verdict(history);
const slow = new SlowRequests();
const playground = new Playground(() => unlock());
const connection = new Connection(onEvent, onState);
let isDue = false;

/** Draw what there is, at the next frame; a page that is not seen draws nothing, and all when it is seen again. */
function draw() {
  if (isDue || document.hidden) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    moment.describe();
    verdict.draw();
    figures.draw();
    slow.draw(history.latest?.slow ?? [], history.hello?.slow_ms ?? 0);
  });
}

function onEvent(name, data) {
  if (name === "hello") {
    history.hello = data;
    playground.describe(data);
    write(byId("example"), example());
  } else if (name === "sample") {
    history.add(data);
  }
  draw();
}

function onState(state, detail) {
  set(byId("link"), { "data-state": state });
  write(byId("link-text"), LINKS[state]);
  if (state === "locked") unlock();
  if (state === "live") {
    history.reopen();
    byId("unlock").hidden = true;
    for (const link of document.querySelectorAll(".closed")) link.hidden = apiKey.get() !== ""; // a link shows no key
  }
  const isLost = state === "lost" || (state === "connecting" && !byId("lost").hidden);
  byId("lost").hidden = !isLost;
  document.body.classList.toggle("is-stale", state !== "live");
  if (state !== "connecting") document.body.classList.toggle("is-locked", state === "locked" && history.latest === null);
  if (state === "lost") {
    write(byId("lost-text"), `${detail.reason} What you see is old. Trying again in ${plural(Math.ceil(detail.pauseS), "second")}.`);
  }
}

/** A command that sends a request this service can answer. */
function example() {
  const url = new URL(history.hello?.kind === "classification" ? "predict" : "embed", location.href);
  const key = apiKey.get() ? ` -H "authorization: Bearer $CONVOY_API_KEY"` : "";
  return `curl ${url}${key} -H 'content-type: application/json' -d '{"inputs": "Where is my card?"}'`;
}

/** Ask for the API key. */
function unlock() {
  const wasHidden = byId("unlock").hidden;
  byId("unlock").hidden = false;
  write(byId("unlock-said"), apiKey.get() ? "The service does not take this key." : "");
  if (wasHidden || apiKey.get()) byId("key").focus();
}

byId("unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) {
    write(byId("unlock-said"), "A key has no blanks, and no letters beyond ASCII.");
    return;
  }
  apiKey.set(key);
  byId("key").value = "";
  connection.retry();
});
byId("retry").addEventListener("click", () => connection.retry());
document.addEventListener("visibilitychange", draw);

draw();
connection.run();

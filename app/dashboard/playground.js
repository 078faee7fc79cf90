// The playground: texts in, how alike they are out, with the bill of that call.

import { StackedBar } from "./bars.js";
import { apiKey, message } from "./connection.js";
import { byId, element, write } from "./dom.js";
import { ms, percent, SEGMENTS, similarity } from "./words.js";

const SAMPLES = ["Where is my card?", "My new card has not arrived yet.", "It will rain in the mountains tomorrow."];
const LEAST = 2;
const MOST = 12;
const PATIENCE_MS = 60_000;

export class Playground {
  #texts = byId("texts");
  #add = byId("add-text");
  #run = byId("compare");
  #onLocked;
  #bar = null;

  /** `onLocked()` is called when the service asks for a key. */
  constructor(onLocked) {
    this.#onLocked = onLocked;
    SAMPLES.forEach((text) => this.#addText(text));
    this.#add.addEventListener("click", () => this.#addText("").focus());
    const form = byId("playground-form");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#compare();
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
  }

  /** Show what this model can do. */
  describe(hello) {
    const scores = hello.kind === "classification";
    byId("playground-form").hidden = scores;
    byId("playground-scores").hidden = !scores;
    byId("playground-simulated").hidden = scores || !hello.simulated;
    if (scores) byId("playground-answer").hidden = true;
  }

  #addText(text) {
    const area = element("textarea", { rows: 2, required: true, spellcheck: "false" });
    area.value = text;
    const remove = element("button", { type: "button", class: "quiet" }, "Remove");
    const row = element("li", {}, element("label"), area, remove);
    remove.addEventListener("click", () => {
      const next = row.nextElementSibling ?? row.previousElementSibling;
      row.remove();
      this.#number();
      next.querySelector("textarea").focus();
    });
    this.#texts.append(row);
    this.#number();
    return area;
  }

  #number() {
    const rows = [...this.#texts.children];
    rows.forEach((row, i) => {
      const [label, area, remove] = row.children;
      area.id = `text-${i + 1}`;
      label.htmlFor = area.id;
      write(label, `Text ${i + 1}`);
      remove.setAttribute("aria-label", `Remove text ${i + 1}`);
      remove.disabled = rows.length <= LEAST;
    });
    this.#add.disabled = rows.length >= MOST;
  }

  async #compare() {
    const texts = [...this.#texts.querySelectorAll("textarea")].map((area) => area.value);
    if (this.#run.getAttribute("aria-disabled") === "true") return;
    this.#run.setAttribute("aria-disabled", "true");
    write(byId("playground-said"), "Asking the model …");
    try {
      await this.#ask(texts);
    } catch (error) {
      this.#fail(error.name === "TimeoutError" ? "The service did not answer in time." : "The service cannot be reached.");
    } finally {
      this.#run.setAttribute("aria-disabled", "false");
    }
  }

  async #ask(texts) {
    const began = performance.now();
    const response = await fetch("embed", {
      method: "POST",
      headers: { "content-type": "application/json", ...apiKey.headers() },
      body: JSON.stringify({ inputs: texts }),
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    if (response.status === 401) this.#onLocked();
    if (!response.ok) return this.#fail(await message(response));
    const rows = await response.json();
    this.#show(texts, rows, performance.now() - began, billOf(response.headers.get("server-timing") ?? ""));
  }

  #fail(text) {
    byId("playground-answer").hidden = true;
    write(byId("playground-said"), text);
  }

  #show(texts, rows, tookMs, bill) {
    const alike = rows.map((a) => rows.map((b) => cosine(a, b)));
    byId("similarities").replaceChildren(...heatMap(texts, alike));
    byId("playground-answer").hidden = false;
    write(byId("playground-said"), closest(alike));
    this.#bar ??= new StackedBar(byId("call-bar"), { label: "The bill of this call", meanings: SEGMENTS, format: ms });
    this.#bar.draw(bill.segments);
    write(byId("call-note"), told(bill, tookMs));
  }
}

/** The cosine of two vectors. */
function cosine(a, b) {
  let [dot, aa, bb] = [0, 0, 0];
  for (let i = 0; i < a.length; i++) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return dot / Math.sqrt(aa * bb);
}

/** The head and the body of the table of similarities. */
function heatMap(texts, alike) {
  const head = element("tr", {}, element("td"), ...texts.map((text, i) => element("th", { scope: "col", title: text }, String(i + 1))));
  const rows = alike.map((row, i) => {
    const name = element("th", { scope: "row" }, element("b", {}, String(i + 1)), " ", element("span", {}, texts[i]));
    return element("tr", {}, name, ...row.map((value, j) => cell(value, i === j)));
  });
  return [element("thead", {}, head), element("tbody", {}, ...rows)];
}

function cell(value, isSelf) {
  const td = element("td", { class: isSelf ? "heat self" : value < 0 ? "heat opposite" : "heat" }, similarity(value));
  td.style.setProperty("--share", Math.min(1, Math.abs(value)).toFixed(3));
  return td;
}

function closest(alike) {
  let best = [0, 1];
  for (let i = 0; i < alike.length; i++) for (let j = 0; j < i; j++) if (alike[j][i] > alike[best[0]][best[1]]) best = [j, i];
  return `Texts ${best[0] + 1} and ${best[1] + 1} are the most alike: ${similarity(alike[best[0]][best[1]])}.`;
}

/** What a Server-Timing header says: the segments in ms, their total, and the facts of the batch by name. */
export function billOf(header) {
  const durations = Object.fromEntries([...header.matchAll(/(\w+);dur=([\d.]+)/g)].map(([, name, value]) => [name, Number(value)]));
  const { total, ...segments } = durations;
  const batch = header.match(/batch;desc="([^"]*)"/)?.[1] ?? "";
  return { total, segments, batch: Object.fromEntries([...batch.matchAll(/(\w+)=(\S+)/g)].map(([, name, value]) => [name, value])) };
}

function told({ total, batch }, tookMs) {
  const parts = [`${ms(total)} in the service, ${ms(tookMs)} as this page saw it.`];
  if (batch.items) parts.push(`Its batch had ${batch.items} inputs and ${batch.tokens} tokens, ${batch.padding ?? percent(0)} of it padding.`);
  if (batch.waited) parts.push(batch.waited === "nothing" ? "It waited for nothing." : `It waited for: ${batch.waited}.`);
  return parts.join(" ");
}

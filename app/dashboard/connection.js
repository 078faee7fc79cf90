// The connection: reads the service's events for as long as the page is open, and comes back when they end.

const FIRST_PAUSE_S = 1;
const LONGEST_PAUSE_S = 30;
/** A sample comes each second; a connection that is silent for so long is dead. */
const SILENCE_S = 15;
const KEY = "convoy-api-key";
let kept = null;

/** The API key, for as long as this tab is open. */
export const apiKey = {
  get: () => kept ?? recall(() => sessionStorage.getItem(KEY)) ?? "",
  set: (key) => {
    kept = key;
    recall(() => sessionStorage.setItem(KEY, key));
  },
  /** The headers of a request that shows it. */
  headers: () => (apiKey.get() ? { authorization: `Bearer ${apiKey.get()}` } : {}),
};

export class Connection {
  #onEvent;
  #onState;
  #pauseS = FIRST_PAUSE_S;
  #wake = () => {};

  /**
   * `onEvent(name, data)` gets each event. `onState(state, detail)` is told "connecting"; "live", before the first event;
   * "locked", when a key is needed, and nothing more is tried until `retry`; "lost", with {reason, pauseS}.
   */
  constructor(onEvent, onState) {
    this.#onEvent = onEvent;
    this.#onState = onState;
    addEventListener("online", () => this.retry());
  }

  /** Try again at once, if it is waiting to. */
  retry() {
    this.#wake();
  }

  async run() {
    for (;;) {
      this.#onState("connecting");
      const ending = await this.#read();
      if (ending.locked) {
        this.#onState("locked");
        await this.#pause(Infinity);
        continue;
      }
      const pauseS = ending.retryAfterS ?? this.#pauseS * (0.8 + 0.4 * Math.random());
      this.#pauseS = Math.min(2 * this.#pauseS, LONGEST_PAUSE_S);
      this.#onState("lost", { reason: ending.reason, pauseS });
      await this.#pause(pauseS);
    }
  }

  /** One connection, from its begin to its end; returns why it ended. */
  async #read() {
    const abort = new AbortController();
    let silence = setTimeout(() => abort.abort(), SILENCE_S * 1000);
    try {
      const response = await fetch("dashboard/events", { headers: apiKey.headers(), signal: abort.signal, cache: "no-store" });
      if (response.status === 401) return { locked: true };
      if (!response.ok) return await refusal(response);
      this.#onState("live");
      for await (const [name, data] of eventsOf(response.body)) {
        clearTimeout(silence);
        silence = setTimeout(() => abort.abort(), SILENCE_S * 1000);
        this.#pauseS = FIRST_PAUSE_S;
        this.#onEvent(name, data);
      }
      return { reason: "The service ended the connection." };
    } catch (error) {
      return { reason: abort.signal.aborted ? "The service has fallen silent." : "The service cannot be reached." };
    } finally {
      clearTimeout(silence);
      abort.abort();
    }
  }

  #pause(seconds) {
    return new Promise((resolve) => {
      const timer = seconds === Infinity ? undefined : setTimeout(resolve, seconds * 1000);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** The events of a stream, as [name, data]. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parsed(block);
      if (event) yield event;
    }
  }
}

function parsed(block) {
  let name = "message";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5);
  }
  return data ? [name, JSON.parse(data)] : null;
}

async function refusal(response) {
  const retryAfterS = Number(response.headers.get("retry-after")) || undefined;
  return { reason: await message(response), retryAfterS };
}

/** What a refusal says, in the service's words. */
export async function message(response) {
  try {
    const { error } = await response.json();
    if (typeof error === "string") return error;
  } catch {
    // whatever stands between may answer with something else than JSON
  }
  return `The service answered with status ${response.status}.`;
}

/** Storage is refused in some private windows; the page works without. */
function recall(use) {
  try {
    return use();
  } catch {
    return null;
  }
}

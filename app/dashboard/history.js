// The history: the samples of the last two minutes, and what they say taken together.

export const KEPT = 120;
export const WINDOW_S = 120;
/** Figures that would jump from second to second are means over so many samples, as the service's own diagnosis is. */
export const RECENT = 10;

export class History {
  constructor() {
    this.samples = [];
    this.hello = null;
    this.#fresh = false;
  }

  #fresh;

  /** A new connection: what it brings takes the place of what is kept of the same time. */
  reopen() {
    this.#fresh = true;
  }

  add(sample) {
    if (this.#fresh) this.samples = this.samples.filter((one) => one.at < sample.at);
    this.#fresh = false;
    this.samples.push(sample);
    if (this.samples.length > KEPT) this.samples.splice(0, this.samples.length - KEPT);
  }

  get latest() {
    return this.samples[this.samples.length - 1] ?? null;
  }

  /** Samples within the window that ends now. */
  get window() {
    const latest = this.latest;
    return latest === null ? [] : this.samples.filter((one) => one.at > latest.at - WINDOW_S);
  }

  get recent() {
    return this.samples.slice(-RECENT);
  }
}

export function requestsPerS(sample) {
  return sample.requests.answered / sample.seconds;
}

export function tokensPerS(sample) {
  return sample.tokens / sample.seconds;
}

/** Requests that ended otherwise than with an answer, a second. */
export function unansweredPerS(sample) {
  const ended = Object.values(sample.requests).reduce((sum, n) => sum + n, 0);
  return (ended - sample.requests.answered) / sample.seconds;
}

export function queued(sample) {
  return Object.values(sample.queue).reduce((sum, lane) => sum + lane.items, 0);
}

export function mean(samples, value) {
  return samples.length === 0 ? null : total(samples, value) / samples.length;
}

export function total(samples, value) {
  return samples.reduce((sum, sample) => sum + value(sample), 0);
}

export function median(samples, value) {
  if (samples.length === 0) return null;
  const sorted = samples.map(value).sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The mean bill over the requests answered in some samples, by segment; null if there were none. */
export function meanBill(samples) {
  const billed = samples.filter((sample) => sample.bill_ms !== null);
  const answered = total(billed, (sample) => sample.requests.answered);
  if (answered === 0) return null;
  const names = Object.keys(billed[0].bill_ms);
  const sum = (name) => total(billed, (sample) => sample.bill_ms[name] * sample.requests.answered);
  return Object.fromEntries(names.map((name) => [name, sum(name) / answered]));
}

/** Sums by name over some samples, for what counts by name. */
export function sums(samples, counts) {
  const found = {};
  for (const sample of samples) {
    for (const [name, n] of Object.entries(counts(sample))) found[name] = (found[name] ?? 0) + n;
  }
  return found;
}

/** Batches by size over some samples, one count for each size. */
export function batches(samples) {
  const found = [];
  for (const sample of samples) sample.batches.forEach((n, i) => (found[i] = (found[i] ?? 0) + n));
  return found;
}

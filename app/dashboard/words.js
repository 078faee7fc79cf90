// The words and numbers of the page: how figures are written, and what names mean.

/** The segments of a bill, in the order in which they follow one another. */
export const SEGMENTS = {
  parse: "read and understand the request",
  tokenize: "cut the text into tokens",
  queue: "wait for a batch to leave",
  forward: "run the model on the device",
  respond: "write the answer",
};

/** What a request can have waited for. */
export const CAUSES = {
  nothing: "it left at once",
  device: "the device was busy",
  budget: "batches before it were full",
  lane: "the other lane went first",
  growth: "its batch was given time to grow",
};

/** How requests end that are not answered. */
export const ENDS = ["shed", "expired", "abandoned", "refused", "failed"];

/** The answer to "what holds me back" in a few words, by the limit; the sentence that comes with it says more. */
export const VERDICTS = {
  loading: "The model is still loading.",
  draining: "The service is stopping.",
  failed: "The service is out of order.",
  idle: "Nothing: no requests come.",
  overload: "Too much: more is asked than can be done.",
  clients: "The clients: they send too little at once.",
  host: "The host: Python cannot keep up.",
  device: "The device: it is busy all the time.",
};

/** On which station of a request's way each limit lies. */
export const STATION_OF = { clients: "clients", idle: "clients", host: "host", device: "device", overload: "device" };

const LOCALE = "en";
const COARSE = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const ONE_DIGIT = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const TWO_DIGITS = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const CLOCK = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const TICK = new Intl.NumberFormat(LOCALE, { maximumSignificantDigits: 3 });
const NOTHING = "–";

/** A number with about three digits. */
export function number(value) {
  if (value === null || value === undefined) return NOTHING;
  const size = Math.abs(value);
  return (size >= 100 || size === 0 ? COARSE : size >= 10 ? ONE_DIGIT : TWO_DIGITS).format(value);
}

/** A round number beside an axis. */
export function tick(value) {
  return TICK.format(value);
}

/** A number of things that can be counted: without digits after the point. */
export function count(value) {
  return value === null || value === undefined ? NOTHING : COARSE.format(value);
}

/** Milliseconds, with their unit. */
export function ms(value) {
  return value === null || value === undefined ? NOTHING : `${number(value)} ms`;
}

/** A share from 0 to 1 in percent. */
export function percent(share) {
  return share === null || share === undefined ? NOTHING : `${COARSE.format(share * 100)}%`;
}

/** A similarity, from -1 to 1. */
export function similarity(value) {
  return TWO_DIGITS.format(Math.abs(value) < 0.005 ? 0 : value);
}

/** A mean, with one digit: 1.0 and 31.5 alike. */
export function mean(value) {
  return value === null || value === undefined ? NOTHING : ONE_DIGIT.format(value);
}

/** The time of day of seconds since 1970, in the reader's time zone. */
export function clock(at) {
  return CLOCK.format(at * 1000);
}

/** "1 worker", "3 workers". */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** A label for the sizes between two bounds. */
export function sizes(bounds, i) {
  if (i >= bounds.length) return `> ${count(bounds[bounds.length - 1])}`;
  const least = i === 0 ? 1 : bounds[i - 1] + 1;
  return least === bounds[i] ? count(least) : `${count(least)}–${count(bounds[i])}`;
}

// Numbers, sizes, times and durations as text. Pure: the present time is passed in.

const COMPACT = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** Does the server know this value? */
export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/** 1234567 -> "1,234,567"; unknown -> "–". */
export const count = (value) => (known(value) ? Math.round(value).toLocaleString("en-US") : "–");

/** 1234567 -> "1.23 M": for figures that are read at a glance. */
export function short(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  for (const [factor, unit] of COMPACT) {
    if (size >= factor) return `${digits(value / factor)} ${unit}`;
  }
  return size === 0 || Number.isInteger(value) ? String(value) : digits(value);
}

const digits = (value) => {
  const size = Math.abs(value);
  return String(Number(value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)));
};

export const rate = (value) => (known(value) ? `${short(value)}/s` : "–");

export function bytes(value) {
  if (!known(value)) return "–";
  if (value < 1000) return `${value} B`;
  for (const [factor, unit] of [
    [1e12, "TB"],
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
  ]) {
    if (value >= factor) return `${digits(value / factor)} ${unit}`;
  }
  return String(value);
}

/** Seconds -> "840 ms", "1.20 s", "3 min 5 s", "2 h 10 min", "4 d 3 h". */
export function duration(seconds) {
  if (!known(seconds)) return "–";
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 0.001) return `${digits(seconds * 1e6)} µs`;
  if (size < 1) return `${digits(seconds * 1e3)} ms`;
  if (size < 60) return `${digits(seconds)} s`;
  if (size < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (size < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** How long ago, in whole units, so that it does not flicker: "2 s ago". */
export function ago(at, now) {
  if (!known(at)) return "never";
  const seconds = Math.max(0, Math.floor(now - at));
  return seconds < 1 ? "now" : `${duration(seconds < 60 ? seconds : seconds).replace(/\.\d+/, "")} ago`;
}

const pad = (value) => String(value).padStart(2, "0");

/** The time of day, and the date if it is not today's. */
export function clock(at, now = Date.now() / 1000) {
  if (!known(at)) return "–";
  const date = new Date(at * 1000);
  if (Number.isNaN(date.getTime())) return "–";
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return date.toDateString() === new Date(now * 1000).toDateString() ? time : `${day(date)} ${time}`;
}

const day = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;

export const iso = (at) => {
  if (!known(at)) return "";
  const date = new Date(at * 1000);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString();
};

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A value of a record, as text. */
export function cell(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return JSON.stringify(value);
}

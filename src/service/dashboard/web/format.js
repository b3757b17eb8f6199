// How values are written: times, durations, money, counts, and the words for states.

import { h, s } from "./dom.js";

const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const SECONDS = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const SHORT_DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const WEEKDAY = new Intl.DateTimeFormat(undefined, { weekday: "short" });

/** The time of a text of RFC 3339 in milliseconds, or null. */
export const ms = (text) => (text ? Date.parse(text) : null);

/** A duration in at most two units. */
export function duration(milliseconds) {
  if (milliseconds === null || Number.isNaN(milliseconds)) return "–";
  const total = Math.max(0, milliseconds);
  if (total < 1000) return `${Math.round(total)} ms`;
  if (total < 60_000) return `${(total / 1000).toFixed(total < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(total / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((total % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How far a time is away, in one unit. */
export function relative(at, now = Date.now()) {
  const distance = Math.abs(at - now);
  const [amount, unit] =
    distance < 45_000 ? [Math.round(distance / 1000), "s"]
    : distance < 3_570_000 ? [Math.max(1, Math.round(distance / 60_000)), "min"]
    : distance < 129_600_000 ? [Math.round(distance / 3_600_000), "h"]
    : [Math.round(distance / 86_400_000), "d"];
  if (amount < 5 && unit === "s") return at > now ? "in a moment" : "just now";
  return at > now ? `in ${amount} ${unit}` : `${amount} ${unit} ago`;
}

/** A time as an element: relative, with the date as its title. */
export function time(text) {
  const at = ms(text);
  if (at === null || Number.isNaN(at)) return "–";
  return h("time", { datetime: text, title: DATE.format(at) }, relative(at));
}

/** A time as an element: of the clock, with the day if it is not today, and with seconds where things follow each other. */
export function clock(text, hasSeconds = false) {
  const at = ms(text);
  if (at === null || Number.isNaN(at)) return "–";
  const day = new Date(at);
  const isToday = day.toDateString() === new Date().toDateString();
  const isNear = Math.abs(at - Date.now()) < 6 * 86_400_000;
  const prefix = isToday ? "" : isNear ? `${WEEKDAY.format(at)} ` : `${SHORT_DAY.format(at)}, `;
  return h("time", { datetime: text, title: DATE.format(at) }, prefix + (hasSeconds ? SECONDS : CLOCK).format(at));
}

export const date = (at) => DATE.format(at);

/** `2026-11-28` as a short day. */
export const shortDay = (day) => SHORT_DAY.format(new Date(`${day}T12:00:00`));

/** Dollars with the digits that tell something; null is unknown. */
export function money(dollars) {
  if (dollars === null || dollars === undefined) return "–";
  if (dollars === 0) return "$0";
  if (dollars < 0.0001) return "<$0.0001";
  if (dollars < 0.01) return `$${dollars.toFixed(4)}`;
  if (dollars < 1) return `$${dollars.toFixed(Math.round(dollars * 1000) % 10 ? 3 : 2)}`;
  return `$${dollars.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

/** A count in at most six digits. */
export function count(number) {
  if (number === null || number === undefined) return "–";
  if (number < 100_000) return number.toLocaleString("en");
  if (number < 999_500) return `${Math.round(number / 1000)}k`;
  if (number < 999_500_000) return `${(number / 1e6).toFixed(number < 1e8 ? 1 : 0)}M`;
  return `${(number / 1e9).toFixed(1)}G`;
}

/** A size in a unit of 1,024. */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  if (number < 1024) return `${number} B`;
  return number < 1 << 20 ? `${(number / 1024).toFixed(1)} KiB` : `${(number / (1 << 20)).toFixed(1)} MiB`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** The end of an id: enough to tell runs apart. */
export const shortId = (id) => id.slice(-8);

/** The first line of a text, not longer than this. */
export function excerpt(text, max = 140) {
  const line = (text ?? "").trim().split("\n", 1)[0];
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}

const SHAPES = {
  dot: () => s("circle", { cx: 8, cy: 8, r: 4.5, fill: "currentColor" }),
  ring: () => s("circle", { cx: 8, cy: 8, r: 4.5, fill: "none", stroke: "currentColor", "stroke-width": 2 }),
  dashed: () => s("circle", { cx: 8, cy: 8, r: 4.5, fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": "2.5 2" }),
  check: () => s("path", { d: "M3 8.5l3.5 3.5L13 4.5", fill: "none", stroke: "currentColor", "stroke-width": 2.2 }),
  cross: () => s("path", { d: "M4 4l8 8M12 4l-8 8", fill: "none", stroke: "currentColor", "stroke-width": 2.2 }),
  square: () => s("rect", { x: 4, y: 4, width: 8, height: 8, fill: "currentColor" }),
  bars: () => s("path", { d: "M5.5 3.5v9M10.5 3.5v9", stroke: "currentColor", "stroke-width": 2.4 }),
  clock: () => s("path", { d: "M8 2.5a5.5 5.5 0 1 0 .01 0M8 5v3.2l2.4 1.6", fill: "none", stroke: "currentColor", "stroke-width": 1.8 }),
  barrier: () => s("path", { d: "M8 2.5a5.5 5.5 0 1 0 .01 0M4.2 4.2l7.6 7.6", fill: "none", stroke: "currentColor", "stroke-width": 1.8 }),
  coin: () => s("path", { d: "M8 2.5a5.5 5.5 0 1 0 .01 0M8 4.5v7M5 8h6", fill: "none", stroke: "currentColor", "stroke-width": 1.8 }),
  loop: () => s("path", { d: "M12.5 8A4.5 4.5 0 1 1 11 4.6M11.4 1.8v3.1h-3.1", fill: "none", stroke: "currentColor", "stroke-width": 1.8 }),
  person: () => s("path", { d: "M8 2.5a2.6 2.6 0 1 0 .01 0M3 13.5c.6-3 2.6-4.3 5-4.3s4.400 1.300 5 4.300", fill: "none", stroke: "currentColor", "stroke-width": 1.8 }),
};

/** A shape of 16 by 16, which a word beside it explains. */
function shape(name) {
  return s("svg", { class: "shape", viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, SHAPES[name]());
}

const STATES = {
  queued: ["ring", "queued", "calm"],
  running: ["dot", "running", "busy"],
  parked: ["person", "waits for you", "warn"],
  suspended: ["dashed", "suspended", "warn"],
  completed: ["check", "completed", "good"],
  failed: ["cross", "failed", "bad"],
  stopped: ["square", "stopped", "calm"],
  timed_out: ["clock", "timed out", "bad"],
  budget_exhausted: ["coin", "out of budget", "warn"],
  loop_detected: ["loop", "went in circles", "bad"],
  refused: ["barrier", "refused", "bad"],
  unfinished: ["dot", "unfinished", "busy"],
  missed: ["cross", "missed", "bad"],
  skipped: ["bars", "skipped", "calm"],
  paused: ["bars", "paused", "warn"],
  ran: ["check", "ran", "good"],
  closed: ["check", "calls pass", "good"],
  open: ["barrier", "no calls for now", "bad"],
  half_open: ["dashed", "one call tries it", "warn"],
  live: ["dot", "live", "good"],
  opening: ["dashed", "opening", "busy"],
  ending: ["ring", "ending", "calm"],
  quarantined: ["barrier", "cannot be read", "bad"],
};

/** A state by shape, word and colour. */
export function state(name, words) {
  const [figure, word, tone] = STATES[name] ?? ["ring", name, "calm"];
  return h("span", { class: ["state", tone] }, shape(figure), words ?? word);
}

export const stateWord = (name) => STATES[name]?.[1] ?? name;
export const stateTone = (name) => STATES[name]?.[2] ?? "calm";

/** The state of a run, or its outcome if it has one. */
export const runState = (run) => state(run.outcome ?? run.state);

/** Words for what a run waits for. */
export function waitWords(wait) {
  switch (wait.what) {
    case "process": return "no process runs it";
    case "queue": return "an earlier run of its session";
    case "collect": return "further messages";
    case "lane": return `a free place: as many runs of its lane, ${wait.lane}, are under way as may be`;
    case "hooks": return "the hooks that decide whether it begins";
    case "model": return `an answer of ${wait.model}`;
    case "retry": return `the next try after: ${wait.failure?.class ?? "a failure"}`;
    case "reset": return "the limit of its provider";
    case "lease": return "its turn to call a model";
    case "permit": return `its turn to run ${wait.tool}`;
    case "order": return "an earlier call";
    case "tool": return `the tool ${wait.tool}`;
    case "children": return plural(wait.left, "subagent");
    case "person": return "your answer";
    case "verify": return "the check of its result";
    case "memory": return "its memory";
    case "stop": return "its calls to stop";
    case "disk": return "the disk";
    case "limit": return "the end of its time";
    default: return wait.what;
  }
}

/** Tokens of a usage in two numbers. */
export function tokens(usage) {
  if (!usage) return "–";
  return `${count(usage.input_tokens)} in, ${count(usage.output_tokens)} out`;
}

// A run's records as spans of time. Pure: no request and no document, so that it can be tested alone.

/** Part of the time that a long rest takes in the drawing. */
const REST = 0.05;
/** Milliseconds below which nothing counts as a rest. */
const SHORTEST_REST = 2_000;

const isoMs = (value) => (typeof value === "number" ? value : value ? Date.parse(value) : null);
const attemptKey = (record) => `${record.call} ${record.attempt}`;
const iteration = (call) => call.split(".").slice(1, 2)[0];

/** Dollars of a usage at a price in nano-dollars per token; null if one is unknown. */
export function cost(usage, price) {
  if (!usage || !price) return null;
  const cached = usage.cached_tokens ?? 0;
  const written = usage.cache_write_tokens ?? 0;
  const apart = cached + written > usage.input_tokens;
  const plain = apart ? usage.input_tokens : usage.input_tokens - cached - written;
  const output = usage.output_tokens + (usage.apart_tokens ?? 0);
  const read = price.cache_read ?? price.input;
  const write = price.cache_write ?? price.input;
  return (plain * price.input + cached * read + written * write + output * price.output) / 1e9;
}

const SIGNALS = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1", "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM"];
/** A shell exits with this plus the number of a signal that has ended its command. */
const SIGNAL_EXIT_BASE = 128;
const signalName = (number) => SIGNALS[number - 1] ?? `signal ${number}`;

function failureOf({ exit_code: code, signal, timed_out: isTimedOut }) {
  if (isTimedOut) return "timed out";
  if (typeof signal === "number") return `killed by ${signalName(signal)}`;
  if (code === 0) return null;
  if (typeof code !== "number") return "no exit code";
  if (code === 126) return "exit 126 (it cannot be executed)";
  if (code === 127) return "exit 127 (command not found)";
  return SIGNALS[code - SIGNAL_EXIT_BASE - 1] ? `exit ${code} (${signalName(code - SIGNAL_EXIT_BASE)})` : `exit ${code}`;
}

/** How a command has ended, in the words of `hermod show`: `{ failure, stdout, stderr }`, where `failure` is null if it exited
 *  with 0. Null if the content is not the result of the tool `shell`. */
export function commandOf(tool, content) {
  if (tool !== "shell") return null;
  try {
    const { stdout, stderr, ...end } = JSON.parse(content);
    return typeof stdout === "string" && typeof stderr === "string" ? { failure: failureOf(end), stdout, stderr } : null;
  } catch {
    return null;
  }
}

/** What a subagent has come to, `{ outcome, answer }`; null if the content is not the result of one delegated task. */
export function delegatedOf(tool, content) {
  if (tool !== "delegate_task") return null;
  try {
    const { outcome, answer } = JSON.parse(content);
    return typeof outcome === "string" ? { outcome, answer: typeof answer === "string" ? answer : null } : null;
  } catch {
    return null;
  }
}

/** Why a call has failed, in words; null if it has not. */
export function callFailure(tool, { status, content }) {
  if (status !== "ok") return status.replaceAll("_", " ");
  const outcome = delegatedOf(tool, content)?.outcome;
  if (outcome && outcome !== "completed") return `subagent ${outcome.replaceAll("_", " ")}`;
  return commandOf(tool, content)?.failure ?? null;
}

/** The tone of an outcome. What a person has stopped has not failed. */
const outcomeTone = (outcome) => (["completed", "stopped"].includes(outcome) ? null : outcome === "budget_exhausted" ? "warn" : "bad");

/** What is wrong with an answer. */
export function flawWords(flaw) {
  return `the answer is not usable as it is: ${(typeof flaw === "string" ? flaw : flaw.kind).replaceAll("_", " ")}`;
}

/** Spans of a run under construction. */
class Timeline {
  constructor() {
    this.spans = [];
    this.open = new Map();
    this.calls = new Map();
    this.start = null;
    this.end = null;
    this.isEnded = false;
    this.task = null;
  }

  add(kind, record, fields) {
    const at = isoMs(record.at);
    const span = { key: `${kind} ${record.seq}`, kind, start: at, end: at, records: [record], tone: null, note: null, ...fields };
    this.spans.push(span);
    return span;
  }

  begin(key, kind, record, fields) {
    this.finish(key, record, { tone: "warn", note: "was given up" });
    if (fields.attempt > 1) this.finish(`${record.call} ${fields.attempt - 1}`, record, { tone: "warn", note: "its end is not known" });
    const span = this.add(kind, record, { end: null, ...fields });
    this.open.set(key, span);
    return span;
  }

  finish(key, record, fields = {}) {
    const span = this.open.get(key);
    if (!span) return null;
    this.open.delete(key);
    span.end = isoMs(record.at);
    Object.assign(span, fields);
    if (span.records.at(-1) !== record) span.records.push(record);
    return span;
  }

  /** What a call of a model asks for: its tool and its arguments. */
  callOf(id) {
    return this.calls.get(id) ?? null;
  }

  take(record) {
    const at = isoMs(record.at);
    this.start ??= at;
    this.end = at;
    const handler = HANDLERS[record.kind];
    if (handler) handler(this, record);
    else this.add("event", record, { label: record.kind.replaceAll(".", " ") });
  }
}

/** What a delegating call asks of its nth subagent. */
function goalOf(text, n) {
  try {
    const asked = JSON.parse(text ?? "{}");
    return asked.goal ?? asked.tasks?.[n]?.goal ?? null;
  } catch {
    return null;
  }
}

function modelStarted(kind, label) {
  return (timeline, record) => {
    timeline.finish(`wait ${record.call}`, record);
    timeline.begin(attemptKey(record), kind, record, { label: label(record), model: record.model, attempt: record.attempt, call: record.call, price: record.price });
  };
}

function modelAnswered(timeline, record) {
  const span = timeline.finish(attemptKey(record), record, { usage: record.usage ?? null });
  if (span) {
    span.cost = cost(record.usage, span.price);
    if (record.flaw) { span.tone = "warn"; span.note = flawWords(record.flaw); }
    else if (record.unusable) { span.tone = "warn"; span.note = `not usable: ${record.unusable}`; }
  }
  (record.message?.calls ?? []).forEach((call, n) => {
    const run = record.call.split(".")[0];
    timeline.calls.set(`${run}.${iteration(record.call)}.${n + 1}`, { tool: call.name, arguments: call.arguments });
  });
}

function modelFailed(timeline, record) {
  const { failure } = record;
  const span = timeline.finish(attemptKey(record), record, { tone: "bad", note: `${failure.class}: ${failure.message}`, usage: failure.usage ?? null });
  if (span) span.cost = cost(failure.usage, span.price);
  if (record.retry_at) {
    timeline.begin(`wait ${record.call}`, "wait", record, { label: "pause before the next try", until: isoMs(record.retry_at) });
  }
}

const HANDLERS = {
  "session.opened": () => {},
  "session.revived": (timeline, record) => timeline.add("mark", record, { label: timeline.spans.length > 1 ? "session opened again" : "session opened" }),
  "run.accepted": (timeline, record) => { timeline.task = record; timeline.add("mark", record, { label: "accepted" }); },
  "run.begun": (timeline, record) => timeline.add("mark", record, { label: "began" }),
  "model.started": modelStarted("model", (record) => `model call ${iteration(record.call)}${record.attempt > 1 ? `, try ${record.attempt}` : ""}`),
  "summary.started": modelStarted("summary", () => "summary"),
  "aside.started": modelStarted("aside", (record) => record.call.split(".").at(-1)),
  "model.answered": modelAnswered,
  "summary.answered": modelAnswered,
  "aside.answered": modelAnswered,
  "model.failed": modelFailed,
  "summary.failed": modelFailed,
  "aside.failed": modelFailed,
  "model.waiting": (timeline, record) => timeline.begin(`wait ${record.call}`, "wait", record, { label: "waits for the limit of a provider", until: isoMs(record.until) }),
  "model.late": (timeline, record) => timeline.add("mark", record, { label: "an answer came too late; its cost counts", tone: "warn", usage: record.usage }),
  "call.admitted": (timeline, record) => {
    const call = timeline.callOf(record.call);
    timeline.calls.set(record.call, { ...call, tool: record.tool, admitted: record });
  },
  "call.started": (timeline, record) => {
    const call = timeline.callOf(record.call);
    const span = timeline.begin(attemptKey(record), "tool", record, { label: call?.tool ?? "tool", call: record.call, arguments: call?.arguments ?? null, attempt: record.attempt });
    if (call?.admitted) span.records.unshift(call.admitted);
    (record.children ?? []).forEach((child, n) => {
      timeline.begin(`child ${child.run}`, "subagent", record, { label: "subagent", about: goalOf(call?.arguments, n), child: child.run, key: `child ${child.run}` });
    });
  },
  "call.ended": (timeline, record) => {
    const call = timeline.callOf(record.call);
    const failure = callFailure(call?.tool, record);
    const fields = { tone: failure ? (["stopped", "not_started"].includes(record.status) ? "warn" : "bad") : null, note: failure, content: record.content, artifact: record.artifact ?? null };
    if (timeline.finish(attemptKey(record), record, fields)) return;
    timeline.add("tool", record, { label: call?.tool ?? "tool", call: record.call, arguments: call?.arguments ?? null, ...fields });
  },
  "call.lost": (timeline, record) => timeline.finish(attemptKey(record), record, { tone: "warn", note: `lost${record.why ? `: ${record.why.replaceAll("_", " ")}` : ""}` }),
  "child.ended": (timeline, record) => {
    const note = record.outcome === "completed" ? null : record.outcome.replaceAll("_", " ");
    timeline.finish(`child ${record.child.run}`, record, { tone: outcomeTone(record.outcome), note, usage: record.usage });
  },
  "approval.requested": (timeline, record) => timeline.begin(`approval ${record.call}`, "person", record, { label: record.wants_text ? "question to you" : "waits for your approval", call: record.call, note: record.question }),
  "approval.answered": (timeline, record) => {
    const words = `${record.verdict === "allow" ? "allowed" : "denied"} by ${record.by === "person" ? "a person" : "its expiry"}`;
    timeline.finish(`approval ${record.call}`, record, { note: words, tone: record.verdict === "allow" ? null : "warn" });
  },
  "context.compacted": (timeline, record) => timeline.add("compaction", record, {
    label: `conversation made shorter: ${record.before ?? "?"} to ${record.after ?? "?"} tokens`,
    note: record.waited_ms ? `the run waited ${record.waited_ms} ms` : null,
  }),
  "message.steered": (timeline, record) => timeline.add("message", record, { label: "message to the run", note: record.text }),
  "message.collected": (timeline, record) => timeline.add("message", record, { label: "message collected", note: record.text }),
  "message.dropped": (timeline, record) => timeline.add("message", record, { label: "message dropped", note: record.reason, tone: "warn" }),
  "todo.changed": (timeline, record) => timeline.add("mark", record, { label: "to-do list changed" }),
  "run.verified": (timeline, record) => timeline.add("mark", record, { label: record.misses?.length ? "its result was checked, and misses something" : "its result was checked", tone: record.misses?.length ? "warn" : null }),
  "run.exhausted": (timeline, record) => timeline.add("mark", record, { label: `limit of ${record.refusal?.dimension ?? "its budget"} used up`, tone: "warn" }),
  "run.reopened": (timeline, record) => timeline.add("mark", record, { label: "went on with a larger budget" }),
  "budget.raised": (timeline, record) => timeline.add("mark", record, { label: "budget raised" }),
  "run.stopping": (timeline, record) => timeline.add("mark", record, { label: "was told to stop", tone: "warn" }),
  "run.ended": (timeline, record) => {
    for (const key of [...timeline.open.keys()]) timeline.finish(key, record, { note: "cut off by the end" });
    timeline.isEnded = true;
    timeline.add("end", record, { label: record.outcome.replaceAll("_", " "), tone: outcomeTone(record.outcome) });
  },
};

/** Folds the records of a run, in order. */
export function timelineOf(records) {
  const timeline = new Timeline();
  for (const record of records) timeline.take(record);
  return timeline;
}

/** A scale from times to 0…1 in which long rests, while only a person or a limit is waited for, are short. */
export function scaleOf(timeline, now) {
  const start = timeline.start ?? now;
  const end = Math.max(timeline.isEnded ? timeline.end : now, start + 1);
  const work = timeline.spans
    .filter((span) => !["person", "wait", "mark", "end", "event", "message"].includes(span.kind))
    .map((span) => [span.start, span.end ?? (timeline.isEnded ? timeline.end : now)])
    .sort((a, b) => a[0] - b[0]);
  const rests = [];
  let reached = start;
  for (const [from, to] of [...work, [end, end]]) {
    if (from - reached > SHORTEST_REST) rests.push([reached, from]);
    reached = Math.max(reached, to);
  }
  const rest = rests.reduce((sum, [from, to]) => sum + to - from, 0);
  const busy = Math.max(end - start - rest, 1);
  const short = rests.filter(([from, to]) => to - from > busy * REST * 2);
  const size = Math.max(busy * REST, 1);
  const saved = short.reduce((sum, [from, to]) => sum + to - from - size, 0);
  const total = end - start - saved;
  const place = (at) => {
    let position = Math.min(Math.max(at, start), end) - start;
    for (const [from, to] of short) {
      if (at >= to) position -= to - from - size;
      else if (at > from) position -= (at - from) * (1 - size / (to - from));
    }
    return position / total;
  };
  return { start, end, place, breaks: short.map(([from, to]) => ({ from, to, at: (place(from) + place(to)) / 2 })) };
}

/** Dollars spent over time: `[time, sum]` for each call whose price is known. */
export function spendOf(timeline) {
  let sum = 0;
  return timeline.spans
    .filter((span) => span.cost !== null && span.cost !== undefined && span.end !== null)
    .sort((a, b) => a.end - b.end)
    .map((span) => { sum += span.cost; return [span.end, sum]; });
}

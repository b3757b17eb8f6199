// A run as one reads it: the task, the texts of the model, its calls with their results, messages, and the end.

import { h } from "./dom.js";
import { clock, count, duration, money, state } from "./format.js";
import { artifactLink, causeWords, clipped, prose, runLink } from "./parts.js";
import { callFailure, commandOf, cost, delegatedOf, flawWords } from "./timeline.js";

function entry(kind, key, who, at, ...content) {
  return h("li", { class: ["entry", kind], "data-key": key },
    h("div", { class: "entry-head" }, h("span", { class: "who" }, who), at && clock(at, true)), content);
}

/** Arguments as fields, or as they are if they are no JSON object. */
function argumentsOf(text, key) {
  let fields;
  try { fields = JSON.parse(text); } catch { return clipped(text, key); }
  if (fields === null || typeof fields !== "object" || Array.isArray(fields)) return clipped(text, key);
  const names = Object.keys(fields);
  if (!names.length) return h("p", { class: "soft" }, "no arguments");
  return h("dl", { class: "arguments" }, names.map((name) => {
    const value = typeof fields[name] === "string" ? fields[name] : JSON.stringify(fields[name], null, 2);
    const isShort = value.length <= 120 && !value.includes("\n");
    return h("div", { class: isShort ? "short" : null }, h("dt", {}, name), h("dd", {}, isShort ? h("code", {}, value) : clipped(value, `${key} ${name}`, 1500)));
  }));
}

/** The result of a call. Results of commands are taken apart. */
export function resultOf(tool, content, key) {
  const command = commandOf(tool, content);
  if (command) {
    return [
      command.stdout && clipped(command.stdout, `${key} out`),
      command.stderr && [h("p", { class: "soft" }, "standard error"), clipped(command.stderr, `${key} err`)],
      !command.stdout && !command.stderr && h("p", { class: "soft" }, "It has printed nothing."),
    ];
  }
  const answer = delegatedOf(tool, content)?.answer;
  if (answer) return prose(answer);
  let parsed = null;
  try { parsed = JSON.parse(content); } catch { /* Most results are plain text. */ }
  return clipped(parsed && typeof parsed === "object" ? JSON.stringify(parsed, null, 2) : content || "(empty)", key);
}

function answer(record, started) {
  const { message } = record;
  const price = started?.price;
  const meta = [
    started?.model, record.usage && `${count(record.usage.input_tokens)} in, ${count(record.usage.output_tokens)} out`,
    price && record.usage && money(cost(record.usage, price)),
    started && duration(Date.parse(record.at) - Date.parse(started.at)), record.flaw && flawWords(record.flaw),
  ].filter(Boolean).join(" · ");
  return entry("model", `answer ${record.seq}`, "Model", record.at,
    message?.reasoning && h("details", { class: "reasoning", "data-key": `reasoning ${record.seq}` }, h("summary", {}, "Reasoning"), prose(message.reasoning)),
    message?.text && prose(message.text),
    h("p", { class: "meta" }, meta));
}

function call(id, info) {
  const { name, args, ended, children, started, asked, decided } = info;
  const failure = ended && callFailure(name, ended);
  const took = started && ended ? duration(Date.parse(ended.at) - Date.parse(started.at)) : null;
  return entry("tool", `call ${id}`, h("span", {}, "Tool ", h("code", {}, name)), ended?.at ?? started?.at,
    argumentsOf(args ?? "", `arguments ${id}`),
    asked && question(asked, decided),
    h("p", { class: "meta" }, !ended ? state("running", "no result yet") : failure ? state("failed", failure) : state("completed", "ok"), took && ` · ${took}`,
      children.map((child) => [" · ", runLink(child.run, "subagent")])),
    ended && h("details", { class: "result", open: true, "data-key": `result ${id}` }, h("summary", {}, "Result"), resultOf(name, ended.content ?? "", `result ${id}`), artifactLink(id.split(".")[0], ended.artifact)));
}

/** What a person was asked about a call, and the answer. The text of an answer is the result of its call. */
function question(asked, decided) {
  const words = !decided ? "Waits for an answer" : decided.verdict !== "allow" ? "Denied" : asked.wants_text ? "Answered" : "Allowed";
  const by = decided && (decided.by === "person" ? " by a person" : " because the time was over");
  return h("div", { class: "asked" }, h("p", { class: "soft" }, asked.wants_text ? "The model asked a person:" : "A person was asked:"), prose(asked.question),
    h("p", {}, words, by, decided && [", ", clock(decided.at, true)]));
}

/** The conversation that a client has brought along, with its calls in one line each. */
function imported(history) {
  const of = (round, n) => [
    entry("task", `imported ${n}`, "Earlier message", null, prose(round.user)),
    entry("model", `imported answer ${n}`, "Earlier answer", null,
      (round.steps ?? []).map((step) => [step.text && prose(step.text), step.calls.map((one) => h("p", { class: "soft" }, "calls ", h("code", {}, one.name)))]),
      round.answer?.text && prose(round.answer.text)),
  ];
  const { rounds = [], unanswered } = history ?? {};
  return [...rounds.flatMap(of), ...(unanswered ? [entry("task", "unanswered", "Earlier message", null, prose(unanswered))] : [])];
}

/** The entries of a transcript. `live` is the text of an answer that is under way. */
export function transcript(records, live) {
  const starts = new Map();
  const calls = new Map();
  for (const record of records) {
    if (record.kind === "model.started") starts.set(`${record.call} ${record.attempt}`, record);
    if (record.kind === "call.started") {
      calls.set(record.call, { ...calls.get(record.call), started: record, children: record.children ?? [] });
    }
    if (record.kind === "call.ended") calls.set(record.call, { ...calls.get(record.call), ended: record });
    if (record.kind === "approval.requested") calls.set(record.call, { ...calls.get(record.call), asked: record });
    if (record.kind === "approval.answered") calls.set(record.call, { ...calls.get(record.call), decided: record });
  }
  const entries = [];
  for (const record of records) {
    if (record.kind === "run.accepted") entries.push(...imported(record.history), entry("task", "task", "Task", record.at, prose(record.input ?? "")));
    else if (record.kind === "model.answered") {
      entries.push(answer(record, starts.get(`${record.call} ${record.attempt}`)));
      const [run, iteration] = record.call.split(".");
      (record.message?.calls ?? []).forEach(({ name, arguments: args }, n) => {
        const id = `${run}.${iteration}.${n + 1}`;
        const known = calls.get(id) ?? {};
        entries.push(call(id, { children: [], ...known, name, args }));
      });
    } else if (record.kind === "model.failed") {
      entries.push(entry("note bad", `failed ${record.seq}`, "Model call failed", record.at, h("p", {}, `${record.failure.class}: ${record.failure.message}`)));
    } else if (record.kind === "message.steered" || record.kind === "message.collected") {
      entries.push(entry("task", `message ${record.seq}`, "Message", record.at, prose(record.text)));
    } else if (record.kind === "run.verified" && record.misses?.length) {
      entries.push(entry("note bad", `missed ${record.seq}`, "Its result was checked, and misses something", record.at, h("ul", {}, record.misses.map(({ expected, reason }) => h("li", {}, `${expected}: ${reason}`)))));
    } else if (record.kind === "context.compacted") {
      entries.push(entry("note", `compacted ${record.seq}`, "The conversation was made shorter for the model", record.at, h("p", { class: "soft" }, `${record.by}, ${count(record.before)} to ${count(record.after)} tokens`), record.summary && h("details", { "data-key": `summary ${record.seq}` }, h("summary", {}, "Summary"), prose(typeof record.summary === "string" ? record.summary : JSON.stringify(record.summary)))));
    } else if (record.kind === "session.revived") {
      entries.push(entry("note", `revived ${record.seq}`, "Its session was opened again", record.at));
    } else if (record.kind === "run.ended") {
      entries.push(entry("note", `end ${record.seq}`, "End", record.at, h("p", {}, state(record.outcome), record.cause && `: ${causeWords(record)}`)));
    }
  }
  if (live) entries.push(entry("model live", "live", "Model, as it writes", null, prose(live)));
  return h("ol", { class: "transcript" }, entries);
}

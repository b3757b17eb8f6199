// One conversation: the transcripts of its newest runs, as the pages of these runs have them, and the field to go on with it.

import { h } from "./dom.js";
import { get, pathOf } from "./api.js";
import { RunLog, coalesced } from "./records.js";
import { Stream } from "./stream.js";
import { clock, count, excerpt, runState, shortId, time, tokens } from "./format.js";
import { ApprovalCards } from "./approvals.js";
import { causeWords, code, empty, facts, loading, prose, runDuration, runLink, section, table } from "./parts.js";
import { messageToSession } from "./message.js";
import { transcript } from "./transcript.js";

/** Runs whose transcripts are shown at first, and with each click more. */
const RUNS = 5;
const KINDS = new Set(["run.accepted", "run.begun", "run.ended", "approval.requested", "approval.answered"]);

export function session(view) {
  const name = view.place.name;
  const logs = new Map();
  let detail = null;
  let heading = null;
  let stream = null;
  let shown = RUNS;
  const isHere = (approval) => approval.session === detail.id;
  const cards = new ApprovalCards(view, isHere, isHere);
  const redrawSoon = coalesced(view.redraw);
  const visible = () => detail.runs.slice(-shown);

  function logOf(run) {
    if (!logs.has(run.id)) logs.set(run.id, new RunLog(run.id));
    return logs.get(run.id);
  }

  async function loadLogs() {
    const missing = visible().map(logOf).filter((log) => !log.isLoaded || !log.isEnded);
    await Promise.all(missing.map((log) => log.load(view.signal, redrawSoon)));
  }

  function follow() {
    if (stream || detail.quarantined) return;
    const last = Math.max(0, ...[...logs.values()].map((log) => log.last));
    stream = new Stream(pathOf("sessions", detail.id, "events"), {
      last: last > 0 ? String(last) : null,
      onEvent(event) { if (logs.get(event.run)?.take(event)) redrawSoon(); },
    });
  }

  /** The task of its first run; it names the session as long as that has no title. */
  function firstTask() {
    const first = detail.runs[0];
    if (!first || detail.runs.length > shown) return null;
    return excerpt(logs.get(first.id)?.records.find((record) => record.kind === "run.accepted")?.input, 110) || null;
  }

  async function more() {
    shown += RUNS;
    await loadLogs();
    view.redraw();
  }

  return {
    title: `Session ${shortId(name)}`,
    heading: () => heading ?? `Session ${shortId(name)}`,
    async load() {
      detail = await get(pathOf("sessions", name), {}, view.signal);
      if (!detail.quarantined) await loadLogs();
      if (cards.all.length || detail.runs.some((run) => run.state === "parked")) await cards.load();
      // A title that is made meanwhile is among the facts: the heading does not change while it is read.
      heading ??= detail.title ?? firstTask() ?? detail.key;
      follow();
    },
    onEvent: (event) => event.session === detail?.id && KINDS.has(event.kind),
    close() { stream?.close(); },
    // What waits for an answer stands at the beginning.
    followsEnd: () => !cards.all.length,
    draw() {
      if (!detail) return loading();
      const before = detail.runs.length - visible().length;
      return [
        detail.quarantined && h("p", { class: "notice bad" }, `It cannot be read: ${detail.quarantined}`),
        cards.all.length > 0 && cards.draw(),
        h("div", { class: "summary" }, facts([
          ["Title", detail.title === heading ? null : detail.title, "wide"],
          ["Key", detail.key === detail.id ? null : code(detail.key)], ["Agent", detail.agent], ["Opened", clock(detail.opened_at)],
          ["Runs", detail.runs.length >= 100 ? "100 or more" : count(detail.runs.length)], ["Id", code(detail.id)],
        ])),
        runsTable(detail.runs),
        detail.todo && section("To-do list of the model", {}, prose(detail.todo)),
        section("Conversation", { note: before > 0 ? `The newest ${visible().length} runs` : null },
          detail.runs.length === 0 && empty("No message yet."),
          before > 0 && h("p", { class: "center" }, h("button", { type: "button", onclick: more }, before > RUNS ? `Show ${RUNS} earlier runs` : "Show all earlier runs")),
          visible().map((run) => h("div", { class: "talk", "data-key": run.id },
            h("p", { class: "talk-head" }, runState(run), " ", runLink(run.id, "Run ", code(shortId(run.id))), ", ", clock(run.accepted_at)),
            transcript(logOf(run).records, logOf(run).live)))),
        !detail.quarantined && messageToSession(view, { id: detail.id, run: detail.runs.find((run) => run.state === "running" || run.state === "parked") }),
      ];
    },
  };
}

function runsTable(runs) {
  return h("details", { class: "card folded", "data-key": "runs" }, h("summary", {}, `Runs of this session (${count(runs.length)}${runs.length >= 100 ? ", the newest" : ""})`), table({
    caption: "Runs of the session", rows: [...runs].reverse(), key: (run) => run.id,
    columns: [
      ["State", "", (run) => runState(run)],
      ["Run", "main", (run) => runLink(run.id, code(shortId(run.id)))],
      ["Why", "soft why", (run) => run.outcome && run.outcome !== "completed" && h("span", { title: causeWords(run) }, causeWords(run))],
      ["Accepted", "", (run) => time(run.accepted_at)],
      ["Took", "number", runDuration],
      ["Calls", "number", (run) => count(run.iterations)],
      ["Tokens", "number soft", (run) => tokens(run.usage)],
    ],
  }));
}

// One run: what it is, its timeline or its transcript, and what can be done with it.

import { h, s } from "./dom.js";
import { get, pathOf, send } from "./api.js";
import { RunLog, coalesced } from "./records.js";
import { Stream } from "./stream.js";
import { clock, count, duration, excerpt, money, plural, runState, shortId, stateTone, tokens } from "./format.js";
import { artifactLink, block, button, causeWords, code, confirmed, empty, facts, json, loading, runDuration, runLink, scopeReason, section, sessionLink, waitsFor } from "./parts.js";
import { scaleOf, spendOf, timelineOf } from "./timeline.js";
import { resultOf, transcript } from "./transcript.js";
import { ApprovalCards } from "./approvals.js";
import { messageToRun } from "./message.js";

/** Spans that are drawn at first. */
const SHOWN = 400;
const TABS = [["timeline", "Timeline"], ["transcript", "Transcript"], ["records", "Records"], ["settings", "Settings"]];

export function run(view) {
  const id = view.place.name;
  const { context } = view;
  let detail = null;
  const log = new RunLog(id);
  const { records } = log;
  let stream = null;
  let shown = SHOWN;
  /** Whether an approval is of this run, or of one of its subagents. */
  const isOwn = (approval) => approval.run === id;
  const isBelow = (approval) => records.some((record) => record.children?.some((child) => child.run === approval.run));
  const cards = new ApprovalCards(view, (approval) => isOwn(approval) || isBelow(approval), isOwn);
  const tab = () => view.place.query.get("tab") ?? "timeline";

  const redrawSoon = coalesced(view.redraw);

  /** Follows the run itself until its end. */
  function follow() {
    if (stream || detail.state === "ended") return;
    stream = new Stream(pathOf("runs", id, "events"), {
      last: String(log.last),
      onEvent(event) {
        if (log.take(event)) redrawSoon();
        // The head has counts and sums of the run, and of what it waits for.
        if (event.event === "record") view.refreshSoon();
      },
      onEnd() { stream = null; view.refresh(); },
    });
  }

  return {
    title: `Run ${shortId(id)}`,
    heading: () => (detail ? [runState(detail), " ", excerpt(detail.input, 110) || `Run ${shortId(id)}`] : `Run ${shortId(id)}`),
    tools: () => detail && actions(),
    async load() {
      detail = await get(pathOf("runs", id), {}, view.signal);
      await log.load(view.signal, view.redraw);
      if (cards.all.length || detail.waits.some((wait) => wait.what === "person" || wait.what === "children")) await cards.load();
      follow();
    },
    onEvent: (event) => (event.run === id || (event.kind === "approval.requested" && isBelow(event))) && ["run.ended", "approval.requested", "approval.answered", "run.stopping", "budget.raised"].includes(event.kind),
    onQuery() { view.redraw(); },
    close() { stream?.close(); },
    draw() {
      if (!detail) return loading();
      return [
        cards.all.length > 0 && cards.draw(),
        summary(),
        h("nav", { class: "tabs", "aria-label": "Parts of the run" }, h("ul", {}, TABS.map(([name, title]) =>
          h("li", { "data-key": name }, h("a", { href: `#/runs/${id}?tab=${name}`, "aria-current": tab() === name ? "true" : null }, title))))),
        { timeline: () => timelineView(), transcript: () => section("Transcript", {}, transcript(records, log.live)), records: () => recordList(), settings: () => section("Settings", { note: "What was fixed when the run was accepted." }, json(detail.spec)) }[tab()]?.() ?? empty("There is no such part."),
        messageToRun(view, detail),
      ];
    },
  };

  function actions() {
    if (detail.state === "ended") return null;
    const canSteer = context.may("steer");
    return h("div", { class: "row" },
      button("Stop", {
        kind: "danger", may: canSteer, why: scopeReason("steer"),
        onclick: async () => { if (await confirmed("Stop this run and its subagents?", "Stop it")) view.act(() => send("POST", pathOf("runs", id, "stop")), "The run is being stopped."); },
      }));
  }

  function isInHeading() {
    return excerpt(detail.input, 110) === detail.input.trim();
  }

  function summary() {
    const waits = detail.waits.filter((wait) => wait.what !== "limit");
    const hasSubagents = records.some((record) => record.children?.length);
    const { parent, occurrence } = records.find((record) => record.kind === "run.accepted") ?? {};
    return h("div", { class: "summary", "data-key": "summary" },
      detail.outcome && detail.outcome !== "completed" && causeWords(detail) && h("p", { class: ["notice", stateTone(detail.outcome)] }, causeWords(detail)),
      detail.unreadable && h("p", { class: "notice bad" }, `Its session cannot be read: ${detail.unreadable}`),
      facts([
        ["Task", isInHeading() ? null : h("span", { class: "task" }, detail.input), "wide"],
        ["Session", sessionLink(detail.session, detail.title ?? code(shortId(detail.session)))],
        ["Subagent of", parent && runLink(parent.call.split(".")[0], code(shortId(parent.call.split(".")[0])))],
        ["Schedule", occurrence && [h("a", { href: `#/schedules/${encodeURIComponent(occurrence.schedule)}` }, occurrence.schedule), " of ", clock(new Date(occurrence.at).toISOString())]],
        ["Agent", detail.agent],
        ["Models", detail.spec?.chain?.join(", ")],
        ["Accepted", clock(detail.accepted_at)],
        ["Took", runDuration(detail)],
        ["Calls", plural(detail.iterations, "model call")],
        ["Tokens", [tokens(detail.usage), hasSubagents && ", without its subagents"]],
        ["Spent", detail.spent_usd === null ? "price not known" : [money(detail.spent_usd), hasSubagents && ", with its subagents"]],
        ["Waits for", waitsFor(waits)],
        ["Workspace", detail.spec && code(detail.spec.workspace)],
        ["Id", code(id)],
      ]));
  }

  function timelineView() {
    const timeline = timelineOf(records);
    if (!timeline.spans.length) return section("Timeline", {}, empty("It has no records yet."));
    const scale = scaleOf(timeline, Date.now());
    const spans = timeline.spans.slice(0, shown);
    const spend = spendOf(timeline);
    return section("Timeline", { note: `${plural(timeline.spans.length, "step")} in ${duration(scale.end - scale.start)}${scale.breaks.length ? `; // marks ${scale.breaks.length === 1 ? "a long wait" : `${count(scale.breaks.length)} long waits`} drawn short` : ""}` },
      h("div", { class: "timeline" },
        h("div", { class: "axis", "aria-hidden": "true" }, h("span", {}, "Step"), axis(scale), h("span", { class: "number" }, "Took"), h("span", { class: "number" }, "Spent")),
        spend.length > 1 && h("div", { class: "axis spend" }, h("span", {}, "Spent by its own calls"), spendCurve(spend, scale), h("span", {}), h("span", { class: "number" }, money(spend.at(-1)[1]))),
        h("ol", { class: "spans" }, spans.map((span) => spanRow(span, scale, timeline)))),
      timeline.spans.length > shown && h("p", { class: "center" }, h("button", { onclick: () => { shown += SHOWN; view.redraw(); } }, `Show ${Math.min(SHOWN, timeline.spans.length - shown)} more steps`)));
  }

  function axis(scale) {
    const steps = 4;
    const marks = Array.from({ length: steps + 1 }, (_, n) => n / steps);
    return h("span", { class: "track" }, s("svg", { viewBox: "0 0 1000 26", preserveAspectRatio: "none", class: "axis-lines" },
      marks.map((at) => s("line", { x1: at * 1000, x2: at * 1000, y1: 18, y2: 26, class: "grid" }))),
    h("span", { class: "axis-labels" }, h("span", {}, "0"), scale.breaks.length === 0 && h("span", {}, duration((scale.end - scale.start) / 2)), h("span", {}, duration(scale.end - scale.start))),
    s("svg", { class: "cut-labels" }, cutLabels(scale)));
  }

  /** How long the waits are that are drawn short, as far as there is space for it. */
  function cutLabels({ breaks }) {
    let last = 0.04;
    return breaks.map(({ at, from, to }) => {
      if (at - last < 0.12 || at > 0.86) return null;
      last = at;
      return s("text", { x: `${(at * 100).toFixed(1)}%`, y: 13, "text-anchor": "middle", class: "tick" }, `// ${duration(to - from)}`);
    });
  }

  /** The places at which waits are drawn short, on top of what lasts through them. */
  function cuts({ breaks }) {
    return breaks.slice(0, 20).map(({ at }) => {
      const x = at * 1000;
      const slash = (shift) => `M${(x + shift - 3).toFixed(1)} 18L${(x + shift + 3).toFixed(1)} -2`;
      return [s("path", { class: "cut-gap", d: slash(0) }), s("path", { class: "cut", d: `${slash(-4)}${slash(4)}` })];
    });
  }

  function spendCurve(spend, scale) {
    const top = spend.at(-1)[1] || 1;
    let path = "M0 24";
    for (const [at, sum] of spend) {
      const x = scale.place(at) * 1000;
      path += ` H${x.toFixed(1)} V${(24 - (sum / top) * 22).toFixed(1)}`;
    }
    return h("span", { class: "track" }, s("svg", { viewBox: "0 0 1000 26", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("path", { d: `${path} H1000 V24 Z`, class: "spend-area" })));
  }

  function spanRow(span, scale, timeline) {
    const end = span.end ?? (timeline.isEnded ? timeline.end : Date.now());
    const x = scale.place(span.start) * 1000;
    const width = Math.max(scale.place(end) * 1000 - x, 0);
    const isPoint = span.end !== null && span.end === span.start;
    const bar = isPoint
      ? s("line", { class: ["point", span.kind, span.tone].filter(Boolean), x1: x.toFixed(1), x2: x.toFixed(1), y1: 1, y2: 15 })
      : s("rect", { class: ["span", span.kind, span.tone, span.end === null && "open"].filter(Boolean), x: x.toFixed(1), y: 3, width: Math.max(width, 3).toFixed(1), height: 10 });
    const about = span.kind === "tool" ? toolWords(span) : span.kind === "model" ? span.note ?? span.model : [span.note, span.about].filter(Boolean).join(": ");
    return h("li", { class: ["step", span.kind, span.tone], "data-key": span.key },
      h("details", { "data-key": "d" },
        h("summary", { "data-row": true },
          h("span", { class: "step-label" }, h("span", { class: ["dot", span.kind, span.tone], "aria-hidden": "true" }), h("span", { class: "step-name" }, span.label), about && h("span", { class: "step-about" }, excerpt(about, 120)), span.tone === "bad" && h("span", { class: "visually-hidden" }, " (failed)")),
          h("span", { class: "track" }, s("svg", { viewBox: "0 0 1000 16", preserveAspectRatio: "none", "aria-hidden": "true" }, bar, cuts(scale))),
          h("span", { class: "number" }, isPoint ? "" : span.end === null ? "now" : duration(end - span.start)),
          h("span", { class: "number" }, span.cost ? money(span.cost) : "")),
        h("div", { class: "step-detail" },
          span.child && h("p", {}, runLink(span.child, "Open the run of the subagent")),
          span.usage && h("p", { class: "soft" }, tokens(span.usage), span.usage.cached_tokens ? `, ${count(span.usage.cached_tokens)} from the cache` : ""),
          span.note && h("p", {}, span.note),
          span.arguments && block(span.arguments),
          span.content !== undefined && span.content !== null && resultOf(span.label, span.content, span.key),
          artifactLink(id, span.artifact),
          span.records.map((record) => h("details", { class: "more", "data-key": `record ${record.seq}` }, h("summary", {}, `Record ${record.seq}: ${record.kind}`), json(record))))));
  }

  function toolWords(span) {
    let words = span.arguments;
    try {
      const values = Object.values(JSON.parse(span.arguments ?? "{}"));
      words = values.map((value) => (typeof value === "string" ? value : JSON.stringify(value))).join(" · ");
    } catch {
      // They are as the model wrote them.
    }
    return [span.note, words].filter(Boolean).join(": ");
  }

  function recordList() {
    return section("Records", { note: `${plural(records.length, "record")}, as hermod journal prints them` },
      h("ol", { class: "records" }, records.slice(0, shown).map((record) => h("li", { "data-key": record.seq },
        h("details", { "data-key": "d" }, h("summary", { "data-row": true }, h("span", { class: "number" }, String(record.seq)), " ", h("strong", {}, record.kind), " ", h("span", { class: "soft" }, clock(record.at, true))), json(record))))),
      records.length > shown && h("p", { class: "center" }, h("button", { onclick: () => { shown += SHOWN; view.redraw(); } }, "Show more records")));
  }
}

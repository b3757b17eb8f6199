// What runs, what waits for you, what failed lately, and what it costs.

import { h } from "./dom.js";
import { get } from "./api.js";
import { clock, count, excerpt, money, plural, runState, state, stateWord, time } from "./format.js";
import { causeWords, code, doing, empty, figure, loading, runLink, section, table } from "./parts.js";
import { dayBars } from "./chart.js";
import { RunChoices } from "./new-run.js";

const HOURS = 12;
/** Milliseconds for which the report of the last hours and the days hold: they read many rows and records. */
const REPORT_AGE = 60_000;
const DAYS_AGE = 8_000;

export function overview(view) {
  const { context, signal, redraw } = view;
  let data = null;
  let days = null;
  let daysAt = 0;
  let report = null;
  let reportAt = 0;
  let problem = null;
  const choices = new RunChoices(view);

  async function loadDays() {
    if (Date.now() - daysAt < DAYS_AGE) return;
    days = [...(await get("/v1/usage/days", { days: 14 }, signal)).days].reverse();
    daysAt = Date.now();
  }

  /** The rest of the view does not wait for it. */
  async function loadReport() {
    if (context.token.agents !== null || Date.now() - reportAt < REPORT_AGE) return;
    reportAt = Date.now();
    try {
      report = await get("/v1/report", { since: new Date(Date.now() - HOURS * 3_600_000).toISOString() }, signal);
      problem = null;
    } catch (error) {
      if (error.name === "AbortError") return;
      problem = error.message;
      reportAt = 0;
    }
    redraw();
  }

  /** Numbers of the last hours; a token that is limited to agents gets no report, and those of the day instead. */
  function ofPeriod() {
    if (context.token.agents !== null) {
      const today = days.at(-1);
      return figure("spent today", money(today.spent_usd), { href: "#/usage", note: `${plural(today.runs, "run")} since midnight UTC` });
    }
    const failed = report ? report.failed.items.reduce((sum, { times }) => sum + times, report.failed.more) : null;
    return [
      figure(`failed in ${HOURS} hours`, failed === null ? "…" : count(failed), { href: "#/runs?outcome=failed&period=day", tone: failed ? "bad" : null }),
      figure(`spent in ${HOURS} hours`, report ? money(report.cost.spent_usd) : "…", { href: "#/usage", note: report?.cost.unpriced_requests > 0 && `and ${plural(report.cost.unpriced_requests, "model call")} of unknown price` }),
    ];
  }

  return {
    title: "Overview",
    async load() {
      loadReport();
      const [nodes, approvals] = await Promise.all([get("/v1/tree", {}, signal), get("/v1/approvals", {}, signal), loadDays(), choices.load()]);
      data = { nodes, approvals };
    },
    draw() {
      if (!data) return loading();
      const running = data.nodes.filter((node) => node.state !== "parked");
      const below = data.nodes.reduce((sum, node) => sum + living(node), 0);
      return [
        h("ul", { class: "figures" },
          figure(running.length === 1 ? "run under way" : "runs under way", count(running.length), { href: "#/tree", tone: running.length ? "busy" : null, note: below > 0 && `and ${plural(below, "subagent")}` }),
          data.approvals.length > 0 && figure(data.approvals.length === 1 ? "waits for you" : "wait for you", count(data.approvals.length), { href: "#/approvals", tone: "warn" }),
          ofPeriod()),
        section("New run", {}, choices.form()),
        waiting(data.approvals, report),
        underWay(running),
        report ? night(report) : context.token.agents === null && section(`The last ${HOURS} hours`, {}, problem ? h("p", { class: "error" }, problem) : loading()),
        section("Money by day", { note: "Days of UTC; a run counts on the day it was accepted." },
          days.every((day) => day.spent_usd === 0) ? empty("Nothing was spent in 14 days, as far as prices are known.") : dayBars({ title: "Money by day", width: 1150, days, format: money, series: [{ name: "Spent", tone: "accent", value: (day) => day.spent_usd }] })),
      ];
    },
  };
}

/** Unfinished subagents below a run. */
function living(node) {
  return node.children.reduce((sum, child) => sum + (child.state === "ended" ? 0 : 1) + living(child), 0);
}

function waiting(approvals, report) {
  const others = report?.waiting.items.filter((item) => !["approval", "question"].includes(item.what)) ?? [];
  if (!approvals.length && !others.length) {
    return section("Waits for you", {}, empty("Nothing waits for you."));
  }
  return section("Waits for you", { tools: approvals.length > 0 && h("a", { class: "button", href: "#/approvals" }, "Answer") },
    h("ul", { class: "lines" },
      approvals.slice(0, 6).map((approval) => h("li", { "data-key": approval.call, "data-row": true },
        state("parked", approval.wants_text ? "question" : approval.before_start ? "approval" : "in doubt"),
        h("a", { class: "line-main", href: `#/approvals?call=${approval.call}` }, excerpt(approval.question)),
        h("span", { class: "line-side" }, "since ", clock(approval.since), ", until ", clock(approval.expires_at)))),
      approvals.length > 6 && h("li", { "data-key": "more" }, h("a", { href: "#/approvals" }, `${approvals.length - 6} more`)),
      others.map((item) => h("li", { "data-key": `${item.what} ${item.run}`, "data-row": true },
        state(item.what === "budget" ? "budget_exhausted" : "suspended", item.what === "budget" ? "more budget" : "no process"),
        h("span", { class: "line-main" }, runLink(item.run, excerpt(item.text))),
        h("span", { class: "line-side" }, code(item.next))))));
}

function underWay(nodes) {
  if (!nodes.length) {
    return section("Under way", {}, empty("No run is under way.", "Start one above or with ", code("hermod run TEXT"), ", or see what ", h("a", { href: "#/runs" }, "ran before"), "."));
  }
  return section("Under way", { note: nodes.length > 8 ? `The newest 8 of ${nodes.length}.` : null, tools: h("a", { class: "button", href: "#/tree" }, "Tree") },
    table({
      caption: "Runs that are under way", key: (node) => node.id,
      rows: [...nodes].sort((a, b) => (a.id < b.id ? 1 : -1)).slice(0, 8),
      columns: [
        ["State", "", (node) => runState(node)],
        ["Task", "main", (node) => runLink(node.id, excerpt(node.input) || "(no text)")],
        ["At the moment", "soft", (node) => doing(node.waits)],
        ["Since", "", (node) => time(node.started_at ?? node.accepted_at)],
        ["Spent", "number", (node) => money(node.spent?.usd)],
      ],
    }));
}

/** Runs that failed alike are one item of a report. */
function night(report) {
  const { outcomes } = report.runs;
  const { items: failed, more } = report.failed;
  const parts = Object.entries(outcomes).sort((a, b) => b[1] - a[1]);
  const missed = report.schedules.left_out.items;
  return section(`The last ${HOURS} hours`, { note: `${plural(report.runs.total, "run")}${report.runs.subagents ? `, ${count(report.runs.subagents)} of them of subagents` : ""}` },
    h("p", { class: "outcomes" }, parts.map(([name, number]) => h("span", { "data-key": name }, state(name, `${count(number)} ${stateWord(name)}`)))),
    failed.length ? table({
      caption: "Runs that failed", key: (run) => run.run, rows: failed,
      columns: [
        ["Outcome", "", (run) => [state(run.outcome), run.times > 1 && h("strong", {}, ` ${count(run.times)}×`)]],
        ["Task", "main", (run) => runLink(run.run, excerpt(run.input) || "(no text)")],
        ["Why", "soft", (run) => excerpt(causeWords(run) ?? run.last_error ?? "", 160)],
        ["Agent", "soft", (run) => run.agent],
        ["Ended", "", (run) => time(run.ended_at)],
      ],
    }) : empty("Nothing failed."),
    more > 0 && h("p", { class: "hint" }, `${plural(more, "run")} more failed in other ways: see `, h("a", { href: "#/runs?outcome=failed&period=day" }, "all failed runs"), "."),
    missed.length > 0 && [h("h3", {}, "Missed occurrences"), h("ul", { class: "lines" }, missed.map((row) => h("li", { "data-key": `${row.schedule} ${row.at}` },
      state("missed"), h("a", { class: "line-main", href: `#/schedules/${encodeURIComponent(row.schedule)}` }, row.schedule), h("span", { class: "line-side" }, clock(row.at), row.reason && `: ${row.reason}`))))],
    report.dead_letters.items.length > 0 && [h("h3", {}, "Messages that were not delivered"), h("ul", { class: "lines" }, report.dead_letters.items.map((letter) =>
      h("li", { "data-key": letter.id }, state("failed", "dead"), h("span", { class: "line-main" }, runLink(letter.run, `to ${letter.target}`)), h("span", { class: "line-side" }, excerpt(letter.error ?? "")))))]);
}

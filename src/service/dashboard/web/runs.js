// The list of runs, with filters and pages.

import { h } from "./dom.js";
import { get } from "./api.js";
import { count, excerpt, money, runState, time, tokens } from "./format.js";
import { causeWords, code, empty, loading, newRunLink, runDuration, runLink, table } from "./parts.js";

const PAGE = 50;
/** Kinds of records that change a row. */
const KINDS = new Set(["run.accepted", "run.begun", "run.stopping", "run.ended", "model.started", "model.answered", "approval.requested", "approval.answered"]);
const STATES = ["running", "parked", "queued", "ended"];
const OUTCOMES = ["completed", "failed", "stopped", "timed_out", "budget_exhausted", "loop_detected", "refused"];

/** Periods by name: their words, and when they began. */
const PERIODS = {
  night: ["since last evening, 18:00", (now) => { const evening = new Date(now); if (now.getHours() < 18) evening.setDate(now.getDate() - 1); evening.setHours(18, 0, 0, 0); return evening; }],
  day: ["in 24 hours", (now) => new Date(now - 86_400_000)],
  week: ["in 7 days", (now) => new Date(now - 7 * 86_400_000)],
};
const sinceOf = (name) => PERIODS[name]?.[1](new Date()).toISOString() ?? null;

export function runs(view) {
  let items = null;
  let next = null;
  let isLoadingMore = false;
  const query = () => Object.fromEntries(["text", "state", "outcome", "agent", "session"].map((name) => [name, view.place.query.get(name)]));
  const asked = () => ({ ...query(), since: sinceOf(view.place.query.get("period")), subagents: view.place.query.get("subagents") ? null : "false" });

  function setFilter(name, value) {
    const parameters = new URLSearchParams(view.place.query);
    if (value) parameters.set(name, value); else parameters.delete(name);
    if (name === "outcome") parameters.delete("state");
    const text = parameters.toString();
    history.replaceState(null, "", `#/runs${text ? `?${text}` : ""}`);
    view.place.query = parameters;
    items = null;
    view.redraw();
    view.refresh();
  }

  async function more() {
    isLoadingMore = true;
    const page = await get("/v1/runs", { ...asked(), max: PAGE, before: next }, view.signal);
    items = [...items, ...page.items];
    next = page.next;
    isLoadingMore = false;
    view.redraw();
  }

  let typing = null;
  return {
    title: "Runs",
    async load() {
      const page = await get("/v1/runs", { ...asked(), max: PAGE }, view.signal);
      const last = page.items.at(-1)?.id ?? "";
      const older = items && items.length > PAGE ? items.filter((run) => run.id < last) : [];
      if (!older.length) next = page.next;
      items = [...page.items, ...older];
    },
    // A search reads many records, so it follows no events; it is repeated from time to time.
    onEvent: (event) => KINDS.has(event.kind) && !query().text,
    onQuery() { items = null; view.redraw(); },
    tools: () => newRunLink(view),
    draw() {
      const filters = { ...query(), period: view.place.query.get("period") };
      const select = (name, title, options) => h("label", { "data-key": name }, h("span", {}, title),
        h("select", { onchange: (event) => setFilter(name, event.target.value) },
          h("option", { value: "", selected: !filters[name] }, "any"),
          options.map((option) => (Array.isArray(option) ? option : [option, option.replaceAll("_", " ")])).map(([option, words]) => h("option", { value: option, selected: filters[name] === option }, words))));
      return [
        h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
          h("label", { class: "grow", "data-key": "text" }, h("span", {}, "Task has"),
            h("input", {
              type: "search", value: filters.text ?? "", placeholder: "a part of its first 200 characters", spellcheck: "false",
              oninput: (event) => { clearTimeout(typing); const { value } = event.target; typing = setTimeout(() => setFilter("text", value.trim()), 300); },
            })),
          select("period", "Accepted", Object.entries(PERIODS).map(([name, [words]]) => [name, words])),
          select("state", "State", STATES), select("outcome", "Outcome", OUTCOMES),
          h("div", { class: "check", "data-key": "subagents" },
            h("input", { type: "checkbox", id: "subagents", checked: view.place.query.get("subagents") !== null, onchange: (event) => setFilter("subagents", event.target.checked ? "yes" : "") }),
            h("label", { for: "subagents" }, "Subagents too"))),
        items === null ? loading() : items.length === 0 && !next ? nothing(filters) : [
          table({
            caption: "Runs, the newest first", key: (run) => run.id, rows: items,
            columns: [
              ["State", "", (run) => runState(run)],
              ["Task", "main", (run) => [runLink(run.id, excerpt(run.input) || "(no text)"), run.unreadable && h("span", { class: "soft" }, " cannot be read")]],
              ["Why", "soft why", (run) => run.outcome && run.outcome !== "completed" && h("span", { title: causeWords(run) }, excerpt(causeWords(run) ?? "", 120))],
              ["Agent", "soft", (run) => run.agent],
              ["Model", "soft", (run) => run.model?.split("/").slice(1).join("/") ?? "–"],
              ["Accepted", "", (run) => time(run.accepted_at)],
              ["Took", "number", (run) => runDuration(run)],
              ["Calls", "number", (run) => count(run.iterations)],
              ["Own tokens", "number soft", (run) => tokens(run.usage)],
              ["Spent in all", "number", (run) => money(run.spent_usd)],
            ],
          }),
          next && h("p", { class: "center" }, h("button", { onclick: more, disabled: isLoadingMore }, items.length ? "Older runs" : "Search further back")),
        ],
      ];
    },
  };
}

function nothing(filters) {
  if (Object.values(filters).some(Boolean)) return empty("No run fits.", h("a", { href: "#/runs" }, "Show all runs"));
  return empty("No run yet.", h("a", { href: "#/new" }, "Start one"), ", here or with ", code("hermod run TEXT"), ".");
}

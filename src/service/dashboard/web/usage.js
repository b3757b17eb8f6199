// What runs have used: by day, by model, and of the limits of all runs together.

import { h } from "./dom.js";
import { get } from "./api.js";
import { clock, count, excerpt, money, plural, time } from "./format.js";
import { code, empty, figure, loading, runLink, section, table } from "./parts.js";
import { dayBars } from "./chart.js";
import { meter } from "./tree.js";

const SPANS = [14, 30, 90];

export function usage(view) {
  let data = null;
  let models = null;
  let isComplete = true;
  const span = () => SPANS.find((days) => String(days) === view.place.query.get("days")) ?? 14;

  return {
    title: "Usage",
    async load() {
      const days = await get("/v1/usage/days", { days: span() }, view.signal);
      const list = [...days.days].reverse();
      const part = await get("/v1/usage", { since: `${list[0].day}T00:00:00Z` }, view.signal);
      data = { days: list, dearest: days.dearest, isComplete: days.is_complete, limits: part.limits };
      models = part.models;
      isComplete = part.next === null;
    },
    onEvent: (event) => event.kind === "run.ended",
    onQuery() { data = null; view.redraw(); },
    tools: () => h("nav", { class: "tabs", "aria-label": "Span" }, h("ul", {}, SPANS.map((days) => h("li", {}, h("a", { href: `#/usage?days=${days}`, "aria-current": span() === days ? "true" : null }, `${days} days`))))),
    draw() {
      if (!data) return loading();
      const { days } = data;
      const sum = (value) => days.reduce((total, day) => total + value(day), 0);
      const runs = sum((day) => day.runs);
      if (!runs) return empty("No run in this time.", "Start one with ", code("hermod run TEXT"), ".");
      const outcome = (day, ...names) => names.reduce((total, name) => total + (day.outcomes[name] ?? 0), 0);
      const good = (day) => outcome(day, "completed");
      const bad = (day) => outcome(day, "failed", "timed_out", "loop_detected", "refused");
      const rest = (day) => day.runs - good(day) - bad(day);
      return [
        !data.isComplete && h("p", { class: "notice warn" }, "There are more runs than are read at once: the oldest days leave some out."),
        h("ul", { class: "figures" },
          figure("spent", money(sum((day) => day.spent_usd))), figure("runs", count(runs), { note: plural(sum((day) => day.subagents), "run of subagents", "runs of subagents") }),
          figure("tokens read", count(sum((day) => day.input_tokens))), figure("tokens written", count(sum((day) => day.output_tokens)))),
        h("div", { class: "columns" },
          section("Money by day", {}, dayBars({ title: "Money by day", days, format: money, series: [{ name: "Spent", tone: "accent", value: (day) => day.spent_usd }] })),
          section("Runs by day", {}, dayBars({ title: "Runs by day", days, format: count, series: [
            { name: "Completed", tone: "good", value: good }, { name: "Failed", tone: "bad", value: bad }, { name: "Others", tone: "calm", value: rest }] })),
          section("Tokens by day", {}, dayBars({ title: "Tokens by day", days, format: count, series: [
            { name: "Read", tone: "busy", value: (day) => day.input_tokens }, { name: "Written", tone: "accent", value: (day) => day.output_tokens }] })),
          limits(data.limits)),
        data.dearest.length > 0 && section("Runs that cost most", { note: "With their subagents." }, table({
          caption: "Runs that cost most", rows: data.dearest, key: (run) => run.id,
          columns: [
            ["Spent", "number", (run) => money(run.spent_usd)],
            ["Task", "main", (run) => runLink(run.id, excerpt(run.input) || "(no text)")],
            ["Agent", "soft", (run) => run.agent],
            ["Model", "soft", (run) => run.model?.split("/").slice(1).join("/") ?? "–"],
            ["Calls", "number", (run) => count(run.iterations)],
            ["Accepted", "", (run) => time(run.accepted_at)],
          ],
        })),
        section("By model", { note: isComplete ? `Model calls of ${span()} days.` : "Model calls of the newest 1,000 runs." }, models.length === 0 ? empty("No model was called.") : table({
          caption: "Usage by model", rows: models, key: (model) => model.model,
          columns: [
            ["Model", "main", (model) => model.model],
            ["Calls", "number", (model) => count(model.calls)],
            ["Read", "number", (model) => count(model.input_tokens)],
            ["From a cache", "number", (model) => `${count(model.cached_tokens)} (${model.input_tokens ? Math.round((100 * model.cached_tokens) / model.input_tokens) : 0} %)`],
            ["Written", "number", (model) => count(model.output_tokens)],
            ["Spent", "number", (model) => [money(model.cost_usd), model.unpriced_calls > 0 && h("span", { class: "soft" }, ` and ${count(model.unpriced_calls)} of unknown price`)]],
          ],
        }), unsettled(sum((day) => day.spent_usd), models, isComplete && data.isComplete)),
      ];
    },
  };
}

/** What is booked for calls whose use no provider has told: they were cut off, and count as what was reserved for them. */
function unsettled(spent, models, isWhole) {
  const rest = spent - models.reduce((total, model) => total + model.cost_usd, 0);
  return isWhole && rest > 0.0005 && h("p", { class: "hint" }, `${money(rest)} more is booked for calls that were cut off. Their provider has not told what they used, so they count as what was reserved for them.`);
}

function limits(periods) {
  if (!periods.length) return section("Limits of all runs", {}, empty("No limit is set.", "Set one in ", code("[limits]"), " of the configuration, by hour, day or month."));
  return section("Limits of all runs", {}, periods.map((period) => h("div", { "data-key": period.period },
    h("h3", {}, `This ${period.period}`, h("span", { class: "soft" }, " until ", clock(period.ends_at))),
    h("ul", { class: "lines" }, Object.entries(period.dimensions).map(([name, { limit, spent, reserved }]) => {
      const write = name === "usd" ? money : count;
      return h("li", { "data-key": name }, h("span", { class: "line-main" }, name === "usd" ? "Money" : name.replaceAll("_", " "), limit !== null && meter((spent + (reserved ?? 0)) / limit)),
        h("span", { class: "number" }, `${write(spent)}${limit === null ? "" : ` of ${write(limit)}`}`));
    })))));
}

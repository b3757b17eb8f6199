// Schedules: when each is due next, what became of its last occurrences, and what it does.

import { h, s } from "./dom.js";
import { get, pathOf, send } from "./api.js";
import { clock, date, excerpt, ms, relative, state, stateTone, stateWord, time } from "./format.js";
import { button, code, confirmed, empty, facts, loading, runLink, scopeReason, section, table } from "./parts.js";

const HISTORY = 200;
const KINDS = new Set(["run.accepted", "run.ended"]);

const when = ({ every, cron, at, tz }) => [every ? `every ${every}` : cron ? code(cron) : at ? `once, ${at}` : "–", tz && tz !== "UTC" && h("span", { class: "soft" }, ` ${tz}`)];
const link = (name, ...content) => h("a", { href: `#/schedules/${encodeURIComponent(name)}` }, content);

/** What became of an occurrence. */
function occurrence(row) {
  if (row.state !== "ran") return state(row.state);
  return row.outcome ? state(row.outcome) : state("running");
}

/** The last occurrences as a row of marks, the newest on the right: full ones ran, low ones did not. */
function strip(history) {
  const rows = history.slice(0, 80).reverse();
  return s("svg", { class: "strip", viewBox: `0 0 ${rows.length * 9} 22`, width: rows.length * 9, "aria-hidden": "true" }, rows.map((row, n) => {
    const name = row.state === "ran" ? row.outcome ?? "running" : row.state;
    const height = row.state === "ran" ? (name === "completed" ? 20 : 13) : 6;
    return s("rect", { class: stateTone(name), x: n * 9, y: 21 - height, width: 7, height, rx: 1 }, s("title", {}, `${date(ms(row.at))}: ${stateWord(name)}`));
  }));
}

export function schedules(view) {
  let items = null;
  return {
    title: "Schedules",
    async load() { ({ items } = await get("/v1/schedules", {}, view.signal)); },
    onEvent: (event) => KINDS.has(event.kind),
    draw() {
      if (!items) return loading();
      if (!items.length) return empty("There is no schedule.", "Make one with ", code("hermod schedules add NAME --cron \"0 6 * * *\" --text TEXT"), " or a section ", code("[schedules.NAME]"), " of the configuration.");
      return table({
        caption: "Schedules", key: (one) => one.name, rows: items,
        columns: [
          ["Name", "main", (one) => [link(one.name, one.name), h("div", { class: "soft" }, excerpt(one.definition.text ?? "", 90))]],
          ["When", "", (one) => when(one.definition)],
          ["Next", "", (one) => (one.paused ? state("paused") : one.next ? [clock(one.next), h("span", { class: "soft" }, ` ${relative(ms(one.next))}`)] : "–")],
          ["Last", "", (one) => (one.last ? [occurrence(one.last), " ", h("span", { class: "soft" }, time(one.last.at))] : h("span", { class: "soft" }, "not yet"))],
          ["From", "soft", (one) => (one.source === "config" ? "configuration" : "a command")],
        ],
      });
    },
  };
}

export function schedule(view) {
  const { name } = view.place;
  const { context } = view;
  let item = null;
  let history = null;
  const path = (...parts) => pathOf("schedules", name, ...parts);

  return {
    title: `Schedule ${name}`,
    heading: () => (item?.paused ? [state("paused"), " ", name] : name),
    async load() {
      [item, { items: history }] = await Promise.all([get(path(), {}, view.signal), get(path("history"), { max: HISTORY }, view.signal)]);
    },
    onEvent: (event) => KINDS.has(event.kind),
    tools() {
      if (!item) return null;
      const may = context.may("submit");
      const why = scopeReason("submit");
      return h("div", { class: "row" },
        button("Run now", { may, why, onclick: async () => { if (await confirmed(`Run “${name}” now, beside its times?`, "Run it")) view.act(() => send("POST", path("run")), "It runs now."); } }),
        item.paused
          ? button("Resume", { kind: "primary", may, why, onclick: () => view.act(() => send("POST", path("resume")), "The schedule goes on.") })
          : button("Pause", { may, why, onclick: () => view.act(() => send("POST", path("pause"), {}), "The schedule is paused.") }));
    },
    draw() {
      if (!item) return loading();
      const { definition } = item;
      const missed = history.filter((row) => row.state === "missed");
      return [
        item.paused && h("p", { class: "notice warn" }, "Paused ", time(item.paused.since), `: ${item.paused.reason}`),
        missed.length > 0 && h("p", { class: "notice bad" }, `${missed.length} of the last ${history.length} occurrences were missed; the last one `, clock(missed[0].at), missed[0].reason && `: ${missed[0].reason}`),
        h("div", { class: "summary" }, facts([
          ["Task", h("span", { class: "task" }, definition.text ?? ""), "wide"],
          ["When", when(definition)],
          ["Next", item.paused ? "paused" : item.next ? [clock(item.next), `, ${relative(ms(item.next))}`] : "none any more"],
          ["Late occurrences", definition.misfire?.replaceAll("_", " ")],
          ["Grace", definition.grace],
          ["While one runs", definition.overlap],
          ["Agent", definition.agent], ["Model", definition.model], ["Session", definition.session && code(definition.session)],
          ["Result goes to", definition.deliver_to?.join(", ")],
          ["Made", [time(item.created_at), item.source === "config" ? " by the configuration" : " by a command"]],
        ])),
        section("Occurrences", { note: history.length === HISTORY ? `the newest ${HISTORY}` : null }, history.length === 0 ? empty("None so far.") : [strip(history), table({
          caption: "What became of its occurrences", rows: history, key: (row) => row.at,
          columns: [
            ["Due", "", (row) => [clock(row.at), h("span", { class: "soft" }, ` ${relative(ms(row.at))}`)]],
            ["What became of it", "", occurrence],
            ["Run or reason", "main", (row) => [row.run && runLink(row.run, "its run"), row.reason, row.further && ` (stands for ${row.further.count} more)`]],
          ],
        })]),
      ];
    },
  };
}

// The list of conversations, with search by text.

import { h } from "./dom.js";
import { get } from "./api.js";
import { excerpt, runState, time } from "./format.js";
import { code, empty, loading, newRunLink, sessionLink, table } from "./parts.js";

const PAGE = 50;

export function sessions(view) {
  let items = null;
  let next = null;
  let isSearching = false;
  let typing = null;
  /** The names that are shown: none changes while it is read. */
  const names = new Map();
  const nameOf = (session) => {
    if (!names.has(session.id)) names.set(session.id, session.title ?? (excerpt(session.task ?? session.last_run.input) || session.key));
    return names.get(session.id);
  };
  const text = () => view.place.query.get("text") ?? "";

  async function page(before) {
    return get("/v1/sessions", { max: PAGE, before, text: text(), subagents: view.place.query.get("subagents") ? null : "false" }, view.signal);
  }

  function setFilter(name, value) {
    const parameters = new URLSearchParams(view.place.query);
    if (value) parameters.set(name, value); else parameters.delete(name);
    view.place.query = parameters;
    history.replaceState(null, "", `#/sessions${parameters.size ? `?${parameters}` : ""}`);
    items = null;
    view.redraw();
    view.refresh();
  }

  async function more() {
    isSearching = true;
    view.redraw();
    const found = await page(next);
    items = [...items, ...found.items];
    next = found.next;
    isSearching = false;
    view.redraw();
  }

  return {
    title: "Sessions",
    async load() {
      const found = await page();
      const ids = new Set(found.items.map((session) => session.id));
      const last = found.items.at(-1)?.last_run.id ?? "";
      const older = !text() && items && items.length > PAGE ? items.filter((session) => session.last_run.id < last && !ids.has(session.id)) : [];
      if (!older.length) next = found.next;
      items = [...found.items, ...older];
    },
    onEvent: (event) => !text() && ["run.accepted", "run.ended", "aside.answered"].includes(event.kind),
    onQuery() { items = null; view.redraw(); },
    tools: () => newRunLink(view),
    draw() {
      return [
        h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
          h("label", { class: "grow" }, h("span", {}, "Search in titles, keys, tasks, messages and answers"),
            h("input", {
              type: "search", value: text(), spellcheck: "false",
              oninput: (event) => { clearTimeout(typing); const { value } = event.target; typing = setTimeout(() => setFilter("text", value.trim()), 400); },
            })),
          h("div", { class: "check" },
            h("input", { type: "checkbox", id: "subagents", checked: view.place.query.get("subagents") !== null, onchange: (event) => setFilter("subagents", event.target.checked ? "yes" : "") }),
            h("label", { for: "subagents" }, "Subagents too"))),
        items === null ? loading() : items.length === 0 && !next ? empty(text() ? "No session has this text." : "No session yet.", text() ? h("a", { href: "#/sessions" }, "Show all sessions") : [h("a", { href: "#/new" }, "Start a run"), "."]) : [
          table({
            caption: "Sessions, the one with the latest run first", key: (session) => session.id, rows: items,
            columns: [
              ["Session", "main", (session) => [
                sessionLink(session.id, nameOf(session)),
                session.match && h("div", { class: "soft" }, excerpt(session.match, 220)),
              ]],
              ["Key", "soft key", (session) => (session.key === session.id ? "" : code(excerpt(session.key, 60)))],
              ["Agent", "soft", (session) => session.agent],
              ["Last run", "", (session) => [runState(session.last_run), " ", h("span", { class: "soft" }, time(session.last_run.ended_at ?? session.last_run.accepted_at))]],
              ["Opened", "soft", (session) => time(session.opened_at)],
            ],
          }),
          next && h("p", { class: "center" }, h("button", { onclick: more, disabled: isSearching }, text() ? "Search further back" : "Older sessions")),
        ],
      ];
    },
  };
}

// Sessions: the conversations, with search by text, and one conversation with its runs.

import { h } from "./dom.js";
import { get, pathOf } from "./api.js";
import { clock, count, excerpt, runState, shortId, time, tokens } from "./format.js";
import { code, empty, facts, loading, newRunLink, prose, runDuration, runLink, section, sessionLink, table } from "./parts.js";
import { messageToSession } from "./message.js";
import { resultOf } from "./transcript.js";

const PAGE = 50;
const MESSAGES = 100;

export function sessions(view) {
  let items = null;
  let next = null;
  let isSearching = false;
  let typing = null;
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
      const last = found.items.at(-1)?.id ?? "";
      const older = !text() && items && items.length > PAGE ? items.filter((session) => session.id < last) : [];
      if (!older.length) next = found.next;
      items = [...found.items, ...older];
    },
    onEvent: (event) => !text() && (event.kind === "session.opened" || event.kind === "aside.answered"),
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
            caption: "Sessions, the newest first", key: (session) => session.id, rows: items,
            columns: [
              ["Session", "main", (session) => [
                sessionLink(session.id, session.title ?? (excerpt(session.last_run?.input) || session.key)),
                session.match && h("div", { class: "soft" }, excerpt(session.match, 220)),
              ]],
              ["Key", "soft key", (session) => (session.key === session.id ? "" : code(excerpt(session.key, 60)))],
              ["Agent", "soft", (session) => session.agent],
              ["Last run", "", (session) => session.last_run && [runState(session.last_run), " ", h("span", { class: "soft" }, time(session.last_run.accepted_at))]],
              ["Opened", "soft", (session) => time(session.opened_at)],
            ],
          }),
          next && h("p", { class: "center" }, h("button", { onclick: more, disabled: isSearching }, text() ? "Search further back" : "Older sessions")),
        ],
      ];
    },
  };
}

export function session(view) {
  const id = view.place.name;
  let detail = null;
  let messages = null;
  let next = null;

  async function more() {
    const page = await get(pathOf("sessions", id, "messages"), { max: MESSAGES, after: next }, view.signal);
    messages = [...(messages ?? []), ...page.items];
    next = page.next;
    view.redraw();
  }

  return {
    title: `Session ${shortId(id)}`,
    heading: () => detail?.title ?? detail?.key ?? `Session ${shortId(id)}`,
    async load() {
      detail = await get(pathOf("sessions", id), {}, view.signal);
      const wanted = messages?.length ?? 0;
      const page = await get(pathOf("sessions", id, "messages"), { max: Math.min(1000, Math.max(MESSAGES, wanted)) }, view.signal);
      messages = page.items;
      next = page.next;
    },
    onEvent: (event) => event.session === detail?.id && ["run.accepted", "run.ended", "model.answered"].includes(event.kind),
    draw() {
      if (!detail) return loading();
      return [
        detail.quarantined && h("p", { class: "notice bad" }, `It cannot be read: ${detail.quarantined}`),
        h("div", { class: "summary" }, facts([["Key", code(detail.key)], ["Agent", detail.agent], ["Opened", clock(detail.opened_at)], ["Runs", count(detail.runs.length)], ["Id", code(detail.id)]])),
        section("Runs", { note: detail.runs.length >= 100 ? "the newest 100" : null }, table({
          caption: "Runs of the session", rows: [...detail.runs].reverse(), key: (run) => run.id,
          columns: [
            ["State", "", (run) => runState(run)],
            ["Run", "main", (run) => runLink(run.id, code(shortId(run.id)))],
            ["Accepted", "", (run) => time(run.accepted_at)],
            ["Took", "number", runDuration],
            ["Calls", "number", (run) => count(run.iterations)],
            ["Tokens", "number soft", (run) => tokens(run.usage)],
          ],
        })),
        detail.todo && section("To-do list of the model", {}, prose(detail.todo)),
        section("Conversation", {}, messages.length === 0 ? empty("No message yet.") : [
          h("ol", { class: "transcript" }, messages.map(message)),
          next && h("p", { class: "center" }, h("button", { onclick: more }, "Later messages")),
        ]),
        !detail.quarantined && messageToSession(view, { id: detail.id, run: detail.runs.find((run) => run.state === "running" || run.state === "parked") }),
      ];
    },
  };
}

const ROLES = { system: "System", user: "Task or message", assistant: "Model", tool: "Result" };
const LOOKS = { user: "task", assistant: "model", tool: "tool", system: "note" };

function message(one, n) {
  return h("li", { class: ["entry", LOOKS[one.role]], "data-key": `m${n}` },
    h("div", { class: "entry-head" }, h("span", { class: "who" }, ROLES[one.role] ?? one.role, one.name && [" of ", code(one.name)])),
    one.reasoning && h("details", { class: "reasoning", "data-key": "reasoning" }, h("summary", {}, "Reasoning"), prose(one.reasoning)),
    one.role === "tool" ? resultOf(one.content, `m${n}`) : one.content && prose(one.content),
    (one.tool_calls ?? []).map((call) => h("p", { class: "soft" }, "calls ", code(call.function.name), " ", code(excerpt(call.function.arguments, 300)))),
    one.images?.length > 0 && h("p", { class: "soft" }, `${one.images.length} images`));
}

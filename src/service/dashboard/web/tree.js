// Unfinished runs with their subagents, and the actors that carry them out with their restarts.

import { h, s } from "./dom.js";
import { get } from "./api.js";
import { count, excerpt, money, plural, runState, shortId, state, time } from "./format.js";
import { code, doing, empty, loading, runDuration, section, sessionLink } from "./parts.js";

/** Nodes that are drawn at first. */
const SHOWN = 300;

export function tree(view) {
  let nodes = null;
  let actors = null;
  let shown = SHOWN;
  const isLimited = view.context.token.agents !== null;

  return {
    title: "Tree",
    async load() {
      [nodes, actors] = await Promise.all([get("/v1/tree", {}, view.signal), isLimited ? null : get("/v1/supervision", {}, view.signal)]);
    },
    draw() {
      if (!nodes) return loading();
      const total = countNodes(nodes);
      const left = { count: shown };
      return [
        section("Runs", { note: nodes.length ? `${plural(total.all, "run")}, ${count(total.open)} of them unfinished` : null },
          nodes.length === 0 ? empty("No run is under way.", h("a", { href: "#/runs" }, "See what ran before"), ".") : [
            h("div", { class: "node tree-head", "aria-hidden": "true" }, ["State", "Task", "At the moment"].map((word) => h("span", {}, word)), ["Calls", "Took", "Spent"].map((word) => h("span", { class: "number" }, word))),
            h("div", { class: "tree" }, branch([...nodes].sort((a, b) => (a.id < b.id ? 1 : -1)), left, true)),
            total.all > shown && h("p", { class: "center" }, h("button", { onclick: () => { shown += SHOWN; view.redraw(); } }, `Show ${Math.min(SHOWN, total.all - shown)} more`)),
          ]),
        actors && supervision(actors),
      ];
    },
  };
}

function countNodes(nodes) {
  return nodes.reduce((sum, node) => {
    const below = countNodes(node.children);
    return { all: sum.all + 1 + below.all, open: sum.open + (node.state === "ended" ? 0 : 1) + below.open };
  }, { all: 0, open: 0 });
}

function branch(nodes, left, isTop) {
  return h("ul", { "aria-label": isTop ? "Runs with their subagents" : "Subagents" }, nodes.map((node) => {
    if (left.count <= 0) return null;
    left.count -= 1;
    const row = h("div", { class: "node", "data-row": true },
      runState(node),
      h("a", { class: "task-line", href: `#/runs/${node.id}`, title: excerpt(node.input, 400) }, excerpt(node.input, 160) || "(no text)"),
      h("span", { class: "doing" }, node.state === "ended" ? "" : doing(node.waits), childWords(node.children)),
      h("span", { class: "number" }, iterations(node)),
      h("span", { class: "number" }, runDuration(node)),
      h("span", { class: "number" }, spent(node)));
    return h("li", { "data-key": node.id }, row, node.children.length > 0 && branch(node.children, left, false));
  }));
}

function childWords(children) {
  const ended = children.filter((child) => child.state === "ended").length;
  return ended > 0 && ` (${ended} of ${children.length} ended)`;
}

function iterations(node) {
  const limit = node.limits?.iterations;
  const used = Math.max(node.spent?.iterations ?? 0, node.iterations);
  if (!limit) return count(used);
  return h("span", { title: `${count(used)} of ${plural(limit, "model call")}` }, `${count(used)}/${count(limit)}`, used * 2 > limit && meter(used / limit));
}

function spent(node) {
  const limit = node.limits?.usd;
  const used = node.spent?.usd;
  if (!limit) return money(used);
  return h("span", { title: `${money(used ?? 0)} of ${money(limit)}` }, money(used ?? 0), meter((used ?? 0) / limit));
}

export function meter(part) {
  const tone = part > 0.95 ? "bad" : part > 0.75 ? "warn" : "";
  return s("svg", { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: "rail", width: 100, height: 4 }), s("rect", { class: ["fill", tone], width: Math.min(100, part * 100).toFixed(1), height: 4 }));
}

function supervision(actors) {
  const restarts = actors.children.reduce((sum, child) => sum + child.restarts, 0);
  const troubled = actors.sessions.filter((session) => session.crashes > 0 || session.phase === "quarantined");
  const calm = actors.sessions.filter((session) => !troubled.includes(session));
  return section("Supervision", { note: `Hermod ${actors.version}` },
    h("p", { class: "meta" }, "Up since ", time(actors.started_at), ` · ${restarts ? plural(restarts, "restart") : "no restarts"} · ${plural(actors.live, "live session")}`),
    actors.reasons.map((reason) => h("p", { class: "notice warn", "data-key": reason }, reason)),
    actorTree(actors),
    troubled.length > 0 && [h("h3", {}, "Sessions that need attention"), sessionList(troubled)],
    calm.length > 0 && h("details", { class: "more", "data-key": "sessions" }, h("summary", {}, `${plural(calm.length + actors.more, "session")} in memory`), sessionList(calm),
      actors.more > 0 && h("p", { class: "hint" }, `${count(actors.more)} more are not listed.`)));
}

/** What an actor is for. */
const DUTIES = {
  Persistence: "writes records; never restarted: without it the process ends",
  ProviderSupervisor: "keeps an actor for each provider",
  ToolExecutor: "lets tool calls begin",
  Compressor: "lets summaries and other model calls beside the runs begin",
  SessionSupervisor: "opens sessions, again after a crash, and closes idle ones",
  Scheduler: "starts what is due",
};

/** The supervisors with their children, as they stand above each other. */
function actorTree(actors) {
  const providers = actors.children.filter(({ name }) => name.startsWith("Provider "));
  const crashes = actors.sessions.reduce((sum, session) => sum + session.crashes, 0);
  const row = (name, about, restarts, below) => h("li", { "data-key": name },
    h("div", { class: ["actor", restarts > 0 && "bad"] }, h("strong", {}, name), h("span", { class: "soft" }, about),
      restarts === null ? null : restarts > 0 ? state("failed", `restarted ${restarts}×`) : h("span", { class: "soft" }, "no restarts")), below);
  const others = actors.children.filter((child) => !providers.includes(child));
  return h("div", { class: "tree" }, h("ul", { "aria-label": "Supervisors and their children" }, row("Root", "restarts its children", null, h("ul", {}, others.map(({ name, restarts }) =>
    row(name, DUTIES[name] ?? "", restarts,
      name === "ProviderSupervisor" && providers.length > 0 ? h("ul", {}, providers.map((provider) => row(provider.name, "", provider.restarts)))
      : name === "SessionSupervisor" && h("ul", {}, row("Sessions", plural(actors.live, "live session"), crashes))))))));
}

function sessionList(sessions) {
  return h("ul", { class: "lines" }, sessions.map((session) => h("li", { "data-key": session.session },
    state(session.phase), h("span", { class: "line-main" }, sessionLink(session.session, code(shortId(session.session))), session.reason && ` ${session.reason}`),
    h("span", { class: "line-side" }, session.crashes ? `crashed ${session.crashes}×` : ""))));
}

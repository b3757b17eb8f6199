// Pieces that several views share.

import { h } from "./dom.js";
import { download } from "./api.js";
import { bytes, count, duration, ms, plural, waitWords } from "./format.js";

/** The address of a run. */
export const runLink = (id, ...content) => h("a", { href: `#/runs/${encodeURIComponent(id)}` }, content);
export const sessionLink = (id, ...content) => h("a", { href: `#/sessions/${encodeURIComponent(id)}` }, content);

/** The way to a new run, for tokens that may begin one. */
export const newRunLink = (view) => view.context.may("submit") && h("a", { class: "button primary", href: "#/new", title: "n" }, "New run");

/** A section with a heading. */
export function section(title, { note, tools, key, wide } = {}, ...content) {
  return h("section", { class: ["card", wide && "wide"], "data-key": key ?? title },
    h("div", { class: "card-head" }, h("h2", {}, title), note && h("p", { class: "note" }, note), tools),
    content);
}

/** What is shown where nothing is, with what to do next. */
export function empty(text, ...next) {
  return h("div", { class: "empty" }, h("p", {}, text), next.length > 0 && h("p", { class: "hint" }, next));
}

export const loading = () => h("p", { class: "empty", role: "status" }, "Loading…");

export const code = (text) => h("code", {}, text);

/** A table. Columns are `[title, class, cell]`; a row's first cell with a link makes it reachable. */
export function table({ caption, columns, rows, key, tone }) {
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", { "data-key": key(row), "data-row": true, class: tone?.(row) },
        columns.map(([title, kind, cell]) => h("td", { class: kind, "data-title": title }, cell(row))))))));
}

/** Facts as a list of terms; those without a value are left out. A third item makes one as wide as the list. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" }, shown.map(([term, value, wide]) => h("div", { "data-key": term, class: wide ?? null }, h("dt", {}, term), h("dd", {}, value))));
}

/** A number that matters, with a link to what it counts. */
export function figure(label, value, { href, tone, note } = {}) {
  const content = [h("span", { class: "figure-value" }, value), h("span", { class: "figure-label" }, label), note && h("span", { class: "figure-note" }, note)];
  return h("li", { class: ["figure", tone], "data-key": label }, href ? h("a", { href }, content) : h("div", {}, content));
}

/** A button that is disabled with a reason while the token may not do what it does. */
export function button(words, { may = true, why, kind, onclick, about }) {
  return h("button", { class: kind, type: "button", "aria-describedby": about, "aria-disabled": may ? null : "true", title: may ? null : why, onclick: may ? onclick : null }, words);
}

export const scopeReason = (scope) => `Your token has no scope ${scope}.`;

/** Whether the person wants it, by a dialog. */
export function confirmed(question, verb) {
  return new Promise((resolve) => {
    const opener = document.activeElement;
    const dialog = h("dialog", { "aria-labelledby": "confirm-text" },
      h("p", { id: "confirm-text" }, question),
      h("form", { method: "dialog", class: "row" },
        h("button", { value: "yes", class: "danger" }, verb), h("button", { value: "no" }, "Cancel")));
    dialog.addEventListener("close", () => { resolve(dialog.returnValue === "yes"); dialog.remove(); opener?.focus?.(); });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** A text as it is. One that may be higher than its frame can be scrolled with the keyboard. */
export function block(text, attributes) {
  const mayScroll = text.length > 600 || text.split("\n", 13).length > 12;
  return h("pre", { ...attributes, tabindex: mayScroll ? "0" : null }, text);
}

/** A long text, of which the beginning is shown at first. */
export function clipped(text, key, max = 3000) {
  if (text.length <= max) return block(text);
  return [block(`${text.slice(0, max)}…`),
    h("details", { class: "more", "data-key": `more ${key}` }, h("summary", {}, `Show all ${text.length.toLocaleString("en")} characters`), block(text))];
}

/** The whole output of a call, of which its result has the beginning. */
export function artifactLink(run, artifact) {
  if (!artifact) return null;
  const path = `/v1/runs/${run}/artifacts/${artifact.handle.split("/").map(encodeURIComponent).join("/")}`;
  const name = `${artifact.handle.replaceAll("/", "-")}.txt`;
  return h("button", { type: "button", onclick: (event) => download(path, name).catch((error) => { event.target.textContent = error.message; }) }, `Save the whole output (${bytes(artifact.bytes)})`);
}

/** A record or another value as JSON. */
export function json(value) {
  return block(JSON.stringify(value, null, 2), { class: "json" });
}

/** How long a run took, or has taken until now. */
export function runDuration(run) {
  const from = ms(run.started_at);
  if (from === null) return "–";
  return duration((ms(run.ended_at) ?? Date.now()) - from);
}

const STOPS = {
  command: "on request", signal: "by a signal to its process", parent: "with the run that gave it its task",
  interrupt: "by a newer message", queue_full: "too many messages waited", overlap: "its schedule was due again",
};

const CAUSES = {
  provider: ({ failure }) => `${failure.class.replaceAll("_", " ")}: ${failure.message}`,
  empty_answer: () => "the model answered nothing",
  truncated: () => "the answer ran into the model's output limit",
  only_thought: ({ max_tokens: tokens }) => `the model reasoned up to its output limit of ${count(tokens)} tokens and said nothing`,
  unknown_tool: () => "the model kept calling tools that do not exist",
  expectation: ({ misses }) => misses.map(({ expected, reason }) => `expected: ${expected}, but ${reason}`).join("; "),
  irreducible: () => "its conversation is too long for the model and cannot be made shorter",
  limit: ({ refusal }) => `its limit of ${refusal.dimension.replaceAll("_", " ")} is used up`,
  unpriced: ({ model }) => `the price of ${model} is not known, so its limit of money cannot be kept`,
  time: ({ limit_ms: limit }) => `its time of ${duration(limit)} is over`,
  no_progress: ({ limit_ms: limit }) => `no call came to a result within ${duration(limit)}`,
  repetition: () => "the model repeated the same calls after a warning",
  stop: ({ reason }) => STOPS[reason] ?? reason.replaceAll("_", " "),
  hook: ({ refusal }) => refusal,
  crash_loop: ({ error }) => `it crashed repeatedly at the same step: ${error}`,
  unreadable: ({ error }) => `its records cannot be read: ${error}`,
};

/** Why a run ended as it did; null if its outcome says it all. */
export function causeWords(run) {
  if (!run.cause) return null;
  try {
    return CAUSES[run.cause]?.(run) ?? run.cause.replaceAll("_", " ");
  } catch {
    // A newer service may tell it in another form.
    return String(run.cause).replaceAll("_", " ");
  }
}

/** What a run waits for at the moment; null if it waits for nothing. */
export function waitsFor(waits) {
  const now = (waits ?? []).filter((wait) => wait.what !== "limit");
  if (!now.length) return null;
  const subagents = now.filter((wait) => wait.what === "children");
  const left = subagents.reduce((sum, wait) => sum + wait.left, 0);
  const words = now.filter((wait) => wait.what !== "children").map(waitWords);
  if (left) words.unshift(plural(left, "subagent"));
  const unique = [...new Set(words)];
  return `${unique.slice(0, 2).join(", ")}${unique.length > 2 ? ` and ${unique.length - 2} more` : ""}`;
}

/** What a run does at the moment. */
export function doing(waits) {
  const what = waitsFor(waits);
  return what ? `waits for ${what}` : "works";
}

/** A text of a model: paragraphs as written, and fenced code apart. */
export function prose(text) {
  return text.split(/^```/m).map((part, n) => {
    if (n % 2 === 0) return part.trim() && h("div", { class: "prose" }, part.trim());
    const [language, ...lines] = part.split("\n");
    return block(lines.join("\n").trimEnd(), { title: language.trim() || null });
  });
}

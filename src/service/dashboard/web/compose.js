// The field that sends a text: a message to a session, or the task of a new run. The text stays in it, also when the page is
// left, until the service has accepted it. A repeat of the same request has the same idempotency key, so that it counts once.

import { announce, h } from "./dom.js";
import { newKey, send } from "./api.js";

const PREFIX = "hermod.draft.";
/** Statuses after which it is not known whether the request was accepted, or that are over by themselves. */
const MAY_REPEAT = new Set([0, 408, 429, 500, 502, 503, 504]);

/** A text that is not accepted yet, with what was chosen for it. */
class Draft {
  constructor(name, number) {
    Object.assign(this, { name, id: `compose-${number}`, text: "", values: {}, pending: null, error: null, note: null, noteFor: null, isSending: false });
    try {
      const { text = "", values = {}, pending = null } = JSON.parse(sessionStorage.getItem(PREFIX + name)) ?? {};
      Object.assign(this, { text, values, pending });
    } catch {
      // Storage may be forbidden; then a reload loses the text.
    }
  }

  save() {
    try {
      const { text, values, pending } = this;
      if (text || pending) sessionStorage.setItem(PREFIX + this.name, JSON.stringify({ text, values, pending }));
      else sessionStorage.removeItem(PREFIX + this.name);
    } catch {
      // As above.
    }
  }

  /** The idempotency key of a request: the same one as long as the request is the same and is not accepted. */
  keyOf(request) {
    const same = JSON.stringify([request.path, request.body]);
    if (this.pending?.same !== same) this.pending = { same, key: newKey() };
    this.save();
    return this.pending.key;
  }
}

const drafts = new Map();

function draftOf(name) {
  if (!drafts.has(name)) drafts.set(name, new Draft(name, drafts.size));
  return drafts.get(name);
}

/** Forgets all texts, when a person signs out. */
export function forgetDrafts() {
  for (const draft of drafts.values()) {
    Object.assign(draft, { text: "", values: {}, pending: null, error: null, note: null });
    draft.save();
  }
}

/** A problem in words, with what to do, and the field that it is about. */
function explain(problem, choices) {
  const named = /^(\w+)[: ]/.exec(problem.message)?.[1];
  const field = choices.find((choice) => choice.name === named)?.name ?? "text";
  const remedy = choices.find((choice) => choice.name === field)?.remedy;
  if (problem.status === 0) return { field: "text", text: "The service cannot be reached, so it is not known whether it has this text. Send it again once the service is back: it counts once." };
  if (MAY_REPEAT.has(problem.status)) return { field, text: `${problem.message}. The text is kept: send it again in a moment. It counts once.` };
  if (problem.status === 403) return { field, text: `${problem.message}. Sign in with a token that may do this.` };
  return { field, text: [problem.message, remedy].filter(Boolean).join(". ") };
}

function choiceField(draft, choice, mayWrite) {
  const id = `${draft.id}-${choice.name}`;
  const error = draft.error?.field === choice.name ? draft.error.text : null;
  const value = draft.values[choice.name] ?? "";
  const attributes = {
    id, disabled: !mayWrite, "aria-invalid": error ? "true" : null, "aria-describedby": error ? `${id}-error` : null,
    oninput: (event) => { draft.values[choice.name] = event.target.value; draft.save(); },
  };
  const input = choice.options
    ? h("select", attributes, choice.options.map(([option, words]) => h("option", { value: option, selected: option === value }, words)))
    : h("input", { ...attributes, type: "text", list: choice.suggestions?.length ? `${id}-list` : null, placeholder: choice.placeholder, spellcheck: "false", autocomplete: "off" });
  if (!choice.options) input.value = value;
  return h("div", { class: "compose-choice", "data-key": choice.name }, h("label", { for: id }, choice.label), input,
    choice.suggestions?.length > 0 && h("datalist", { id: `${id}-list` }, choice.suggestions.map((one) => h("option", { value: one }))),
    error && h("p", { class: "error", role: "alert", id: `${id}-error` }, error));
}

/** The field. `request(text, values)` is what is sent, `{ path, body }`; `done(answer)` follows its acceptance, and may
 *  return what is said about it. `choices` are `{ name, label, options | suggestions, placeholder, remedy,
 *  isOnce }`; what is chosen once holds for one text. */
export function composer(view, { name, label, placeholder, verb, hint, may = true, why, choices = [], rows = 2, isDocked, request, done }) {
  const draft = draftOf(name);
  const { id } = draft;
  const textField = () => document.getElementById(id);

  async function submit() {
    if (draft.isSending || !may) return;
    if (!draft.text.trim()) {
      draft.error = { field: "text", text: "There is no text yet: write what is to be done." };
      view.redraw();
      textField()?.focus();
      return;
    }
    const { text } = draft;
    const asked = request(text, draft.values);
    Object.assign(draft, { isSending: true, error: null, note: null });
    view.redraw();
    try {
      const answer = await send("POST", asked.path, asked.body, draft.keyOf(asked));
      Object.assign(draft, { text: "", pending: null });
      for (const choice of choices) if (choice.isOnce) delete draft.values[choice.name];
      if (textField()) textField().value = "";
      Object.assign(draft, { note: done(answer) ?? null, noteFor: view });
      announce(draft.note ?? "Accepted.");
    } catch (problem) {
      if (!MAY_REPEAT.has(problem.status)) draft.pending = null;
      draft.error = explain(problem, choices);
    }
    draft.isSending = false;
    draft.save();
    view.redraw();
    if (draft.error) document.getElementById(draft.error.field === "text" ? id : `${id}-${draft.error.field}`)?.focus();
  }

  const error = draft.error?.field === "text" ? draft.error.text : null;
  const field = h("textarea", {
    id, rows, disabled: !may, readonly: draft.isSending, placeholder: may ? placeholder : why, "aria-keyshortcuts": "Control+Enter",
    "aria-describedby": `${id}-hint${error ? ` ${id}-error` : ""}`, "aria-invalid": error ? "true" : null,
    oninput: (event) => { draft.text = event.target.value; draft.note = null; draft.save(); },
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) { event.preventDefault(); submit(); }
    },
  });
  field.value = draft.text;
  return h("form", { class: ["compose", isDocked && "dock"], "data-key": `compose ${name}`, "aria-busy": draft.isSending ? "true" : null, onsubmit: (event) => { event.preventDefault(); submit(); } },
    h("label", { for: id }, label), field,
    error && h("p", { class: "error", role: "alert", id: `${id}-error` }, error),
    h("div", { class: "compose-row" },
      choices.map((choice) => choiceField(draft, choice, may)),
      h("p", { class: "hint", id: `${id}-hint`, "data-key": "hint" }, may ? [draft.noteFor === view && draft.note && h("strong", {}, draft.note, " "), hint, hint && " ", h("kbd", {}, "Ctrl"), "+", h("kbd", {}, "Enter"), " sends."] : why),
      h("button", { class: "primary", "data-key": "send", "aria-disabled": may && !draft.isSending ? null : "true", title: may ? null : why }, draft.isSending ? "Sending…" : verb)));
}

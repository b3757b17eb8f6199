// The field for a message to a conversation: it steers a run under way, follows it, or begins the next run.

import { composer } from "./compose.js";
import { pathOf } from "./api.js";
import { scopeReason } from "./parts.js";

const WHEN = [
  ["", "now: the run reads it before its next step"],
  ["followup", "as a task of its own, after this run"],
  ["interrupt", "at once: stop this run, and do this"],
];
const WITHDRAWS = "The run waits for your answer. A message skips the call that it asks about.";

const messageTo = (session, body) => ({ path: pathOf("sessions", session, "messages"), body });

/** The field on the page of a run. */
export function messageToRun(view, { id, session, state }) {
  const { context } = view;
  const fields = { name: `session ${session}`, rows: 1, isDocked: true };
  if (state === "ended") {
    return composer(view, {
      ...fields, label: "Go on with this conversation", placeholder: "What is to be done next", verb: "Send", hint: "It begins the next run of the same session.",
      may: context.may("submit"), why: scopeReason("submit"),
      request: (text) => messageTo(session, { text }),
      done: () => { if (!view.signal.aborted) view.go(`#/sessions/${encodeURIComponent(session)}`); return "The message is sent."; },
    });
  }
  // Only a message to the session has a key; a token without `submit`, and a run that has not begun, need the other operation.
  const byMessage = state !== "queued" && context.may("submit");
  return composer(view, {
    ...fields, label: "Message to this run", placeholder: "What it is to know, or to do differently", verb: "Send",
    hint: state === "parked" ? WITHDRAWS : "The model reads it before its next step.",
    may: context.may("steer"), why: scopeReason("steer"),
    request: (text) => (byMessage ? messageTo(session, { text, mode: "steer" }) : { path: pathOf("runs", id, "steer"), body: { text } }),
    done: () => { view.refresh(); return "The message is sent."; },
  });
}

/** The field on the page of a session; `run` is the one under way, if there is one. */
export function messageToSession(view, { id, run }) {
  const { context } = view;
  const canChoose = run && context.may("steer");
  return composer(view, {
    name: `session ${id}`, rows: 1, isDocked: true, label: "Message", placeholder: run ? "What the run is to know, or what comes after it" : "What is to be done next", verb: "Send",
    hint: !run ? "It begins the next run." : run.state === "parked" && canChoose ? WITHDRAWS : canChoose ? "" : "It is a task of its own, after the run under way.",
    may: context.may("submit"), why: scopeReason("submit"),
    choices: canChoose ? [{ name: "mode", label: "While a run is under way", options: WHEN, isOnce: true }] : [],
    request: (text, values) => messageTo(id, !run ? { text } : { text, mode: canChoose ? values.mode || "steer" : "followup" }),
    done: () => { view.toEnd(); view.refresh(); return "The message is sent."; },
  });
}

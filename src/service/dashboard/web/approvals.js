// What waits for a person, and the answers.

import { h } from "./dom.js";
import { get, pathOf, send } from "./api.js";
import { clock, state, time } from "./format.js";
import { block, button, code, empty, loading, runLink, scopeReason, section } from "./parts.js";

export function approvals(view) {
  let items = null;
  const { context } = view;
  const decide = (call, verb, body, done) => view.act(() => send("POST", pathOf("approvals", call, verb), body), done);

  function answerForm(approval) {
    const may = context.may("approve");
    const id = `answer-${approval.call}`;
    return h("form", {
      class: "row",
      onsubmit: (event) => {
        event.preventDefault();
        const text = event.target.querySelector("textarea").value;
        if (text.trim() && may) decide(approval.call, "answer", { text }, "The answer is recorded.");
      },
    },
    h("label", { class: "grow", for: id }, h("span", {}, "Your answer"), h("textarea", { id, rows: 2, disabled: !may })),
    h("button", { class: "primary", disabled: !may, title: may ? null : scopeReason("approve") }, "Answer"));
  }

  function verdicts(approval) {
    const may = context.may("approve");
    const why = scopeReason("approve");
    const isLimited = context.token.agents !== null;
    const rules = approval.allow_rules.join(", ");
    return h("div", { class: "row" },
      button("Allow once", { kind: "primary", may, why, onclick: () => decide(approval.call, "allow", { scope: "once" }, "The call is allowed.") }),
      approval.allow_rules.length > 0 && button("Allow for this run", { may, why, onclick: () => decide(approval.call, "allow", { scope: "run" }, "Such calls are allowed for this run.") }),
      approval.allow_rules.length > 0 && button("Allow always", {
        may: may && !isLimited, why: may ? "Your token is limited to agents; a rule for always holds for all." : why,
        onclick: () => decide(approval.call, "allow", { scope: "always" }, "Such calls are allowed always."),
      }),
      button("Deny", { kind: "danger", may, why, onclick: () => decide(approval.call, "deny", undefined, "The call is denied.") }),
      rules && h("p", { class: "hint" }, "For the run or always, this rule is added: ", code(rules)));
  }

  return {
    title: "Approvals",
    async load() {
      items = await get("/v1/approvals", {}, view.signal);
      context.approvals = items.length;
    },
    onEvent: (event) => ["approval.requested", "approval.answered", "run.ended", "run.stopping"].includes(event.kind),
    onQuery() { view.redraw(); },
    draw() {
      if (!items) return loading();
      if (!items.length) return empty("Nothing waits for you.", "Which calls need your approval is set by ", code("policy.ask"), ", and who is asked by ", code("approvals.approver"), ".");
      const chosen = view.place.query.get("call");
      const sorted = chosen ? [...items].sort((a, b) => (b.call === chosen) - (a.call === chosen)) : items;
      return h("ul", { class: "cards" }, sorted.map((approval) => h("li", { "data-key": approval.call },
        section(approval.wants_text ? "A model asks you" : approval.before_start ? "May this call run?" : "Did this call happen?", { key: approval.call },
          h("p", { class: "meta" }, state("parked", approval.wants_text ? "question" : approval.before_start ? "approval" : "in doubt"), " · asked ", time(approval.since), " · denied without an answer ", clock(approval.expires_at), " · ", runLink(approval.run, "the run")),
          block(approval.question, { class: "question" }),
          approval.wants_text ? answerForm(approval) : verdicts(approval)))));
    },
  };
}

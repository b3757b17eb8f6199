// What waits for a person, and the answers. A card stays in its place after its answer, so that no button of another card
// comes under the pointer by itself.

import { announce, h } from "./dom.js";
import { get, pathOf, send } from "./api.js";
import { clock, duration, excerpt, ms, state } from "./format.js";
import { block, button, code, empty, facts, loading, runLink, scopeReason, section } from "./parts.js";

const KINDS = new Set(["approval.requested", "approval.answered", "run.ended", "run.stopping"]);
const GONE = "No answer is needed any more: it was given elsewhere, its time was over, or the run has ended.";

/** Milliseconds for which a card waits to be asked for again. */
const GONE_AFTER = 3_000;

/** The choices at the end of a question: lines that are numbered from 1. */
function choicesOf(question) {
  const lines = question.split("\n");
  for (let from = 1; from < lines.length; from += 1) {
    const rest = lines.slice(from).map((line, n) => (line.startsWith(`${n + 1}. `) ? line.slice(`${n + 1}. `.length).trim() : ""));
    if (rest.every(Boolean)) return rest;
  }
  return [];
}

function end(card, words) {
  Object.assign(card, { answer: words, answeredAt: Date.now() });
}

/** The cards of a view, in the order in which they came. */
export class ApprovalCards {
  /** `isMine` says which approvals a view of one run or session shows; without it, it shows all. The tasks of runs for which
   *  `isOwn` is true are on the page already. */
  constructor(view, isMine = () => true, isOwn = () => false) {
    Object.assign(this, { view, isMine, isOwn, cards: new Map(), runs: new Map() });
  }

  get all() { return [...this.cards.values()]; }
  get open() { return this.all.filter((card) => !card.answer); }

  /** Reads what waits; a card that `first` names is put first if there are none yet. Returns the number of all that wait. */
  async load(first = null) {
    const { signal } = this.view;
    const items = await get("/v1/approvals", {}, signal);
    const mine = items.filter(this.isMine);
    const unknown = [...new Set(mine.filter((item) => !this.isOwn(item)).map((item) => item.run))].filter((id) => !this.runs.has(id));
    await Promise.all(unknown.map(async (id) => {
      try {
        this.runs.set(id, await get(pathOf("runs", id), {}, signal));
      } catch (error) {
        if (![403, 404].includes(error.status)) throw error;
        this.runs.set(id, null);
      }
    }));
    if (first && !this.cards.size) mine.sort((a, b) => (b.call === first) - (a.call === first));
    for (const approval of mine) {
      const known = this.cards.get(approval.call);
      // What has ended waits again if it was asked for once more, as after a crash.
      if (known) Object.assign(known, { approval, answer: known.answer === GONE ? null : known.answer }); else this.cards.set(approval.call, { approval, answer: null, error: null, isSending: false });
    }
    const waiting = new Set(mine.map((item) => item.call));
    for (const card of this.open) {
      if (waiting.has(card.approval.call) || card.isSending) card.missingSince = null;
      else if (card.missingSince && Date.now() - card.missingSince >= GONE_AFTER) end(card, GONE);
      else this.lookAgain(card);
    }
    return items.length;
  }

  /** A run that goes on after one answer may ask its other questions again. */
  lookAgain(card) {
    if (!card.missingSince) setTimeout(() => this.view.refresh(), GONE_AFTER + 100);
    card.missingSince ??= Date.now();
  }

  /** Takes the answered cards away. */
  clear() {
    for (const card of this.all) if (card.answer) this.cards.delete(card.approval.call);
    this.view.redraw();
  }

  async decide(card, verb, body, words) {
    if (card.isSending || card.answer) return;
    const { call } = card.approval;
    Object.assign(card, { isSending: true, error: null });
    this.view.redraw();
    try {
      await send("POST", pathOf("approvals", call, verb), body);
      end(card, words);
      announce(words);
    } catch (error) {
      card.error = error.status === 409 ? GONE : `${error.message}. Try again.`;
    }
    card.isSending = false;
    this.view.redraw();
    // The button that was used is there no more.
    if (card.answer && document.activeElement === document.body) document.getElementById(`answered-${call}`)?.focus({ preventScroll: true });
    this.view.refresh();
  }

  draw(chosen = null) {
    return h("ul", { class: "cards", "data-key": "cards" }, this.all.map((card) => {
      const { approval } = card;
      return h("li", { "data-key": approval.call, class: [approval.call === chosen && "chosen"] },
        section(approval.wants_text ? "A model asks you" : approval.before_start ? "May this call run?" : "Did this call happen?", { key: approval.call },
          this.about(card),
          block(approval.question, { class: "question", id: `question-${approval.call}` }),
          h("div", { class: ["verdict", card.answer && "answered"] },
            h("div", { class: "verdict-ask", "aria-busy": card.isSending ? "true" : null }, approval.wants_text ? this.answerForm(card) : this.verdicts(card)),
            card.answer && h("p", { class: "verdict-answer", id: `answered-${approval.call}`, tabindex: "-1" }, state(card.answer === GONE ? "skipped" : "ran", card.answer))),
          card.error && h("p", { class: "error", role: "alert" }, card.error)));
    }));
  }

  /** Facts of a card; an answer changes none, so that it moves nothing. */
  about({ approval, answeredAt }) {
    const run = this.runs.get(approval.run);
    return facts([
      ["Task", !this.isOwn(approval) && runLink(approval.run, (run && excerpt(run.input, 160)) || "the run"), "wide"],
      ["Agent", run?.agent], ["Folder", run?.spec && code(run.spec.workspace)], 
      ["Has waited", duration((answeredAt ?? Date.now()) - ms(approval.since))], ["Denied without an answer", clock(approval.expires_at)],
    ].filter(([, value]) => value));
  }

  answerForm(card) {
    const { call, question } = card.approval;
    const may = this.view.context.may("approve");
    const id = `answer-${call}`;
    const answer = (text) => this.decide(card, "answer", { text }, `Answered: ${excerpt(text, 100)}`);
    const choices = choicesOf(question);
    return [
      choices.length > 0 && h("div", { class: "row" }, choices.map((choice) => button(excerpt(choice, 80), { may, why: scopeReason("approve"), onclick: () => answer(choice) }))),
      h("form", {
        class: "row",
        onsubmit: (event) => {
          event.preventDefault();
          const text = event.target.querySelector("textarea").value;
          if (!may) return;
          if (text.trim()) return answer(text);
          card.error = "There is no answer yet: write one first.";
          this.view.redraw();
        },
      },
      h("label", { class: "grow", for: id }, h("span", {}, "Your answer"), h("textarea", {
        id, rows: 2, disabled: !may, "aria-describedby": `question-${call}`, "aria-keyshortcuts": "Control+Enter",
        onkeydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); event.target.form.requestSubmit(); } },
      })),
      h("button", { class: "primary", disabled: !may, title: may ? null : scopeReason("approve") }, "Answer")),
    ];
  }

  verdicts(card) {
    const { call, allow_rules: rules } = card.approval;
    const { context } = this.view;
    const may = context.may("approve");
    const why = scopeReason("approve");
    const isLimited = context.token.agents !== null;
    const about = `question-${call}`;
    const allow = (scope, words) => () => this.decide(card, "allow", { scope }, words);
    return h("div", { class: "row" },
      button("Allow once", { kind: "primary", may, why, about, onclick: allow("once", "Allowed once.") }),
      rules.length > 0 && button("Allow for this run", { may, why, about, onclick: allow("run", "Allowed, as are such calls of this run.") }),
      rules.length > 0 && button("Allow always", {
        may: may && !isLimited, why: may ? "Your token is limited to agents; a rule for always holds for all." : why, about,
        onclick: allow("always", "Allowed, as are such calls always."),
      }),
      button("Deny", { kind: "danger", may, why, about, onclick: () => this.decide(card, "deny", undefined, "Denied.") }),
      rules.length > 0 && h("p", { class: "hint" }, "For the run or always, this rule is added: ", code(rules.join(", "))));
  }
}

export function approvals(view) {
  const cards = new ApprovalCards(view);
  let isLoaded = false;
  const chosen = () => view.place.query.get("call");

  return {
    title: "Approvals",
    async load() {
      view.context.approvals = await cards.load(chosen());
      isLoaded = true;
    },
    onEvent: (event) => KINDS.has(event.kind),
    onQuery() { view.redraw(); },
    // It is there from the beginning, so that it moves nothing when it is of use.
    tools: () => cards.all.length > 0 && button("Clear what is answered", { may: cards.all.length > cards.open.length, why: "Nothing is answered yet.", onclick: () => cards.clear() }),
    draw() {
      if (!isLoaded) return loading();
      return [
        cards.draw(chosen()),
        cards.open.length === 0 && empty(cards.all.length ? "Nothing else waits for you." : "Nothing waits for you.", "Which calls need your approval is set by ", code("policy.ask"), ", and who is asked by ", code("approvals.approver"), "."),
      ];
    },
  };
}
